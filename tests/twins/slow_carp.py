"""A slow twin of the paper's model: Python loops over float64 numbers, written from the paper and not from the code."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import torch

from carp.models.base import make_config
from carp.models.batch import Batch, Sizes
from carp.models.carp import Carp

SENTIMENTS = (0, 1)  # positive, negative


def dot(left, right):
    return sum(float(a) * float(b) for a, b in zip(left, right, strict=True))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def plus(*vectors):
    return [sum(float(x) for x in numbers) for numbers in zip(*vectors, strict=True)]


def length(vector):
    return math.sqrt(dot(vector, vector))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def squash(vector):
    """Equation 5."""
    norm = length(vector)
    if norm == 0:
        return [0.0 for _ in vector]
    return [norm**2 / (1 + norm**2) * float(x) / norm for x in vector]


def couple_by_agreement(b):
    """Equation 6; b[s][u]."""
    units = range(len(b[0]))
    return [[math.exp(b[s][u]) / sum(math.exp(b[r][u]) for r in SENTIMENTS) for u in units] for s in SENTIMENTS]


def couple_by_bi_agreement(b, under_root=0.0, in_sum=0.0):
    """Lines 5 to 7 of Algorithm 1."""
    units = range(len(b[0]))
    coupling = []
    for s in SENTIMENTS:
        roots = []
        for u in units:
            check = math.exp(b[s][u]) / sum(math.exp(b[r][u]) for r in SENTIMENTS)
            hat = math.exp(b[s][u]) / sum(math.exp(b[s][j]) for j in units)
            roots.append(math.sqrt(check * hat + under_root))
        coupling.append([root / (sum(roots) + in_sum) for root in roots])
    return coupling


def route(votes, iterations, couple, bias=None):
    """Algorithm 1 for one pair; votes[s][u] is a vector. The coupling and the capsules of the last iteration."""
    units = range(len(votes[0]))
    b = [[0.0 for _ in units] for _ in SENTIMENTS]
    for _ in range(iterations):
        c = couple(b)
        o = []
        for s in SENTIMENTS:
            mixture = [sum(c[s][u] * votes[s][u][d] for u in units) for d in range(len(votes[s][0]))]  # Equation 4
            o.append(squash(mixture if bias is None else plus(mixture, bias[s])))
        b = [[b[s][u] + dot(votes[s][u], o[s]) for u in units] for s in SENTIMENTS]
    return c, o


class SlowCarp:
    """The forward pass and the loss of a model, from its weights, one number at a time."""

    def __init__(self, model):
        self.config, self.sizes = model.config, model.sizes
        self.weights = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}

    def context(self, side, words, reviews):
        """c_j: the convolution around each word, and its ReLU."""
        weight, bias = self.weights[f"{side}.convolution.weight"], self.weights[f"{side}.convolution.bias"]
        half = self.config.window // 2
        contexts = []
        for j in range(len(words)):
            features = []
            for f in range(len(bias)):
                total = float(bias[f])
                for step in range(-half, half + 1):
                    at = j + step
                    if not 0 <= at < len(words) or words[at] == 0:
                        continue
                    if self.config.across_reviews or reviews[at] == reviews[j]:
                        total += dot(self.weights["embedding.weight"][words[at]], weight[step + half][:, f])
                features.append(max(0.0, total))
            contexts.append(features)
        return contexts

    def contextual(self, side, x, context):
        """Equation 1 and the projection: p_{x,j}."""
        w1, w2 = self.weights[f"{side}.gate_context"][x], self.weights[f"{side}.gate_query"][x]
        query = times(w2, self.weights[f"{side}.queries"][x])
        gate = [sigmoid(z) for z in plus(times(w1, context), query, self.weights[f"{side}.gate_bias"][x])]
        gated = [c * g for c, g in zip(context, gate, strict=True)]
        projection = self.weights[f"{side}.projection"]
        return times(projection if self.config.projection == "shared" else projection[x], gated)

    def sides(self, side, words, reviews):
        """Equation 2 for each viewpoint (aspect) of one document: the vectors, and the attention [x][j]."""
        written = [j for j in range(len(words)) if words[j] > 0]
        words, reviews = [words[j] for j in written], [reviews[j] for j in written]
        if self.config.padding_attends:
            missing = self.sizes.max_words - len(words)
            words, reviews = words + [0] * missing, reviews + [-1] * missing
        contexts = self.context(side, words, reviews)
        vectors, attentions = [], []
        for x in range(self.config.viewpoints):
            p = [self.contextual(side, x, context) for context in contexts]
            vector, attention = self.attended(side, x, p)
            vectors.append(vector)
            attentions.append(attention[: len(written)])
        return vectors, attentions

    def attended(self, side, x, p):
        size = self.weights["vote_weight"].shape[2] // (4 if self.config.logic_unit == "appended" else 2)
        routed = self.config.attention == "routed"
        bias = self.weights[f"{side}.attention_bias"][x] if routed else [0.0] * size
        if not p:
            return (squash(bias) if routed else [0.0] * size), []
        mean = plus([sum(vector[d] for vector in p) / len(p) for d in range(size)], bias)
        asking = squash(mean) if routed else mean
        shares = [math.exp(self.config.attention_scale * dot(vector, asking)) for vector in p]
        attention = [share / sum(shares) for share in shares]
        vector = plus([sum(a * v[d] for a, v in zip(attention, p, strict=True)) for d in range(size)], bias)
        return (squash(vector) if routed else vector), attention

    def logic_unit(self, v, a):
        """Equation 3."""
        difference = [float(p) - float(q) for p, q in zip(v, a, strict=True)]
        product = [float(p) * float(q) for p, q in zip(v, a, strict=True)]
        if self.config.logic_unit == "appended":
            return [*difference, *product, *map(float, v), *map(float, a)]
        return difference + product if self.config.logic_unit == "difference first" else product + difference

    def votes(self, viewpoints, aspects):
        """t_{s,x,y} = W_{s,x,y} g_{x,y}, the logic units in the order of x and then y."""
        m = self.config.viewpoints
        return [
            [
                times(self.weights["vote_weight"][s, x * m + y].T, self.logic_unit(viewpoints[x], aspects[y]))
                for x in range(m)
                for y in range(m)
            ]
            for s in SENTIMENTS
        ]

    def route(self, votes):
        epsilon = self.config.routing_epsilon

        def couple(b):
            if self.config.routing == "agreement":
                return couple_by_agreement(b)
            return couple_by_bi_agreement(b, epsilon, 10 * epsilon)

        return route(votes, self.config.routing_iterations, couple, self.weights.get("capsule_bias"))

    def degree(self, s, o):
        """Equations 7 to 9."""
        eta = [
            sigmoid(z) for z in plus(times(self.weights["highway_gate"][s], o), self.weights["highway_gate_bias"][s])
        ]
        changed = [math.tanh(z) for z in plus(times(self.weights["highway"][s], o), self.weights["highway_bias"][s])]
        if self.config.highway == "reversed":
            eta = [1 - e for e in eta]
        h = [e * x + (1 - e) * t for e, x, t in zip(eta, o, changed, strict=True)]
        return dot(self.weights["regression"][s], h) + float(self.weights["regression_bias"][s])

    def rating(self, balance, user, item, own_rating=None):
        """Equation 10, or the balance on top of the biases."""
        span = self.sizes.levels - 1
        if self.config.biases != "leave-one-out":
            biases = self.weights["user_bias"], self.weights["item_bias"]
            known = [float(b[n]) if n >= 0 else float(np.mean(b)) for b, n in zip(biases, (user, item), strict=True)]
            return 1 + span * sigmoid(balance) + sum(known)
        baseline = self.baseline(user, item, own_rating)
        share = min(max((baseline - 1) / span, 0.01), 0.99)
        return 1 + span * sigmoid(math.log(share / (1 - share)) + balance)

    def baseline(self, user, item, own_rating):
        w = {name.removeprefix("biases."): value for name, value in self.weights.items() if name.startswith("biases.")}
        b_u = float(w["user"][user]) if user >= 0 else 0.0
        b_i = float(w["item"][item]) if item >= 0 else 0.0
        if own_rating is None:
            return float(w["mean"]) + b_u + b_i
        rest = own_rating - float(w["mean"])
        known = w["pairs"].tolist()
        if (key := user * self.sizes.items + item) in known:  # e' = e / (1 − h) + (r − μ) (1 − g) / (N − 1) / (1 − h)
            of_error, of_rating = w["growth"][known.index(key)].tolist()
            return own_rating - of_error * (rest - b_u - b_i) - of_rating * rest
        n_u, n_i = float(w["user_weight"][user]), float(w["item_weight"][item])
        return float(w["mean"]) + (n_u * b_u - (rest - b_i)) / (n_u - 1) + (n_i * b_i - (rest - b_u)) / (n_i - 1)

    def pair(self, batch, row):
        """Everything the model says about one pair of a batch."""
        user_words, user_reviews = batch.user_words[row].tolist(), batch.user_reviews[row].tolist()
        item_words, item_reviews = batch.item_words[row].tolist(), batch.item_reviews[row].tolist()
        viewpoints, user_attention = self.sides("user_side", user_words, user_reviews)
        aspects, item_attention = self.sides("item_side", item_words, item_reviews)
        coupling, capsules = self.route(self.votes(viewpoints, aspects))
        degrees = [self.degree(s, capsules[s]) for s in SENTIMENTS]
        lengths = [length(o) for o in capsules]
        balance = degrees[0] * lengths[0] - degrees[1] * lengths[1]
        own = float(batch.ratings[row]) if batch.training else None
        return SimpleNamespace(
            viewpoints=viewpoints,
            aspects=aspects,
            user_attention=user_attention,
            item_attention=item_attention,
            coupling=coupling,
            capsules=capsules,
            lengths=lengths,
            degrees=degrees,
            balance=balance,
            rating=self.rating(balance, int(batch.users[row]), int(batch.items[row]), own),
        )

    def loss(self, batch):
        """Equations 11 to 14."""
        config = self.config
        middle = (1 + self.sizes.levels) / 2 if config.liked_above is None else config.liked_above
        square, sentiment = 0.0, 0.0
        for row in range(len(batch)):
            found, r = self.pair(batch, row), float(batch.ratings[row])
            square += (r - found.rating) ** 2
            held = 0 if r > middle else 1
            hinges = [max(0.0, config.margin - found.lengths[held])]
            if config.mutual_exclusion:
                hinges.append(max(0.0, found.lengths[1 - held] - 1 + config.margin))
            weights = [1.0, config.opposite_weight]
            power = 2 if config.hinge == "squared" else 1
            sentiment += sum(weight * hinge**power for weight, hinge in zip(weights, hinges, strict=False))
        share = config.rating_weight
        return share * square / len(batch) + (1 - share) * sentiment / len(batch)


SIZES = Sizes(users=5, items=4, words=11, levels=5, max_words=8)


def make_model(seed, sizes=SIZES, **settings):
    """A small model in float64 with every weight away from zero, biases too, so that no term can hide."""
    small = {"dimension": 4, "filters": 3, "latent_size": 3, "viewpoints": 2}
    torch.manual_seed(seed)
    model = Carp(make_config(Carp, {**small, **settings}), sizes).double().eval()
    model.biases.pairs = torch.arange(0, sizes.users * sizes.items, 2)  # of half of the pairs what leaving out does
    model.biases.growth = torch.empty(len(model.biases.pairs), 2, dtype=torch.float64)
    torch.manual_seed(seed)  # the same weights whatever the model drew for its own start
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name == "biases.pairs":
                continue
            if name.endswith("_weight") and name.startswith("biases."):
                tensor.copy_(2 + torch.rand_like(tensor) * 3)
            elif name == "biases.mean":
                tensor.fill_(3.4)
            elif name.endswith("convolution.bias"):
                tensor.copy_(0.5 + torch.rand_like(tensor))  # most features stay above the ReLU's zero
            else:
                tensor.copy_(torch.randn_like(tensor) * 0.7)
        model.embedding.weight[0] = 0
    return model


def make_batch(seed, lengths, sizes=SIZES, training=False):
    """Pairs with documents of the given lengths (user, item), the words in reviews of one to three words each."""
    rng = np.random.default_rng(seed)

    def side(number):
        width = max(1, *(pair[number] for pair in lengths))
        words = np.zeros((len(lengths), width), np.int32)
        reviews = np.full((len(lengths), width), -1, np.int32)
        for row, pair in enumerate(lengths):
            count = pair[number]
            words[row, :count] = rng.integers(1, sizes.words + 1, count)
            starts = rng.random(count) < 0.5
            reviews[row, :count] = 10 * row + np.cumsum(starts)
        return torch.from_numpy(words), torch.from_numpy(reviews)

    user_words, user_reviews = side(0)
    item_words, item_reviews = side(1)
    return Batch(
        users=torch.from_numpy(rng.integers(0, sizes.users, len(lengths))),
        items=torch.from_numpy(rng.integers(0, sizes.items, len(lengths))),
        user_words=user_words,
        user_reviews=user_reviews,
        item_words=item_words,
        item_reviews=item_reviews,
        ratings=torch.from_numpy(rng.integers(1, sizes.levels + 1, len(lengths)).astype(np.float64)),
        training=training,
    )
