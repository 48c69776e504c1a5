"""What an update solves for in `meeting`: held to ridge regressions that are written out, and to what must not move."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from carp.models.batch import NameWords
from carp.models.calibration import IMAGINED_PAIRS, WIDTHS_DIFFER
from carp.models.covariance_solving import FOLDS
from carp.models.meeting import Meeting, MeetingConfig
from carp.reviews.documents import padded

USERS, ITEMS = [1, 4, 6], [0, 3]  # those that are touched
OWNED = {"user", "item", "of_user", "of_item", "user_noise", "item_noise", "width.more", "width.middle"}


def fitted(data, **settings):
    given = {"directions": 3, "bigrams": 20, "min_bigram_reviews": 2, "rounds": 4, "rarity": 0.5, **settings}
    model = Meeting(MeetingConfig(**given), data.sizes).double()
    model.start(data)
    # So few pairs may leave a term out: here each has its part.
    model.strengths[:, :-1] = model.strengths[:, :-1].clamp_min(0.05)
    return model.eval()


def named(data):
    words = np.random.default_rng(3).integers(0, 7, 2 * data.sizes.items)
    return dataclasses.replace(data, item_names=NameWords(words, np.arange(0, len(words) + 1, 2), 7))


def taken_in(model, data, users=USERS, items=ITEMS):
    after = copy.deepcopy(model)
    after.take_in(data, torch.tensor(users, dtype=torch.int64), torch.tensor(items, dtype=torch.int64))
    return after


class Written:
    """The small problem written out: a column for each level and each number of an own vector of those touched."""

    def __init__(self, model, data, users, items):
        pairs = data.train
        self.touching = np.isin(pairs.users, users) | np.isin(pairs.items, items)
        chosen = np.flatnonzero(self.touching)
        self.user, self.item, self.records = pairs.users[chosen], pairs.items[chosen], pairs.records[chosen]
        self.ratings = pairs.ratings[chosen].astype(np.float64)
        w_u, zu = self.side(model.user_side, model.encode_users, data.user_documents, self.user)
        w_i, zi = self.side(
            model.item_side, model.encode_items, data.item_documents, self.item, model.name_place.numpy()
        )
        self.rest = float(model.mean) + w_u + w_i + model.name_text.numpy()[self.item]
        self.rest += np.einsum("nk,kl,nl->n", zu, model.meetings.numpy(), zi)
        columns, self.kind = [], []
        sides = (
            (self.user, users, zi, model.user, model.of_user, (0, 4)),
            (self.item, items, zu, model.item, model.of_item, (1, 5)),
        )
        for owner, touched, seen, levels, vectors, terms in sides:
            known = ~np.isin(owner, touched)
            held = levels.numpy()[owner] + (vectors.numpy()[owner] * seen).sum(1)
            self.rest += np.where(known, held, 0.0)
            for one in touched:
                columns.append((owner == one).astype(float))
                columns += [(owner == one) * direction for direction in seen.T]
                self.kind += [terms[0]] + [terms[1]] * seen.shape[1]
        self.design, self.target = np.stack(columns, 1), self.ratings - self.rest

    def side(self, side, encode, documents, owner, names=None):
        read = encode(*(torch.from_numpy(of) for of in padded(documents, owner, self.records)))
        place = read[:, 1:] if names is None else read[:, 1:] + torch.from_numpy(names[owner])
        return read[:, 0].numpy(), side.seen(place)[0].numpy()

    def solved(self, strengths, noise, given=None):
        """The posterior mean of all columns: least squares with a penalty on each."""
        design, target, noise = (of if given is None else of[given] for of in (self.design, self.target, noise))
        weighted = design.T / (strengths[-1] * noise)
        penalty = np.diag(1 / strengths[self.kind])
        return np.linalg.solve(weighted @ design + penalty, weighted @ target)

    def held_out(self, strengths, noise):
        folds = np.random.default_rng(2).permutation(len(self.target)) % FOLDS
        found = np.zeros(len(self.target))
        for fold in range(FOLDS):
            found[folds == fold] = self.design[folds == fold] @ self.solved(strengths, noise, folds != fold)
        return found


@pytest.mark.parametrize(
    ("names", "settings"), [(False, {}), (True, {"from_mean": True}), (True, {"own_noise": False})]
)
def test_levels_and_own_vectors_are_those_of_the_regression_written_out(small_pairs, names, settings):
    earlier, data = small_pairs.data(1), small_pairs.data(2)
    model = fitted(named(earlier) if names else earlier, **settings)
    after = taken_in(model, data)
    written = Written(model, data, USERS, ITEMS)
    own = (after.user_noise[written.user] * after.item_noise[written.item]).numpy()
    noises = [np.ones(len(own)), own] if after.config.own_noise else [np.ones(len(own))]
    found = np.mean([written.solved(s, n) for s, n in zip(after.strengths.numpy(), noises, strict=False)], 0)
    rows = [torch.cat([after.user[USERS].unsqueeze(1), after.of_user[USERS]], 1).flatten()]
    rows += [torch.cat([after.item[ITEMS].unsqueeze(1), after.of_item[ITEMS]], 1).flatten()]
    assert np.abs(found).max() > 0.05
    assert np.allclose(torch.cat(rows).numpy(), found, atol=1e-4)


def test_noises_and_widths_follow_from_pairs_that_were_held_out(small_pairs):
    model, data = fitted(small_pairs.data(3)), small_pairs.data(4)
    after = taken_in(model, data)
    written = Written(model, data, USERS, ITEMS)
    first = written.held_out(model.strengths[0].numpy(), np.ones(len(written.target)))
    square = (written.target - first) ** 2
    user, item = model.user_noise.numpy().copy(), model.item_noise.numpy().copy()
    square /= square.sum() / (user[written.user] * item[written.item]).sum()
    for _ in range(5):
        for one in USERS:
            theirs = written.user == one
            user[one] = ((square / item[written.item])[theirs].sum() + IMAGINED_PAIRS) / (theirs.sum() + IMAGINED_PAIRS)
        for one in ITEMS:
            theirs = written.item == one
            item[one] = ((square / user[written.user])[theirs].sum() + IMAGINED_PAIRS) / (theirs.sum() + IMAGINED_PAIRS)
    assert np.allclose(after.user_noise.numpy(), user, atol=3e-3)
    assert np.allclose(after.item_noise.numpy(), item, atol=3e-3)
    second = written.held_out(model.strengths[1].numpy(), user[written.user] * item[written.item])
    guess = model.curve(torch.from_numpy(written.rest + (first + second) / 2)).numpy()
    belief = ((written.ratings - guess) ** 2).mean() / WIDTHS_DIFFER
    for one in USERS:
        theirs = written.user == one
        away = guess[theirs] - guess[theirs].mean()
        more = (away * (written.ratings - guess)[theirs]).sum() / ((away**2).sum() + belief)
        assert float(after.width.more[one]) == pytest.approx(more, abs=3e-3)


def test_nothing_moves_of_those_who_are_not_touched_and_no_weight(small_pairs):
    model = fitted(small_pairs.data(5))
    before, after = model.state_dict(), taken_in(model, small_pairs.data(6)).state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if name not in OWNED:
            assert torch.equal(tensor, after[name]), name
            continue
        touched = USERS if len(tensor) == len(model.user) else ITEMS
        others = np.setdiff1d(np.arange(len(tensor)), touched)
        assert torch.equal(tensor[others], after[name][others]), name
        assert not torch.equal(tensor[touched], after[name][touched]), name


def test_who_is_solved_for_again_with_nothing_new_stays_in_place(small_pairs):
    """The posterior mean of a part, given that of the rest, is what it was."""
    data = small_pairs.data(7)
    model = Meeting(MeetingConfig(directions=3, rounds=4, rarity=0.5, own_noise=False), data.sizes).double()
    model.start(data)
    after = taken_in(model, data, range(small_pairs.users), range(small_pairs.items))
    for name in ("user", "item", "of_user", "of_item"):
        assert torch.allclose(getattr(model, name), getattr(after, name), atol=5e-4), name
    assert float(model.user.abs().max()) > 0.05


def test_somebody_new_gets_the_posterior_of_their_reviews_beside_everything_else(small_pairs):
    model, data = fitted(small_pairs.data(8), own_noise=False), small_pairs.data(9)
    for table in (model.user, model.of_user, model.user_noise):
        table[2] = 0  # as an update begins with somebody new
    after = taken_in(model, data, [2], [])
    found = Written(model, data, [2], []).solved(model.strengths[0].numpy(), np.ones((data.train.users == 2).sum()))
    assert np.allclose(torch.cat([after.user[2:3], after.of_user[2]]).numpy(), found, atol=1e-4)
    assert float(after.user_noise[2]) > 0.3


def test_who_has_no_pair_left_is_known_by_nothing(small_pairs):
    data = small_pairs.data(10)
    train = data.train
    kept = train.users != 3
    rest = train.some(kept)
    after = taken_in(fitted(data), dataclasses.replace(data, train=rest), [3], [])
    assert float(after.user[3]) == 0
    assert not after.of_user[3].any()


def test_where_all_ratings_were_alike_an_update_leaves_the_mean(small_pairs):
    data = small_pairs.data(11, rating=4.0)
    model = Meeting(MeetingConfig(directions=3), data.sizes).double()
    model.start(data)
    after = taken_in(model, small_pairs.data(12))
    assert not after.user.any()
    assert float(after.mean) == 4


def test_own_vectors_are_the_same_whichever_way_their_products_are_taken(small_pairs):
    """With many directions texts are compared first, with few the directions are summed: 36 pairs go both ways."""
    data = small_pairs.data(13)
    model = fitted(data)
    wide = copy.deepcopy(model)
    wide.config = dataclasses.replace(model.config, directions=40)
    for side in (wide.user_side, wide.item_side):
        side.directions = torch.nn.functional.pad(side.directions, (0, 37))
        side.centre = torch.nn.functional.pad(side.centre, (0, 37))
    for name in ("of_user", "of_item", "name_place"):
        setattr(wide, name, torch.nn.functional.pad(getattr(wide, name), (0, 37)))
    wide.meetings = torch.nn.functional.pad(model.meetings, (0, 37, 0, 37))
    few, many = taken_in(model, data), taken_in(wide, data)
    assert torch.allclose(few.of_user, many.of_user[:, :3], atol=1e-7)
    assert torch.allclose(few.item, many.item, atol=1e-7)
