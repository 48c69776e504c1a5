"""What an owner asks: the overview finds what was planted, and what is known of things stands beside them."""

from __future__ import annotations

import csv
import io

import polars
import pytest
from starlette import testclient

import carp
from carp.errors import UsageError
from carp.serve.access_control import picture_origins
from carp.serve.answer_service import AnswerService
from carp.serve.problems import Problem
from carp.serve.routes import make_app

GOOD = "The sound is clear and warm, and the case feels very sturdy."
BAD = "The hinge broke after a week, and the sound is a terrible hiss."
DAY = 86_400
START = 1_600_000_000
PEOPLE = 24


def planted():
    """Twelve things of which one disappoints, one gets worse and one is loved by few; and one person who leaves."""
    rows = []
    for person in range(PEOPLE):
        for number in range(9):
            good = (person + number) % 3 > 0
            rows.append(row(f"p{person:02d}", f"t{number:02d}", 4 if good else 3, GOOD if good else BAD, person * 20))
        rows.append(row(f"p{person:02d}", "bad", 1, BAD, person * 20))
        worse = person >= PEOPLE // 2
        rows.append(row(f"p{person:02d}", "fading", 1 if worse else 5, BAD if worse else GOOD, person * 20))
    rows += [row(f"p{person:02d}", "gem", 5, GOOD, person * 20) for person in range(8)]
    rows += [
        row("gone", f"t{number:02d}", 5 if number < 4 else 1, GOOD if number < 4 else BAD, number)
        for number in range(5)
    ]
    return rows


def row(user, item, rating, text, day):
    own = f"{text} Bought by {user} as {item}."  # no two reviews are the same
    return {"user": user, "item": item, "rating": float(rating), "text": own, "time": START + day * DAY}


@pytest.fixture(scope="module")
def service(single_thread, tmp_path_factory):
    things = tmp_path_factory.mktemp("things") / "things.csv"
    titles = [("bad", "=Bad Thing", "Horns|horns"), ("gem", "Gem", "Drums"), ("t00", "Zero", "Drums")]
    lines = [f'{item},"{title}",{kinds},"About {title}",https://a.example/{item}.png' for item, title, kinds in titles]
    things.write_text("\n".join(["id,title,category,description,picture", *lines]))
    reviews = carp.read_reviews(polars.DataFrame(planted()))
    corpus = carp.build_corpus(reviews, items=carp.read_items(things), min_reviews=1)
    made = carp.Recommender("bias", device="cpu").fit(corpus, progress=False)
    return AnswerService(made)


def test_things_at_risk_are_those_that_disappoint_and_those_that_fade(service):
    at_risk = {one["item"]: one for one in service.overview(None, None)["at_risk"]}
    assert set(at_risk) == {"bad", "fading"}
    assert "rated 1.0 on average" in at_risk["bad"]["why"]
    assert "its newer reviews give it 1.0, its older ones" in at_risk["fading"]["why"]
    assert {sentence.text for sentence in at_risk["bad"]["sentences"]} == {BAD}


def test_things_loved_by_few_and_people_who_left_are_found(service):
    found = service.overview(None, None)
    assert found["loved_by_few"][0]["item"] == "gem"
    assert found["left"][0]["user"] == "gone"
    assert "the last rating was 1.0, and 5.0 was usual before" in found["left"][0]["why"]
    assert found["reviews"] + found["held_back"] == len(planted())


def test_a_period_counts_its_own_reviews_alone(service):
    later = service.overview("2021-01-01", None)
    assert later["reviews"] < service.overview(None, None)["reviews"]
    assert later["dates"] == service.overview(None, None)["dates"]
    assert service.overview("2030-01-01", None)["reviews"] == 0
    assert service.overview("2030-01-01", None)["at_risk"] == []


def test_a_table_holds_every_sentence_and_no_formula(service):
    rows = list(csv.DictReader(io.StringIO(service.overview_table(None, None).decode())))
    whole = service.overview(None, None)
    lines = [
        one
        for kind in ("praised", "complained", "most_reviewed", "at_risk", "loved_by_few", "left")
        for one in whole[kind]
    ]
    assert len(rows) == sum(max(len(one["sentences"]), 1) for one in lines)
    assert {one["title"] for one in rows if one["id"] == "bad"} == {"'=Bad Thing"}


def test_reviews_without_dates_are_told_to_have_none(single_thread):
    undated = polars.DataFrame(planted()).drop("time")
    made = carp.Recommender("bias", device="cpu", min_reviews=1).fit(undated, progress=False)
    bare = AnswerService(made)
    found = bare.overview(None, None)
    assert found["dates"] is None
    assert found["left"] is None
    with pytest.raises(Problem, match="have no dates"):
        bare.overview("2021-01-01", None)


def test_dates_outlive_a_saved_model(service, tmp_path):
    service.recommender.save(tmp_path / "model")
    again = carp.load(tmp_path / "model")
    assert again.fitted_corpus.time.tolist() == service.corpus.time.tolist()


def test_categories_narrow_the_search_without_regard_to_case(service):
    assert service.facts.categories("", 10)["categories"] == [
        {"name": "Drums", "things": 2},
        {"name": "Horns", "things": 1},
    ]
    assert service.facts.categories("hor", 10)["total"] == 1
    found = service.search(service.items, "items", "", 10, 0, "dRUMS")
    assert {one["id"] for one in found["items"]} == {"gem", "t00"}
    assert found["total"] == 2
    assert [one["id"] for one in service.search(service.items, "items", "gem", 10, 0, "drums")["items"]] == ["gem"]
    with pytest.raises(Problem, match="no thing is of the category 'flutes'"):
        service.search(service.items, "items", "", 10, 0, "flutes")


def test_what_is_known_of_a_thing_stands_beside_it(service):
    known = {"categories": ["Drums"], "picture": "https://a.example/gem.png"}
    assert service.thing("gem")["facts"] == {**known, "description": "About Gem"}
    assert service.thing("t01")["facts"] is None
    offered = service.recommend("gone", 50)["recommendations"]
    assert {one["item"]: one["facts"] for one in offered}["gem"] == known


def test_whom_a_thing_suits_is_somebody_who_has_not_rated_it(service):
    people = service.audience("gem", 50)["people"]
    raters = set(service.corpus.user[service.corpus.item == service.item("gem")].tolist())
    assert all(service.user(one["user"]) not in raters for one in people)
    assert all(one["rating"] >= one["usual"] - 1e-6 for one in people)


def test_the_page_is_told_from_where_pictures_may_come_and_the_browser_too(service):
    app = make_app(service.recommender, pictures=["https://a.example"])
    page = testclient.TestClient(app, base_url="http://localhost").get("/")
    assert '<meta name="carp-pictures" content="https://a.example">' in page.text
    assert "img-src 'self' data: https://a.example;" in page.headers["content-security-policy"]


@pytest.mark.parametrize("given", ["a.example", "https://a.example/path", "javascript:1", "https://a b", "*", "data:"])
def test_what_is_no_place_of_pictures_is_refused(given):
    with pytest.raises(UsageError, match="not the beginning of a picture"):
        picture_origins([given])


def test_ten_thousand_categories_are_searched(single_thread):
    from carp.reviews.corpora.item_texts import ItemTexts
    from carp.reviews.sources.item_records import ItemText
    from carp.serve.thing_facts import ThingFacts

    facts = ThingFacts(ItemTexts.of([ItemText("x", (f"kind {n}", "all")) for n in range(10_000)]))
    assert facts.categories("", 2) == {
        "total": 10_001,
        "categories": [{"name": "all", "things": 10_000}, {"name": "kind 0", "things": 1}],
    }
    assert facts.categories("kind 99", 200)["total"] == 111
    assert facts.of_category("KIND 7", 10_000).sum() == 1


def test_answers_are_packed_for_those_who_can_unpack(client):
    asked = {"params": {"limit": 100}}
    packed = client.get("/api/items", headers={"accept-encoding": "gzip"}, **asked)
    plain = client.get("/api/items", headers={"accept-encoding": "identity"}, **asked)
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < len(plain.content)
    assert packed.json() == plain.json()
