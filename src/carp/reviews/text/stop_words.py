"""Words that models do not see: the English list in this package, lists of other languages, or a file of the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from carp.errors import InputError
from carp.reviews.text.languages import ENGLISH, codes, stop_words_of
from carp.reviews.text.tokens import tokenise

# Most published lists contain them. Here they are not stop words, because they carry sentiment.
NEGATIONS = frozenset(
    tokenise(
        "no not non nor never neither none nobody nothing nowhere without hardly barely scarcely cannot can't cant "
        "don't dont doesn't doesnt didn't didnt isn't isnt aren't arent ain't aint wasn't wasnt weren't werent won't "
        "wont wouldn't wouldnt couldn't couldnt shouldn't shouldnt haven't havent hasn't hasnt hadn't hadnt mustn't "
        "needn't mightn't shan't"
    )[0]
)


@cache
def _english() -> frozenset[str]:
    return _stop_words(resources.files("carp.reviews.text").joinpath("stop_words.txt").read_text("utf-8"))


def stop_words() -> frozenset[str]:
    """The English words that models do not see by default. Negations and judgements are not among them."""
    return _english()


@cache
def general_words() -> frozenset[str]:
    """English words of judgement and of telling: models see them, but no aspect is named by them."""
    return _stop_words(resources.files("carp.reviews.text").joinpath("general_words.txt").read_text("utf-8"))


def stop_words_in(languages: Iterable[str]) -> frozenset[str]:
    """The stop words of some languages, by their codes."""
    return frozenset().union(*(stop_words() if code == ENGLISH else stop_words_of(code) for code in languages))


def read_stop_words(choice: str | Path, languages: Sequence[str] = (ENGLISH,)) -> frozenset[str]:
    """The stop words that are asked for.

    `auto` is the lists of the languages of the corpus, `english` the list in this package, `none` is empty, a code such
    as `de` or `de,fr` the lists of these languages, and anything else is a file.

    >>> read_stop_words("none")
    frozenset()
    """
    if choice == "none":
        return frozenset()
    if choice in ("auto", "english"):
        return stop_words_in(languages if choice == "auto" else [ENGLISH])
    asked = str(choice).replace(" ", "").split(",")
    if set(asked) <= set(codes()):
        return stop_words_in(asked)
    try:
        return _stop_words(Path(choice).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        fix = "give a UTF-8 text file with the words, or auto, none, english, or the code of a language, such as de"
        raise InputError(f"the stop words cannot be read ({error})", where=str(choice), fix=fix) from error


def _stop_words(text: str) -> frozenset[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return frozenset(word for line in lines for word in tokenise(line)[0])
