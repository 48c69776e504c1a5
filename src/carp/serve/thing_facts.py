"""What is known of things besides their reviews, as answers show it, and their categories."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.item_texts import ItemTexts
from carp.serve.problems import Problem, echo

LONGEST_DESCRIPTION = 1_500  # characters that are shown
MOST_CATEGORIES = 12  # of one thing that are shown
Facts = dict[str, Any]


class ThingFacts:
    """Categories, descriptions and addresses of pictures. The service never fetches a picture."""

    def __init__(self, texts: ItemTexts | None) -> None:
        self.texts = texts

    def brief(self, item: int) -> Facts | None:
        """Categories and picture, for a line of a list; None where neither is known."""
        if self.texts is None:
            return None
        found = {"categories": self.texts.categories_of(item)[:MOST_CATEGORIES], "picture": self.texts.pictures[item]}
        return {**found, "picture": found["picture"] or None} if any(found.values()) else None

    def whole(self, item: int) -> Facts | None:
        """The same with the description; None where nothing is known."""
        brief = self.brief(item) or {"categories": [], "picture": None}
        description = "" if self.texts is None else self.texts.descriptions[item]
        found = {**brief, "description": _shortened(description) or None}
        return found if any(found.values()) else None

    @cached_property
    def _things(self) -> dict[str, tuple[str, NDArray[np.int64]]]:
        """By the letters of each category without regard to case: how it is written first, and its things."""
        found: dict[str, tuple[str, list[int]]] = {}
        for item in range(0 if self.texts is None else len(self.texts)):
            assert self.texts is not None
            for name in dict.fromkeys(self.texts.categories_of(item)):
                things = found.setdefault(name.casefold(), (name, []))[1]
                if things[-1:] != [item]:
                    things.append(item)
        return {key: (name, np.array(things)) for key, (name, things) in found.items()}

    @cached_property
    def _ranked(self) -> list[tuple[str, str, int]]:
        ranked = sorted(self._things.items(), key=lambda one: (-len(one[1][1]), one[0]))
        return [(key, name, len(things)) for key, (name, things) in ranked]

    def categories(self, words: str, limit: int) -> dict[str, Any]:
        """Categories that hold the words, those of most things first."""
        sought = words.strip().casefold()
        found = [(name, things) for key, name, things in self._ranked if sought in key]
        rows = [{"name": name, "things": things} for name, things in found[:limit]]
        return {"total": len(found), "categories": rows}

    def of_category(self, category: str, items: int) -> NDArray[np.bool_]:
        """Which things are of a category."""
        known = self._things.get(category.casefold())
        if known is None:
            what = f"no thing is of the category {echo(category)}"
            raise Problem(404, what, fix="see /api/categories for those there are", kind="unknown-category")
        mask = np.zeros(items, bool)
        mask[known[1]] = True
        return mask


def _shortened(text: str) -> str:
    """
    >>> _shortened("a  short one ")
    'a short one'
    """
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST_DESCRIPTION else plain[:LONGEST_DESCRIPTION].rsplit(" ", 1)[0] + " …"
