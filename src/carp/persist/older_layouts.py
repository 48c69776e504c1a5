"""Models saved in an older layout are converted while they are loaded.

Layout 1 stored for each word of a document which token of its review it was. Layout 2 stores its characters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.corpora.column_checks import check_kind, need
from carp.reviews.corpora.provenance import FIRST_TOKENISER
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.text import tokens

Arrays = dict[str, NDArray[Any]]


def with_characters(documents: Arrays, texts: StringColumn, where: str) -> Arrays:
    """The documents of layout 1 with the characters of their words: the reviews are cut into words once more."""
    if tokens.TOKENISER_VERSION != FIRST_TOKENISER:
        raise InputError(
            f"this model was saved by carp 0.1 or earlier, and this carp has another tokeniser (version "
            f"{tokens.TOKENISER_VERSION} instead of {FIRST_TOKENISER})",
            where=where,
            fix="train the model again, or load and save it once with carp 0.2",
        )
    sides = sorted({name.partition(".")[0] for name in documents})
    records = np.unique(np.concatenate([documents[f"{side}.review"] for side in sides]))
    cut = tokens.tokenise_many([texts[record] for record in records.tolist()])
    found = {name: array for name, array in documents.items() if not name.endswith(".place")}
    for side in sides:
        review = np.searchsorted(records, documents[f"{side}.review"])
        place = documents[f"{side}.place"]
        check_kind(f"{side}.place", place, np.int32, len(review))
        need(bool(((place >= 0) & (place < np.diff(cut.offsets)[review])).all()), f"{side}.place is beyond the review")
        token = cut.offsets[review] + place
        starts = cut.starts[token]
        found[f"{side}.characters"] = np.stack([starts, starts + cut.lengths[token]], axis=1)
    return found
