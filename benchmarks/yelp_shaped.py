"""Made-up reviews in any number with the statistics of the paper's Yelp16-17, in Yelp's own format.

    python benchmarks/yelp_shaped.py --reviews 1217208 --out reviews.json

What is kept from the paper's table: reviews a person and a thing (7.28 and 12.14, each at least 5 in the end), words a
review (38.86 without stop words), and four or five stars 3.29 times as often as fewer. Words follow Zipf's law, and
half of them are stop words. Every review is of 2016 or 2017; a tenth as many again are earlier, for `carp prepare
--since` to leave out. The same seed and number give the same bytes.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

USERS, ITEMS, REVIEWS = 167_106, 100_229, 1_217_208  # of Yelp16-17
FEWEST = 6  # one more than the core asks for: a second review of one thing by one person is taken out
STARS, SHARES = np.array([1, 2, 3, 4, 5]), np.array([0.073, 0.060, 0.100, 0.307, 0.460])  # 0.767 : 0.233 is 3.29
SENTENCES = 10.2  # of a review, on average, before the longest are cut
LONGEST = 70  # sentences, about Yelp's limit of 5,000 characters
WORDY = 1.3  # how much people differ in how much they write: the deviation of the logarithm
POOL = 200_000  # different sentences
VOCABULARY = 60_000
EARLIER = 0.1  # reviews before 2016, for each in the two years
AT_ONCE = 100_000
Ints = NDArray[np.int64]


def made_up_words(rng: np.random.Generator, count: int) -> list[str]:
    """Words that can be spoken; the frequent ones are short."""
    starts = ["b", "c", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "w"]
    vowels = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
    ends = ["", "n", "r", "s", "t", "l", "nd", "st"]
    parts = [np.array(starts), np.array(vowels), np.array(ends)]
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = 2 + (len(found) >= 2_000) + (len(found) >= 40_000)
        kinds = [0, 1] * syllables + [2]
        columns = [parts[kind][rng.integers(0, len(parts[kind]), 2_000)].tolist() for kind in kinds]
        found |= dict.fromkeys(map("".join, zip(*columns, strict=True)))
    return list(found)[:count]


def sentence_pool(rng: np.random.Generator, size: int) -> list[bytes]:
    from carp.reviews.text.stop_words import stop_words

    common = sorted(word for word in stop_words() if word.isalpha())
    words = np.array([*common, *made_up_words(rng, VOCABULARY)])
    lengths = rng.integers(7, 20, size)  # 13 on average
    total = int(lengths.sum())
    rank = np.arange(1, VOCABULARY + 1)
    content = len(common) + rng.choice(VOCABULARY, total, p=(1 / rank) / (1 / rank).sum())
    stop = rng.integers(0, len(common), total)
    chosen = words[np.where(rng.random(total) < 0.5, content, stop)]
    edges = np.concatenate([[0], np.cumsum(lengths)])
    sentences = (" ".join(chosen[a:b]) for a, b in itertools.pairwise(edges))
    return [f"{sentence.capitalize()}.".encode() for sentence in sentences]


def in_turns(rng: np.random.Generator, reviews: int, owners: int, tail: float) -> Ints:
    """Who each review belongs to: everybody some times, and some far more often, by Pareto's law."""
    owners = max(1, min(owners, reviews // FEWEST))
    weights = np.minimum(rng.pareto(tail, owners), 200)  # so that the shape does not depend on how many there are
    more = rng.choice(owners, reviews - FEWEST * owners, p=weights / weights.sum())
    counts = FEWEST + np.bincount(more, minlength=owners)
    found: Ints = rng.permutation(np.repeat(np.arange(owners), counts))
    return found


def lines(reviews: int, seed: int = 0) -> Iterator[bytes]:
    """The file, some reviews at a time."""
    rng = np.random.default_rng(seed)
    pool = sentence_pool(rng, min(POOL, 4 * reviews))
    users = in_turns(rng, reviews, round(reviews * USERS / REVIEWS), tail=1.2)
    items = in_turns(rng, reviews, round(reviews * ITEMS / REVIEWS), tail=0.9)
    days = [str(date(2004, 10, 12) + timedelta(days=number)).encode() for number in range(4829)]  # to 2017-12-31
    recent = days.index(b"2016-01-01")
    earlier = round(reviews * EARLIER)
    users = np.concatenate([users, rng.choice(users, earlier)])
    items = np.concatenate([items, rng.choice(items, earlier)])
    wordy = np.exp(rng.normal(-(WORDY**2) / 2, WORDY, int(users.max()) + 1))
    order = rng.permutation(reviews + earlier)
    for start in range(0, len(order), AT_ONCE):
        some = order[start : start + AT_ONCE]
        day = np.where(some < reviews, rng.integers(recent, len(days), len(some)), rng.integers(0, recent, len(some)))
        stars = rng.choice(STARS, len(some), p=SHARES)
        wanted = rng.exponential(SENTENCES, len(some)) * wordy[users[some]]
        counts = np.clip(rng.poisson(wanted), 1, LONGEST)
        texts = rng.integers(0, len(pool), int(counts.sum())).tolist()
        yield b"".join(_written(some, users[some], items[some], stars, [days[d] for d in day], counts, texts, pool))


def _written(
    numbers: Ints, users: Ints, items: Ints, stars: Ints, days: list[bytes], counts: Ints, texts: list[int],
    pool: list[bytes],
) -> Iterator[bytes]:  # fmt: skip
    line = b'{"review_id":"r%d","user_id":"u%d","business_id":"b%d","stars":%d,"date":"%b 12:00:00","text":"%b"}\n'
    place = 0
    columns = (column.tolist() for column in (numbers, users, items, stars, counts))
    for (number, user, item, star, count), day in zip(zip(*columns, strict=True), days, strict=True):
        text = b" ".join([pool[one] for one in texts[place : place + count]])
        place += count
        yield line % (number, user, item, star, day, text)


def write_reviews(path: Path, reviews: int, seed: int = 0) -> None:
    with path.open("wb") as file:
        for some in lines(reviews, seed):
            file.write(some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=int, default=REVIEWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    write_reviews(given.out, given.reviews, given.seed)


if __name__ == "__main__":
    main()
