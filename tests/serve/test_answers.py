"""What the service answers is what the recommender says, in the shape of the contract."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import carp
from carp.bench.pair_errors import ErrorColumns, PairErrors
from carp.bench.results_folder import BENCH, FORMAT
from carp.render.summed_telling import told
from carp.reviews.split_parts import TEST, TRAIN
from carp.serve.answer_service import WITH_FINDINGS

STRANGE = "„Trommel“ 太鼓 ☃"


@pytest.fixture(scope="module")
def users(recommender):
    return list(recommender.fitted_corpus.users)


@pytest.fixture(scope="module")
def items(recommender):
    return list(recommender.fitted_corpus.items)


def pairs_of(recommender, part, number=3):
    pairs = recommender.fitted_corpus.pairs(part)
    fitted = recommender.fitted_corpus
    return [(fitted.users[int(pairs.users[n])], fitted.items[int(pairs.items[n])]) for n in range(number)]


def with_words(explanation):
    return explanation.as_dict() | {"told": asdict(told(explanation)), "facts": None}


def close(one, other):
    """The same data up to rounding: sides are read many at once by the service, one by one by the recommender."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-3, abs=1e-5)
    return one == other


def test_about_says_what_can_be_asked(client, recommender):
    found = client.get("/api/about").json()
    assert found["model"] == "carp"
    assert found["users"] == len(recommender.fitted_corpus.users)
    assert found["items"] == len(recommender.fitted_corpus.items)
    assert (found["explains"], found["capsules"], found["newcomers"], found["results"]) == (True, True, True, False)
    assert (found["rating_range"], found["rating_step"]) == ([1, 5], 1)
    example = client.get("/api/explain", params=found["example"]).json()
    assert example["target"]["text"], "the example is a pair with a held-out review"


@pytest.mark.parametrize("part", [TRAIN, TEST])
def test_explanations_are_those_of_the_recommender(client, recommender, part):
    for user, item in pairs_of(recommender, part):
        found = client.get("/api/explain", params={"user": user, "item": item})
        assert found.status_code == 200
        assert close(with_words(recommender.explain(user, item)), found.json())


def test_one_pair_and_many_pairs_get_the_recommenders_ratings(client, recommender):
    pairs = [*pairs_of(recommender, TRAIN), *pairs_of(recommender, TEST), ("nobody", pairs_of(recommender, TEST)[0][1])]
    expected = recommender.predict(pairs)
    many = client.post("/api/predict", json={"pairs": [{"user": u, "item": i} for u, i in pairs]}).json()["predictions"]
    assert [(row["user"], row["item"]) for row in many] == pairs
    assert [row["rating"] for row in many] == pytest.approx(list(expected), abs=1e-4)
    assert [row["note"] for row in many] == list(expected.notes)
    for (user, item), rating in zip(pairs, expected, strict=True):
        (row,) = client.post("/api/predict", json={"user": user, "item": item}).json()["predictions"]
        assert row["rating"] == pytest.approx(rating, abs=1e-4)


def test_recommendations_come_with_a_reason_of_phrases_that_were_written(client, recommender, users):
    found = client.get("/api/recommend", params={"user": users[5], "n": 4}).json()
    assert found["user"] == users[5]
    expected = recommender.recommend(users[5], 4)
    assert [row["item"] for row in found["recommendations"]] == [one.item for one in expected]
    texts = " ".join(" ".join(text.split()) for text in recommender.fitted_corpus.texts)
    for row, one in zip(found["recommendations"], expected, strict=True):
        assert row["rating"] == pytest.approx(one.rating, abs=1e-4)
        quoted = [part.partition("”")[0] for part in row["reason"].split("“")[1:]]
        assert quoted, row["reason"]
        assert all(phrase in texts for phrase in quoted)
        assert "\n" not in row["reason"]


def test_a_reason_says_truly_whether_the_texts_raise_or_lower_the_rating(client, recommender, users):
    for user in users[:6]:
        for row in client.get("/api/recommend", params={"user": user, "n": 5}).json()["recommendations"]:
            explained = recommender.explain(user, row["item"])
            moved = explained.rating - explained.baseline
            if abs(moved) > 0.006:
                assert f"{'raises' if moved > 0 else 'lowers'} the rating" in row["reason"]


def test_recommendations_of_a_sum_come_with_what_its_explanation_finds(client_of):
    client, user = client_of("meeting"), "person-007"
    offers = client.get("/api/recommend", params={"user": user, "n": 12}).json()["recommendations"]
    for place, offer in enumerate(offers):
        explained = client.get("/api/explain", params={"user": user, "item": offer["item"]}).json()
        sentences = [one["text"] for finding in explained["findings"] for one in finding["sentences"]]
        quoted = re.findall("“([^”]*)”", offer["reason"])
        names = [finding["aspect"].partition(",")[0] for finding in explained["findings"]]
        assert all(quote in names or quote in sentences for quote in quoted)
        assert quoted or "on average" in offer["reason"]
        assert place < WITH_FINDINGS or offer["reason"].startswith("People rate it")
    assert any("People praise" in offer["reason"] for offer in offers)
    pasted = client.post("/api/newcomer", json={"reviews": ["A warm sound, and it is light."], "n": 3}).json()
    assert all(offer["reason"] for offer in pasted["recommendations"])


def test_people_and_things_are_found_by_id_then_by_text(client, recommender, users):
    found = client.get("/api/users", params={"q": "PERSON-01", "limit": 3}).json()
    assert [row["id"] for row in found["users"]] == [f"person-01{n}" for n in range(3)]
    assert found["total"] >= 10
    word = "battery"
    hits = client.get("/api/items", params={"q": word, "limit": 50}).json()
    fitted = recommender.fitted_corpus
    having = {
        fitted.items[int(fitted.item[n])]
        for n in range(len(fitted.part))
        if fitted.part[n] == TRAIN and word in fitted.texts[n].lower()
    }
    assert having, "the made-up shop writes of batteries"
    assert {row["id"] for row in hits["items"]} == having
    assert all(word in row["snippet"].lower() for row in hits["items"])
    everybody = client.get("/api/users", params={"limit": 200}).json()
    assert everybody["total"] == len(users)
    counts = [row["reviews"] for row in everybody["users"]]
    assert counts == sorted(counts, reverse=True)


def test_pages_of_a_search_put_together_are_the_whole(client):
    whole = client.get("/api/users", params={"q": "person", "limit": 200}).json()["users"]
    parts = [client.get("/api/users", params={"q": "person", "limit": 5, "offset": n}).json() for n in range(0, 30, 5)]
    assert [row for part in parts for row in part["users"]] == whole


@pytest.mark.parametrize("kind", ["users", "items"])
def test_every_id_reaches_its_profile_whatever_it_is_made_of(client, recommender, kind):
    for name in getattr(recommender.fitted_corpus, kind):
        if "%" in name:
            continue  # the test client decodes twice; the real server is asked for these
        found = client.get(f"/api/{kind}/{quote(name, safe='')}/profile")
        assert found.status_code == 200, name
        assert found.json()[kind.removesuffix("s")] == name


def test_a_person_is_shown_by_viewpoints_and_a_thing_by_what_its_raters_hear(client, users, items):
    person = client.get(f"/api/users/{users[8]}/profile").json()
    assert [side["index"] for side in person["viewpoints"]] == [1, 2, 3]
    assert sum(side["weight"] for side in person["viewpoints"]) == pytest.approx(1)
    assert sum(person["ratings"].values()) == person["reviews"] > 0
    assert any(side["sentences"] for side in person["viewpoints"])
    thing = client.get(f"/api/items/{items[8]}/profile").json()
    assert sum(thing["ratings"].values()) == thing["reviews"] >= thing["raters"] > 0
    for regard in [*thing["liked"], *thing["disliked"]]:
        assert 1 <= regard["raters"] <= thing["raters"]
        assert 0 < regard["strength"] < 1
        assert regard["viewpoints"]


def test_a_newcomer_is_rated_explained_and_recommended_to(client, recommender, items):
    reviews = ["It has to be light, and the battery must last.", "Far too heavy for me!"]
    body = {"reviews": reviews, "items": [items[0], "unheard of"], "explain": STRANGE, "n": 3}
    found = client.post("/api/newcomer", json=body).json()
    expected = recommender.predict_for(reviews, [items[0], "unheard of"])
    assert [row["rating"] for row in found["predictions"]] == pytest.approx(list(expected), abs=1e-4)
    assert [row["note"] for row in found["predictions"]] == list(expected.notes)
    assert close(with_words(recommender.explain_for(reviews, STRANGE)), found["explanation"])
    assert [row["item"] for row in found["recommendations"]] == [o.item for o in recommender.recommend_for(reviews, 3)]
    assert all(row["reason"] for row in found["recommendations"])


WISHES = {"by": "taste", "diversity": 0.9, "min_reviews": 2}


def test_recommendations_are_chosen_and_ordered_as_wished_for(client, recommender, users, items):
    among = list(items[:9])
    wished = {**WISHES, "among": among}
    found = client.get("/api/recommend", params={"user": users[5], "n": 5, **wished}).json()["recommendations"]
    assert [row["item"] for row in found] == [one.item for one in recommender.recommend(users[5], 5, **wished)]
    assert {row["item"] for row in found} <= set(among)
    by_rating = client.get("/api/recommend", params={"user": users[5], "n": 5, "by": "rating"}).json()
    expected = [one.item for one in recommender.recommend(users[5], 5, by="rating")]
    assert [row["item"] for row in by_rating["recommendations"]] == expected
    reviews = ["I carry it all day, so it must be light."]
    pasted = client.post("/api/newcomer", json={"reviews": reviews, "n": 5, **wished}).json()["recommendations"]
    assert [row["item"] for row in pasted] == [one.item for one in recommender.recommend_for(reviews, 5, **wished)]


def test_somebody_nobody_knows_gets_what_is_popular_and_is_told_so(client, recommender):
    found = client.get("/api/recommend", params={"user": "nobody at all", "n": 4}).json()
    expected = recommender.recommend("nobody at all", 4)
    assert [row["item"] for row in found["recommendations"]] == [one.item for one in expected]
    assert found["note"] == expected.note
    assert "popular with everybody" in found["note"]
    assert all(row["reason"].startswith("Popular with everybody: ") for row in found["recommendations"])


def test_somebody_known_gets_no_note(client, users):
    assert client.get("/api/recommend", params={"user": users[5], "n": 1}).json()["note"] is None


def test_a_comparison_names_the_item_that_is_rated_higher(client, recommender, users, items):
    for user in users[:5]:
        found = client.get("/api/compare", params={"user": user, "first": items[0], "second": items[1]}).json()
        one, other = (row["rating"] for row in found["items"])
        assert [one, other] == pytest.approx(list(recommender.predict([(user, items[0]), (user, items[1])])), abs=1e-4)
        if abs(one - other) < 0.2:
            assert found["verdict"].endswith("about the same.")
        else:
            better = items[0] if one > other else items[1]
            assert f"{better} is predicted {abs(one - other):.2f} higher" in found["verdict"]
        assert [row["explanation"]["item"] for row in found["items"]] == [items[0], items[1]]


def test_a_summary_holds_sentences_of_the_things_own_reviews_most_moving_first(client, recommender, users, items):
    found = client.get(f"/api/items/{quote(items[3], safe='')}/summary", params={"user": users[9], "n": 5}).json()
    weights = [row["weight"] for row in found["sentences"]]
    assert len(weights) == 5
    assert weights == sorted(weights, reverse=True)
    fitted = recommender.fitted_corpus
    for row in found["sentences"]:
        assert row["item"] == items[3]
        assert row["sentiment"] in ("positive", "negative")
        assert 1 <= row["aspect"] <= 3
        assert any(row["text"] in fitted.texts[n] for n in range(len(fitted.part)) if fitted.part[n] == TRAIN)


def test_a_summary_never_quotes_the_persons_own_review_of_the_thing(client, recommender):
    for user, item in pairs_of(recommender, TRAIN, 6):
        found = client.get(f"/api/items/{quote(item, safe='')}/summary", params={"user": user, "n": 50}).json()
        assert user not in {row["user"] for row in found["sentences"]}


def test_a_model_of_ratings_alone_answers_what_it_can_and_says_what_it_cannot(client_of):
    client = client_of("bias")
    about = client.get("/api/about").json()
    assert (about["explains"], about["capsules"]) == (False, False)
    assert client.post("/api/predict", json={"user": "person-010", "item": "thing-005"}).status_code == 200
    rows = client.get("/api/recommend", params={"user": "person-010", "n": 2}).json()["recommendations"]
    assert all("without reasons" in row["reason"] for row in rows)
    refused = client.get("/api/explain", params={"user": "person-010", "item": "thing-005"})
    assert refused.status_code == 409
    assert refused.json()["fix"]
    thing = client.get("/api/items/thing-005/profile").json()
    assert (thing["liked"], thing["disliked"]) == ([], [])
    assert "no capsules" in thing["notes"][0]
    assert sum(thing["ratings"].values()) == thing["reviews"]
    both = client.get("/api/compare", params={"user": "person-010", "first": "thing-005", "second": "thing-006"}).json()
    assert [row["explanation"] for row in both["items"]] == [None, None]


def test_a_model_that_listens_without_capsules_explains_and_summarises(client_of):
    client = client_of("dattn", epochs=1)
    found = client.get("/api/explain", params={"user": "person-010", "item": "thing-005"}).json()
    assert (found["positive"], found["units"], found["prevailing"]) == (None, [], None)
    assert found["aspects"]
    summary = client.get("/api/items/thing-005/summary", params={"user": "person-010"}).json()
    assert summary["sentences"]
    assert {row["sentiment"] for row in summary["sentences"]} == {None}
    assert summary["notes"]


MARKED = '<img src=x onerror="alert(1)">'


def write_results(folder):
    """One cell for each of two systems, as a benchmark leaves them."""
    errors = ErrorColumns(folder)
    (folder / "results.json").write_text(json.dumps({"kind": "results", "format": FORMAT, "version": carp.__version__}))
    with (folder / BENCH).open("w") as file:
        for identity, (model, level) in enumerate({"mean": 1.0, "carp": 0.5}.items()):
            squared = np.random.default_rng(identity).gamma(1, level, 50).astype(np.float32)
            errors.add(f"c{identity}", PairErrors("p0", np.arange(50, dtype=np.int32), squared))
            line = {"id": f"c{identity}", "corpus": MARKED, "fingerprint": "x", "model": model, "name": model}
            line |= {"split_seed": 0, "seed": 0, "given": {}, "settings": {}, "search": {}, "valid_mse": level}
            line |= {"test_mse": float(squared.astype(np.float64).mean()), "test_pairs": 50, "pairs": "p0"}
            file.write(json.dumps({**line, "needs": ["ids"], "seconds": 1.0}) + "\n")


def test_results_are_tables_and_plots_in_which_no_markup_of_the_data_runs(recommender, tmp_path):
    from starlette import testclient

    from carp.serve.routes import make_app

    write_results(tmp_path)
    client = testclient.TestClient(make_app(recommender, tmp_path))
    (section,) = client.get("/api/results").json()["sections"]
    assert section["title"] == MARKED
    assert "<table>" in section["html"]
    assert "0.5" in section["html"]
    assert "data:image/svg+xml" in section["html"]
    assert "<img src=x" not in section["html"]
    assert client.get("/api/about").json()["results"] is True


@pytest.fixture
def own_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "carp"


def test_only_the_first_sections_come_at_once_and_the_others_by_their_number(recommender, tmp_path, monkeypatch):
    from starlette import testclient

    from carp.serve import result_sections
    from carp.serve.routes import make_app

    parts = [{"title": f"part {n}", "html": "x" * 25_000} for n in range(4)]
    monkeypatch.setattr(result_sections, "kept_sections", lambda folder: parts)
    client = testclient.TestClient(make_app(recommender, tmp_path))
    told = client.get("/api/results").json()["sections"]
    assert [section["title"] for section in told] == [part["title"] for part in parts]
    assert [len(section["html"]) for section in told] == [25_000, 25_000, 0, 0]
    assert client.get("/api/results", params={"section": 3}).json()["sections"] == parts[3:]
    assert client.get("/api/results", params={"section": 4}).status_code == 404
    assert client.get("/api/results", params={"section": "two"}).status_code == 422


def test_a_report_is_made_once_for_the_same_results(tmp_path, own_cache_folder, monkeypatch):
    from carp.serve import result_sections

    folder = tmp_path / "results"
    folder.mkdir()
    write_results(folder)
    first = result_sections.kept_sections(folder)
    [kept] = own_cache_folder.glob("report-*.json")
    monkeypatch.setattr(result_sections, "_made", lambda folder: [{"title": "made again", "html": ""}])
    assert result_sections.kept_sections(folder) == first
    kept.write_text("[")
    assert result_sections.kept_sections(folder)[0]["title"] == "made again"
    with (folder / BENCH).open("a") as file:
        file.write("\n")
    assert len(set(own_cache_folder.glob("report-*.json"))) == 1
    result_sections.kept_sections(folder)
    assert len(set(own_cache_folder.glob("report-*.json"))) == 2, "other results, another report"


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path, own_cache_folder):
    from carp.serve import result_sections

    folder = tmp_path / "results"
    folder.mkdir()
    write_results(folder)
    own_cache_folder.mkdir(parents=True)
    own_cache_folder.chmod(0o777)
    assert result_sections.kept_sections(folder)
    assert not list(own_cache_folder.iterdir())


def test_where_there_are_no_results_that_is_said(recommender, tmp_path):
    from starlette import testclient

    from carp.serve.routes import make_app

    empty = testclient.TestClient(make_app(recommender, tmp_path)).get("/api/results")
    assert empty.status_code == 404
    assert str(tmp_path) not in empty.text
    missing = testclient.TestClient(make_app(recommender)).get("/api/results")
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:carp:no-results")


def test_the_page_and_every_file_it_names_come_from_the_service_alone(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|<script(?![^>]*\bsrc=)[^>]*>|\bon\w+=", page.text), (
        "the policy forbids all of these"
    )
    named = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert named
    for name in named:
        assert client.get(f"/{name.lstrip('/')}").status_code == 200, name


def test_every_file_of_the_pages_folder_is_served_with_its_kind_and_nothing_else_is(client):
    import carp.serve

    folder = Path(carp.serve.__file__).parent / "page"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        answer = client.get(f"/static/{path.relative_to(folder).as_posix()}")
        assert answer.content == path.read_bytes()
        again = client.get(
            f"/static/{path.relative_to(folder).as_posix()}", headers={"if-none-match": answer.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
    for name in ("app.py", "../app.py", "", "index.html/", str(folder / "index.html")):
        assert client.get(f"/static/{name}").status_code == 404
