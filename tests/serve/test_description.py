"""The OpenAPI document is true: whatever it allows is answered as it says, and what it forbids is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from pydantic import ConfigDict, TypeAdapter, create_model
from schemathesis.generation import GenerationMode

import torture_serve
from carp.explain.explainer import AspectOpinion, SharedViewpoint, SummarySentence
from carp.explain.explanation import Explanation
from carp.explain.profiles import PersonProfile, Summary, ThingProfile
from carp.serve import response_models as answers

EXAMPLES = 6  # an operation and mode; `make torture-serve` asks a thousand


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def schema(client):
    """What is larger than any request may be is refused as such, which schemathesis takes for no refusal by itself."""
    config = schemathesis.Config.from_str(torture_serve.MAY_BE_TOO_LARGE)
    return schemathesis.openapi.from_asgi("/openapi.json", client.app, config=config)


def operations(schema):
    return {operation.label: operation for operation in (one.ok() for one in schema.get_all_operations())}


def times_answered_as_described(operation, mode):
    """How often an operation was asked with generated data; an answer that is not as described fails."""
    asked = []

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck), database=None)
    def ask(case):
        case.validate_response(case.call())
        asked.append(case)

    ask()
    return len(asked)


def test_whatever_the_description_allows_is_answered_as_it_says(schema):
    found = {
        label: times_answered_as_described(operation, GenerationMode.POSITIVE)
        for label, operation in operations(schema).items()
    }
    assert len(found) == 21
    assert all(found.values())


@pytest.mark.parametrize("label", ["POST /api/predict", "POST /api/newcomer", "GET /api/users", "GET /api/explain"])
def test_whatever_the_description_forbids_is_refused(schema, label):
    assert times_answered_as_described(operations(schema)[label], GenerationMode.NEGATIVE)


def test_every_operation_declares_every_status_with_what_its_body_holds(document):
    for path, methods in document["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            assert {"200", "400", "405", "408", "413", "414", "421", "422", "429", "431", "500", "503"} <= set(
                responses
            )
            for status, response in responses.items():
                (kind,) = response["content"]
                assert (kind == "application/problem+json") == (status != "200"), (path, status)
                assert response["content"][kind]["schema"]
                assert "x-request-id" in response["headers"]
            assert "retry-after" in responses["503"]["headers"]


@pytest.mark.parametrize(
    ("model", "kind", "more"),
    [
        (answers.ExplainAnswer, Explanation, {"prevailing", "little_known", "told", "facts"}),
        (answers.PersonAnswer, PersonProfile, set()),
        (answers.ThingAnswer, ThingProfile, {"facts"}),
        (answers.OpinionShown, AspectOpinion, set()),
        (answers.SharedViewpointShown, SharedViewpoint, set()),
        (answers.SummaryAnswer, Summary, set()),
        (answers.SummarySentenceShown, SummarySentence, set()),
    ],
)
def test_described_answers_have_the_fields_of_what_is_answered(model, kind, more):
    assert set(model.model_fields) == {one.name for one in fields(kind)} | more


def test_answers_hold_every_field_that_is_described_and_no_other(client, recommender):
    user, item, other = recommender.fitted_corpus.users[7], *list(recommender.fitted_corpus.items)[4:6]
    asked = {
        answers.UsersAnswer: client.get("/api/users", params={"q": "battery"}),
        answers.ItemsAnswer: client.get("/api/items"),
        answers.ExplainAnswer: client.get("/api/explain", params={"user": user, "item": item}),
        answers.RecommendAnswer: client.get("/api/recommend", params={"user": user}),
        answers.CompareAnswer: client.get("/api/compare", params={"user": user, "first": item, "second": other}),
        answers.PersonAnswer: client.get(f"/api/users/{quote(user, safe='')}/profile"),
        answers.ThingAnswer: client.get(f"/api/items/{quote(item, safe='')}/profile"),
        answers.SummaryAnswer: client.get(f"/api/items/{quote(item, safe='')}/summary", params={"user": user}),
        answers.PredictAnswer: client.post("/api/predict", json={"user": user, "item": item}),
        answers.NewcomerAnswer: client.post("/api/newcomer", json={"reviews": ["so light"], "explain": item}),
        answers.AudienceAnswer: client.get(f"/api/items/{quote(item, safe='')}/audience"),
        answers.CategoriesAnswer: client.get("/api/categories"),
        answers.OverviewAnswer: client.get("/api/overview"),
        answers.AboutAnswer: client.get("/api/about"),
        answers.HealthAnswer: client.get("/health"),
        answers.ReadyAnswer: client.get("/ready"),
        answers.VersionAnswer: client.get("/version"),
    }
    for model, answer in asked.items():
        holds_what_is_described(answer, model)


def holds_what_is_described(answer, model):
    assert answer.status_code == 200, answer.text
    strict = create_model("Strict", __base__=model, __config__=None)
    strict.model_config = ConfigDict(extra="forbid")
    strict.model_rebuild(force=True)
    TypeAdapter(strict).validate_json(answer.content)
    assert set(json.loads(answer.content)) == set(model.model_fields)


def test_a_rating_that_is_a_sum_is_answered_as_described(client_of, document):
    client = client_of("meeting")
    user, item, other = "person-007", "thing-004", "thing-005"
    explained = client.get("/api/explain", params={"user": user, "item": item})
    holds_what_is_described(explained, answers.ExplainAnswer)
    compared = client.get("/api/compare", params={"user": user, "first": item, "second": other})
    holds_what_is_described(compared, answers.CompareAnswer)
    told = explained.json()["told"]
    assert told["sum"]
    assert f"{sum(row['amount'] for row in told['sum']):.2f}" == f"{explained.json()['rating']:.2f}"
    schemas = document["components"]["schemas"]
    assert {"Told", "SumRow", "FindingTold", "AspectFinding", "Part", "EarlierCase", "Meetings"} <= set(schemas)
    offers = client.get("/api/recommend", params={"user": user, "n": 3}).json()["recommendations"]
    assert all("without reasons" not in offer["reason"] for offer in offers)


def test_head_is_answered_like_get_without_the_body(client):
    for path in ("/", "/health", "/api/about", "/static/app.js", "/api/nothing"):
        whole, head = client.get(path), client.head(path)
        assert head.status_code == whole.status_code
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert head.content == b""
    assert client.head("/api/predict").status_code == 405
