"""What the service keeps, counts, gathers and searches."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import carp
from carp.explain.capsule_reasons import CapsuleExplainer
from carp.explain.kept_readings import LastUsed, read_document
from carp.reviews.split_parts import TRAIN
from carp.serve.answer_service import AnswerService
from carp.serve.caches import LEFT_OUT_KEPT, RememberingCorpus
from carp.serve.id_search import Haystack
from carp.serve.request_counts import Counters
from carp.serve.shared_readings import SharedReadings


def test_readings_kept_for_all_documents_are_those_of_each_alone(recommender):
    explainer = AnswerService(recommender).explainer
    assert isinstance(explainer, CapsuleExplainer)
    explainer.keep_readings()
    assert explainer.kept is not None
    fitted, model = recommender.fitted_corpus, recommender.model
    for kept, read, documents in (
        (explainer.kept[0], model.read_users, fitted.user_documents),
        (explainer.kept[1], model.read_items, fitted.item_documents),
    ):
        for owner in range(len(documents)):
            alone = read_document(read, fitted.readable(documents, owner), recommender.device)
            for one, other in zip(kept.of(owner), alone, strict=True):
                assert one.shape == other.shape
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


def test_the_archive_remembers_documents_and_leaves_out_what_it_is_told(recommender):
    fitted = RememberingCorpus.of(recommender.fitted_corpus)
    documents = fitted.user_documents
    whole = fitted.readable(documents, 3)
    assert fitted.readable(documents, 3) is whole
    record = int(whole.review[0])
    without = fitted.readable(documents, 3, record)
    assert record not in without.review
    assert record in fitted.readable(documents, 3).review
    plain = recommender.fitted_corpus.readable(documents, 3, record)
    np.testing.assert_array_equal(without.starts, plain.starts)
    assert without.sentence == plain.sentence


def test_documents_without_one_review_do_not_pile_up(recommender):
    """Each pair that was trained on has two of them, and nearly none is asked for again."""
    fitted = RememberingCorpus.of(recommender.fitted_corpus)
    trained = np.flatnonzero(fitted.part == TRAIN)
    assert len(trained) > LEFT_OUT_KEPT
    for record in trained.tolist():
        fitted.readable(fitted.user_documents, int(fitted.user[record]), record)
    assert len(fitted.kept_without.values) == LEFT_OUT_KEPT
    assert not fitted.kept.values


def test_the_caller_keeps_its_own_recommender(recommender):
    fitted = recommender.fitted_corpus
    service = AnswerService(recommender)
    service.warm()
    assert list(service.warming()), "what is shown of people and things is made a little at a time"
    assert recommender.fitted_corpus is fitted
    assert service.recommender.fitted_corpus is not fitted


FIRST = """
import sys, carp
from carp.serve.answer_service import AnswerService

service = AnswerService(carp.load(sys.argv[1], device="cpu"))
service.warm()
before = set(sys.modules)
assert service.explain([(service.users.ids[1], service.items.ids[1])])[0].startswith(b"{")
print(len(set(sys.modules) - before))
"""


def test_the_first_explanation_loads_nothing_that_was_not_loaded_before(bundle):
    """Whoever asks first would wait for it, and each engine would keep it for itself."""
    said = subprocess.run([sys.executable, "-c", FIRST, str(bundle)], capture_output=True, text=True, check=True)
    assert said.stdout == "0\n"


def test_what_was_used_longest_ago_is_forgotten_first():
    kept = LastUsed(3)
    made = []

    def get(key):
        return kept.get(key, lambda: made.append(key) or key)

    for key in (1, 2, 3, 1, 4, 1, 2):
        assert get(key) == key
    assert made == [1, 2, 3, 4, 2]


def test_counts_are_told_by_route_status_and_time():
    counters = Counters(["/a", "/b"])
    for seconds in (0.0004, 0.004, 7.0):
        counters.count("/a", 200, seconds)
    counters.count("/unheard of", 418, 0.1)
    lines = counters.text().splitlines()
    expected = {
        'carp_requests_total{route="/a",status="200"} 3',
        'carp_requests_total{route="other",status="other"} 1',
        'carp_request_seconds_bucket{route="/a",le="0.001"} 1',
        'carp_request_seconds_bucket{route="/a",le="0.005"} 2',
        'carp_request_seconds_bucket{route="/a",le="+Inf"} 3',
        'carp_request_seconds_count{route="/a"} 3',
    }
    assert expected <= set(lines)
    assert not [line for line in lines if '"/b"' in line]


def test_the_service_counts_its_requests_by_route_and_status(client):
    def count(line):
        found = [one for one in client.get("/metrics").text.splitlines() if one.startswith(line)]
        return float(found[0].split()[-1]) if found else 0.0

    line = 'carp_requests_total{route="/api/users/{user:path}/profile",status="404"}'
    before = count(line)
    client.get("/api/users/nobody/profile")
    client.get("/api/users/nobody at all/profile")
    assert count(line) == before + 2


@pytest.mark.parametrize("words", ["drum", "a", "ß", "SS", "\0", "", "kit\0horn", "日本"])
def test_a_haystack_finds_what_looking_at_each_string_finds(words):
    strings = ["Red drum", "", "a DRUM kit", "horn", "Straße", "日本 drum", "dru", "m"]
    needle = words.casefold().replace("\0", " ")
    expected = [place for place, string in enumerate(strings) if needle in string.casefold()]
    hay = Haystack(strings)
    if needle:
        assert hay.having(words) == expected
    assert hay.beginning(words) == {place for place, one in enumerate(strings) if one.casefold().startswith(needle)}


def test_readings_in_shared_memory_are_those_that_a_service_reads_itself(recommender):
    shared, own = AnswerService(recommender), AnswerService(recommender)
    readings = SharedReadings(shared)
    assert not readings.take(), "nothing is there before it is read"
    explainers = [one.explainer for one in (shared, own) if isinstance(one.explainer, CapsuleExplainer)]
    assert [one.kept for one in explainers] == [None, None]
    readings.fill()
    assert readings.take()
    own.explainer.keep_readings()
    for ours, theirs in zip(explainers[0].kept, explainers[1].kept, strict=True):
        for name in ("viewpoints", "attention", "contextual", "offsets"):
            np.testing.assert_array_equal(getattr(ours, name).numpy(), getattr(theirs, name).numpy())


def test_a_model_without_readings_waits_for_none():
    shop = carp.make_shop(people=8, things=6, reviews_per_person=6).frame()
    service = AnswerService(carp.Recommender("bias", min_reviews=1).fit(shop, progress=False))
    readings = SharedReadings(service)
    readings.fill()
    assert readings.take()


def test_explanations_of_shared_readings_are_the_services_own(recommender):
    shared, own = AnswerService(recommender), AnswerService(recommender)
    SharedReadings(shared).fill()
    own.explainer.keep_readings()
    pairs = [(user, item) for user in list(own.corpus.users)[:4] for item in list(own.corpus.items)[:3]]
    assert shared.explain(pairs) == own.explain(pairs)
    assert (own.hits, own.misses) == (0, 12)
    assert own.explain(pairs[:5]) == shared.explain(pairs[:5])
    assert (own.hits, own.misses) == (5, 12)
