"""Models that read reviews one by one get reviews: so many, each from its first word, however long the others are."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import polars
import pytest
import torch

import carp
from carp.models import REGISTRY, model_class
from carp.models.review_sets import as_reviews
from carp.recommender import Recommender
from carp.reviews.documents import ReviewCut, make_documents
from carp.reviews.split_parts import TRAIN
from carp.upkeep.updating import update

REVIEWS, LENGTH = 36, 75
READERS = sorted(
    name for name in REGISTRY if any(field.name == "review_words" for field in fields(model_class(name).Config))
)


def long_review(rng):
    return " ".join(f"word{number}" for number in rng.integers(0, 300, LENGTH))


@pytest.fixture(scope="module")
def frame():
    """A thing of which 36 people write 75 words each; they write of other things too, in two words."""
    rng = np.random.default_rng(0)
    rows = [(f"p{p}", "much", 1 + p % 5, long_review(rng)) for p in range(REVIEWS)]
    rows += [(f"p{p}", f"t{t}", 1 + (p + t) % 5, f"word{p} word{t}") for p in range(REVIEWS) for t in range(2)]
    return polars.DataFrame(rows, schema=["user", "item", "rating", "text"], orient="row")


@pytest.fixture(scope="module")
def all_in_training(frame):
    """A split in which only reviews of other things are held out."""
    held_out = {"p0": "test", "p1": "valid"}
    parts = [held_out.get(user, "train") if item != "much" else "train" for user, item, *_ in frame.rows()]
    return frame.select("user", "item").with_columns(split=polars.Series(parts))


@pytest.fixture(scope="module")
def fitted(frame, all_in_training):
    kept = {}

    def of(name):
        if name not in kept:
            tiny = {"dimension": 4, "latent_size": 4, "epochs": 1, "stop_words": "none", "min_reviews": 1}
            rec = Recommender(name, device="cpu", reviews=30, review_words=20, **tiny)
            kept[name] = rec.fit(carp.read_reviews(frame), split=all_in_training, progress=False)
        return kept[name]

    return of


def shelf_of(recommender, item):
    """The thing's document as the model reads it [R, W], and each review's number of words."""
    corpus = recommender.fitted_corpus
    data, pairs = corpus.training_data(), corpus.pairs(TRAIN)
    number = recommender.number_of("item", item)
    batch = data.batch(pairs, np.flatnonzero(pairs.items == number)[:1])
    cut = recommender.review_cut
    return as_reviews(batch.item_words, batch.item_reviews, cut.reviews, cut.words)[0]


@pytest.mark.parametrize("name", READERS)
def test_of_36_long_reviews_30_arrive_with_20_words_each(fitted, name):
    rec = fitted(name)
    shelf = shelf_of(rec, "much")
    assert shelf.shape == (30, 20)
    assert bool((shelf > 0).all())
    written = [rec.fitted_corpus.vocabulary.encode(text)[0][:20] for text in rec.fitted_corpus.texts]
    assert all(review in written for review in shelf.tolist())


@pytest.mark.parametrize("name", READERS)
def test_in_training_the_pairs_own_review_is_not_among_them(fitted, name):
    corpus = fitted(name).fitted_corpus
    data, pairs = corpus.training_data(), corpus.pairs(TRAIN)
    number = fitted(name).number_of("item", "much")
    chosen = np.flatnonzero(pairs.items == number)[:3]
    batch = data.batch(pairs, chosen, training=True)
    left = [set(row.tolist()) - {-1} for row in batch.item_reviews]
    assert [len(reviews) for reviews in left] == [29, 29, 29]
    assert not any(int(record) in reviews for record, reviews in zip(pairs.records[chosen], left, strict=True))


def test_documents_stay_so_in_a_saved_model_and_in_an_updated_one(fitted, tmp_path):
    rec = fitted("mpcn")
    rec.save(tmp_path / "model")
    again = carp.load(tmp_path / "model", device="cpu")
    assert torch.equal(shelf_of(again, "much"), shelf_of(rec, "much"))
    more = polars.DataFrame([("new", "t1", 3, "word5")], schema=["user", "item", "rating", "text"], orient="row")
    more = more.vstack(polars.DataFrame([("p2", "much", 1, "word7 " * 50)], schema=more.schema, orient="row"))
    later, _ = update(again, carp.read_reviews(more, rating_range=(1, 5)))
    shelf = shelf_of(later, "much")
    assert shelf.shape == (30, 20)
    assert bool((shelf > 0).all())


def test_a_newcomers_reviews_are_cut_like_all_others(fitted):
    corpus = fitted("mpcn").fitted_corpus
    found = corpus.newcomer(["word1 " * 50, "", *["word2 " * 30] * 40])
    numbers, counts = np.unique(found.review, return_counts=True)
    assert len(numbers) == 30
    assert set(counts.tolist()) == {20}


def test_a_cut_agrees_with_one_made_review_by_review():
    rng = np.random.default_rng(4)
    owner_of_record = rng.integers(0, 5, 40).astype(np.int32)
    review = np.repeat(np.arange(40), rng.integers(0, 9, 40)).astype(np.int32)
    words = rng.integers(1, 99, len(review)).astype(np.int32)
    characters = rng.integers(0, 9, (len(review), 2)).astype(np.int32)
    made = make_documents(words, review, characters, owner_of_record, 6, cut=ReviewCut(3, 4), max_words=10)
    for owner in range(6):
        records = [record for record in np.flatnonzero(owner_of_record == owner) if (review == record).any()]
        kept = [place for record in records[:3] for place in np.flatnonzero(review == record)[:4]][:10]
        stretch = slice(int(made.offsets[owner]), int(made.offsets[owner + 1]))
        assert made.words[stretch].tolist() == words[kept].tolist()
        assert made.review[stretch].tolist() == review[kept].tolist()
        assert made.characters[stretch].tolist() == characters[kept].tolist()
