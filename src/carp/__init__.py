"""Predict how a person will rate a thing from what people wrote, and say why.

>>> import carp
>>> shop = carp.make_shop(people=30, things=15, seed=1)
>>> rec = carp.Recommender("bias", min_reviews=1).fit(carp.read_reviews(shop.frame()), progress=False)
>>> len(rec.predict([("nobody", "nothing")]))
1
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from carp.moved import tell_where_modules_went

if TYPE_CHECKING:
    from carp.errors import CarpError
    from carp.explain.explanation import Explanation
    from carp.recommender import Recommender, load
    from carp.reviews.corpora.corpus import Corpus, build_corpus
    from carp.reviews.shop.made_up_shop import make_shop
    from carp.reviews.sources.formats import read_reviews
    from carp.reviews.sources.item_files import read_items

__version__ = "0.2.0"

if sys.platform == "win32":
    raise ImportError(
        "carp runs on Linux and macOS, not on Windows: it locks files, flushes folders and starts processes the POSIX "
        "way. Fix: use it inside the Windows Subsystem for Linux (wsl --install)."
    )

# Before torch is there: its threads spin for milliseconds while they wait for each other. Where other programs want the
# cores too, two threads were eight times slower so than one. Short waits are as fast, and change no bit of a result.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

tell_where_modules_went()

_PLACES = {
    "CarpError": "carp.errors",
    "Corpus": "carp.reviews.corpora.corpus",
    "Explanation": "carp.explain.explanation",
    "Recommender": "carp.recommender",
    "build_corpus": "carp.reviews.corpora.corpus",
    "load": "carp.recommender",
    "make_shop": "carp.reviews.shop.made_up_shop",
    "read_items": "carp.reviews.sources.item_files",
    "read_reviews": "carp.reviews.sources.formats",
}


def __getattr__(name: str) -> Any:
    """Names are imported when first used: `import carp` does not wait for torch."""
    if name not in _PLACES:
        raise AttributeError(f"module 'carp' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PLACES, "__version__"])


__all__ = [
    "CarpError",
    "Corpus",
    "Explanation",
    "Recommender",
    "__version__",
    "build_corpus",
    "load",
    "make_shop",
    "read_items",
    "read_reviews",
]
