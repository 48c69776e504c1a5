"""Models saved in an older layout are converted while they are loaded.

Layout 1 stored for each word of a document which token of its review it was. Layout 2 stores its characters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.column_checks import check_kind, need
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.text.tokens import tokenise_bytes

Arrays = dict[str, NDArray[Any]]


def with_characters(documents: Arrays, texts: StringColumn) -> Arrays:
    """The documents of layout 1 with the characters of their words: the reviews are cut into words once more,
    as the first tokeniser did."""
    sides = sorted({name.partition(".")[0] for name in documents})
    records = np.unique(np.concatenate([documents[f"{side}.review"] for side in sides]))
    cut = tokenise_bytes([texts[record].encode("utf-8", "replace") for record in records.tolist()], plain=True)
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
