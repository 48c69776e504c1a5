"""Whether explanations show planted causes is counted right, where the count is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Sentence, Side
from carp.explain.faithfulness.planted_causes import UNITS, CausesFound, planted_causes_found
from carp.explain.question import Detail
from carp.models.batch import Pairs
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.shop.made_up_shop import TOPICS, make_shop
from carp.reviews.text.tokens import tokenise

PAIRS = 6
SAYING = {
    "weight": "This amp weighs a ton.",
    "durability": "The hinge broke after a week of normal use.",
    "price": "This amp is very overpriced.",
    "sound": "The sound is very muddy.",
    "looks": "The design is very ugly.",
    "comfort": "The strap is very stiff.",
    "ease of use": "The controls are very confusing.",
    "battery": "The battery is very weak.",
}
NOTHING = "Thanks for reading this far."
OPPOSITE = {"positive": "negative", "negative": "positive"}


@pytest.fixture(scope="module")
def shop():
    return make_shop(people=PAIRS, things=PAIRS, reviews_per_person=6)


def side(*texts):
    return Side(1, tuple(Sentence(text, (), None, None, None) for text in texts), ())


def unit(sentiment, viewpoint, aspect):
    return LogicUnit(side(*viewpoint), side(*aspect), 0.5, 0.5, sentiment)


def document(text):
    words, starts, ends = tokenise(text)
    places = np.zeros(len(words), np.int32)
    spans = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
    return ReadableDocument(places + 1, places, *spans, {0: WrittenReview(text, None, None, None)})


class FakeExplainer:
    """Explains person n and thing n by what `units` gives for their cause, out of what `wrote` says they wrote.

    `wrote` gives the text of the user's documents or of the item's, for the topic of the cause.
    """

    def __init__(self, shop, units, wrote=lambda side, topic: SAYING[topic]):
        self.shop, self.units, self.wrote = shop, units, wrote
        numbers = np.arange(PAIRS)
        self.left_out, self.asked = [], []
        self.corpus = SimpleNamespace(
            users=list(shop.people),
            items=list(shop.things),
            user_documents="user",
            item_documents="item",
            record_of_pair={(number, number): 100 + number for number in range(PAIRS)},
            test_pairs=lambda: Pairs(numbers, numbers, np.full(PAIRS, 3.0, np.float32), numbers),
            readable=self.readable,
        )

    def cause(self, number):
        return self.shop.planted_cause(self.corpus.users[number], self.corpus.items[number])

    def readable(self, documents, owner, leave_out):
        self.left_out.append((documents, owner, leave_out))
        return document(self.wrote(documents, self.cause(owner).topic))

    def explain(self, questions, detail):
        return [self.explain_one(self.corpus.users[q.user], self.corpus.items[q.item], detail) for q in questions]

    def explain_one(self, user, item, detail):
        self.asked.append((user, item, detail))
        units = tuple(self.units(self.shop.planted_cause(user, item)))
        capsule = Capsule(0.5, 1.0, 0.5)
        return Explanation(user, item, 3.0, (1.0, 5.0), None, None, capsule, capsule, ((),), ((),), units)


def naming_the_cause(cause):
    return [unit(cause.sentiment, [SAYING[cause.topic]], [SAYING[cause.topic]])]


def test_the_sayings_are_about_their_topics_and_nothing_else(shop):
    assert tuple(SAYING) == TOPICS
    assert all(shop.topics_in(saying) == (topic,) for topic, saying in SAYING.items())
    assert shop.topics_in(NOTHING) == ()


def test_all_causes_are_found_where_every_unit_names_its_cause(shop):
    found = planted_causes_found(FakeExplainer(shop, naming_the_cause), shop)
    assert (found.pairs, found.explained) == (PAIRS, 1.0)


def naming_nothing(cause):
    return [unit(cause.sentiment, [NOTHING], [NOTHING])]


def naming_another_topic(cause):
    other = next(topic for topic in TOPICS if topic != cause.topic)
    return [unit(cause.sentiment, [SAYING[other]], [SAYING[other]])]


def naming_it_for_the_viewpoint_alone(cause):
    return [unit(cause.sentiment, [SAYING[cause.topic]], [NOTHING])]


def naming_it_for_the_aspect_alone(cause):
    return [unit(cause.sentiment, [NOTHING], [SAYING[cause.topic]])]


def naming_its_sides_in_two_units(cause):
    return naming_it_for_the_viewpoint_alone(cause) + naming_it_for_the_aspect_alone(cause)


def naming_it_for_the_opposite_sentiment(cause):
    return [unit(OPPOSITE[cause.sentiment], [SAYING[cause.topic]], [SAYING[cause.topic]])]


def showing_no_unit(cause):
    return []


@pytest.mark.parametrize(
    "units",
    [
        naming_nothing,
        naming_another_topic,
        naming_it_for_the_viewpoint_alone,
        naming_it_for_the_aspect_alone,
        naming_its_sides_in_two_units,
        naming_it_for_the_opposite_sentiment,
        showing_no_unit,
    ],
)
def test_no_cause_is_found_by_units(shop, units):
    assert planted_causes_found(FakeExplainer(shop, units), shop).explained == 0.0


def test_a_cause_is_found_among_other_units_and_other_sentences(shop):
    def units(cause):
        saying = SAYING[cause.topic]
        return [*naming_nothing(cause), unit(cause.sentiment, [NOTHING, saying], [saying, NOTHING])]

    assert planted_causes_found(FakeExplainer(shop, units), shop).explained == 1.0


def test_the_share_is_that_of_the_pairs_looked_at(shop):
    calls = []

    def every_other(cause):
        calls.append(cause)
        return naming_the_cause(cause) if len(calls) % 2 else naming_nothing(cause)

    explainer = FakeExplainer(shop, every_other)
    found = planted_causes_found(explainer, shop, pairs=3)
    assert found.pairs == len(explainer.asked) == 3
    assert found.explained == pytest.approx(2 / 3)


class Listener(FakeExplainer):
    """Has no logic units: it heard the cause of the person, and of the thing in the side numbered `heard`."""

    def __init__(self, shop, heard):
        super().__init__(shop, showing_no_unit)
        self.heard = heard

    def explain_one(self, user, item, detail):
        topic = self.shop.planted_cause(user, item).topic
        told = super().explain_one(user, item, detail)
        sides = [[SAYING[topic] if place == self.heard else NOTHING] for place in range(UNITS + 1)]
        aspects = tuple(replace(side(*texts), weight=1 / (2 + place)) for place, texts in enumerate(sides))
        return replace(told, positive=None, negative=None, viewpoints=(side(SAYING[topic]),), aspects=aspects)


@pytest.mark.parametrize(("heard", "share"), [(0, 1.0), (UNITS - 1, 1.0), (UNITS, 0.0)])
def test_a_model_without_units_shows_what_it_listens_to_most(shop, heard, share):
    found = planted_causes_found(Listener(shop, heard), shop)
    assert found.explained == share
    assert "sides it listens to" in str(found)


# ---- what chance would show


def test_chance_is_certain_where_every_sentence_is_about_the_cause(shop):
    explainer = FakeExplainer(shop, naming_nothing, lambda _, topic: f"{SAYING[topic]} {SAYING[topic]}")
    found = planted_causes_found(explainer, shop)
    assert (found.explained, found.random) == (0.0, 1.0)


@pytest.mark.parametrize("silent", [{"user"}, {"item"}, {"user", "item"}])
def test_chance_is_nil_where_one_side_never_speaks_of_the_cause(shop, silent):
    def wrote(side, topic):
        return NOTHING if side in silent else SAYING[topic]

    found = planted_causes_found(FakeExplainer(shop, naming_the_cause, wrote), shop)
    assert (found.explained, found.random) == (1.0, 0.0)


def test_chance_is_nil_where_a_document_is_empty_or_no_unit_is_shown(shop):
    empty = FakeExplainer(shop, naming_the_cause, lambda side, topic: "" if side == "user" else SAYING[topic])
    assert planted_causes_found(empty, shop).random == 0.0
    assert planted_causes_found(FakeExplainer(shop, showing_no_unit), shop).random == 0.0


def test_chance_is_that_of_drawing_the_cause_on_both_sides(shop):
    def wrote(side, topic):
        return f"{SAYING[topic]} {NOTHING}" if side == "user" else SAYING[topic]

    half = planted_causes_found(FakeExplainer(shop, naming_nothing, wrote), shop, draws=400)
    assert half.random == pytest.approx(0.5, abs=0.05)

    def two_sentences(cause):
        return [unit(cause.sentiment, [NOTHING, NOTHING], [NOTHING])]

    assert planted_causes_found(FakeExplainer(shop, two_sentences, wrote), shop).random == 1.0


def test_chance_draws_from_documents_without_the_review_to_be_guessed(shop):
    explainer = FakeExplainer(shop, naming_the_cause)
    planted_causes_found(explainer, shop, pairs=2)
    drawn_from = [(side, number, 100 + number) for number in (0, 1) for side in ("user", "item")]
    assert set(explainer.left_out) == set(drawn_from)


def test_the_same_seed_draws_the_same(shop):
    explainer = FakeExplainer(shop, naming_nothing, lambda _, topic: f"{SAYING[topic]} {NOTHING}")
    first, again, other = (planted_causes_found(explainer, shop, draws=50, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_as_many_units_are_asked_for_as_are_promised(shop):
    explainer = FakeExplainer(shop, naming_the_cause)
    planted_causes_found(explainer, shop, pairs=1)
    assert explainer.asked == [("person-000", "thing-000", Detail(prevailing_units=UNITS, other_units=UNITS))]


def test_the_finding_says_both_shares_and_the_number_of_pairs():
    text = str(CausesFound(pairs=120, explained=0.9, random=0.25))
    assert all(number in text for number in ("90%", "25%", "120", str(UNITS)))
