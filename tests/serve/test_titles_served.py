"""The service answers with titles beside ids, and finds things by their titles."""

from __future__ import annotations

import polars
import pytest

import carp
from carp.serve.answer_service import AnswerService

SETTINGS = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1, "min_reviews": 1}
MARKED = '"><img src=x onerror=alert(1)> Zither'


@pytest.fixture(scope="module")
def service(single_thread):
    shop = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2)
    names = {"thing-001": "Zither of old", "thing-002": "An old Zither", "thing-003": MARKED, "thing-004": "Twin"}
    frame = polars.DataFrame([{**record, "name": names.get(record["item"])} for record in shop.records()])
    made = carp.Recommender("carp", device="cpu", **SETTINGS).fit(carp.read_reviews(frame), progress=False)
    return AnswerService(made)


def test_things_are_found_by_their_titles(service):
    found = service.search(service.items, "items", "zither", 10, 0)
    assert next(row["id"] for row in found["items"]) == "thing-001", "a title that begins so comes first"
    assert {row["id"]: row["title"] for row in found["items"]} == {
        "thing-001": "Zither of old",
        "thing-002": "An old Zither",
        "thing-003": MARKED,
    }
    assert found["total"] == 3
    assert [row["id"] for row in service.search(service.items, "items", "thing-004", 10, 0)["items"]] == ["thing-004"]
    everything = service.search(service.items, "items", "", 10, 0)["items"]
    assert {row["id"]: row["title"] for row in everything}["thing-005"] is None


def test_people_have_no_titles(service):
    assert {row["title"] for row in service.search(service.users, "users", "person", 50, 0)["users"]} == {None}


def test_every_answer_about_a_thing_has_its_title(service):
    user, title = service.corpus.users[0], "Zither of old"
    assert service.predict([(user, "thing-001"), (user, "unknown")])[0]["title"] == title
    assert service.predict([(user, "unknown")])[0]["title"] is None
    offers = service.recommend(user, 8)["recommendations"]
    assert [one["title"] for one in offers] == [service.recommender.title(one["item"]) for one in offers]
    both = service.compare(user, "thing-001", "thing-005")
    assert [row["title"] for row in both["items"]] == [title, None]
    assert f"would rate {title} (thing-001) " in both["verdict"]
    assert service.thing("thing-001")["title"] == service.summary(user, "thing-001", 3)["title"] == title
    told = service.newcomer(["A warm sound and light to carry."], ["thing-001"], "thing-001", 3)
    assert told["predictions"][0]["title"] == told["explanation"]["title"] == title
    assert all("title" in one for one in told["recommendations"])
