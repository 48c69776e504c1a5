"""The made-up shop keeps its promises: known causes, readable texts, and ratings that averages cannot explain."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from carp.errors import UnknownIdError, UsageError
from carp.reviews.shop import made_up_shop, sentence_writer
from carp.reviews.shop.made_up_shop import NEUTRAL_RATING, TOPICS, Shop, ShopReview, make_shop
from carp.reviews.shop.sentence_templates import FILLER, KINDS, LINKS, SHARED, TOPIC_WORDS
from carp.reviews.shop.sentence_writer import LEAST_CLEAR, WrittenSentence, topic_of_sentence

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@pytest.fixture(scope="module")
def shop() -> Shop:
    return make_shop()


def written(shop: Shop) -> list[tuple[ShopReview, WrittenSentence, str]]:
    return [
        (review, sentence, review.text[sentence.start : sentence.end])
        for review in shop.reviews
        for sentence in review.sentences
    ]


def all_templates() -> list[tuple[str | None, str]]:
    """Every template with its topic, or None for filler."""
    kinds = ("positive", "negative", "shrug", "stance")
    topical = [(topic, line) for topic, words in TOPIC_WORDS.items() for kind in kinds for line in getattr(words, kind)]
    parts = ("opening", "middle", "closing", "satisfied", "dissatisfied", "undecided")
    return topical + [(None, line) for part in parts for line in getattr(FILLER, part)]


# ---- the same shop for the same seed


def test_same_seed_gives_the_same_shop_whatever_the_global_generator_does():
    first = make_shop(people=20, things=10, reviews_per_person=7, seed=5)
    np.random.seed(1)  # noqa: NPY002
    again = make_shop(people=20, things=10, reviews_per_person=7, seed=5)
    assert first == again
    assert first != make_shop(people=20, things=10, reviews_per_person=7, seed=6)


# ---- people, things and ratings


@pytest.mark.parametrize("sizes", [(200, 80, 12), (6, 6, 6), (30, 60, 6), (50, 7, 7)])
def test_everyone_and_everything_has_six_reviews_and_no_pair_comes_twice(sizes):
    people, things, reviews_per_person = sizes
    shop = make_shop(people=people, things=things, reviews_per_person=reviews_per_person, seed=2)
    pairs = [(review.user, review.item) for review in shop.reviews]
    by_user = Counter(user for user, _ in pairs)
    by_item = Counter(item for _, item in pairs)
    assert len(set(pairs)) == len(pairs)
    assert set(by_user) == set(shop.people)
    assert set(by_item) == set(shop.things)
    assert (len(by_user), len(by_item)) == (people, things)
    assert min(by_user.values()) >= 6
    assert min(by_item.values()) >= 6


def test_mean_number_of_reviews_is_near_the_one_asked_for(shop):
    assert len(shop.reviews) / len(shop.people) == pytest.approx(12, abs=0.7)


def test_ratings_are_whole_stars_and_all_of_them_occur(shop):
    assert {review.rating for review in shop.reviews} == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_one_topic_matters_most_to_a_person_and_one_or_two_about_half_as_much(shop):
    counts, favourites = Counter(), Counter()
    for taste in shop.people.values():
        assert tuple(taste) == TOPICS
        most, *lesser = sorted((care for care in taste.values() if care > 0), reverse=True)
        assert len(lesser) in (1, 2)
        assert all(0.3 < care / most < 0.7 for care in lesser)
        counts[len(lesser)] += 1
        favourites[max(taste, key=taste.__getitem__)] += 1
    assert set(counts) == {1, 2}
    assert set(favourites) == set(TOPICS)


def test_things_are_clearly_good_or_bad_at_half_of_the_topics_or_more(shop):
    for quality in shop.things.values():
        assert tuple(quality) == TOPICS
        sizes = np.abs(list(quality.values()))
        assert all((sizes >= LEAST_CLEAR) | (sizes <= made_up_shop.MOST_VAGUE))
        assert sum(sizes >= LEAST_CLEAR) >= len(TOPICS) / 2
        assert 0 < sizes.min() <= sizes.max() <= 1


def test_no_quality_of_a_thing_tells_of_another():
    things = make_shop(people=12, things=600, reviews_per_person=6).things
    signs = np.sign([list(quality.values()) for quality in things.values()])
    assert np.abs(signs.mean(axis=0)).max() < 0.15
    between = np.corrcoef(signs, rowvar=False) - np.eye(len(TOPICS))
    assert np.abs(between).max() < 0.2


def test_names_are_readable_and_unlike_each_other(shop):
    assert set(shop.names) == set(shop.things)
    assert len(set(shop.names.values())) == len(shop.names)
    assert all(re.fullmatch(r"[A-Z][a-z]+( [a-z]+)+( \d+)?", name) for name in shop.names.values())


def test_without_noise_ratings_stay_close_to_the_expected_ones():
    quiet = make_shop(people=60, things=20, reviews_per_person=8, noise=0.0)
    gaps = [abs(review.rating - quiet.expected_rating(review.user, review.item)) for review in quiet.reviews]
    assert max(gaps) < 0.5 + 4 * np.hypot(made_up_shop.PERSON_BIAS, made_up_shop.THING_BIAS)


# ---- what explains the ratings


def split_columns(shop: Shop):
    """Users, items and ratings as arrays, and a fifth of the rows set aside."""
    user_number = {user: number for number, user in enumerate(shop.people)}
    item_number = {item: number for number, item in enumerate(shop.things)}
    users = np.array([user_number[review.user] for review in shop.reviews])
    items = np.array([item_number[review.item] for review in shop.reviews])
    ratings = np.array([review.rating for review in shop.reviews])
    held_out = np.zeros(len(ratings), dtype=bool)
    held_out[np.random.default_rng(0).permutation(len(ratings))[: len(ratings) // 5]] = True
    return users, items, ratings, held_out


def bias_error(columns, user_shrink, item_shrink) -> float:
    users, items, ratings, held_out = columns
    known = ~held_out
    mean = ratings[known].mean()
    user_bias, item_bias = np.zeros(users.max() + 1), np.zeros(items.max() + 1)
    for _ in range(10):
        rest = ratings - mean - item_bias[items]
        written = np.bincount(users[known], minlength=len(user_bias))
        user_bias = np.bincount(users[known], rest[known], len(user_bias)) / (written + user_shrink)
        rest = ratings - mean - user_bias[users]
        received = np.bincount(items[known], minlength=len(item_bias))
        item_bias = np.bincount(items[known], rest[known], len(item_bias)) / (received + item_shrink)
    error = ratings - mean - user_bias[users] - item_bias[items]
    return float(np.mean(error[held_out] ** 2))


def best_bias_error(columns) -> float:
    """Tuned on the very rows it is judged on: the biases get more help than any fair rival."""
    shrinks = (1, 3, 10, 30, 100, 1000)
    return min(bias_error(columns, user_shrink, item_shrink) for user_shrink in shrinks for item_shrink in shrinks)


@pytest.mark.parametrize("seed", [0, 1])
def test_knowing_care_and_quality_more_than_halves_the_error_of_tuned_biases(seed):
    shop = make_shop(seed=seed)
    columns = split_columns(shop)
    _, _, ratings, held_out = columns
    expected = np.array([shop.expected_rating(review.user, review.item) for review in shop.reviews])
    oracle = np.mean((ratings - expected)[held_out] ** 2)
    assert oracle < 0.3 * best_bias_error(columns)


def test_training_texts_alone_tell_enough_to_halve_the_error_of_tuned_biases(shop):
    users, items, ratings, held_out = columns = split_columns(shop)
    mentions = np.zeros((len(shop.people), len(TOPICS)))
    praise = np.zeros((len(shop.things), len(TOPICS)))
    seen = np.ones_like(praise)
    for row in np.flatnonzero(~held_out):
        for sentence in shop.reviews[row].sentences:
            if sentence.topic is not None:
                topic = TOPICS.index(sentence.topic)
                mentions[users[row], topic] += 1
                seen[items[row], topic] += 1
                praise[items[row], topic] += {"positive": 1, "negative": -1, None: 0}[sentence.sentiment]
    viewpoint = mentions / mentions.sum(axis=1, keepdims=True)
    match = (viewpoint[users] * (praise / seen)[items]).sum(axis=1)
    slope, neutral = np.polyfit(match[~held_out], ratings[~held_out], 1)
    error = np.mean((ratings - neutral - slope * match)[held_out] ** 2)
    assert error < 0.5 * best_bias_error(columns)


# ---- causes


def test_planted_cause_is_the_strongest_on_the_side_of_the_noise_free_rating(shop):
    for review in shop.reviews:
        care, quality = shop.people[review.user], shop.things[review.item]
        pull = {topic: care[topic] * quality[topic] for topic in TOPICS}
        side = 1 if sum(pull.values()) > 0 else -1
        cause = shop.planted_cause(review.user, review.item)
        assert cause.topic == max(TOPICS, key=lambda topic: side * pull[topic])
        assert cause.sentiment == ("positive" if side > 0 else "negative")
        assert np.sign(shop.expected_rating(review.user, review.item) - NEUTRAL_RATING) == side


def test_causes_are_the_topics_cared_about_strongest_first(shop):
    for review in shop.reviews:
        cared = {topic for topic, care in shop.people[review.user].items() if care > 0}
        assert {cause.topic for cause in review.causes} == cared
        assert all(abs(one.strength) >= abs(two.strength) for one, two in pairwise(review.causes))
        assert all((cause.strength > 0) == (cause.sentiment == "positive") for cause in review.causes)
        assert review.causes == shop.causes(review.user, review.item)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_review_says_its_planted_cause(seed):
    shop = make_shop(seed=seed)
    for review in shop.reviews:
        cause = shop.planted_cause(review.user, review.item)
        assert (cause.topic, cause.sentiment) in {(said.topic, said.sentiment) for said in review.sentences}


def test_sentences_never_contradict_the_thing_and_cover_all_the_person_cares_about(shop):
    for review in shop.reviews:
        quality = shop.things[review.item]
        said = [sentence for sentence in review.sentences if sentence.topic]
        for sentence in said:
            if sentence.sentiment is not None:
                assert abs(quality[sentence.topic]) >= LEAST_CLEAR
                assert (quality[sentence.topic] > 0) == (sentence.sentiment == "positive")
        assert {cause.topic for cause in review.causes} <= {sentence.topic for sentence in said}


def test_reviews_of_a_thing_cover_nearly_all_it_is_clearly_good_or_bad_at(shop):
    said = {(review.item, sentence.topic) for review, sentence, _ in written(shop) if sentence.sentiment}
    clear = {(item, topic) for item, quality in shop.things.items() for topic in TOPICS if abs(quality[topic]) >= 0.5}
    assert len(clear & said) / len(clear) > 0.95


# ---- texts


def test_spans_cut_the_text_into_exactly_its_sentences(shop):
    for review in shop.reviews:
        cut = [review.text[sentence.start : sentence.end] for sentence in review.sentences]
        assert " ".join(cut) == review.text
        assert cut == SENTENCE_END.split(review.text)
        assert 3 <= len(cut) <= 7


def test_topic_is_read_back_exactly_from_every_sentence(shop):
    wrong = [(text, sentence.topic) for _, sentence, text in written(shop) if topic_of_sentence(text) != sentence.topic]
    assert wrong == []


def test_no_template_can_ever_be_filled_so_that_its_topic_is_lost():
    owners = sentence_writer._owner_of_word()

    def owned(text: str) -> set[str]:
        return {owners[word] for word in sentence_writer._words(text) if word in owners}

    for topic, template in all_templates():
        pieces = sentence_writer._pieces(template)
        choices = FILLER.choices if topic is None else TOPIC_WORDS[topic].choices
        fixed = set().union(*map(owned, pieces[::2]))
        gaps = [[owned(option) for option in choices.get(gap) or SHARED.get(gap, ())] for gap in pieces[1::2]]
        assert fixed.union(*(options for gap in gaps for options in gap)) <= {topic}, template
        if topic is not None:
            assert fixed or any(gap and all(gap) for gap in gaps), template


def test_topics_in_lists_the_topics_of_a_text_once_each_in_order(shop):
    for review in shop.reviews[:200]:
        topics = [sentence.topic for sentence in review.sentences if sentence.topic]
        assert shop.topics_in(review.text) == tuple(dict.fromkeys(topics))
    assert shop.topics_in("weighs a ton") == ("weight",)
    assert shop.topics_in("") == ()


def test_texts_vary(shop):
    texts = [review.text for review in shop.reviews]
    assert len(set(texts)) / len(texts) > 0.99
    assert len({word for text in texts for word in re.findall(r"[a-z']+", text.lower())}) >= 600
    for topic in TOPICS:
        sentences = [text for _, sentence, text in written(shop) if sentence.topic == topic and sentence.sentiment]
        assert max(Counter(sentences).values()) / len(sentences) < 0.1
        assert len(set(sentences)) / len(sentences) > 0.3


def test_every_topic_has_a_dozen_templates_for_praise_and_for_complaint():
    for words in TOPIC_WORDS.values():
        assert min(len(set(words.positive)), len(set(words.negative))) >= 12
        assert min(len(set(words.shrug)), len(set(words.stance))) >= 4


def test_every_gap_of_every_template_has_choices():
    for topic, template in all_templates():
        choices = FILLER.choices if topic is None else TOPIC_WORDS[topic].choices
        known = {"thing", *choices, *SHARED}
        assert set(re.findall(r"\{(\w+)\}", template)) <= known, template
        assert template.endswith((".", "?")), template


def test_no_template_can_be_filled_to_fewer_than_5_or_more_than_18_words():
    for topic, template in all_templates():
        choices = {**SHARED, **(FILLER.choices if topic is None else TOPIC_WORDS[topic].choices)}
        choices["thing"] = tuple(KINDS.values())
        pieces = sentence_writer._pieces(template)
        fillings = [[piece] if place % 2 == 0 else choices[piece] for place, piece in enumerate(pieces)]
        assert len("".join(min(options, key=lambda text: text.count(" ")) for options in fillings).split()) >= 5, (
            template
        )
        assert len("".join(max(options, key=lambda text: text.count(" ")) for options in fillings).split()) <= 18, (
            template
        )


def test_links_and_contractions_keep_sentences_between_5_and_18_words(shop):
    lengths = {len(text.split()): text for _, _, text in written(shop)}
    assert min(lengths) >= 5, lengths[min(lengths)]
    assert max(lengths) <= 18, lengths[max(lengths)]


@pytest.mark.parametrize("seed", [0, 7])
def test_sentences_are_plausible_english(seed):
    links = tuple(link.lower() for group in LINKS.values() for link in group)
    for _, _, text in written(make_shop(seed=seed)):
        assert text[-1] in ".!?", text
        assert not re.search(r"[{}|_]|\s\s|\s[,.!?]|,,", text), text
        assert not re.search(r"\ba (?!USB)[aeiou]", text, re.IGNORECASE), text
        assert not re.search(r"\ban (?!hour)[^aeiou]", text, re.IGNORECASE), text
        assert not re.search(r"\b(\w+) \1\b", text, re.IGNORECASE), text
        assert not re.search(r"\bi\b", text), text
        assert not re.search(
            r"^(My|The) (fingers|palms|knuckles|controls|buttons|menus|settings|dials) (is|has)\b", text
        ), text
        assert not re.search(r"'s[.!,]|of it's|ing it's", text), text
        assert not re.search(rf"^(?:{'|'.join(links)}) (?:{'|'.join(links)})", text, re.IGNORECASE), text


def test_some_people_contract_exclaim_and_forget_capitals(shop):
    texts = [text for _, _, text in written(shop)]
    assert 0.01 < np.mean([text.endswith("!") for text in texts]) < 0.2
    assert 0.01 < np.mean([text[0].islower() for text in texts]) < 0.2
    assert 0.05 < np.mean(["'" in text for text in texts]) < 0.5


def test_the_first_choices_are_the_most_common(shop):
    """So that training sees the words of the held-out reviews often enough to learn them."""
    texts = " ".join(review.text for review in shop.reviews).lower()
    for words in (SHARED["great"], TOPIC_WORDS["weight"].choices["bag"], TOPIC_WORDS["sound"].choices["hiss"]):
        first, *_, last = (len(re.findall(rf"\b{word}\b", texts)) for word in words)
        assert first > 2 * last > 0


# ---- some topics only


SOME = ("sound", "weight", "price")


@pytest.fixture(scope="module")
def narrow_shop() -> Shop:
    return make_shop(people=40, things=20, reviews_per_person=8, topics=SOME)


def test_people_and_things_know_no_topics_but_those_asked_for(narrow_shop):
    assert all(tuple(traits) == SOME for traits in (*narrow_shop.people.values(), *narrow_shop.things.values()))
    assert {sentence.topic for _, sentence, _ in written(narrow_shop)} == {None, *SOME}


def test_topics_are_read_back_exactly_where_only_some_are_used(narrow_shop):
    for review, sentence, text in written(narrow_shop):
        assert topic_of_sentence(text) == sentence.topic, text
        assert set(narrow_shop.topics_in(review.text)) <= set(SOME)


def test_naming_all_topics_is_the_same_as_naming_none():
    sizes = {"people": 12, "things": 10, "reviews_per_person": 6}
    assert make_shop(**sizes, topics=list(TOPICS)) == make_shop(**sizes)


@pytest.mark.parametrize(
    ("topics", "complaint"),
    [
        (("weight", "sound", "prise"), "no topic 'prise'.*did you mean price"),
        (("weight", "sound"), "weight, sound are not 3 or more different topics.*choose from weight, durability"),
        (("weight", "sound", "price", "sound"), "weight, sound, price, sound are not 3 or more different"),
        ((), "no topics are not 3 or more"),
        ("weight", "no topic 'w'"),
    ],
)
def test_topics_that_are_unknown_too_few_or_named_twice_are_refused_with_a_remedy(topics, complaint):
    with pytest.raises(UsageError, match=complaint) as refused:
        make_shop(topics=topics)
    assert refused.value.fix


# ---- what others see of it


def test_records_hold_what_a_reader_sees_and_none_of_the_truth(shop):
    records = shop.records()
    assert len(records) == len(shop.reviews)
    review = shop.reviews[3]
    assert records[3] == {
        "user": review.user,
        "item": review.item,
        "rating": review.rating,
        "text": review.text,
        "time": review.time,
    }
    times = [record["time"] for record in records]
    assert all(isinstance(moment, int) for moment in times)
    assert times == sorted(times)


def test_an_unknown_person_or_thing_is_named_with_the_range_of_ids(shop):
    with pytest.raises(UnknownIdError, match=r"no person 'nobody'.*person-000 to person-199"):
        shop.planted_cause("nobody", "thing-000")
    with pytest.raises(UnknownIdError, match=r"no thing 'x'.*thing-000 to thing-079"):
        shop.expected_rating("person-000", "x")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"people": 5}, "5 people and 80 things are too few"),
        ({"things": 10}, "12 reviews per person are too many for 10 things"),
        ({"reviews_per_person": 5}, "5 reviews per person"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"noise": float("nan")}, "noise is nan"),
    ],
)
def test_a_shop_that_cannot_be_made_is_refused_with_a_remedy(arguments, complaint):
    with pytest.raises(UsageError, match=complaint) as refused:
        make_shop(**arguments)
    assert refused.value.fix
