"""The fields of a record about a thing become its texts.

Files differ in how they write the same: categories as a list, as a list of lists or as one text, a picture as an
address, a list of addresses or a list of sizes. Nothing here is fetched, and nothing is run.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from carp.reviews.sources.item_records import ItemText
from carp.reviews.sources.ledger import MAX_TEXT, Rejection, Unusable, identifier, is_unicode, title_of
from carp.reviews.sources.markup import unescape

MAX_ADDRESS = 2_000
SIZES = ("hi_res", "large", "thumb")  # of Amazon's pictures, the best first
BETWEEN = ("|", " > ", ";")  # how categories are joined in one text
NO_PICTURE = "the picture is no address that begins with http:// or https://"
NO_TITLE = "the title is not one line of text of at most 1,000 characters"
LONG_DESCRIPTION = f"the description is longer than {MAX_TEXT:,} characters"


class ItemRecord(NamedTuple):
    """One thing of an items file, and what of it could not be used."""

    item: str
    text: ItemText
    left_out: tuple[str, ...] = ()


class ItemCheck:
    """Turn the fields of one record into an ItemRecord or a Rejection."""

    def __init__(self, file: str, *, lists_categories: bool) -> None:
        self.file = file
        self.lists_categories = lists_categories  # whether a comma separates two categories

    def __call__(
        self, line: int, item: Any, title: Any, category: Any, department: Any, description: Any, picture: Any
    ) -> ItemRecord | Rejection:
        try:
            name = identifier(item, "item")
        except Unusable as fault:
            return Rejection(self.file, line, str(fault))
        categories = [*self._categories(department), *self._categories(category)]
        text = ItemText(
            title_of(title) or "", tuple(dict.fromkeys(categories)), description_of(description), picture_of(picture)
        )
        return ItemRecord(name, text, tuple(_left_out(text, title, description, picture)))

    def _categories(self, value: Any) -> list[str]:
        return categories_of(value, commas=self.lists_categories)


def _left_out(text: ItemText, title: Any, description: Any, picture: Any) -> Iterator[str]:
    if not text.title and _says_something(title):
        yield NO_TITLE
    if not text.description and _says_something(description):
        yield LONG_DESCRIPTION
    if not text.picture and _says_something(picture):
        yield NO_PICTURE


def _says_something(value: Any) -> bool:
    return any(isinstance(one, str) and bool(one.strip()) for one in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    """The single values in lists and objects of any depth, in order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if hasattr(one, "tolist"):
            one = one.tolist()
        if isinstance(one, dict):
            waiting += [one[key] for key in reversed(one)]
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        else:
            yield one


def categories_of(value: Any, *, commas: bool) -> list[str]:
    """The categories of a thing, each once.

    >>> categories_of([["Instruments", "Amps"], ["Instruments", "Tubes"]], commas=False)
    ['Instruments', 'Amps', 'Tubes']
    >>> categories_of("Thai, Bars", commas=True), categories_of("Toys, Games", commas=False)
    (['Thai', 'Bars'], ['Toys, Games'])
    >>> categories_of("['Thai', 'Bars']", commas=False), categories_of("Food > Thai", commas=False)
    (['Thai', 'Bars'], ['Food', 'Thai'])
    """
    if isinstance(value, str):
        value = _listed(value, commas)
    found = (title_of(one) for one in _leaves(value))
    return list(dict.fromkeys(one for one in found if one))


def _listed(text: str, commas: bool) -> Any:
    if text.lstrip().startswith("["):
        return _literal(text)
    for separator in (*BETWEEN, *((",",) if commas else ())):
        if separator in text:
            return text.split(separator)
    return text


def _literal(text: str) -> Any:
    """A list that was written as text, by JSON or by Python."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return python_literal(text) or text


def python_literal(text: str) -> Any:
    """The value of a literal of Python, or None if it is none. Only literals are read; nothing is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about backslashes, which are none of the reader's business
            return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def description_of(value: Any) -> str:
    """The paragraphs of a description, one a line; empty if it is too long or no text."""
    paragraphs = (_paragraph(one) for one in _leaves(value) if isinstance(one, str))
    text = "\n".join(one for one in paragraphs if one)
    return text if len(text) <= MAX_TEXT and is_unicode(text) else ""


def _paragraph(text: str) -> str:
    return " ".join(unescape(text).split())


def picture_of(value: Any) -> str:
    """The first address of a picture, or nothing: only addresses of web pages are kept.

    >>> picture_of(["file:///etc/passwd", "https://shop.example/a.png"])
    'https://shop.example/a.png'
    >>> picture_of([{"thumb": "https://shop.example/s.png", "hi_res": None, "large": "https://shop.example/l.png"}])
    'https://shop.example/l.png'
    >>> picture_of("javascript:alert(1)"), picture_of("a.png")
    ('', '')
    """
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        value = _literal(value)
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict):
        value = [first.get(size) for size in SIZES]
    return next((one for one in map(_address, _leaves(value)) if one), "")


def _address(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_ADDRESS or not is_unicode(value):
        return ""
    address = value.strip()
    if any(letter.isspace() or not letter.isprintable() for letter in address):
        return ""
    try:
        parts = urlsplit(address)
        return address if parts.scheme in ("http", "https") and parts.hostname else ""
    except ValueError:
        return ""
