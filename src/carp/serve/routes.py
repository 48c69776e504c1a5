"""The routes: each asks the answer service and answers JSON."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

import carp
from carp.errors import CarpError
from carp.serve import problems
from carp.serve.answer_service import AnswerService, encode
from carp.serve.middleware import RequestMiddleware
from carp.serve.page_files import INDEX, docs_page, page_files, result_sections
from carp.serve.problems import Problem, echo
from carp.serve.request_batching import RequestBatcher
from carp.serve.request_counts import Counters
from carp.serve.request_models import (
    CompareQuery,
    Newcomer,
    Nothing,
    PairQuery,
    Predict,
    RecommendQuery,
    Search,
    SummaryQuery,
)
from carp.serve.service_info import about
from carp.serve.work_queue import WorkQueue

if TYPE_CHECKING:
    from carp.recommender import Recommender

AT_ONCE = 50  # pairs of a batch rated in one turn: others come in between
EXPLAINED_AT_ONCE = 8
QUIET = {"tracing": False, "metrics": False, "logs": False}  # nothing is reported to anybody outside

None_ = Annotated[Nothing, Query()]


def make_app(recommender: Recommender, results: Path | None = None, *, workers: int = 1, warm: bool = False) -> FastAPI:
    """The service for a fitted recommender; `warm` prepares now what the first requests would wait for."""
    service = AnswerService(recommender)
    if warm:
        service.warm()
    extra: dict[str, Any] = {"telemetry": QUIET}
    app = FastAPI(
        title="carp",
        version=carp.__version__,
        summary="Predicted ratings with their reasons.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **extra,
    )
    problems.install(app)
    queue = WorkQueue()
    _find(app, service, queue)
    _rate(app, service, queue)
    _explain(app, service, queue)
    _tell(app, service, queue, results, warm)
    _page(app)
    counters = Counters([*(str(getattr(route, "path", "")) for route in app.routes), "/metrics"], workers)
    app.state.counters = counters

    @app.get("/metrics", summary="Counts of requests in the text form of Prometheus, over all workers")
    async def metrics(query: None_) -> Response:
        return Response(counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_middleware(RequestMiddleware, counters=counters)
    return app


def answered(value: Any) -> Response:
    return Response(value if isinstance(value, bytes) else encode(value), media_type="application/json")


def _find(app: FastAPI, service: AnswerService, queue: WorkQueue) -> None:
    @app.get("/api/users", summary="People, by id or by the text of their reviews")
    async def users(query: Annotated[Search, Query()]) -> Response:
        work = lambda: service.search(service.users, "users", query.q, query.limit, query.offset)  # noqa: E731
        return answered(await queue.take(work))

    @app.get("/api/items", summary="Things, by id or by the text of their reviews")
    async def items(query: Annotated[Search, Query()]) -> Response:
        work = lambda: service.search(service.items, "items", query.q, query.limit, query.offset)  # noqa: E731
        return answered(await queue.take(work))


def _rate(app: FastAPI, service: AnswerService, queue: WorkQueue) -> None:
    together: RequestBatcher[dict[str, Any]] = RequestBatcher(service.predict)

    @app.post("/api/predict", summary="Ratings of one pair or of many")
    async def predict(body: Predict) -> Response:
        asked = body.asked()
        if len(asked) == 1:
            return answered({"predictions": [await together.ask(asked[0])]})
        rows: list[dict[str, Any]] = []
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            rows += await queue.take(lambda part=part: service.predict(part))  # type: ignore[misc]
        return answered({"predictions": rows})

    @app.get("/api/recommend", summary="Things that suit a person, with a reason each")
    async def recommend(query: Annotated[RecommendQuery, Query()]) -> Response:
        return answered(await queue.take(lambda: service.recommend(query.user, query.n)))

    @app.post("/api/newcomer", summary="Ratings, reasons and recommendations for somebody known only by pasted reviews")
    async def newcomer(body: Newcomer) -> Response:
        return answered(await queue.take(lambda: service.newcomer(body.reviews, body.items, body.explain, body.n)))


def _explain(app: FastAPI, service: AnswerService, queue: WorkQueue) -> None:
    together: RequestBatcher[bytes] = RequestBatcher(service.explain, queue=queue, most=EXPLAINED_AT_ONCE)

    @app.get("/api/explain", summary="Why a person would rate a thing so")
    async def explain(query: Annotated[PairQuery, Query()]) -> Response:
        return answered(await together.ask((query.user, query.item)))

    @app.get("/api/compare", summary="Two things for one person")
    async def compare(query: Annotated[CompareQuery, Query()]) -> Response:
        return answered(await queue.take(lambda: service.compare(query.user, query.first, query.second)))

    @app.get("/api/users/{user:path}/profile", summary="A person's viewpoints, with phrases and sentences")
    async def person(user: str, query: None_) -> Response:
        return answered(await queue.take(lambda: service.person(user)))

    @app.get("/api/items/{item:path}/profile", summary="What the raters of a thing like and dislike about it")
    async def thing(item: str, query: None_) -> Response:
        return answered(await queue.take(lambda: service.thing(item)))

    @app.get("/api/items/{item:path}/summary", summary="The sentences about a thing that matter to one person")
    async def summary(item: str, query: Annotated[SummaryQuery, Query()]) -> Response:
        return answered(await queue.take(lambda: service.summary(query.user, item, query.n)))


def _tell(app: FastAPI, service: AnswerService, queue: WorkQueue, results: Path | None, warm: bool) -> None:
    sections = cache(lambda: _sections(results))

    def has_results() -> bool:
        with suppress(Problem):  # who asks for them is told why there are none
            return bool(sections()["sections"])
        return False

    what = cache(lambda: {**about(service.recommender), "results": has_results()})
    if warm:
        what()

    @app.get("/api/about", summary="What is served")
    async def tell_about(query: None_) -> Response:
        return answered(what())

    @app.get("/api/results", summary="Tables and plots of the benchmark, if there are any")
    async def tell_results(query: None_) -> Response:
        return answered(await queue.take(sections))

    @app.get("/healthz", summary="Whether the service is there")
    async def health(query: None_) -> Response:
        return answered({"status": "ok"})

    @app.get("/version", summary="Its version")
    async def version(query: None_) -> Response:
        return answered({"version": carp.__version__, "model": service.recommender.name})

    docs: Callable[[], bytes] = cache(lambda: docs_page(app.openapi()))

    @app.get("/docs", include_in_schema=False)
    async def tell_docs() -> Response:
        return Response(docs(), media_type="text/html")


def _sections(results: Path | None) -> dict[str, Any]:
    fix = "start the service with --results and a folder made by carp bench"
    if results is None:
        raise Problem(404, "no results are served here", fix=fix, kind="no-results")
    try:
        return {"sections": result_sections(results)}
    except CarpError as error:
        raise Problem(404, "the folder of results holds none that can be read", fix=fix, kind="no-results") from error


def _page(app: FastAPI) -> None:
    files = page_files()

    def serve(request: Request, name: str) -> Response:
        if name not in files:
            raise Problem(404, f"there is no file {echo(name)}", kind="no-file")
        file = files[name]
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.kind, headers=headers)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return serve(request, INDEX)

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(request: Request, name: str) -> Response:
        return serve(request, name)
