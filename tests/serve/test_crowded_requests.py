"""Addresses, headers and bodies with far more in them than anybody needs are refused before they take time."""

from __future__ import annotations

import json

import pytest
from starlette import requests
from starlette.datastructures import ImmutableMultiDict

from carp.serve import problem_answers
from carp.serve.problem_answers import MOST_TOLD
from carp.serve.request_models import MOST_PAIRS, MOST_UNKNOWN, RecommendQuery
from carp.serve.request_reading import MOST_NAMES, MOST_PARAMETERS

ADDRESSES = ["/health", "/healthz", "/ready", "/version", "/metrics", "/api/about", "/api/users", "/api/recommend"]
MANY_NAMES = "&".join(f"{n:x}=" for n in range(5_000))
MANY_AGAIN = "&".join(f"{n % MOST_NAMES:x}=" for n in range(10_000))
ONE_TOO_MANY = "&".join(f"{n:x}=" for n in range(MOST_NAMES + 1))
AS_MANY_AS_MAY_BE = "&".join(f"{n % MOST_NAMES:x}=" for n in range(MOST_PARAMETERS))
UNKNOWN = {f"unknown-{n}": n for n in range(20_000)}


@pytest.fixture
def looked_through(monkeypatch):
    """How many parameters were looked through, each time that the framework went through all of them."""
    numbers, original = [], ImmutableMultiDict.getlist

    def noting(self, key):
        numbers.append(len(self._list))
        return original(self, key)

    monkeypatch.setattr(ImmutableMultiDict, "getlist", noting)
    return numbers


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("query", [MANY_NAMES, MANY_AGAIN, ONE_TOO_MANY, AS_MANY_AS_MAY_BE])
def test_no_address_takes_time_by_the_square_of_its_parameters(client, looked_through, address, query):
    answer = client.get(f"{address}?{query}")
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "urn:carp:fields"
    assert problem["fix"]
    assert len(answer.content) < 3_000
    assert sum(looked_through) <= (MOST_NAMES + 1) * MOST_PARAMETERS
    if query != AS_MANY_AS_MAY_BE:
        assert not looked_through, "it is refused before that"
        head = client.head(f"{address}?{query}")
        assert (head.status_code, head.content) == (422, b"")


def test_as_many_things_to_choose_among_as_may_be_find_room_in_an_address(client):
    others = {"user": "person-010", "n": 3, "by": "taste", "diversity": 0.1, "min_reviews": 0}
    assert set(RecommendQuery.model_fields) == {*others, "among", "category"}
    assert len(RecommendQuery.model_fields) + MOST_PAIRS <= MOST_PARAMETERS
    answer = client.get("/api/recommend", params={**others, "among": ["thing-005"] * MOST_PAIRS})
    assert answer.status_code == 200


def test_cookies_are_never_read(client, monkeypatch):
    """Nobody asks for them, and some versions of Python take time by the square of their length."""
    read, original = [], requests.cookie_parser
    monkeypatch.setattr(requests, "cookie_parser", lambda given: read.append(given) or original(given))
    for address in ("/health", "/ready", "/api/about", "/api/users", "/static/app.js", "/"):
        assert client.get(address, headers={"cookie": 'a="\\\\\\\\"'}).status_code == 200
    assert not read


@pytest.mark.parametrize(
    ("address", "body", "named"),
    [
        ("/api/predict", UNKNOWN, "unknown-0"),
        ("/api/predict", {"user": "a", "item": "b", **UNKNOWN}, "unknown-0"),
        ("/api/predict", {"pairs": [{"user": "a", "item": "b", **UNKNOWN}]}, "pairs.0.unknown-0"),
        ("/api/newcomer", {"reviews": ["light"], **UNKNOWN}, "unknown-0"),
    ],
)
def test_a_body_of_unknown_names_is_looked_at_up_to_a_few_of_them(client, monkeypatch, address, body, named):
    found, original = [], problem_answers.validation_problem
    monkeypatch.setattr(
        problem_answers, "validation_problem", lambda errors: found.append(len(errors)) or original(errors)
    )
    answer = client.post(address, json=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["fields"][named] == "is not known"
    assert len(problem["fields"]) == MOST_TOLD
    assert problem["detail"].endswith(f"; and others: these are the first {MOST_TOLD}")
    assert len(answer.content) < 3_000
    assert found[0] <= MOST_UNKNOWN + 3


def test_an_answer_lists_all_faults_where_they_are_few(client):
    names = [f"unknown-{n}" for n in range(MOST_TOLD)]
    problem = client.get("/health", params=dict.fromkeys(names, "")).json()
    assert list(problem["fields"]) == names
    assert problem["detail"] == "; ".join(f"{name} is not known" for name in names)


def test_known_names_are_read_wherever_they_stand_among_unknown_ones(client):
    """What is missing is not said to be."""
    body = json.dumps({**UNKNOWN, "user": 7, "item": "thing-005"})
    fields = client.post("/api/predict", content=body, headers={"content-type": "application/json"}).json()["fields"]
    assert fields["user"] == "must be text"
    assert "item" not in fields
