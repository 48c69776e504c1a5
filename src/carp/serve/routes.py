"""The routes: each asks an engine and answers JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response

import carp
from carp.errors import CarpError
from carp.serve import problem_answers
from carp.serve import response_models as answers
from carp.serve.access_control import AccessRules, RateLimit, check_administrator
from carp.serve.engine_messages import ANSWERED_BY, Loaded
from carp.serve.engine_pool import Engine
from carp.serve.log_lines import LogLines
from carp.serve.middleware import RequestMiddleware
from carp.serve.openapi_document import describe
from carp.serve.page_files import INDEX, docs_page, page_files
from carp.serve.problems import Problem, echo, no_room
from carp.serve.request_counts import Counters
from carp.serve.request_models import (
    AudienceQuery,
    CategorySearch,
    CompareQuery,
    Newcomer,
    Nothing,
    PairQuery,
    PeriodQuery,
    Predict,
    RecommendQuery,
    ResultsQuery,
    Search,
    SummaryQuery,
    ThingSearch,
)

if TYPE_CHECKING:
    from carp.recommender import Recommender

AT_ONCE = 50  # pairs of a batch rated in one turn: others come in between
QUIET = {"tracing": False, "metrics": False, "logs": False}  # nothing is reported to anybody outside
SMALLEST_PACKED = 1_000  # bytes: what is smaller is sent as it is
PACKED_LEVEL = 5  # higher ones take longer than they save
METRICS = "text/plain; version=0.0.4; charset=utf-8"

None_ = Annotated[Nothing, Query()]


def make_app(
    recommender: Recommender,
    results: Path | None = None,
    *,
    log: LogLines | None = None,
    pictures: Sequence[str] = (),
) -> FastAPI:
    """The service for a fitted recommender, answering in this process."""
    from carp.serve.local_engine import LocalEngine

    return app_for(LocalEngine(recommender, results), log=log, pictures=pictures)


def app_for(
    engine: Engine,
    *,
    rules: AccessRules | None = None,
    limit: RateLimit | None = None,
    log: LogLines | None = None,
    metrics_here: bool = True,
    pictures: Sequence[str] = (),
) -> FastAPI:
    """The service in front of an engine."""
    rules, limit, log = rules or AccessRules(), limit or RateLimit(0), log or LogLines(None)
    app = _bare_app()
    _find(app, engine)
    _rate(app, engine)
    _explain(app, engine)
    _own(app, engine)
    _tell(app, engine)
    _watch(app, engine)
    _administer(app, engine)
    _page(app, pictures)
    counters = Counters([*(str(getattr(route, "path", "")) for route in app.routes), "/metrics"])
    app.state.counters = counters
    if metrics_here:
        _count(app, counters)
    described = cache(lambda: describe(app, key=rules.key is not None))
    app.openapi = described  # type: ignore[method-assign]
    around: dict[str, Any] = {"engine": engine, "counters": counters, "rules": rules, "limit": limit, "log": log}
    app.add_middleware(GZipMiddleware, minimum_size=SMALLEST_PACKED, compresslevel=PACKED_LEVEL)
    app.add_middleware(RequestMiddleware, **around, pictures=pictures)  # the last one added is around all others
    return app


def watching_app(engine: Engine, counters: Counters, rules: AccessRules, log: LogLines) -> FastAPI:
    """Metrics and health alone, for a port of their own; that port asks for no key."""
    app = _bare_app()
    _watch(app, engine)
    _count(app, counters)
    rules = AccessRules(rules.names, rules.any_number)
    own = Counters([])
    app.add_middleware(RequestMiddleware, engine=engine, counters=own, rules=rules, limit=RateLimit(0), log=log)
    return app


def _bare_app() -> FastAPI:
    extra: dict[str, Any] = {"telemetry": QUIET}
    app = FastAPI(
        title="carp",
        version=carp.__version__,
        summary="Predicted ratings with their reasons.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **extra,
    )
    problem_answers.install(app)
    return app


class TableResponse(Response):
    media_type = "text/csv"


def answered(value: Any) -> Response:
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return Response(body, media_type="application/json")


def _find(app: FastAPI, engine: Engine) -> None:
    @app.get("/api/users", summary="People, by id or by the text of their reviews", response_model=answers.UsersAnswer)
    async def users(query: Annotated[Search, Query()]) -> Response:
        return answered(await engine.ask("users", query.q, query.limit, query.offset))

    @app.get("/api/items", summary="Things, by id or by the text of their reviews", response_model=answers.ItemsAnswer)
    async def items(query: Annotated[ThingSearch, Query()]) -> Response:
        return answered(await engine.ask("items", query.q, query.limit, query.offset, query.category))

    @app.get(
        "/api/categories",
        summary="Categories of things, those of most things first",
        response_model=answers.CategoriesAnswer,
    )
    async def categories(query: Annotated[CategorySearch, Query()]) -> Response:
        return answered(await engine.ask("categories", query.q, query.limit))


def _rate(app: FastAPI, engine: Engine) -> None:
    @app.post("/api/predict", summary="Ratings of one pair or of many", response_model=answers.PredictAnswer)
    async def predict(body: Predict) -> Response:
        asked = body.asked()
        parts = await _asked_in_parts(engine, [asked[n : n + AT_ONCE] for n in range(0, len(asked), AT_ONCE)])
        return answered(b'{"predictions":[' + b",".join(part[1:-1] for part in parts) + b"]}")

    @app.get(
        "/api/recommend",
        summary="Things that suit a person, with a reason each",
        response_model=answers.RecommendAnswer,
    )
    async def recommend(query: Annotated[RecommendQuery, Query()]) -> Response:
        return answered(await engine.ask("recommend", query.user, query.n, query.wishes()))

    @app.post(
        "/api/newcomer",
        summary="Ratings, reasons and recommendations for somebody known only by pasted reviews",
        response_model=answers.NewcomerAnswer,
    )
    async def newcomer(body: Newcomer) -> Response:
        return answered(await engine.ask("newcomer", body.reviews, body.items, body.explain, body.n, body.wishes()))


async def _asked_in_parts(engine: Engine, parts: Sequence[Sequence[Any]]) -> list[bytes]:
    """Ratings of all parts by one model: where another one comes in between, all are asked again."""
    while True:
        found, models = [], set()
        for part in parts:
            found.append(await engine.ask("predict", *part))
            models.add(id(ANSWERED_BY.get()))
        if len(models) <= 1:
            return found


def _explain(app: FastAPI, engine: Engine) -> None:
    @app.get("/api/explain", summary="Why a person would rate a thing so", response_model=answers.ExplainAnswer)
    async def explain(query: Annotated[PairQuery, Query()]) -> Response:
        return answered(await engine.ask("explain", query.user, query.item))

    @app.get("/api/compare", summary="Two things for one person", response_model=answers.CompareAnswer)
    async def compare(query: Annotated[CompareQuery, Query()]) -> Response:
        return answered(await engine.ask("compare", query.user, query.first, query.second))

    @app.get(
        "/api/users/{user:path}/profile",
        summary="A person's viewpoints, with phrases and sentences",
        response_model=answers.PersonAnswer,
    )
    async def person(user: str, query: None_) -> Response:
        return answered(await engine.ask("person", user))

    @app.get(
        "/api/items/{item:path}/profile",
        summary="What the raters of a thing like and dislike about it",
        response_model=answers.ThingAnswer,
    )
    async def thing(item: str, query: None_) -> Response:
        return answered(await engine.ask("thing", item))

    @app.get(
        "/api/items/{item:path}/summary",
        summary="The sentences about a thing that matter to one person",
        response_model=answers.SummaryAnswer,
    )
    async def summary(item: str, query: Annotated[SummaryQuery, Query()]) -> Response:
        return answered(await engine.ask("summary", query.user, item, query.n))

    @app.get(
        "/api/items/{item:path}/audience",
        summary="People whom a thing would suit",
        response_model=answers.AudienceAnswer,
    )
    async def suited(item: str, query: Annotated[AudienceQuery, Query()]) -> Response:
        return answered(await engine.ask("audience", item, query.n))


def _own(app: FastAPI, engine: Engine) -> None:
    """What an owner asks."""

    @app.get(
        "/api/overview",
        summary="Praise and complaints, things at risk, things loved by few, people who left",
        response_model=answers.OverviewAnswer,
    )
    async def overview(query: Annotated[PeriodQuery, Query()]) -> Response:
        return answered(await engine.ask("overview", *query.days()))

    @app.get("/api/overview.csv", summary="The same as a table", response_class=TableResponse)
    async def overview_table(query: Annotated[PeriodQuery, Query()]) -> Response:
        body = await engine.ask("overview_table", *query.days())
        named = {"content-disposition": 'attachment; filename="overview.csv"'}
        return TableResponse(body, headers=named)


def _tell(app: FastAPI, engine: Engine) -> None:
    @app.get("/api/about", summary="What is served", response_model=answers.AboutAnswer)
    async def tell_about(query: None_) -> Response:
        return answered(_facts(engine).about)

    @app.get(
        "/api/results",
        summary="Tables and plots of the benchmark, if there are any: the first sections, or one by its number",
        response_model=answers.ResultsAnswer,
    )
    async def tell_results(query: Annotated[ResultsQuery, Query()]) -> Response:
        return answered(await engine.ask("results", query.section))

    @app.get("/version", summary="Its version and the model that is served", response_model=answers.VersionAnswer)
    async def version(query: None_) -> Response:
        facts = _facts(engine)
        return answered({"version": carp.__version__, "model": facts.model, "bundle": facts.bundle})

    description: Callable[[], bytes] = cache(lambda: msgspec.json.encode(app.openapi()))
    docs: Callable[[], bytes] = cache(lambda: docs_page(app.openapi()))

    @app.get("/openapi.json", include_in_schema=False)
    async def tell_description() -> Response:
        return answered(description())  # written once: it takes as long as ten other answers

    @app.get("/docs", include_in_schema=False)
    async def tell_docs() -> Response:
        return Response(docs(), media_type="text/html")


def _facts(engine: Engine) -> Loaded:
    if engine.facts is None:
        raise no_room("the model is still being loaded", 2)
    ANSWERED_BY.set(engine.facts)
    return engine.facts


def _watch(app: FastAPI, engine: Engine) -> None:
    @app.get("/health", summary="Whether the service is there", response_model=answers.HealthAnswer)
    async def health(query: None_) -> Response:
        return answered({"status": "ok"})

    @app.get("/healthz", summary="The same as /health", response_model=answers.HealthAnswer)
    async def healthz(query: None_) -> Response:
        return answered({"status": "ok"})

    @app.get("/ready", summary="Whether requests are answered now", response_model=answers.ReadyAnswer)
    async def ready(query: None_) -> Response:
        if not engine.ready:
            raise no_room("the model is still being loaded, or the service stops", 2)
        return answered({"status": "ready", "engines": engine.alive})


def _administer(app: FastAPI, engine: Engine) -> None:
    @app.post("/admin/reload", include_in_schema=False)
    async def reload(request: Request) -> Response:
        check_administrator(request.headers, (request.client.host if request.client else ""))
        before = engine.facts
        try:
            facts = await engine.reload()
        except CarpError as error:
            raise Problem(
                409,
                f"the model at its place cannot be served, and the one of before goes on: {error.what}",
                fix=error.fix,
                kind="not-reloaded",
            ) from error
        return answered({"model": facts.model, "bundle": facts.bundle, "loaded": facts is not before})


def _count(app: FastAPI, counters: Counters) -> None:
    @app.get(
        "/metrics",
        summary="Counts and measures in the text form of Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics(query: None_) -> Response:
        return Response(counters.text(), media_type=METRICS)


def _page(app: FastAPI, pictures: Sequence[str]) -> None:
    files = page_files(pictures)

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
