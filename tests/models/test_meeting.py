"""Meeting: its covariance, solution and weights against dense matrices, its parts, and inputs with nothing to say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, NameWords
from carp.models.calibration import NORMAL_90, WIDTHS_DIFFER, OwnWidth, RatingCurve, noise_by_owner, noise_without_own
from carp.models.meeting import Meeting, MeetingConfig
from carp.models.pair_covariance import START, TERMS, at_right_angles
from carp.models.predict import predict_pairs
from carp.models.segments import Segments
from carp.models.ways_of_seeing import RARITIES, HeldOutFit, SeenData
from carp.reviews.documents import make_documents, padded

DIRECTIONS = 3
CPU = torch.device("cpu")


def fitted(data, dtype=torch.float64, **settings):
    given = {"directions": DIRECTIONS, "bigrams": 20, "min_bigram_reviews": 2, "rounds": 4, "rarity": 0.5, **settings}
    model = Meeting(MeetingConfig(**given), data.sizes).to(dtype)
    model.start(data)
    return model.eval()


def sides(small_pairs, model, data, pairs, leave_out):
    bigrams = model.bigrams.tolist()
    left_out = pairs.records if leave_out else [None] * len(pairs)
    rarity = model.config.rarity
    found = [
        small_pairs.rows_of(documents, owners, left_out, bigrams, len(side.idf), rarity, side.directions, side.centre)
        for side, documents, owners in (
            (model.user_side, data.user_documents, pairs.users),
            (model.item_side, data.item_documents, pairs.items),
        )
    ]
    if data.item_names is None:
        return pairs, *found[0], *found[1]
    return pairs, *found[0], *with_names(model, data, pairs.items, found[1][0])


def with_names(model, data, items, x):
    """Rows of things with the words of their names as further columns, and their directions."""
    names, owners = data.item_names, len(data.item_names.offsets) - 1
    rows = np.zeros((owners, names.known_words))
    for item in range(owners):
        rows[item, names.words[names.offsets[item] : names.offsets[item + 1]]] = 1
    rows *= 1 + np.log((1 + owners) / (1 + rows.sum(0)))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    side, place = model.item_side, model.name_place.numpy()[items]
    raw = x @ side.directions.numpy() + place
    raw = raw - side.centre.numpy() * raw.any(1, keepdims=True)
    z = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-12)
    return np.concatenate([x, model.config.name_weight * rows[items]], 1), z


def named(data):
    """Things called by two words of seven, the last one by none."""
    counts = np.array([2] * (data.sizes.items - 1) + [0])
    words = np.random.default_rng(3).integers(0, 7, counts.sum())
    return dataclasses.replace(data, item_names=NameWords(words, np.concatenate([[0], np.cumsum(counts)]), 7))


def seen(model, data):
    seen_data = SeenData(data, model.config, model.sizes, model.mean)
    texts = seen_data.texts(data.train, model.config.rarity)
    return seen_data.way(data.train, texts, (model.user_side.centre, model.item_side.centre)).covariance


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("from_mean", [False, True])
def test_products_of_the_covariance_are_those_of_the_matrix_written_out(small_pairs, from_mean, names):
    data = named(small_pairs.data()) if names else small_pairs.data()
    model = fitted(data, from_mean=from_mean)
    covariance = seen(model, data)
    written = small_pairs.dense_terms(*[sides(small_pairs, model, data, data.train, True)] * 2)
    vectors = torch.randn(36, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for term in range(TERMS):
        found = covariance.term_times(term, vectors)
        assert torch.allclose(found, torch.from_numpy(written[term]) @ vectors, atol=1e-9), f"term {term}"


def test_solve_is_the_dense_solution_and_a_hidden_pair_is_unknown_to_its_column(small_pairs):
    data = small_pairs.data(1)
    covariance = seen(fitted(data), data)
    strengths = torch.tensor(START, dtype=torch.float64)
    noise = torch.linspace(0.5, 2, 36, dtype=torch.float64)
    matrix = covariance.times(torch.eye(36, dtype=torch.float64), strengths, noise)
    target = torch.randn(36, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    given = torch.ones_like(target)
    given[:9, 1] = 0
    found = covariance.solve(target, strengths, noise, given=given, tolerance=1e-12)
    assert torch.allclose(found[:, 0], torch.linalg.solve(matrix, target[:, 0]), atol=1e-8)
    assert torch.allclose(found[9:, 1], torch.linalg.solve(matrix[9:, 9:], target[9:, 1]), atol=1e-8)
    assert not found[:9, 1].any()


def test_learned_strengths_are_likelier_than_the_ones_to_begin_with(small_pairs):
    data = small_pairs.data(2)
    covariance = seen(fitted(data), data)
    target = torch.from_numpy(data.train.ratings).double()
    target -= target.mean()
    start = torch.tensor(START, dtype=torch.float64) * float(target.square().mean())
    equal = torch.ones_like(target)
    learned, _ = covariance.learn_strengths(target, start, equal, rounds=40, probes=60)

    def likelihood(strengths):
        matrix = covariance.times(torch.eye(36, dtype=torch.float64), strengths, equal)
        return torch.distributions.MultivariateNormal(torch.zeros_like(target), matrix).log_prob(target)

    assert likelihood(learned) > likelihood(start) + 0.1
    for term in range(TERMS + 1):  # near the top, no strength by itself leads much higher
        if learned[term] > 0:
            for factor in (0.7, 1.4):
                other = learned.clone()
                other[term] *= factor
                assert likelihood(other) < likelihood(learned) + 0.2


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("from_mean", [False, True])
def test_ratings_are_the_mean_of_two_dense_posterior_means_through_the_curve(small_pairs, from_mean, names):
    data = named(small_pairs.data(3)) if names else small_pairs.data(3)
    model = fitted(data, from_mean=from_mean)
    train, held = sides(small_pairs, model, data, data.train, True), sides(small_pairs, model, data, data.valid, False)
    target = data.train.ratings.astype(np.float64) - float(model.mean)
    own = (model.user_noise[data.train.users] * model.item_noise[data.train.items]).numpy()
    means = []
    for strengths, noise in zip(model.strengths.numpy(), (np.ones(36), own), strict=True):
        prior = sum(s * k for s, k in zip(strengths, small_pairs.dense_terms(train, train), strict=False))
        alpha = np.linalg.solve(prior + np.diag(strengths[-1] * noise), target)
        means.append(sum(s * k for s, k in zip(strengths, small_pairs.dense_terms(held, train), strict=False)) @ alpha)
    sums = torch.from_numpy(float(model.mean) + np.mean(means, 0))
    wanted = model.as_rating(sums, torch.from_numpy(data.valid.users)).clamp(1, 5)
    found = torch.from_numpy(predict_pairs(model, data, data.valid, CPU))
    assert torch.allclose(found.double(), wanted, atol=2e-3)


def test_single_precision_gives_the_same_ratings(small_pairs):
    data = small_pairs.data(4)
    double, single = (predict_pairs(fitted(data, dtype), data, data.valid, CPU) for dtype in (None, torch.float32))
    assert np.allclose(double, single, atol=0.02)


def test_two_fits_give_the_same_bits(small_pairs):
    data = small_pairs.data(5)
    first, second = fitted(data).state_dict(), fitted(data).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("from_mean", [False, True])
def test_what_words_add_is_what_the_texts_add_in_all(small_pairs, from_mean, names):
    data = named(small_pairs.data(6)) if names else small_pairs.data(6)
    model = fitted(data, from_mean=from_mean)
    batch = data.batch(data.valid, np.arange(len(data.valid)))
    prediction = model(batch)
    found = model.explain(batch, prediction)
    user, item, name = model.words_add(batch)
    assert torch.allclose(user.sum(1) + item.sum(1) + name, prediction.tensors["text"], atol=1e-9)
    assert found.balance is prediction.tensors["text"]
    sums = prediction.tensors["baseline"] + prediction.tensors["text"]
    assert torch.allclose(prediction.rating, model.as_rating(sums, batch.users))


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("from_mean", [False, True])
def test_documents_that_were_kept_say_what_they_say_read_together(small_pairs, from_mean, names):
    data = named(small_pairs.data(6)) if names else small_pairs.data(6)
    model = fitted(data, from_mean=from_mean)
    batch = data.batch(data.valid, np.arange(len(data.valid)))
    shares = torch.rand(data.sizes.words + 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares /= shares.sum(1, keepdim=True)
    parts, *pulls = model.parts(batch, shares)
    alone = [data.batch(data.valid, np.array([place])) for place in range(len(data.valid))]
    kept = [
        (
            model.user_terms(one.user_words, one.user_reviews, shares),
            model.item_terms(one.item_words, one.item_reviews, shares),
        )
        for one in alone
    ]
    of_kept, *pulls_of_kept = model.parts_of_kept(batch.users, batch.items, kept)
    for name, together in vars(parts).items():
        assert torch.allclose(getattr(of_kept, name), together, atol=1e-9), name
    for together, each in zip(pulls, pulls_of_kept, strict=True):
        assert all(torch.allclose(row[: len(own)], own, atol=1e-9) for row, own in zip(together, each, strict=True))
        assert any(bool(own.any()) for own in each)


def test_own_review_is_in_no_row_of_its_pair(small_pairs):
    data = small_pairs.data(7)
    model = fitted(data)
    covariance = seen(model, data)
    words, reviews = padded(data.user_documents, data.train.users, data.train.records)
    sides_left_out = model.encode_users(torch.from_numpy(words), torch.from_numpy(reviews))
    assert torch.allclose(model.user_side.seen(sides_left_out[:, 1:])[0], covariance.user_directions, atol=1e-9)


def test_how_texts_are_seen_is_chosen_by_held_out_training_pairs(small_pairs):
    ways = [(rarity, from_mean) for rarity in RARITIES for from_mean in (False, True)]
    found = set()
    for seed in range(4):
        data = small_pairs.data(20 + seed)
        each = {(r, m): fitted(data, rounds=0, rarity=r, from_mean=m) for r, m in ways}
        chosen = fitted(data, rounds=0, rarity=None)
        best = min(ways, key=lambda way: held_out_error(each[way], data))
        assert torch.equal(chosen.user_side.idf, each[best].user_side.idf)
        assert torch.equal(chosen.item_side.centre, each[best].item_side.centre)
        found.add(best)
    assert len(found) > 1


def test_of_very_many_pairs_a_part_chooses_and_all_are_fitted_on(small_pairs, monkeypatch):
    data = small_pairs.data(24)
    whole = fitted(data, rarity=None, from_mean=None)
    monkeypatch.setattr("carp.models.ways_of_seeing.MOST_TO_CHOOSE_BY", len(data.train) // 2)
    part = fitted(data, rarity=None, from_mean=None)
    same = {name for name, of in whole.user_side.state_dict().items() if torch.equal(of, getattr(part.user_side, name))}
    batch = data.batch(data.valid, np.arange(len(data.valid)))
    assert part.of_user.any(1).sum() == whole.of_user.any(1).sum(), "everybody in training is learned of"
    if "idf" in same:  # the same way was chosen: then only the strengths differ, by where their search began
        assert torch.corrcoef(torch.stack([part(batch).rating, whole(batch).rating]))[0, 1] > 0.98
    assert (part(batch).rating - batch.ratings).square().mean() < (whole.mean - batch.ratings).square().mean()


def held_out_error(model, data):
    """Of the first solution, on tenths it did not know."""
    target = torch.from_numpy(data.train.ratings).double() - model.mean
    fit = HeldOutFit(seen(model, data), target)
    return fit.error(model.strengths[0], torch.ones_like(target), torch.zeros_like(target))


def test_somebody_unknown_is_judged_by_words_alone(small_pairs):
    data = small_pairs.data(8)
    model = fitted(data)
    words, reviews = (torch.from_numpy(of) for of in padded(data.user_documents, np.array([2])))
    item = [torch.from_numpy(of) for of in padded(data.item_documents, np.array([1]))]
    nobody = Batch(torch.tensor([-1]), torch.tensor([1]), words, reviews, *item)
    found = model(nobody)
    assert torch.isfinite(found.rating).all()
    assert torch.allclose(found.tensors["baseline"], model.mean + model.item[1])


@pytest.mark.parametrize("change", ["all ratings alike", "no words", "one word each"])
def test_data_with_nothing_to_learn_from_gives_ratings_all_the_same(small_pairs, change):
    data = small_pairs.data(9, rating=4.0 if change == "all ratings alike" else None)
    if change == "no words":
        none, owner = np.zeros(0, np.int32), np.zeros(36, np.int32)
        empty = make_documents(none, none, none.reshape(0, 2), owner, small_pairs.users)
        things = make_documents(none, none, none.reshape(0, 2), owner, small_pairs.items)
        data = dataclasses.replace(data, user_documents=empty, item_documents=things)
    if change == "one word each":
        data = small_pairs.data(9, longest=1)
    found = predict_pairs(fitted(data, torch.float32), data, data.valid, CPU)
    assert np.isfinite(found).all()
    assert found.min() >= 1
    assert found.max() <= 5
    if change == "all ratings alike":
        assert np.allclose(found, 4)


def test_noise_follows_who_errs_and_stays_near_one_for_those_hardly_known(small_pairs):
    errors = torch.cat([torch.full((60,), 2.0), torch.full((60,), 0.5), torch.tensor([3.0])]).double()
    users = torch.cat([torch.zeros(60), torch.ones(60), torch.tensor([2.0])]).long()
    items = torch.arange(121) % 5
    user, item = noise_by_owner(errors, Segments.of(users, 4), Segments.of(items, 5))
    assert user[0] > 1.3 > 0.6 > user[1]
    assert 1 < user[2] < 1.5
    assert user[3] == 1
    assert torch.allclose(item, torch.ones(5, dtype=torch.float64), atol=0.35)


def test_noise_without_a_pairs_own_error_does_not_follow_it(small_pairs):
    rng = torch.Generator().manual_seed(0)
    errors = torch.randn(400, generator=rng, dtype=torch.float64)
    users, items = torch.arange(400) % 40, torch.arange(400) // 40
    owners = Segments.of(users, 40), Segments.of(items, 10)
    known = noise_by_owner(errors, *owners)
    with_own, without = known[0][users] * known[1][items], noise_without_own(errors, *owners, *known)
    follows = [float(torch.corrcoef(torch.stack([errors.square(), noise]))[0, 1]) for noise in (with_own, without)]
    assert follows[0] > 0.15 > follows[1]


def test_the_curve_finds_a_cubic_and_is_level_beyond_what_it_saw(small_pairs):
    sums = torch.linspace(1, 5, 400, dtype=torch.float64)
    curve = RatingCurve().double()
    assert torch.equal(curve(sums), sums)
    wanted = 3 + 0.4 * (sums - 3) + 0.1 * (sums - 3) ** 3
    curve.fit(sums, wanted, stiffness=0.0)
    assert torch.allclose(curve(sums), wanted, atol=1e-6)
    assert float(curve(torch.tensor(99.0).double())) == pytest.approx(float(wanted[-1]))


def test_the_curve_stays_a_line_where_predictions_hardly_differ():
    rng = torch.Generator().manual_seed(0)
    sums = 4.5 + 1e-4 * torch.randn(200, generator=rng, dtype=torch.float64)
    ratings = 4.5 + 0.6 * torch.randn(200, generator=rng, dtype=torch.float64) - 1000 * (sums - 4.5)
    curve = RatingCurve().double()
    curve.fit(sums, ratings)
    assert torch.allclose(curve(sums), ratings.mean() + sums - sums.mean(), atol=1e-3)

    sums = 4.5 + 0.5 * torch.randn(20_000, generator=rng, dtype=torch.float64)
    ratings = 4.5 + 0.6 * torch.randn(20_000, generator=rng, dtype=torch.float64) + 0.7 * (sums - 4.5)
    curve.fit(sums, ratings)
    assert float(curve(torch.tensor(5.0)) - curve(torch.tensor(4.0))) == pytest.approx(0.7, abs=0.03)


def test_people_who_rate_widely_are_told_from_those_who_do_not(small_pairs):
    rng = torch.Generator().manual_seed(0)
    users = torch.arange(60) // 20  # the first uses twice the width, the second half of it; the third is not known
    predicted = 3.5 + 0.5 * torch.randn(60, generator=rng, dtype=torch.float64)
    means = torch.tensor([predicted[:20].mean(), predicted[20:40].mean(), 0.0])[users]
    ratings = means + torch.tensor([2.0, 0.5, 1.0])[users] * (predicted - means)
    width = OwnWidth(4).double()
    assert torch.equal(width(predicted, users), predicted)
    kept = users < 2
    without_own = width.fit(predicted[kept], ratings[kept], Segments.of(users[kept], 4))
    assert 0.2 < width.more[0] < 1
    assert -0.5 < width.more[1] < -0.1
    assert width.more[2:].tolist() == [0, 0]
    before, after = ((of - ratings[kept]).square().mean() for of in (predicted[kept], width(predicted, users)[kept]))
    assert after < without_own.sub(ratings[kept]).square().mean() < before
    assert torch.equal(width(predicted, torch.full((60,), -1)), predicted)


def test_a_persons_width_as_if_one_rating_were_not_known_comes_from_the_others():
    predicted = torch.tensor([1.0, 2, 3, 4, 5, 3]).double()
    ratings = torch.tensor([1.0, 1, 3, 5, 5, 3]).double()
    one_person = Segments.of(torch.zeros(6, dtype=torch.int64), 1)
    found = OwnWidth(1).double().fit(predicted, ratings, one_person)
    away, error = predicted - 3, ratings - predicted
    for own in range(6):
        others = torch.arange(6) != own
        belief = error.square().mean() / WIDTHS_DIFFER
        more = (away * error)[others].sum() / (away[others].square().sum() + belief)
        assert float(found[own]) == pytest.approx(float(predicted[own] + more * away[own]))


def test_intervals_hold_about_nine_tenths_of_pairs_never_seen(small_pairs):
    data = small_pairs.data(10, people=40, things=40, train=1000)
    batch = data.batch(data.valid, np.arange(len(data.valid)))
    errors = (model := fitted(data))(batch).rating - torch.from_numpy(data.valid.ratings)
    within = errors.abs() <= NORMAL_90 * model.deviations(batch.users, batch.items)
    assert 0.85 <= float(within.double().mean()) <= 0.95
    assert float(errors.square().mean()) < 0.8 * float(np.var(data.valid.ratings))
    assert model.deviation > 0.3


def test_validation_ratings_are_learned_from_where_that_is_wished_and_nowhere_else(small_pairs):
    data = small_pairs.data(11)
    other = dataclasses.replace(data, valid=dataclasses.replace(data.valid, ratings=6 - data.valid.ratings))
    alone, joined = ({"learn_from": which} for which in ("training", "training and validation"))
    found = [predict_pairs(fitted(d, **s), d, data.train, CPU) for s in (alone, joined) for d in (data, other)]
    assert np.array_equal(found[0], found[1])
    assert not np.allclose(found[2], found[3], atol=0.05)


@pytest.mark.parametrize("name", ["user_side.idf", "user_side.weight", "item_side.directions", "bigrams"])
def test_tables_that_do_not_fit_each_other_are_refused(small_pairs, name):
    """Of an edited bundle, each table may be of the right kind by itself."""
    whole = fitted(small_pairs.data())
    model = Meeting(whole.config, whole.sizes).double()
    state = whole.state_dict()
    model.load_state_dict(state)
    model.check_loaded()
    model.load_state_dict({**state, name: state[name][:-1]})
    with pytest.raises(ValueError, match="the known words and bigrams"):
        model.check_loaded()


def test_columns_are_set_at_right_angles_without_a_decomposition_of_them_all():
    columns = torch.randn(300, 12, generator=torch.Generator().manual_seed(0)) * torch.logspace(0, -3, 12)
    expected = torch.linalg.qr(columns.double())[0]
    found = at_right_angles(at_right_angles(columns)).double()
    assert torch.allclose(found.T @ found, torch.eye(12, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(found @ found.T, expected @ expected.T, atol=1e-3)  # the same span

    columns[:, 3:] = columns[:, :3] @ torch.ones(3, 9)
    spanned = at_right_angles(at_right_angles(columns)).norm(dim=0)
    assert sorted(spanned.round(decimals=5).tolist()) == [0.0] * 9 + [1.0] * 3
