"""What people write about, with names: a few words of the corpus for each aspect, the same for everybody.

Found without labels: a non-negative factorisation of sentences by their words, which has no random start. Words that
judge anything (great, awful) say nothing of what a sentence is about, so they are kept out of it. A shop that knows
better gives seed words: then its aspects are those, and each other word belongs where it stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carp.errors import UsageError
from carp.reviews.text.stop_words import general_words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_ASPECTS = 16
SENTENCES_PER_ASPECT = 100  # fewer than this cannot tell an aspect from chance
MOST_SENTENCES = 60_000  # factorised; of more, so many from all over the corpus, which may be in any order
LEAST_SENTENCES = 5  # a word must be in as many to belong anywhere
LARGEST_SHARE = 0.3  # of the sentences: a word that is everywhere is about nothing
WORDS_OF_A_NAME = 3
JUDGING = 4.0  # standard deviations of what a word says by itself, for it to be one of judgement
OWN_SHARE = 0.5  # of a word in an aspect, for it to say that a sentence is about that aspect
OTHER = "other words"
EVERYTHING = "all that is written"  # the one aspect of a corpus too small for more


@dataclass(frozen=True, eq=False)
class NamedAspects:
    """The aspects of a corpus, and where each of its words belongs."""

    names: tuple[str, ...]  # [K], of those and of what belongs nowhere, which comes last
    membership: NDArray[np.float32]  # [words + 1, K] a row a word of the model, 1 in all; word 0 is padding

    def __len__(self) -> int:
        return len(self.names)

    def renamed(self, names: Mapping[str, str]) -> NamedAspects:
        """The same aspects under a shop's own names; two of the same name are refused."""
        for name in names:
            if name not in self.names:
                raise UsageError(f"there is no aspect {name!r}", fix=f"choose among: {'; '.join(self.names[:-1])}")
        changed = tuple(names.get(name, name) for name in self.names)
        refuse_alike(changed)
        return replace(self, names=changed)

    def of_sentences(self, words: NDArray[np.int32], sentence: Ints, sentences: int) -> Ints:
        """The aspect that each sentence is about most, by the words of the model and their sentences; the last where no
        word of it is clearly one of any other."""
        shares = self.membership[words].astype(np.float64).ravel()
        cells = (sentence[:, None] * len(self.names) + np.arange(len(self.names))).ravel()
        clearest = np.zeros((sentences, len(self.names)))
        np.maximum.at(clearest.reshape(-1), cells, shares)  # along one axis, where NumPy is quick at it
        about = np.bincount(cells, shares, clearest.size).reshape(clearest.shape).astype(np.float64)
        about[:, -1] *= 0.5  # words that belong nowhere decide only where nothing else is said
        about[:, :-1] *= clearest[:, :-1] >= OWN_SHARE  # "highly recommended" is about nothing
        about[:, -1] += 1e-9
        return np.asarray(about.argmax(1))


def find_aspects(
    words: NDArray[np.int32],
    sentence: Ints,
    vocabulary: Sequence[str],
    says: Floats,
    *,
    most: int = MOST_ASPECTS,
    no_names: frozenset[str] = frozenset(),
) -> NamedAspects:
    """From the words of sentences (numbers of the vocabulary from 1, and the sentence of each) and what each word says
    by itself [vocabulary]; words of `no_names` say of no sentence what it is about."""
    from sklearn.decomposition import NMF  # a saved model is opened without it

    general = general_words() | no_names
    usable = ~judging(says) & np.array([word not in general for word in vocabulary], bool)
    rows = _rows(words, sentence, usable)
    k = min(most, rows.shape[0] // SENTENCES_PER_ASPECT, np.count_nonzero(np.diff(rows.tocsc().indptr)) // 2)
    if k < 2:
        return NamedAspects((EVERYTHING, OTHER), _membership(np.ones((1, len(vocabulary)))))
    some = rows[:: -(-rows.shape[0] // MOST_SENTENCES)]
    found = NMF(k, init="nndsvd", max_iter=100, tol=1e-3, random_state=0).fit(some)
    topics = found.components_ / np.maximum(np.linalg.norm(found.components_, axis=1, keepdims=True), 1e-12)
    topics = topics[(topics > 0).sum(1) >= WORDS_OF_A_NAME]
    return NamedAspects((*_names(topics, vocabulary), OTHER), _membership(_company(topics, rows, words, sentence)))


def seeded_aspects(
    seeds: Mapping[str, Sequence[str]], words: NDArray[np.int32], sentence: Ints, vocabulary: Sequence[str]
) -> NamedAspects:
    """Aspects by a shop's own words: every other word belongs where it stands beside them more often than chance."""
    refuse_alike((*seeds, OTHER))
    number = {word: place for place, word in enumerate(vocabulary)}
    rows = _rows(words, sentence, np.ones(len(vocabulary), bool))
    topics = np.zeros((len(seeds), len(vocabulary)))
    for row, (name, given) in enumerate(seeds.items()):
        known = [number[word] for word in given if word in number]
        if not known:
            raise UsageError(
                f"the model knows none of the seed words of {name!r} ({', '.join(given) or 'there are none'}): "
                "they are in no review, or in so many that they tell nothing apart",
                fix="give words as they stand in some of the reviews, in lower case",
            )
        near = np.asarray(rows[:, known].sum(1)).ravel()
        topics[row] = np.maximum(rows.T @ (near - near.mean()), 0)
        topics[row] *= 0.5 / max(float(topics[row].max()), 1e-12)
        topics[row, known] = 1
    return NamedAspects((*seeds, OTHER), _membership(topics))


def refuse_alike(names: Sequence[str]) -> None:
    """Refuse two names that a reader would take for one."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise UsageError(f"two aspects would be called {name!r}", fix="give each a name of its own")
        seen.add(name.casefold())


def judging(says: Floats) -> NDArray[np.bool_]:
    """Which words judge, by what each says: those that stand out."""
    spread = float(np.sqrt(np.square(says).mean())) if len(says) else 0.0
    return np.abs(says) > JUDGING * spread if spread else np.zeros(len(says), bool)


def _rows(words: NDArray[np.int32], sentence: Ints, usable: NDArray[np.bool_]) -> csr_matrix:
    """TF-IDF rows of sentences at length 1, of the words that can say what a sentence is about [sentences, words]."""
    from scipy.sparse import csr_matrix, diags_array

    count = int(sentence.max()) + 1 if len(sentence) else 0
    cells = np.unique(sentence * (len(usable) + 1) + words)
    row, column = cells // (len(usable) + 1), cells % (len(usable) + 1) - 1
    within = np.bincount(column, minlength=len(usable))
    usable = usable & (within >= LEAST_SENTENCES) & (within <= max(LARGEST_SHARE * count, LEAST_SENTENCES))
    kept = usable[column]
    value = (1 + np.log((1 + count) / (1 + within)))[column[kept]]
    found = csr_matrix((value, (row[kept], column[kept])), shape=(count, len(usable)))
    length = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
    return csr_matrix(diags_array(1 / np.maximum(length, 1e-12)) @ found)


def _membership(topics: Floats) -> NDArray[np.float32]:
    """The share of every word in each aspect; words in none are wholly in the last one."""
    total = topics.sum(0)
    shares = np.zeros((topics.shape[1] + 1, len(topics) + 1), np.float32)
    there = total > 0
    shares[1:, :-1][there] = (topics[:, there] / total[there]).T
    shares[1:, -1][~there] = 1
    shares[0, -1] = 1
    return shares


def _company(topics: Floats, rows: csr_matrix, words: NDArray[np.int32], sentence: Ints) -> Floats:
    """How much every word keeps company with each aspect [K, words]: also words of judgement, and rare ones, belong
    where they stand."""
    from scipy.sparse import csr_matrix

    about = np.asarray(rows @ topics.T)
    about /= np.maximum(about.sum(1, keepdims=True), 1e-12)
    everywhere = csr_matrix((np.ones(len(words)), (words - 1, sentence)), shape=(topics.shape[1], len(about)))
    together = np.asarray(everywhere @ about)
    return np.asarray(np.square(together / np.maximum(about.sum(0), 1e-12)).T)


def _names(topics: Floats, vocabulary: Sequence[str]) -> list[str]:
    """The words that an aspect has most of and shares least, none of them in two names."""
    worth = topics * _membership(topics)[1:, :-1].T
    taken: set[int] = set()
    names = []
    for row in worth:
        best = [int(place) for place in np.argsort(-row, kind="stable") if place not in taken][:WORDS_OF_A_NAME]
        taken.update(best)
        names.append(", ".join(vocabulary[place] for place in best))
    return names
