"""The GPU's kernels give the plain model's numbers: on a GPU where there is one, else in Triton's interpreter.

The interpreter is slow, and what it takes grows with the programs of a launch: pairs, viewpoints and steps are as few
as still say something, and each case tries several settings at once. conftest.py asks for it.
"""

from __future__ import annotations

import copy
import importlib
from types import SimpleNamespace

import pytest
import torch

from carp.kernels.gpu import self_check as check
from carp.kernels.gpu.availability import has_triton, interpreted
from carp.kernels.gpu.encoder import ReadingCut
from carp.kernels.gpu.scorer import ScoreTiling, score_pairs_gpu, top_items_gpu
from carp.kernels.gpu.training_step import Precision
from carp.kernels.gpu.workspace import Tuning

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
pytestmark = pytest.mark.skipif(
    not (has_triton() and (ON_GPU or interpreted())), reason="needs Triton, and a GPU or its interpreter"
)
EXACT = Precision("tf32x3" if ON_GPU else "ieee")
CUT = None if ON_GPU else Tuning(split=3)  # the interpreter takes one program after the other: few are quicker
HOW = {"precision": EXACT, "tuning": CUT}
SMALL = {"dimension": 10, "filters": 12, "latent_size": 10, "viewpoints": 2}
SMALLEST = {**SMALL, "viewpoints": 1}  # where viewpoints are not what matters
VARIANTS = {
    "paper": {},
    "calibrated, by agreement": {"variant": "calibrated", "routing": "agreement", "opposite_weight": 0.7},
    "one iteration, no exclusion, wide window, sharp attention": {
        "routing_iterations": 1, "mutual_exclusion": False, "dropout": 0.0, "window": 4, "attention_scale": 3.0,
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quicker_interpreter():
    """At each call inside a kernel the interpreter goes through its whole language, to replace what the launch replaced
    already: a third of its time. Here it does so only where something is left to replace."""
    if not interpreted():
        yield
        return
    interpreter = importlib.import_module("triton.runtime.interpreter")
    core, replace = interpreter.tl.core, interpreter._patch_lang

    def replace_what_is_left(function):
        spoken = [value for value in function.__globals__.values() if value is interpreter.tl or value is core]
        return replace(function) if any(core.is_builtin(language.load) for language in spoken) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", replace_what_is_left)
        yield


@pytest.fixture(scope="module")
def data():
    """Documents of one block of 64 words and of two, also without a pair's own review; of two batches of four pairs the
    last has three."""
    made = check.made_up_data(users=3, items=3, pairs=7, review=50, longest=90)
    for documents in (made.user_documents, made.item_documents):
        assert documents.lengths().min() < 64 < documents.lengths().max()
    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_has_the_plain_models_loss_and_gradients(data, variant):
    errors = check.step_errors(data, 4, DEVICE, **HOW, **SMALL, **VARIANTS[variant])
    assert {name: error for name, error in errors.items() if not error < 1e-4} == {}


def test_a_short_last_batch_counts_its_own_pairs_alone(data):
    errors = check.step_errors(data, 4, DEVICE, number=1, **HOW, **SMALLEST)
    assert max(errors.values()) < 1e-4


@pytest.mark.parametrize("number", [0, 2], ids=["whole batch", "short last batch"])
def test_the_parts_of_two_processes_have_the_gradients_of_one(number):
    data = check.made_up_data(users=5, items=4, pairs=11, review=9, longest=20)
    found = []
    for others in (None, SimpleNamespace(rank=0, size=2), SimpleNamespace(rank=1, size=2)):
        model = check.small_model(data, **SMALLEST).to(DEVICE)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.002, alpha=0.9)
        trainer = check.gpu_trainer(model, data, check.Batched(4), DEVICE, optimizer, EXACT, CUT, others)
        step = trainer.prepare()
        step.order.copy_(torch.arange(11, dtype=torch.int32))
        step.room.state.copy_(torch.tensor([number, 5]))
        with trainer.in_place():
            step.take_gradients()
        parts = step.room.table_change, step.packed.gradients, step.room.judged.losses.sum()
        found.append([part.clone() for part in parts])
    for whole, first, second in zip(*found, strict=True):
        assert check.distance(first + second, whole) < 1e-5
    assert check.distance(found[1][0], found[0][0]) > 0.01, "the first has a part alone"


def test_target_reviews_can_be_kept():
    data = check.made_up_data(users=2, items=2, pairs=3, review=9, longest=20, target_reviews="keep")
    errors = check.step_errors(data, 3, DEVICE, **HOW, **SMALLEST)
    assert max(errors.values()) < 1e-4


def test_epochs_reach_the_plain_models_losses():
    """Two epochs of a whole batch and a short one; the word table is updated by several programs."""
    data = check.made_up_data(users=2, items=2, pairs=3, review=9, longest=20)
    settings = {**SMALL, "dimension": 100, "dropout": 0.0}
    found, wanted, fast, plain = check.epoch_losses(data, 2, DEVICE, 2, **HOW, **settings)
    assert found == pytest.approx(wanted, rel=1e-4)
    assert check.distance(fast, plain) < 1e-3


def test_the_optimizer_goes_on_where_another_stopped():
    """One epoch by the kernels and one plain is two plain ones: parameters and running squares are the model's own."""
    data = check.made_up_data(users=2, items=2, pairs=3, review=9, longest=20)
    settings = {**SMALLEST, "dropout": 0.0}
    ratings = []
    for fast in (True, False):
        model = check.small_model(data, **settings).to(DEVICE)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.002, alpha=0.9)
        if fast:
            trainer = check.gpu_trainer(model, data, check.Batched(2), DEVICE, optimizer, EXACT, CUT)
            trainer.epoch(0, 1)
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = torch.optim.RMSprop(model.parameters(), lr=0.002, alpha=0.9)
            optimizer.load_state_dict(saved)
        else:
            model.train_epoch((batch.to(DEVICE) for batch in data.training_batches(2, 0, 1)), optimizer)
        assert {float(state["step"]) for state in optimizer.state.values()} == {2.0}
        model.train_epoch((batch.to(DEVICE) for batch in data.training_batches(2, 0, 2)), optimizer)
        every = data.batch(data.train, torch.arange(3).numpy()).to(DEVICE)
        ratings.append(model.eval()(every).rating.detach())
    assert check.distance(ratings[0], ratings[1]) < 1e-4


def test_another_trainer_goes_on_to_the_same_bits():
    """Stopped after an epoch, a new process finds in a checkpoint all that the next epoch depends on."""
    data = check.made_up_data(users=2, items=2, pairs=3, review=9, longest=20)
    model, resumed = (check.small_model(data, seed, **SMALLEST).to(DEVICE) for seed in (0, 1))
    trainer, optimizer = check.make_trainer(model, data, 2, DEVICE, EXACT, tuning=CUT, lr=0.002)
    trainer.epoch(0, 1)
    resumed.load_state_dict(copy.deepcopy(model.state_dict()))
    its_own = torch.optim.RMSprop(resumed.parameters())
    its_own.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    other = check.gpu_trainer(resumed, data, check.Batched(2), DEVICE, its_own, EXACT, CUT)
    assert other.epoch(0, 2) == trainer.epoch(0, 2)
    whole, continued = model.state_dict(), resumed.state_dict()
    assert [name for name in whole if not torch.equal(whole[name], continued[name])] == []
    squares = [[state["square_avg"] for state in one.state_dict()["state"].values()] for one in (optimizer, its_own)]
    assert all(map(torch.equal, *squares))


@pytest.fixture(scope="module")
def people():
    """Enough of them to rate, whatever they wrote."""
    return check.made_up_data(users=6, items=5, pairs=20, review=3)


def plain_ratings(model, viewpoints, aspects):
    """Of everybody with everything, in double precision [people, things]."""
    users = torch.arange(len(viewpoints), device=DEVICE).repeat_interleave(len(aspects))
    items = torch.arange(len(aspects), device=DEVICE).repeat(len(viewpoints))
    with torch.no_grad():
        exact = copy.deepcopy(model).double()
        rated = exact.score(users, items, viewpoints[users].double(), aspects[items].double()).rating
    return rated.view(len(viewpoints), len(aspects))


@pytest.mark.parametrize("settings", [{}, {"variant": "calibrated", "routing": "agreement"}], ids=str)
def test_scores_are_the_plain_models(people, settings):
    shape = {"dimension": 6, "filters": 8, "latent_size": 10, "viewpoints": 3}
    model = check.small_model(people, **shape, **settings).to(DEVICE).eval()
    torch.manual_seed(1)
    viewpoints, aspects = (torch.randn(size, 3, 10, device=DEVICE) for size in (6, 5))
    users, items = (torch.randint(0, size, (70,), device=DEVICE) for size in (6, 5))
    plain = plain_ratings(model, viewpoints, aspects)
    cut = ScoreTiling(products=EXACT.products)
    found = score_pairs_gpu(model, viewpoints, aspects, users, items, cut)
    assert check.distance(found, plain[users, items]) < 1e-5
    best, ratings = top_items_gpu(
        model, viewpoints, aspects, torch.tensor([4, 1], device=DEVICE), 3,
        exclude=torch.tensor([[1, 2]], device=DEVICE), cut=cut,
    )  # fmt: skip
    plain[1, 2] = -1
    wanted = plain[[4, 1]].topk(3)
    assert best.tolist() == wanted.indices.tolist()
    assert check.distance(ratings, wanted.values) < 1e-5


@pytest.mark.parametrize(
    "shape",
    [
        {"dimension": 8, "filters": 19, "latent_size": 18, "viewpoints": 3, "window": 5, "routing_iterations": 4},
        {"dimension": 3, "filters": 16, "latent_size": 2, "viewpoints": 4, "window": 1, "routing_iterations": 1},
        {"dimension": 9, "filters": 3, "latent_size": 16, "viewpoints": 2, "window": 2, "routing_iterations": 2},
    ],
    ids=["a little more than a block", "the least, and a whole block", "an even window"],
)
def test_any_shape_has_the_plain_models_step_and_scores(shape):
    """For documents of which some are empty and some of one word."""
    data = check.made_up_data(users=4, items=3, pairs=8, review=6, longest=9, seed=27)
    lengths = data.user_documents.lengths().tolist() + data.item_documents.lengths().tolist()
    assert {0, 1} <= set(lengths)
    errors = check.step_errors(data, 3, DEVICE, **HOW, **shape)
    assert {name: error for name, error in errors.items() if not error < 1e-4} == {}, shape
    model = check.small_model(data, **shape).to(DEVICE).eval()
    torch.manual_seed(3)
    viewpoints, aspects = (
        torch.randn(size, shape["viewpoints"], shape["latent_size"], device=DEVICE) for size in (3, 2)
    )
    users, items = torch.arange(6, device=DEVICE) // 2, torch.arange(6, device=DEVICE) % 2
    found = score_pairs_gpu(model, viewpoints, aspects, users, items, ScoreTiling(products=EXACT.products))
    assert check.distance(found, plain_ratings(model, viewpoints, aspects).flatten()) < 1e-5, shape


def test_half_precision_scores_are_near_and_never_infinite(people):
    model = check.small_model(people, dimension=6, filters=8, latent_size=10, viewpoints=2).to(DEVICE).eval()
    torch.manual_seed(2)
    users, items = (torch.randint(0, size, (70,), device=DEVICE) for size in (3, 5))
    for spread, limit in ((1.0, 1e-3), (1e4, 1e-2)):  # products of the second are too large for it
        viewpoints, aspects = (torch.randn(size, 2, 10, device=DEVICE) * spread for size in (3, 5))
        wanted = plain_ratings(model, viewpoints, aspects)
        found = score_pairs_gpu(model, viewpoints, aspects, users, items, ScoreTiling(products="half"))
        assert check.distance(found, wanted[users, items]) < limit
        best = top_items_gpu(
            model, viewpoints, aspects, torch.arange(3, device=DEVICE), 5, cut=ScoreTiling(products="half")
        )
        assert check.distance(torch.zeros(3, 5, device=DEVICE).scatter_(1, *best), wanted) < limit


@pytest.mark.parametrize(
    "settings",
    [{}, {"window": 4, "attention_scale": 3.0, "filters": 20, "latent_size": 3, "viewpoints": 3}],
    ids=str,
)
def test_whole_documents_have_the_plain_models_sides(data, settings):
    how = ReadingCut(products=EXACT.products)
    errors = check.encoding_errors(data, DEVICE, how, **{**SMALL, **settings})
    assert max(errors.values()) < 1e-5


@pytest.mark.parametrize("at_once", [1, 4, 1 << 20])
def test_documents_are_encoded_in_chunks_of_any_size(at_once):
    """One document, four of five or six, or all together; some of them empty, some of one word."""
    data = check.made_up_data(users=6, items=5, pairs=12, review=3, longest=6)
    lengths = data.user_documents.lengths().tolist() + data.item_documents.lengths().tolist()
    assert {0, 1} <= set(lengths)
    errors = check.encoding_errors(data, DEVICE, ReadingCut(at_once * 64 * 16, products=EXACT.products), **SMALLEST)
    assert max(errors.values()) < 1e-5


def test_no_words_at_all_are_sides_of_zeros():
    data = check.made_up_data(users=3, items=2, pairs=4, review=1)
    model = check.small_model(data, **SMALL).to(DEVICE)
    assert len(data.user_documents.words) == 0
    found = check.encode_side_gpu(model.user_side, model.embedding.weight, data.user_documents, DEVICE)
    assert found.shape == (3, 2, 10)
    assert not found.any()
