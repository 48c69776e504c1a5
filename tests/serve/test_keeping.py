"""What the service keeps, counts, gathers and searches."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import pytest

from carp.explain.capsule_reasons import CapsuleExplainer
from carp.explain.kept_readings import LastUsed, read_document
from carp.serve.answer_service import AnswerService
from carp.serve.caches import RememberingCorpus
from carp.serve.id_search import Haystack
from carp.serve.request_batching import RequestBatcher
from carp.serve.request_counts import Counters
from carp.serve.work_queue import WorkQueue


def test_readings_kept_for_all_documents_are_those_of_each_alone(recommender):
    explainer = AnswerService(recommender).explainer
    assert isinstance(explainer, CapsuleExplainer)
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


def test_the_caller_keeps_its_own_recommender(recommender):
    fitted = recommender.fitted_corpus
    service = AnswerService(recommender)
    service.warm()
    assert recommender.fitted_corpus is fitted
    assert service.recommender.fitted_corpus is not fitted


def test_what_was_used_longest_ago_is_forgotten_first():
    kept = LastUsed(3)
    made = []

    def get(key):
        return kept.get(key, lambda: made.append(key) or key)

    for key in (1, 2, 3, 1, 4, 1, 2):
        assert get(key) == key
    assert made == [1, 2, 3, 4, 2]


def test_counts_of_all_workers_are_put_together():
    counters = Counters(["/a", "/b"], workers=3)
    for row, seconds in ((0, 0.0004), (1, 0.004), (2, 7.0)):
        counters.row = row
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


def test_pairs_asked_for_at_once_are_rated_at_once_and_errors_reach_everyone():
    calls = []

    def rate(pairs):
        calls.append(list(pairs))
        if ("bad", "pair") in pairs:
            raise ValueError("no")
        return [{"pair": pair} for pair in pairs]

    async def ask(pairs):
        together = RequestBatcher(rate)
        return await asyncio.gather(*map(together.ask, pairs), return_exceptions=True)

    pairs = [("u", str(n)) for n in range(20)]
    assert asyncio.run(ask(pairs)) == [{"pair": pair} for pair in pairs]
    assert calls == [pairs]
    failed = asyncio.run(ask([("u", "1"), ("bad", "pair")]))
    assert [type(one) for one in failed] == [ValueError, ValueError]


def test_slow_work_takes_turns_in_order_and_lets_quick_work_through():
    happened = []

    async def everything():
        queue = WorkQueue()
        slow = [asyncio.create_task(queue.take(partial(happened.append, f"slow {n}"))) for n in range(3)]

        async def quick():
            happened.append("quick")

        await asyncio.sleep(0)
        await asyncio.gather(*slow, asyncio.create_task(quick()))

    asyncio.run(everything())
    assert [one for one in happened if one != "quick"] == ["slow 0", "slow 1", "slow 2"]
    assert happened.index("quick") < happened.index("slow 1")


def test_a_failure_in_its_turn_lets_the_next_one_work():
    async def everything():
        queue = WorkQueue()

        def fail():
            raise ValueError

        first = asyncio.create_task(queue.take(fail))
        second = asyncio.create_task(queue.take(lambda: "done"))
        with pytest.raises(ValueError):
            await first
        return await second

    assert asyncio.run(everything()) == "done"


@pytest.mark.parametrize("words", ["drum", "a", "ß", "SS", "\0", "", "kit\0horn", "日本"])
def test_a_haystack_finds_what_looking_at_each_string_finds(words):
    strings = ["Red drum", "", "a DRUM kit", "horn", "Straße", "日本 drum", "dru", "m"]
    needle = words.casefold().replace("\0", " ")
    expected = [place for place, string in enumerate(strings) if needle in string.casefold()]
    hay = Haystack(strings)
    if needle:
        assert hay.having(words) == expected
    assert hay.beginning(words) == {place for place, one in enumerate(strings) if one.casefold().startswith(needle)}
