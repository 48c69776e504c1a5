"""What is said about records that were left out, and about those that were kept."""

from __future__ import annotations

import pandas as pd
import pytest

from carp import read_reviews
from carp.errors import UsageError
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Ledger, Rejection, is_unicode

HALF_A_CHARACTER = "drum \ud83e"  # the other half is missing


def ledger_of(*reasons, file="reviews.jsonl"):
    ledger = Ledger()
    for line, reason in enumerate(reasons, start=1):
        ledger.reject(Rejection(file, line, reason))
    return ledger


def test_the_first_place_of_a_reason_stays_when_ledgers_are_put_together():
    both = ledger_of("no rating", "no text")
    both.absorb(ledger_of("no rating", "not JSON", file="more.jsonl"))
    said = both.summary()
    assert "2 × no rating (first: reviews.jsonl line 1" in said
    assert "1 × not JSON (first: more.jsonl line 2" in said


def test_reasons_beyond_the_most_frequent_are_counted():
    ledger = ledger_of("no rating", "no rating", "no text", "not JSON")
    assert ledger.summary(reasons=1).splitlines()[1:] == [
        "  2 × no rating (first: reviews.jsonl line 1)",
        "  and 2 more reasons",
    ]
    assert "more reasons" not in ledger.summary(reasons=3)


@pytest.mark.parametrize("role", ["user", "item", "text"])
def test_half_a_character_is_rejected_by_name(role):
    good = {"user": "Ann", "item": "drum", "rating": 4, "text": "A fine drum."}
    frame = pd.DataFrame([good, {**good, "item": "reed", role: HALF_A_CHARACTER}], dtype=object)
    reviews = read_reviews(frame)
    assert len(reviews) == 1
    assert list(reviews.ledger.counts) == [f"{role} is not valid Unicode"]
    assert "1 record rejected" in repr(reviews)
    assert "rejected" not in repr(read_reviews(pd.DataFrame([good])))


def test_text_that_has_no_bytes_is_no_unicode():
    assert is_unicode("Röhre 🥁")
    assert not is_unicode(HALF_A_CHARACTER)


def test_a_column_whose_name_no_decoder_can_take_is_refused_before_a_line_is_read():
    with pytest.raises(UsageError, match="a column cannot be used"):
        JsonLines.of({"user": 'who "wrote" it', "item": "what"}, None)
