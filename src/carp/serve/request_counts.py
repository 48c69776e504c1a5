"""Counts of requests, in memory that all workers of a service share; each writes to its own row only."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

STATUSES = (200, 304, 400, 404, 405, 409, 413, 422, 500, 503)
OTHER = "other"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)  # seconds


class Counters:
    """Requests by route and status, and how long they took.

    >>> counters = Counters(["/healthz"], workers=2)
    >>> counters.row = 1
    >>> counters.count("/healthz", 200, 0.004)
    >>> [line for line in counters.text().splitlines() if line.startswith("carp_requests_total")]
    ['carp_requests_total{route="/healthz",status="200"} 1']
    """

    def __init__(self, routes: Sequence[str], workers: int = 1) -> None:
        self.routes = [*dict.fromkeys(routes), OTHER]
        self.row = 0  # of this process
        shape = (workers, len(self.routes), len(STATUSES) + 1 + len(BUCKETS) + 2)
        shared = mmap.mmap(-1, 8 * int(np.prod(shape)))  # anonymous: it outlives a fork and dies with the service
        self._table = np.frombuffer(shared, dtype=np.float64).reshape(shape)
        self._places = {route: place for place, route in enumerate(self.routes)}

    def count(self, route: str, status: int, seconds: float) -> None:
        cells = self._table[self.row, self._places.get(route, len(self.routes) - 1)]
        cells[STATUSES.index(status) if status in STATUSES else len(STATUSES)] += 1
        first = len(STATUSES) + 1
        cells[first + bisect_left(BUCKETS, seconds)] += 1
        cells[-1] += seconds

    def text(self) -> str:
        """The sums over all workers in the text form of Prometheus."""
        total = self._table.sum(0)
        lines = [
            "# HELP carp_requests_total Requests answered, by route and status, of all workers.",
            "# TYPE carp_requests_total counter",
        ]
        names = [*map(str, STATUSES), OTHER]
        for route, cells in zip(self.routes, total, strict=True):
            for name, value in zip(names, cells, strict=False):
                if value:
                    lines.append(f'carp_requests_total{{route="{route}",status="{name}"}} {value:.0f}')
        lines += [
            "# HELP carp_errors_total Requests that the service failed to answer (status 500).",
            "# TYPE carp_errors_total counter",
            f"carp_errors_total {total[:, STATUSES.index(500)].sum():.0f}",
            "# HELP carp_request_seconds Time from a request's arrival in the app to the end of its answer.",
            "# TYPE carp_request_seconds histogram",
        ]
        for route, cells in zip(self.routes, total, strict=True):
            lines += _histogram(route, cells[len(STATUSES) + 1 : -1], float(cells[-1]))
        return "\n".join([*lines, "# TYPE carp_workers gauge", f"carp_workers {len(self._table)}", ""])


def _histogram(route: str, counts: np.ndarray[tuple[int], np.dtype[np.float64]], seconds: float) -> list[str]:
    sums = np.cumsum(counts)
    if not sums[-1]:
        return []
    name = f'carp_request_seconds_bucket{{route="{route}",le='
    lines = [f'{name}"{edge:g}"}} {value:.0f}' for edge, value in zip(BUCKETS, sums, strict=False)]
    lines.append(f'{name}"+Inf"}} {sums[-1]:.0f}')
    lines.append(f'carp_request_seconds_sum{{route="{route}"}} {seconds:.6f}')
    return [*lines, f'carp_request_seconds_count{{route="{route}"}} {sums[-1]:.0f}']
