"""Cutting texts into words, each with its characters in the original text.

`tokenise` defines what a word is, for one text. `tokenise_many` gives the same for many texts, fast, from their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.text.lexicon import MOST_SURFACES, NO_WORD, Lexicon, as_plain_word, as_word
from carp.reviews.text.scripts import NEEDS_CARE, word_spans

TOKENISER_VERSION = 2  # raised when words are cut differently; saved corpora and models record it
BLOCK = 256 << 10  # bytes handled together; they and their words fit into a processor's cache
GROUP = 4 << 20  # bytes numbered together

# Splitting with a group yields gap, word, gap, word, ..., gap: all offsets follow from the lengths.
_WORD = re.compile(r"([^\W_]++(?:['’][^\W_]++)*+)")
_split_at_words = _WORD.split  # the words of ASCII alone
# What is a word whatever stands beside it, found without asking which characters belong to words in other scripts.
_SURELY_A_WORD = re.compile(r"(?:^|[ \n.,!?])[A-Za-z]{1,20}(?:$|[ \n.,!?])")

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]
_CURLY = ord("’")
# ASCII letters and digits in lower case, other ASCII as 0. Other bytes stay, and are looked at later.
_FOLDED = bytes(code if code >= 128 or chr(code).isalnum() else 0 for code in bytes(range(256)).lower())
_PADDING = bytes(16)  # surfaces are looked up sixteen bytes at a time


def tokenise(text: str) -> tuple[list[str], list[int], list[int]]:
    """The words of a text in lower case, with the offsets where each begins and ends.

    A word is a run of letters and digits with at least one letter. Marks on letters belong to it, and so do apostrophes
    inside. Scripts without spaces are cut by a dictionary, and an emoji is a word.

    >>> tokenise("It's 100% İdeal")
    (["it's", 'ideal'], [0, 10], [4, 15])
    >>> tokenise("音質がとても良い😀")[0]
    ['音質', 'が', 'とても', '良い', '😀']
    """
    if not text.isascii():
        return _tokenise_with_care(text)
    parts = _split_at_words(text)
    edges = list(accumulate(map(len, parts)))
    words, starts, ends = list(map(as_word, parts[1::2])), edges[:-1:2], edges[1::2]
    if "" not in words:
        return words, starts, ends
    kept = [place for place, word in enumerate(words) if word]
    return [words[k] for k in kept], [starts[k] for k in kept], [ends[k] for k in kept]


def _tokenise_with_care(text: str) -> tuple[list[str], list[int], list[int]]:
    words, starts, ends = list[str](), list[int](), list[int]()
    for start, end in word_spans(text):
        if word := as_word(text[start:end]):
            words.append(word)
            starts.append(start)
            ends.append(end)
    return words, starts, ends


def has_word(text: str) -> bool:
    """Whether `tokenise` finds a word in a text.

    >>> has_word("10/10 :-)"), has_word("10/10 ok")
    (False, True)
    """
    if _SURELY_A_WORD.search(text):
        return True
    if text.isascii():
        return any(as_word(run[0]) for run in _WORD.finditer(text))
    return any(as_word(text[start:end]) for start, end in word_spans(text))


class Tokens(NamedTuple):
    """The words of many texts, end to end. Text t is `offsets[t]:offsets[t + 1]` in the columns."""

    words: list[str]  # distinct, in order of first appearance; a token is an index into this list
    offsets: NDArray[np.int64]  # [N + 1]
    tokens: NDArray[np.int32]  # [T]
    starts: NDArray[np.int32]  # [T] characters from the beginning of the text
    lengths: NDArray[np.uint8]  # [T] characters as written


def tokenise_many(texts: Sequence[str]) -> Tokens:
    """What `tokenise` gives for each text, as columns."""
    # Half a surrogate pair has no UTF-8. It becomes a question mark, which is not part of a word either.
    return tokenise_bytes([text.encode("utf-8", "replace") for text in texts])


def tokenise_bytes(texts: Sequence[bytes], *, plain: bool = False) -> Tokens:
    """The same for texts in UTF-8. If `plain`, a word is a run of letters and digits, whatever the script."""
    groups = [_tokenise_group(group, plain=plain) for group in _runs(texts, GROUP)]
    return groups[0] if len(groups) == 1 else join_tokens(groups)


def join_tokens(chunks: Sequence[Tokens]) -> Tokens:
    """The same result as for the texts of all chunks at once."""
    places: dict[str, int] = {}
    tokens = []
    for chunk in chunks:
        place_of = np.array([places.setdefault(word, len(places)) for word in chunk.words], dtype=np.int32)
        tokens.append(place_of[chunk.tokens])
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(chunk.offsets) for chunk in chunks)])
    return Tokens(
        list(places),
        np.cumsum(sizes),
        np.concatenate([np.zeros(0, np.int32), *tokens]),
        np.concatenate([np.zeros(0, np.int32), *(chunk.starts for chunk in chunks)]),
        np.concatenate([np.zeros(0, np.uint8), *(chunk.lengths for chunk in chunks)]),
    )


def _runs(texts: Sequence[bytes], limit: int) -> Iterator[Sequence[bytes]]:
    """The texts in runs of about `limit` bytes."""
    first = size = 0
    for place, text in enumerate(texts):
        if size > limit:
            yield texts[first:place]
            first, size = place, 0
        size += len(text) + 1
    if first < len(texts):
        yield texts[first:]


# Caches between calls: they change how fast words are found, not which words.
_lexicons = {False: Lexicon(), True: Lexicon(as_plain_word)}


def _tokenise_group(texts: Sequence[bytes], *, plain: bool) -> Tokens:
    careful = [place for place, text in enumerate(texts) if not (plain or text.isascii()) and NEEDS_CARE.search(text)]
    return _mixed(texts, careful) if careful else _tokenise_fast(texts, plain=plain)


def _tokenise_fast(texts: Sequence[bytes], *, plain: bool) -> Tokens:
    if _lexicons[plain].surfaces > MOST_SURFACES:
        _lexicons[plain] = Lexicon(as_plain_word if plain else as_word)
    lexicon = _lexicons[plain]
    blocks = [_tokenise_block(block, lexicon) for block in _runs(texts, BLOCK)]
    counts, words, starts, lengths = (np.concatenate(column) for column in zip(*blocks, strict=True))
    distinct, tokens = number_by_appearance(words, len(lexicon.words))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Tokens([lexicon.words[word] for word in distinct.tolist()], offsets, tokens, starts, lengths)


def _mixed(texts: Sequence[bytes], careful: Sequence[int]) -> Tokens:
    """The words of a group in which some texts have to be cut with care."""
    plain = list(texts)
    for place in careful:
        plain[place] = b""
    fast = _tokenise_fast(plain, plain=False)
    slow = _with_care([texts[place] for place in careful])
    joined = join_tokens([fast, slow])
    counts = np.diff(fast.offsets)
    counts[np.array(careful)] = np.diff(slow.offsets)
    is_careful = np.zeros(len(texts), dtype=bool)
    is_careful[np.array(careful)] = True
    # The tokens of the fast way come first in the joined columns, those of the careful way after them.
    order = np.empty(len(joined.tokens), np.int64)
    from_careful = np.repeat(is_careful, counts)
    order[~from_careful] = np.arange(len(fast.tokens))
    order[from_careful] = len(fast.tokens) + np.arange(len(slow.tokens))
    distinct, tokens = number_by_appearance(joined.tokens[order], len(joined.words))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    words = [joined.words[word] for word in distinct.tolist()]
    return Tokens(words, offsets, tokens, joined.starts[order], joined.lengths[order])


def _with_care(texts: Sequence[bytes]) -> Tokens:
    places: dict[str, int] = {}
    tokens, starts, lengths, offsets = list[int](), list[int](), list[int](), [0]
    for text in texts:
        words, begins, ends = tokenise(text.decode())
        tokens += [places.setdefault(word, len(places)) for word in words]
        starts += begins
        lengths += [end - begin for begin, end in zip(begins, ends, strict=True)]
        offsets.append(len(tokens))
    columns = np.array(tokens, np.int32), np.array(starts, np.int32), np.array(lengths, np.uint8)
    return Tokens(list(places), np.array(offsets, np.int64), *columns)


def number_by_appearance(numbers: NDArray[np.int32], known: int) -> tuple[Places, NDArray[np.int32]]:
    """The distinct numbers in order of first appearance, and each number as an index into them.

    >>> number_by_appearance(np.array([7, 2, 7], np.int32), known=9)
    (array([7, 2]), array([0, 1, 0], dtype=int32))
    """
    first = np.full(known, -1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # the last write to a place stays
    seen = np.flatnonzero(first >= 0)
    distinct = seen[np.argsort(first[seen])]
    place_of = np.zeros(known, np.int32)
    place_of[distinct] = np.arange(len(distinct))
    return distinct, place_of[numbers]


def _tokenise_block(
    texts: Sequence[bytes], lexicon: Lexicon
) -> tuple[Places, NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """How many words each text has, and for each word its number in the lexicon, its start and its length."""
    joined = b"\n" + b"\n".join(texts) + b"\n" + _PADDING
    folded = _folded(joined)
    is_word = folded != 0
    edges = np.flatnonzero(is_word[1:] != is_word[:-1]) + 1
    starts, ends = edges[0::2], edges[1::2]
    words = lexicon.find(folded, starts, ends - starts)
    kept = words != NO_WORD
    if not kept.all():
        words, starts, ends = words[kept], starts[kept], ends[kept]
    begins = 1 + np.cumsum([0, *(len(text) + 1 for text in texts)])
    counts = np.diff(np.searchsorted(starts, begins))
    begins = begins[:-1]
    if not joined.isascii():
        inside = (np.frombuffer(joined, np.uint8) & 0xC0) == 0x80  # bytes inside a character
        before = np.cumsum(inside, dtype=np.int32)
        starts, ends, begins = starts - before[starts], ends - before[ends], begins - before[begins]
    lengths = (ends - starts).astype(np.uint8)
    return counts, words, (starts - np.repeat(begins, counts)).astype(np.int32), lengths


def _folded(joined: bytes) -> Bytes:
    """The bytes of words, with ASCII letters in lower case. All other bytes are 0."""
    raw = np.frombuffer(joined, np.uint8)
    folded = np.frombuffer(bytearray(joined.translate(_FOLDED)), np.uint8)
    curly = np.zeros(0, np.int64) if joined.isascii() else _clear_signs(raw, folded)
    for places, size in ((np.flatnonzero(raw == ord("'")), 1), (curly, 3)):
        places = places[(folded[places - 1] != 0) & (folded[places + size] != 0)]
        for byte in range(size):
            folded[places + byte] = raw[places + byte]
    return folded


def _clear_signs(raw: Bytes, folded: Bytes) -> Places:
    """Set characters beyond ASCII to 0 if they do not belong to words. Returns the places of curly apostrophes."""
    leads = np.flatnonzero(raw >= 0xC0)
    lead = raw[leads].astype(np.int32)
    sizes = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    codes = lead & (0x7F >> sizes)
    for byte in (1, 2, 3):
        longer = sizes > byte
        codes[longer] = codes[longer] << 6 | raw[leads[longer] + byte] & 0x3F
    distinct, which = np.unique(codes, return_inverse=True)
    is_sign = ~np.array([chr(code).isalnum() for code in distinct.tolist()], dtype=bool)[which]
    for byte in range(4):
        folded[leads[is_sign & (sizes > byte)] + byte] = 0
    curly: Places = leads[codes == _CURLY]
    return curly
