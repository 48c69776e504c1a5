"""Encoding, scoring and ranking on the CPU's fast paths give the plain model's answers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from carp.kernels import best_items, dispatch
from carp.kernels.best_items import top_items
from carp.kernels.cpu import c_build, compiler, encode_all, pair_scores, ragged, viewpoints_c
from carp.kernels.cpu.balances_c import NativeJudge
from carp.kernels.gpu import self_check as check
from carp.models.batch import Pairs, Sizes
from carp.models.carp import Carp, CarpConfig
from carp.models.predict import encode_documents, score_pairs
from carp.reviews.documents import Documents, padded

CPU = torch.device("cpu")
TINY = {"dimension": 11, "filters": 7, "latent_size": 5, "viewpoints": 3}


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


def random_documents(lengths, words=30, seed=0):
    rng = np.random.default_rng(seed)
    count = int(np.sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    reviews = np.cumsum(rng.random(count) < 0.2).astype(np.int32)
    text = rng.integers(1, words + 1, count).astype(np.int32)
    return Documents(text, reviews, np.zeros(count, np.int32), offsets)


def carp_of(users=20, items=30, dtype=torch.float64, seed=0, **settings):
    torch.manual_seed(seed)
    config = CarpConfig(**{**TINY, "bias_spread": 0.3, **settings})
    return Carp(config, Sizes(users, items, 30)).to(dtype).eval()


LENGTHS = [[0], [1], [0, 0, 0], [1, 0, 2, 1], [900, 0, 3], list(range(40)), [300] * 9]
ENCODED = [{}, {"window": 5, "attention_scale": 3.0}, {"window": 1, "viewpoints": 1}]


OF_LENGTHS = pytest.mark.parametrize(
    "lengths",
    LENGTHS,
    ids=lambda lengths: f"{len(lengths)} documents of {min(lengths)} to {max(lengths)} words",
)


@torch.no_grad()
def encoded_plainly(model, documents):
    words, reviews = (torch.from_numpy(array) for array in padded(documents, np.arange(len(documents))))
    return model.encode_items(words, reviews)


@OF_LENGTHS
@pytest.mark.parametrize("settings", ENCODED, ids=str)
def test_documents_are_encoded_as_by_the_plain_model(lengths, settings):
    model, documents = carp_of(**settings), random_documents(lengths)
    found = dispatch.fast_encode_documents(model.encode_items, documents, CPU)
    torch.testing.assert_close(found, encoded_plainly(model, documents), rtol=1e-10, atol=1e-12)


def test_chunks_and_blocks_change_nothing(monkeypatch):
    model, documents = carp_of(), random_documents(list(range(30)))
    whole = dispatch.fast_encode_documents(model.encode_users, documents, CPU)
    monkeypatch.setattr("carp.kernels.cpu.encode_all.CHUNK_WORDS", 40)
    monkeypatch.setattr("carp.kernels.cpu.encode_all.ROWS", 7)
    monkeypatch.setattr(ragged, "BLOCK_TOKENS", 10)
    torch.testing.assert_close(dispatch.fast_encode_documents(model.encode_users, documents, CPU), whole)


def test_only_what_is_covered_is_encoded_fast():
    documents = random_documents([3, 4])
    assert dispatch.fast_encode_documents(carp_of(across_reviews=True).encode_users, documents, CPU) is None
    assert dispatch.fast_encode_documents(carp_of().train().encode_users, documents, CPU) is None  # dropout
    assert dispatch.fast_encode_documents(lambda words, reviews: words, documents, CPU) is None
    covered = carp_of()
    torch.testing.assert_close(
        encode_documents(covered.encode_users, documents, CPU),
        dispatch.fast_encode_documents(covered.encode_users, documents, CPU),
    )


SCORED = [
    {},
    {"routing": "agreement"},
    {"routing_iterations": 1},
    {"routing_iterations": 5, "viewpoints": 1},
    {"logic_unit": "product first", "highway": "reversed", "capsule_bias": True},
    {"biases": "leave-one-out"},
    {"biases": "tuned"},
]


def sides_of(model, users, items, seed=0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shape = model.config.viewpoints, model.config.latent_size
    user, item = (torch.randn(count, *shape, generator=rng, dtype=torch.float64) * 2 for count in (users, items))
    user[0] = item[0] = 0  # of empty documents
    return user, item


def in_single(sides) -> tuple[Tensor, Tensor]:
    return sides[0].float(), sides[1].float()


def every_pair(users, items, seed=0):
    order = np.random.default_rng(seed).permutation(users * items)
    return Pairs(order // items, order % items, np.zeros(len(order), np.float32), np.full(len(order), -1))


def plainly(model, sides, pairs):
    u, i = torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)
    with torch.no_grad():
        return model.score(u, i, sides[0][u], sides[1][i]).rating


@pytest.mark.parametrize("settings", SCORED, ids=str)
@pytest.mark.parametrize(("block", "users", "items"), [(1, 3, 4), (7, 5, 6), (384, 20, 30)])
def test_pairs_are_rated_as_by_the_plain_model(settings, block, users, items, monkeypatch):
    """In blocks of one pair, in several and a short last one, and in those that are usual."""
    monkeypatch.setattr(pair_scores, "BLOCK", block)
    model = carp_of(**settings)
    sides, pairs = sides_of(model, users, items), every_pair(users, items)
    found = dispatch.fast_score_pairs(model, *sides, pairs)
    torch.testing.assert_close(found, plainly(model, sides, pairs), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(score_pairs(model, *sides, pairs), found)


def test_single_precision_is_as_good_as_the_plain_models():
    exact = carp_of(dimension=20, filters=50, latent_size=25, viewpoints=5)
    model = carp_of(dimension=20, filters=50, latent_size=25, viewpoints=5).float()
    sides, pairs = sides_of(exact, 20, 30), every_pair(20, 30)
    truth = plainly(exact, sides, pairs)
    sides = in_single(sides)
    ours = (dispatch.fast_score_pairs(model, *sides, pairs).double() - truth).abs().max()
    plain = (plainly(model, sides, pairs).double() - truth).abs().max()
    assert ours < max(2 * float(plain), 1e-5)


def test_no_pair_and_one_pair_are_rated():
    model = carp_of()
    sides = sides_of(model, 20, 30)
    nothing = every_pair(0, 30)
    assert len(dispatch.fast_score_pairs(model, *sides, nothing)) == 0
    one = every_pair(1, 1)
    torch.testing.assert_close(dispatch.fast_score_pairs(model, *sides, one), plainly(model, sides, one))


@pytest.mark.parametrize("settings", [{"variant": "released", "routing_epsilon": 1e-9}, {"logic_unit": "appended"}])
def test_settings_without_a_fast_path_are_rated_plainly(settings):
    model = carp_of(**settings)
    sides, pairs = sides_of(model, 20, 30), every_pair(20, 30)
    assert dispatch.fast_score_pairs(model, *sides, pairs) is None
    found = score_pairs(model, *sides, pairs).double()
    torch.testing.assert_close(found, plainly(model, sides, pairs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"routing": "agreement"}, {"routing_epsilon": 1e-9}, {"logic_unit": "appended"}], ids=str
)
@pytest.mark.parametrize(("n", "block"), [(1, 100), (4, 7), (30, 30), (50, 1), (5, 29)])
def test_the_best_items_are_those_of_all_ratings(settings, n, block):
    model = carp_of(**settings)
    sides = sides_of(model, 4, 30)
    items, ratings = top_items(model, *sides, n, block=block)
    everything = plainly(model, sides, numbered(*np.divmod(np.arange(120), 30)))
    expected = everything.view(4, 30).sort(1, descending=True)
    assert items.tolist() == expected.indices[:, :n].tolist()
    torch.testing.assert_close(ratings, expected.values[:, :n], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("block", [100, 7])
def test_the_best_items_are_those_of_all_compiled_ratings(block):
    model = carp_of().float()
    sides = in_single(sides_of(model, 20, 30))
    items, ratings = top_items(model, *sides, 30, block=block)
    everything = dispatch.fast_score_pairs(model, *sides, numbered(*np.divmod(np.arange(600), 30))).view(20, 30)
    torch.testing.assert_close(ratings, everything.sort(1, descending=True).values, rtol=0, atol=1e-5)
    torch.testing.assert_close(everything.gather(1, items), ratings, rtol=0, atol=1e-5)


@pytest.mark.parametrize("block", [100, 7])
@pytest.mark.parametrize("rated", [1, 100, 10_000])
def test_excluded_items_are_never_among_the_best(block, rated, monkeypatch):
    monkeypatch.setattr(best_items, "RATED", rated)
    model = carp_of()
    sides = sides_of(model, 20, 30)
    everyone, _ = top_items(model, *sides, 30)
    exclude = torch.tensor([[5, int(everyone[5, 0])], [2, int(everyone[2, 1])], [5, int(everyone[5, 3])]])
    found, _ = top_items(model, *sides, 3, exclude=exclude, block=block)
    expected = everyone[:, :3].tolist()
    expected[5], expected[2] = everyone[5, [1, 2, 4]].tolist(), everyone[2, [0, 2, 3]].tolist()
    assert found.tolist() == expected


def test_many_exclusions_are_grouped_by_their_rows():
    rng = np.random.default_rng(0)
    exclude = np.stack([rng.integers(0, 5_000, 20_000), rng.integers(0, 1_000, 20_000)], 1)
    grouped = best_items._by_row(torch.from_numpy(exclude))
    wanted = {}
    for row, item in exclude.tolist():
        wanted.setdefault(row, []).append(item)
    assert {row: items.tolist() for row, items in grouped.items()} == wanted
    assert best_items._by_row(None) == best_items._by_row(torch.empty(0, 2, dtype=torch.int64)) == {}


def test_chosen_users_come_in_the_order_asked_for():
    model = carp_of()
    sides = sides_of(model, 20, 30)
    everyone, _ = top_items(model, *sides, 3)
    some, _ = top_items(model, *sides, 3, users=[7, 2, 7])
    assert some.tolist() == everyone[[7, 2, 7]].tolist()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("items", [1, 7, 29, 30])
def test_a_users_best_do_not_depend_on_who_else_is_asked_for(items):
    model = carp_of().float()
    sides = in_single(sides_of(model, 20, items))
    best, ratings = top_items(model, *sides, 5)
    for user in range(20):
        own, rated = top_items(model, *sides, 5, users=[user])
        assert own[0].tolist() == best[user].tolist()
        assert rated[0].tolist() == ratings[user].tolist()  # to the last bit: near ties must not change places


@pytest.mark.parametrize("in_c", [True, False])
def test_a_single_user_is_ranked_by_all_threads_to_the_same_bits(in_c, monkeypatch):
    monkeypatch.setattr(best_items, "PIECE", 384)
    if not in_c:
        monkeypatch.setattr(compiler, "library", lambda: None)
    data = check.made_up_data(users=3, items=1000, pairs=20)
    model = check.small_model(data, dimension=6, filters=5, latent_size=4, viewpoints=2).eval()
    torch.manual_seed(0)
    sides = torch.randn(3, 2, 4), torch.randn(1000, 2, 4)
    best, ratings = top_items(model, *sides, 1000)
    for user in range(3):
        own, rated = top_items(model, *sides, 1000, users=[user])
        assert own[0].tolist() == best[user].tolist()
        assert rated[0].tolist() == ratings[user].tolist()


def test_too_little_memory_halves_the_block_and_goes_on(monkeypatch):
    model = carp_of()
    monkeypatch.setattr(best_items, "RATED", 60)
    sides = sides_of(model, 20, 30)
    expected, _ = top_items(model, *sides, 3)
    tried, rater = [], best_items._rater

    def with_little_memory(model, users, items, first, last):
        tried.append(last - first)
        rate = rater(model, users, items, first, last)

        def rated(users):
            if last - first > 8 and max(users) > 10:  # some users are done when it happens
                raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")
            return rate(users)

        return rated

    monkeypatch.setattr(best_items, "_rater", with_little_memory)
    found, _ = top_items(model, *sides, 3, block=30)
    assert found.tolist() == expected.tolist()
    assert tried[:3] == [30, 15, 7]
    assert all(len(set(row)) == 3 for row in found.tolist())


def test_other_errors_are_not_taken_for_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(best_items, "_rater", broken)
    model = carp_of()
    with pytest.raises(RuntimeError, match="shapes differ"):
        top_items(model, *sides_of(model, 4, 30), 3)


# ---- in C


@OF_LENGTHS
@pytest.mark.usefixtures("compiled")
def test_compiled_documents_are_encoded_as_by_the_plain_model(lengths, shape):
    exact, documents = carp_of(**shape), random_documents(lengths)
    model = copy.deepcopy(exact).float()
    assert viewpoints_c.NativeReader.of(model.item_side) is not None
    found = dispatch.fast_encode_documents(model.encode_items, documents, CPU)
    torch.testing.assert_close(found.double(), encoded_plainly(exact, documents), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("compiled")
def test_compiled_blocks_change_nothing(monkeypatch):
    model, documents = carp_of().float(), random_documents(list(range(30)))
    whole = dispatch.fast_encode_documents(model.encode_users, documents, CPU)
    monkeypatch.setattr(encode_all, "ROWS", 7)
    monkeypatch.setattr(encode_all, "BLOCKS", 1)
    monkeypatch.setattr(ragged, "BLOCK_TOKENS", 10)
    torch.testing.assert_close(dispatch.fast_encode_documents(model.encode_users, documents, CPU), whole)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("settings", SCORED, ids=str)
def test_the_compiled_routing_is_as_good_as_the_plain_models(settings):
    shape = {"latent_size": 25, "viewpoints": 5, **settings}
    exact, model = carp_of(**shape), carp_of(**shape).float()
    assert NativeJudge.of(model) is not None
    sides, pairs = sides_of(exact, 20, 30), every_pair(20, 30)
    truth = plainly(exact, sides, pairs)
    found = dispatch.fast_score_pairs(model, *in_single(sides), pairs).double()
    torch.testing.assert_close(found, truth, rtol=0, atol=2e-5)


def random_settings(seed):
    rng = np.random.default_rng(seed)
    return {
        "viewpoints": int(rng.integers(1, 7)),
        "latent_size": int(rng.integers(1, 40)),
        "filters": int(rng.integers(1, 40)),
        "projection": rng.choice(["shared", "per viewpoint"]),  # the latter's sides are as long as there are filters
        "routing": rng.choice(["bi-agreement", "agreement"]),
        "routing_iterations": int(rng.integers(1, 5)),
        "highway": rng.choice(["paper", "reversed"]),
        "logic_unit": rng.choice(["difference first", "product first"]),
        "capsule_bias": bool(rng.integers(2)),
    }


def numbered(users, items):
    users, items = np.asarray(users, np.int64), np.asarray(items, np.int64)
    return Pairs(users, items, np.zeros(len(users), np.float32), np.full(len(users), -1))


GATHERED = {
    "one pair": numbered([3], [4]),
    "a vector of one user": numbered([3] * 16, range(16)),
    "many of one user": numbered([3] * 77, np.arange(77) % 30),
    "every user once": numbered(range(20), range(20)),
    "few of each": numbered(np.arange(100) % 20, np.arange(100) % 30),
    "many of some, few of others": numbered(np.arange(150) ** 2 % 37 // 3, np.arange(150) % 30),
    "a user again after others": numbered([3] * 12 + [5, 6] + [3] * 30, np.arange(44) % 30),
    "many of one item": numbered(np.arange(77) % 20, [4] * 77),
    "many of few items": numbered(np.arange(150) % 20, np.arange(150) ** 2 % 37 // 9),
}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("pairs", GATHERED.values(), ids=GATHERED)
@pytest.mark.parametrize("seed", range(6))
def test_compiled_ratings_are_exact_however_pairs_share_sides(pairs, seed):
    settings = random_settings(seed)
    exact, model = carp_of(**settings), carp_of(**settings).float()
    g = exact.vote_weight.shape[2] // 2
    rng = torch.Generator().manual_seed(seed)
    sides = [torch.randn(n, exact.config.viewpoints, g, generator=rng, dtype=torch.float64) for n in (20, 30)]
    found = dispatch.fast_score_pairs(model, *in_single(sides), pairs)
    torch.testing.assert_close(found.double(), plainly(exact, sides, pairs), rtol=0, atol=2e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(20, 60))
def test_compiled_ratings_are_exact_for_any_shape(seed):
    test_compiled_ratings_are_exact_however_pairs_share_sides(GATHERED["many of some, few of others"], seed)


@pytest.mark.usefixtures("compiled")
def test_a_compiled_rating_is_the_same_whatever_is_asked_with_it():
    model = carp_of(latent_size=25, viewpoints=5).float()
    sides, pairs = in_single(sides_of(model, 20, 30)), every_pair(20, 30)
    together = dispatch.fast_score_pairs(model, *sides, pairs)
    assert torch.equal(dispatch.fast_score_pairs(model, *sides, pairs), together)
    for place in range(0, len(pairs), 37):
        alone = numbered(pairs.users[place : place + 1], pairs.items[place : place + 1])
        torch.testing.assert_close(
            dispatch.fast_score_pairs(model, *sides, alone)[0], together[place], rtol=0, atol=1e-5
        )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("routing", ["bi-agreement", "agreement"])
def test_the_compiled_routing_bears_extreme_votes(routing):
    """Agreements beyond what e^x can hold, either way, and votes of zero."""
    exact, model = carp_of(routing=routing), carp_of(routing=routing).float()
    pairs = every_pair(20, 30)
    for scale in (0.0, 3.0, 10.0, 1000.0, 1e6):
        sides = [side * scale for side in sides_of(exact, 20, 30)]
        found = dispatch.fast_score_pairs(model, *in_single(sides), pairs)
        torch.testing.assert_close(found.double(), plainly(exact, sides, pairs), rtol=0, atol=1e-4)


@pytest.mark.usefixtures("compiled")
def test_one_extreme_pair_does_not_disturb_its_neighbours():
    exact, model = carp_of(), carp_of().float()
    pairs, sides = every_pair(20, 30), sides_of(exact, 20, 30)
    sides[1][7] *= 1e5
    found = dispatch.fast_score_pairs(model, *in_single(sides), pairs).double()
    others = pairs.items != 7
    torch.testing.assert_close(found[others], plainly(exact, sides, pairs)[others], rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pairs", [numbered([20], [0]), numbered([0], [30]), numbered([-1], [0])], ids=str)
def test_numbers_without_a_side_are_refused(pairs, dtype):
    model = carp_of().to(dtype)
    users, items = sides_of(model, 20, 30)
    with pytest.raises(IndexError, match="not one of the"):
        dispatch.fast_score_pairs(model, users.to(dtype), items.to(dtype), pairs)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_does_the_routing():
    model = carp_of().float()
    assert NativeJudge.of(model) is None
    sides, pairs = in_single(sides_of(model, 20, 30)), every_pair(20, 30)
    found = dispatch.fast_score_pairs(model, *sides, pairs)
    torch.testing.assert_close(found, plainly(model, sides, pairs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", ["a compiler that fails", "a folder that cannot be written"])
def test_a_compiler_that_is_no_use_is_passed_over_with_one_line(no_compiler, monkeypatch, tmp_path, what):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(c_build.shutil, "which", lambda _: "/bin/false")
    if what == "a folder that cannot be written":
        (tmp_path / "carp").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="the C kernels could not be compiled, torch does their work") as caught:
        assert compiler.library() is None
    assert compiler.library() is None
    assert len(caught) == 1
    assert not list(tmp_path.glob("carp/*"))
