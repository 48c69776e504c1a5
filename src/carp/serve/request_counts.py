"""Counts of requests and of what the service is made of, in the text form of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

STATUSES = (200, 304, 400, 401, 403, 404, 405, 408, 409, 413, 414, 421, 422, 429, 431, 499, 500, 503)
CLIENT_LEFT = 499  # of a request whose client did not wait for the answer; nobody receives it
OTHER = "other"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)  # seconds
Measure = tuple[str, str, str, float]  # name, kind, what it is, value


class Counters:
    """Requests by route and status, and how long they took.

    >>> counters = Counters(["/health"])
    >>> counters.count("/health", 200, 0.004)
    >>> [line for line in counters.text().splitlines() if line.startswith("carp_requests_total")]
    ['carp_requests_total{route="/health",status="200"} 1']
    """

    def __init__(self, routes: Sequence[str]) -> None:
        self.routes = [*dict.fromkeys(routes), OTHER]
        self.measures: Callable[[], Iterable[Measure]] = lambda: ()  # of the parts of the service, when asked
        self._statuses: dict[tuple[str, str], int] = {}
        self._buckets = {route: [0] * (len(BUCKETS) + 1) for route in self.routes}
        self._seconds = dict.fromkeys(self.routes, 0.0)

    def count(self, route: str, status: int, seconds: float) -> None:
        route = route if route in self._buckets else OTHER
        key = route, str(status) if status in STATUSES else OTHER
        self._statuses[key] = self._statuses.get(key, 0) + 1
        self._buckets[route][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds

    def text(self) -> str:
        """All counts and measures."""
        lines = [
            "# HELP carp_requests_total Requests answered, by route and status. 499: the client did not wait.",
            "# TYPE carp_requests_total counter",
        ]
        for (route, status), value in sorted(self._statuses.items()):
            lines.append(f'carp_requests_total{{route="{route}",status="{status}"}} {value}')
        failed = sum(value for (_, status), value in self._statuses.items() if status == "500")
        lines += [
            "# HELP carp_errors_total Requests that the service failed to answer (status 500).",
            "# TYPE carp_errors_total counter",
            f"carp_errors_total {failed}",
            "# HELP carp_request_seconds Time from a request's arrival in the app to the end of its answer.",
            "# TYPE carp_request_seconds histogram",
        ]
        for route in self.routes:
            lines += _histogram(route, self._buckets[route], self._seconds[route])
        for name, kind, what, measured in self.measures():
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}", f"{name} {measured:.15g}"]
        return "\n".join([*lines, ""])


def _histogram(route: str, counts: list[int], seconds: float) -> list[str]:
    if not any(counts):
        return []
    name = f'carp_request_seconds_bucket{{route="{route}",le='
    lines, below = [], 0
    for edge, number in zip((*map("{:g}".format, BUCKETS), "+Inf"), counts, strict=True):
        below += number
        lines.append(f'{name}"{edge}"}} {below}')
    lines.append(f'carp_request_seconds_sum{{route="{route}"}} {seconds:.6f}')
    return [*lines, f'carp_request_seconds_count{{route="{route}"}} {below}']
