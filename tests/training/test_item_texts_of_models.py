"""A fitted model carries the titles of its things, and a model without any is saved as before."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import carp
from carp.errors import DamagedError
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.sources.item_records import ItemText
from carp.storage import load_arrays, new_folder, save_arrays

ITEM_TEXTS = "items.safetensors"


@pytest.fixture(scope="module")
def corpus():
    shop = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2)
    return carp.build_corpus(carp.read_reviews(shop.frame()), min_reviews=2)


@pytest.fixture(scope="module")
def titled(corpus):
    texts = ItemTexts.of([ItemText(f"Thing <{name}>", ("Music",)) for name in corpus.items])
    return carp.Recommender("bias").fit(dataclasses.replace(corpus, item_texts=texts), progress=False)


def test_titles_are_there_after_loading(titled, saved):
    loaded = carp.load(saved(titled)).fitted_corpus
    ours = titled.fitted_corpus
    assert loaded.title(0) == f"Thing <{ours.items[0]}>"
    assert loaded.item_texts.fingerprint == ours.item_texts.fingerprint
    assert loaded.item_names.tokens.tolist() == ours.item_names.tokens.tolist()


def test_a_model_without_titles_is_saved_without_a_file_for_them(corpus, saved):
    folder = saved(carp.Recommender("bias").fit(corpus, progress=False))
    assert not (folder / ITEM_TEXTS).exists()
    loaded = carp.load(folder).fitted_corpus
    assert loaded.item_texts is None
    assert loaded.title(0) is None
    assert loaded.item_names.offsets.tolist() == [0] * (len(corpus.items) + 1)


def test_titles_that_do_not_fit_the_things_are_refused(titled, saved):
    folder = saved(titled)
    arrays = load_arrays(folder / ITEM_TEXTS)
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    for name in ("item_titles_offsets", "item_title_tokens", "item_category_token_offsets"):
        with new_folder(folder, "model", overwrite=True) as partial:
            for other, content in files.items():
                (partial / other).write_bytes(content)
            save_arrays(partial / ITEM_TEXTS, {**arrays, name: np.append(arrays[name], arrays[name].dtype.type(9999))})
        with pytest.raises(DamagedError, match="do not fit together"):
            carp.load(folder)
