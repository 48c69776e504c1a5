"""Made-up corpora of the GPU benchmarks are what real ones would be."""

from __future__ import annotations

import numpy as np

from carp.reviews.documents import make_documents
from gpu_corpora import documents_of, made_up
from gpu_session import TINY, YELP


def test_documents_are_gathered_and_cut_as_real_ones():
    rng = np.random.default_rng(1)
    lengths, owner = rng.integers(0, 9, 200), rng.integers(0, 30, 200)
    words = rng.integers(1, 50, lengths.sum()).astype(np.int32)
    record = np.repeat(np.arange(200), lengths).astype(np.int32)
    wanted = make_documents(words, record, np.zeros_like(record), owner.astype(np.int32), 30, max_words=20)
    found = documents_of(words, lengths, owner, 30, 20)
    assert wanted.lengths().max() == 20
    for name, column in wanted.arrays().items():
        np.testing.assert_array_equal(getattr(found, name), column)


def test_a_share_of_a_corpus_has_documents_of_the_same_length():
    data = made_up(YELP.times(0.01))
    assert abs(len(data.train) - 8760) <= 8
    assert 120 < data.user_documents.lengths().mean() < 150
    assert 140 < data.item_documents.lengths().mean() < 170
    assert len(np.unique(data.train.users)) == data.sizes.users  # everyone wrote something
    assert data.user_documents.words.min() >= 1


def test_the_rehearsals_corpus_is_tiny():
    assert len(made_up(TINY).train) == 16
