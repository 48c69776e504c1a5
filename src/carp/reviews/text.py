"""From characters to words and back: sentences, stop words, vocabulary; the tokeniser itself is in `tokens`.

Every word and every sentence knows the characters it stands on in the original text, so that an explanation
can highlight what a person really wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError, InputError
from carp.reviews.tokens import tokenise as tokenise

if TYPE_CHECKING:
    from carp.reviews.corpus import Corpus

LONGEST_SENTENCE = 300
WordCounts = tuple[NDArray[np.int64], NDArray[np.int64]]  # [corpus words] in all, and records they stand in
RECORDS_AT_ONCE = 50_000  # bounds the memory that counting documents needs

# They carry sentiment, so they are no stop words here, though most published lists count them as such.
NEGATIONS = frozenset(
    tokenise(
        "no not non nor never neither none nobody nothing nowhere without hardly barely scarcely cannot can't cant "
        "don't dont doesn't doesnt didn't didnt isn't isnt aren't arent ain't aint wasn't wasnt weren't werent won't "
        "wont wouldn't wouldnt couldn't couldnt shouldn't shouldnt haven't havent hasn't hasnt hadn't hadnt mustn't "
        "needn't mightn't shan't"
    )[0]
)


_MARK = re.compile(r"""[.!?…]+["'”’)\]}»]*|[。！？]+|[\r\n\v\f\x85\u2028\u2029]+""")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_LETTERS_WITH_DOTS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_LONE_LETTER = re.compile(r"[^\W\d_]\b")
_NEVER_LAST = {"e.g", "i.e", "eg", "ie", "vs", "dr", "mr", "mrs", "ms", "st", "cf", "incl", "approx"}
_SELDOM_LAST = {
    "etc",
    "oz",
    "lb",
    "lbs",
    "ft",
    "inc",
    "ltd",
    "co",
    "jr",
    "sr",
    "min",
    "max",
    "a.m",
    "p.m",
    "u.s",
    "u.k",
}


def _ends_sentence(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark really ends a sentence; what reviews do after it is no great help, so the doubt goes to yes."""
    sign, place = mark[0], mark.end()
    if sign[0] not in ".!?…":
        return True
    rest = text[place : place + 40].lstrip()
    if text[place : place + 1] == rest[:1] and rest and not rest[0].isupper():
        return False  # 2.5, example.com
    if sign.startswith(("..", "…")):
        return not rest or not rest[0].islower()
    if sign[0] != "." or not rest:
        return True
    before = _LAST_WORD.search(text, max(0, mark.start() - 12), mark.start())
    word = before[0].lower() if before else ""
    if _LETTERS_WITH_DOTS.fullmatch(word) and _LONE_LETTER.match(text, place):
        return False  # U.S.A
    return word not in _NEVER_LAST and (word not in _SELDOM_LAST or rest[0].isupper())


def sentences(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences; whatever is not white space lies in exactly one.

    >>> text = "Quite affordable.I paid 9.95, e.g. half. :]"
    >>> [text[start:end] for start, end in sentences(text)]
    ['Quite affordable.', 'I paid 9.95, e.g. half.', ':]']
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for end in chain((mark.end() for mark in _MARK.finditer(text) if _ends_sentence(text, mark)), [len(text)]):
        spans += _short_spans(text, start, end)
        start = end
    return spans


def _short_spans(text: str, start: int, end: int) -> Iterable[tuple[int, int]]:
    """The span without its outer white space, cut where it is too long to be shown."""
    end = start + len(text[start:end].rstrip())
    while start < end:
        if text[start].isspace():
            start += 1
            continue
        cut = start + _cut(text[start : start + LONGEST_SENTENCE]) if end - start > LONGEST_SENTENCE else end
        yield start, start + len(text[start:cut].rstrip())
        start = cut


def _cut(window: str) -> int:
    """Where to cut the first piece off a long sentence: after ; or , or before a space, if there is any."""
    for sign in ("; ", ", "):
        place = window.rfind(sign)
        if place >= LONGEST_SENTENCE // 3:  # no stubs
            return place + 1
    return max((place for place, character in enumerate(window) if character.isspace()), default=len(window))


@cache
def _english() -> frozenset[str]:
    return _stop_words(resources.files("carp.reviews").joinpath("stop_words.txt").read_text("utf-8"))


def stop_words() -> frozenset[str]:
    """The English words that models do not see unless told otherwise; negations and judgements are not among them."""
    return _english()


def read_stop_words(choice: str | Path) -> frozenset[str]:
    """`english` is the list that comes along, `none` the empty one, anything else a file of the user's own.

    >>> read_stop_words("none")
    frozenset()
    """
    if choice == "none":
        return frozenset()
    if choice == "english":
        return stop_words()
    try:
        return _stop_words(Path(choice).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        mend = "give a UTF-8 text file with the words, or english, or none"
        raise InputError(f"the stop words cannot be read ({error})", where=str(choice), mend=mend) from error


def _stop_words(text: str) -> frozenset[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return frozenset(word for line in lines for word in tokenise(line)[0])


@dataclass(frozen=True)
class Vocabulary:
    """The words a model sees. Model id i stands for `words[i - 1]`; 0 is padding and every other word."""

    words: list[str]
    model_ids: NDArray[np.int32]  # [corpus words] model id of each word of the corpus, or 0

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=1)}

    def encode(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """The words of a text that a model sees: ids, and the characters each begins and ends at."""
        known = [
            (self._index[w], start, end) for w, start, end in zip(*tokenise(text), strict=True) if w in self._index
        ]
        return [k[0] for k in known], [k[1] for k in known], [k[2] for k in known]

    def to_json(self) -> dict[str, Any]:
        return {"words": self.words}

    @classmethod
    def from_json(cls, data: Any, corpus_words: Iterable[str] = ()) -> Vocabulary:
        """The vocabulary again; with the words of a corpus it can number that corpus' tokens too."""
        words = data.get("words") if isinstance(data, dict) else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DamagedError("the vocabulary is damaged", mend="train the model anew, or restore it from a copy")
        index = {word: place for place, word in enumerate(words, start=1)}
        return cls(words, np.array([index.get(word, 0) for word in corpus_words], dtype=np.int32))


def build_vocabulary(
    corpus: Corpus,
    records: NDArray[np.integer[Any]],
    *,
    size: int = 20_000,
    stop_words: frozenset[str] | None = None,
    max_document_share: float = 0.5,
    counts: WordCounts | None = None,
) -> Vocabulary:
    """The `size` best words by tf-idf, summed over the given records, which are the only ones it looks at.

    Stop words and words in more than `max_document_share` of the records are left out; ties go by the alphabet.
    Whoever has counted the words of these records already gives the `counts`.
    """
    stopped = _english() if stop_words is None else stop_words
    total, documents = counts or count_words(corpus, records)
    seen = np.flatnonzero((total > 0) & (documents <= max_document_share * len(records)))
    scores = total[seen] * np.log(len(records) / documents[seen])
    found = zip((-scores).tolist(), map(corpus.words.__getitem__, seen.tolist()), seen.tolist(), strict=True)
    best = sorted(entry for entry in found if entry[1] not in stopped)[:size]
    if not best:
        raise InputError(
            f"no word is left for the vocabulary ({len(records)} training reviews)",
            mend="give more reviews, or fewer stop words (train with --set stop_words=none)",
        )
    model_ids = np.zeros(len(corpus.words), dtype=np.int32)
    model_ids[[place for _, _, place in best]] = np.arange(1, len(best) + 1)
    return Vocabulary([word for _, word, _ in best], model_ids)


def count_words(corpus: Corpus, records: NDArray[np.integer[Any]]) -> WordCounts:
    """For each word of the corpus how often it stands in the records, and in how many of them."""
    number = len(corpus.words)
    total, documents = np.zeros(number, np.int64), np.zeros(number, np.int64)
    for first in range(0, len(records), RECORDS_AT_ONCE):
        chunk = np.asarray(records[first : first + RECORDS_AT_ONCE], dtype=np.int64)
        place, tokens = corpus.tokens_of(chunk)
        total += np.bincount(tokens, minlength=number)
        pairs = np.unique(place * number + tokens)
        documents += np.bincount(pairs % number, minlength=number)
    return total, documents
