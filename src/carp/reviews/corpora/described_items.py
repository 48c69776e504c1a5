"""A corpus with what is known of its items: titles of the reviews, completed by files about the items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carp.errors import InputError
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.sources.item_records import ItemText

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus
    from carp.reviews.sources.item_files import Items


def describe_items(corpus: Corpus, items: Items) -> Corpus:
    """The corpus with the texts of its items. Titles in the reviews stay where the files have none."""
    ids = list(corpus.items)
    known = [items.texts.get(name) for name in ids]
    if all(text is None for text in known):
        raise _strangers(ids, items)
    said = [""] * len(ids) if corpus.item_texts is None else list(corpus.item_texts.titles)
    texts = [_completed(text or ItemText(), title) for text, title in zip(known, said, strict=True)]
    columns = ItemTexts.of(texts)
    facts = {**corpus.facts, "items": _facts(items, ids, texts) | columns.known()}
    return replace(corpus, item_texts=columns, facts=facts)


def _completed(text: ItemText, title: str) -> ItemText:
    return text if text.title or not title else text._replace(title=title)


def _facts(items: Items, ids: Sequence[str], texts: Sequence[ItemText]) -> dict[str, Any]:
    there = sum(name in items.texts for name in ids)
    return {
        "sources": items.sources,
        "columns": items.columns,
        "read": items.ledger.read,
        "accepted": items.ledger.accepted,
        "rejected": items.ledger.rejected,
        "repeated": items.repeated,
        "without_reviews": items.passed_over + len(items.texts) - there,
        "described": there,
        "left_out": items.left_out,
        "same_title": _sharing(text.title for text in texts if text.title),
    }


def _sharing(titles: Any) -> int:
    """How many things have a title that another thing has too."""
    return sum(count for count in Counter(titles).values() if count > 1)


def _strangers(ids: Sequence[str], items: Items) -> InputError:
    ours = ", ".join(repr(name[:40]) for name in ids[:3])
    theirs = ", ".join(repr(name[:40]) for name in [*items.strangers, *items.texts][:3])
    return InputError(
        f"none of the {len(ids):,} items of the reviews is in it (the reviews have {ours}, it has {theirs})",
        where=", ".join(items.sources),
        fix="check that it is about the same things, and name the column of ids with --item-column item=NAME",
    )
