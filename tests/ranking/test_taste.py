"""What suits a person, against a slow form; what is wished for is what comes; strangers get what is popular."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import carp
from carp.cli import entry as cli
from carp.errors import UnknownIdError, UsageError
from carp.explain.similar_things import TextLikeness
from carp.ranking.taste import RATING_WEIGHT, TEXT_WEIGHT, USUAL_DIVERSITY, Taste
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.sources.item_records import ItemText
from carp.reviews.split_parts import TRAIN
from carp.serve.answer_service import AnswerService

SHOP = {"people": 30, "things": 14, "reviews_per_person": 6}


@pytest.fixture(scope="module")
def recommender(single_thread):
    reviews = carp.read_reviews(carp.make_shop(seed=1, **SHOP).frame())
    return carp.Recommender("ridge", seed=0, device="cpu", min_reviews=1).fit(reviews, progress=False)


@pytest.fixture(scope="module")
def folder(recommender, saved):
    return saved(recommender)


def slow_company(corpus, user, diversity):
    """The formula, pair by pair."""
    rated = {}
    for u, i, part in zip(corpus.user.tolist(), corpus.item.tolist(), corpus.part.tolist(), strict=True):
        if part == TRAIN:
            rated.setdefault(u, set()).add(i)
    count = [sum(i in things for things in rated.values()) for i in range(len(corpus.items))]
    found = np.zeros(len(corpus.items))
    for thing in range(len(corpus.items)):
        for own in rated[user]:
            for other, things in rated.items():
                if other != user and own in things and thing in things:
                    found[thing] += count[own] ** -0.5 * len(things) ** -0.5
        found[thing] /= max(count[thing], 1) ** (diversity / 2)
    return found


def slow_texts(corpus, likeness):
    """For each thing how much its texts are like those of each person's things, less the mean over people."""
    rows = np.zeros((len(corpus.items), likeness.size))
    rows[likeness.owner, likeness.word] = likeness.weight
    own = [corpus.item[(corpus.user == user) & (corpus.part == TRAIN)] for user in range(len(corpus.users))]
    means = np.array([rows[things].mean(0) for things in own])
    return (means - means.mean(0)) @ rows.T


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_scores_are_company_rating_and_text_each_by_its_spread(recommender, diversity):
    corpus, advisor = recommender.fitted_corpus, recommender.advisor
    users, items = [3, 0, 7], np.arange(len(recommender.fitted_corpus.items))
    stars = np.stack([recommender.fitted_model.rate(np.full(len(items), user), items) for user in users])
    written = slow_texts(corpus, advisor.texts)[users]
    company = np.stack([slow_company(corpus, user, diversity) for user in users])
    parts = [(company, 1.0), (stars, RATING_WEIGHT), (written, TEXT_WEIGHT)]
    expected = sum(weight * part / part.std(1, keepdims=True) for part, weight in parts)
    assert advisor.taste.scores(users, stars, diversity) == pytest.approx(expected, rel=1e-6)


WORDS = "I carry it all day, so it must be light. The battery is weak, and the battery is heavy."


def slow_row(corpus, words, things_with):
    """The TF-IDF of some words, one word after another, of length 1."""
    row = np.zeros(len(corpus.vocabulary) + 1)
    for word in set(words):
        rarity = np.log((1 + len(corpus.items)) / (1 + things_with[word])) + 1
        row[word] = (1 + np.log(words.count(word))) * rarity
    return row / max(np.sqrt((row**2).sum()), 1e-12)


@pytest.mark.parametrize("diversity", [0.0, 1.0])
def test_a_newcomer_keeps_company_with_those_who_write_alike(recommender, diversity):
    corpus, taste = recommender.fitted_corpus, recommender.advisor.taste
    things = [set(corpus.item_documents.words[slice(*corpus.item_documents.offsets[i : i + 2])]) for i in range(14)]
    things_with = {word: sum(word in thing for thing in things) for word in range(len(corpus.vocabulary) + 1)}
    documents = corpus.user_documents
    wrote = [documents.words[slice(*documents.offsets[u : u + 2])].tolist() for u in range(len(corpus.users))]
    people = np.array([slow_row(corpus, words, things_with) for words in wrote])
    document = recommender.newcomer(WORDS)
    own = slow_row(corpus, document.words.tolist(), things_with)
    rated = taste.rated.toarray()
    company = [
        sum((own @ people[v]) ** 2 * rated[v].sum() ** -0.5 for v in np.flatnonzero(rated[:, j]))
        / max(rated[:, j].sum(), 1) ** (diversity / 2)
        for j in range(14)
    ]
    texts = taste.texts.toarray() @ (own - people.mean(0))
    stars = recommender.fitted_model.rate_newcomer(document, np.arange(14))
    parts = [np.asarray(part) / np.std(part) for part in (company, stars, texts)]
    found = recommender.advisor.newcomer_taste.scores(document.words, stars, diversity)
    np.testing.assert_allclose(found, parts[0] + RATING_WEIGHT * parts[1] + TEXT_WEIGHT * parts[2], rtol=1e-6)
    listed = [recommender.number_of("item", one.item) for one in recommender.recommend_for(WORDS, diversity=diversity)]
    assert listed == np.argsort(-found, kind="stable")[:10].tolist()


def test_a_newcomer_may_ask_for_the_rating_alone(recommender):
    items = list(recommender.fitted_corpus.items)
    by_rating = [one.item for one in recommender.recommend_for(WORDS, 14, by="rating")]
    ratings = dict(zip(items, recommender.predict_for(WORDS, items), strict=True))
    assert by_rating == sorted(items, key=lambda item: -ratings[item])
    assert by_rating != [one.item for one in recommender.recommend_for(WORDS, 14)]


def test_the_order_is_that_of_the_scores_and_ratings_are_shown(recommender):
    corpus = recommender.fitted_corpus
    items = np.arange(len(corpus.items))
    stars = recommender.fitted_model.rate(np.full(len(items), 5), items)
    scores = recommender.advisor.taste.scores([5], stars[None], USUAL_DIVERSITY)[0]
    left = sorted(set(items.tolist()) - set(corpus.rated_by(5).tolist()), key=lambda item: -scores[item])
    found = recommender.recommend(corpus.users[5], 4)
    assert [one.item for one in found] == [corpus.items[item] for item in left[:4]]
    assert [one.rating for one in found] == pytest.approx([stars[item] for item in left[:4]], abs=1e-5)
    assert found.note is None


def test_held_out_reviews_do_not_show_in_the_scores(recommender):
    corpus = recommender.fitted_corpus
    held, other = corpus.part != TRAIN, corpus.item.copy()
    other[held] = np.random.default_rng(0).permutation(other[held])
    assert (other != corpus.item).any()
    changed = replace(corpus, item=other)
    users, stars = range(len(corpus.users)), np.zeros((len(corpus.users), len(corpus.items)))
    after = Taste(changed, TextLikeness(changed)).scores(users, stars, 0.3)
    assert np.array_equal(recommender.advisor.taste.scores(users, stars, 0.3), after)


def test_more_diversity_brings_things_that_fewer_people_have(recommender):
    count = dict(zip(recommender.fitted_corpus.items, recommender.advisor.taste.of_item, strict=True))

    def mean_count(diversity):
        lists = recommender.recommend_all(3, diversity=diversity)
        return np.mean([count[one.item] for _, found in lists for one in found])

    assert mean_count(1.0) < mean_count(0.0)


# ---- filters


def test_only_named_things_are_recommended(recommender):
    named = ["thing-003", "thing-001", "thing-007"]
    for by in ("taste", "rating"):
        for user, found in recommender.recommend_all(14, by=by, among=named):
            corpus = recommender.fitted_corpus
            rated = {corpus.items[i] for i in corpus.rated_by(corpus.users.index()[user]).tolist()}
            assert {one.item for one in found} == set(named) - rated
    assert {one.item for one in recommender.recommend_for("It is light.", 14, among=named)} == set(named)
    with pytest.raises(UnknownIdError, match="thing-999"):
        recommender.recommend("person-001", among=["thing-999"])


@pytest.mark.parametrize("by", ["taste", "rating"])
def test_things_with_few_reviews_are_left_out(recommender, by):
    counts = recommender.advisor.taste.of_item
    least = int(np.median(counts)) + 1
    names = recommender.fitted_corpus.items
    allowed = {names[i] for i in np.flatnonzero(counts >= least).tolist()}
    found = {one.item for _, listed in recommender.recommend_all(14, by=by, min_reviews=least) for one in listed}
    assert found == allowed
    assert recommender.recommend("person-001", by=by, min_reviews=10**6) == []


def test_things_of_a_category_are_chosen_whatever_the_case_of_its_letters(saved):
    corpus = carp.build_corpus(carp.read_reviews(carp.make_shop(seed=1, **SHOP).frame()), min_reviews=1)
    kinds = {name: "Odd" if int(name[-3:]) % 2 else "Even" for name in corpus.items}
    texts = ItemTexts.of([ItemText(name, ("All", kind)) for name, kind in kinds.items()])
    recommender = carp.Recommender("ridge", device="cpu").fit(replace(corpus, item_texts=texts), progress=False)
    for by in ("taste", "rating"):
        found = [one.item for one in recommender.recommend("person-001", 14, by=by, category="even")]
        assert found
        assert {kinds[name] for name in found} == {"Even"}
        served = AnswerService(recommender).recommend("person-001", 14, {"by": by, "category": "even"})
        assert [row["item"] for row in served["recommendations"]] == found
    assert len(recommender.recommend_for("It is light.", 20, category="ALL")) == len(corpus.items)
    with pytest.raises(UsageError, match="category 'Evn'") as refused:
        recommender.recommend("person-001", category="Evn")
    assert "did you mean Even?" in str(refused.value)


def test_known_things_are_among_them_where_they_may_be(recommender):
    for by in ("taste", "rating"):
        found = recommender.recommend("person-002", 14, by=by, include_known=True)
        assert {one.item for one in found} == set(recommender.fitted_corpus.items)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"diversity": 1.5}, "diversity cannot be 1.5"),
        ({"diversity": float("nan")}, "diversity cannot be nan"),
        ({"by": "rating", "diversity": 0.5}, "an order by rating has no diversity"),
        ({"by": "price"}, "cannot be ordered by 'price'"),
        ({"min_reviews": -1}, "no thing has -1 reviews"),
        ({"n": 0}, "0 recommendations"),
        ({"category": "Amps"}, "knows no categories"),
    ],
)
def test_what_cannot_be_wished_for_is_refused(recommender, wish, said):
    with pytest.raises(UsageError, match=said):
        recommender.recommend("person-001", **wish)


# ---- strangers


def test_a_stranger_gets_what_is_popular_and_is_told_so(recommender):
    found = recommender.recommend("person-0003", 5)
    assert found.note.startswith("the model has never seen the user 'person-0003' (did you mean ")
    assert found.note.endswith("these things are popular with everybody")
    count = dict(zip(recommender.fitted_corpus.items, recommender.advisor.taste.of_item.tolist(), strict=True))
    assert [count[one.item] for one in found] == sorted(count.values(), reverse=True)[:5]
    assert [one.rating for one in found] == pytest.approx(list(recommender.predict([("?", one.item) for one in found])))


def test_somebody_without_training_reviews_gets_what_is_popular_and_is_told_so(single_thread):
    reviews = carp.make_shop(seed=1, **SHOP).frame()
    parts = ["test" if user == "person-000" else "train" for user in reviews["user"]]
    parts[-1] = "valid"
    split = {"user": list(reviews["user"]), "item": list(reviews["item"]), "split": parts}
    recommender = carp.Recommender("bias", device="cpu", min_reviews=1).fit(reviews, split=split, progress=False)
    found = recommender.recommend("person-000", 3)
    assert found.note == "person-000 has no training reviews: these things are popular with everybody"
    assert recommender.recommend("person-001", 3).note is None
    counts = recommender.advisor.taste.of_item.copy()
    counts[recommender.fitted_corpus.rated_by(recommender.number_of("user", "person-000"))] = -1
    taken = [int(counts[recommender.number_of("item", one.item)]) for one in found]
    assert taken == sorted(counts.tolist(), reverse=True)[:3]


# ---- on the command line


def answer(capsys, *words):
    code = cli.main(["recommend", *map(str, words)])
    return code, *capsys.readouterr()


def test_options_of_the_command_are_those_of_the_method(recommender, folder, tmp_path, capsys):
    listed = tmp_path / "sale.txt"
    listed.write_text("thing-003\n\n thing-001 \nthing-007\n", encoding="utf-8")
    words = [folder, "person-005", "--among", listed, "--diversity", 0.8, "--min-reviews", 2, "--json"]
    code, printed, _ = answer(capsys, *words)
    wanted = recommender.recommend(
        "person-005", among=["thing-003", "thing-001", "thing-007"], diversity=0.8, min_reviews=2
    )
    assert code == 0
    assert [one["item"] for one in json.loads(printed)["recommendations"]] == [one.item for one in wanted]
    code, printed, said = answer(capsys, folder, "person-005", "--min-reviews", 10**6)
    assert (code, said) == (0, "")
    assert printed == "Nothing is left to recommend to person-005: too few things pass the filters.\n"


def test_a_stranger_is_told_on_the_command_line(folder, capsys):
    code, printed, said = answer(capsys, folder, "nobody at all", "-n", 2)
    assert code == 0
    assert len(printed.splitlines()) == 3
    assert said == "The model has never seen the user 'nobody at all': these things are popular with everybody.\n"
    document = json.loads(answer(capsys, folder, "nobody at all", "--json")[1])
    assert "popular with everybody" in document["note"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), (b"\n \n", "there is no id in it"), (b"\xff\xfe", "cannot be read")]
)
def test_a_list_that_cannot_be_read_is_refused(folder, tmp_path, capsys, content, said):
    file = tmp_path / "sale.txt"
    if content is not None:
        file.write_bytes(content)
    code, printed, complained = answer(capsys, folder, "person-001", "--among", file)
    assert code in (1, 2)
    assert printed == ""
    assert said in complained


def test_a_newcomers_options_are_those_of_the_method(recommender, folder, tmp_path, capsys):
    mine = tmp_path / "mine.txt"
    mine.write_text(WORDS)
    for options, wished in ((["--diversity", 0.9], {"diversity": 0.9}), (["--by", "rating"], {"by": "rating"})):
        code, printed, _ = answer(capsys, folder, "-", "--reviews", mine, "--json", *options)
        assert code == 0
        expected = [one.item for one in recommender.recommend_for(WORDS, **wished)]
        assert [one["item"] for one in json.loads(printed)["recommendations"]] == expected
