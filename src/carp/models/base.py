"""The contract of a model: tensors in, ratings out. Raw ids, texts and files are the Recommender's."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from carp.errors import UsageError, nearest
from carp.models.batch import Batch, Sizes, TrainingData
from carp.reviews.documents import ReviewCut


@dataclass(frozen=True)
class Prediction:
    """Ratings, and whatever else the model can show by name (capsules, coupling, attention)."""

    rating: Tensor  # [B]
    tensors: dict[str, Tensor] = field(default_factory=dict)


NO_DIRECTION = "The marks say what was heard, not whether it speaks for or against the thing."  # for `meaning`


@dataclass(frozen=True)
class Attention:
    """What a model without capsules listened to in the words of both documents.

    Each of a document's sides (an attention, a pointer, an aspect) gives every word a share: never negative, 1 in all
    where the document has words, and nothing to padding.
    """

    user_words: Tensor  # [B, Lu, M]
    item_words: Tensor  # [B, Li, M']
    user_names: tuple[str, ...]  # of the M sides, as a reader calls them
    item_names: tuple[str, ...]
    meaning: str  # a sentence for the reader: what it is to be listened to by this model
    user_weights: Tensor | None = None  # [B, M], how much the model listens to each side, 1 in all; None: no more
    item_weights: Tensor | None = None  # to one than to another
    window: int = 3  # so many words around one are heard together with it
    directions: tuple[int, ...] = ()  # of the sides of either document, where each pulls one way: 1 up, -1 down
    balance: Tensor | None = None  # [B], what the texts add to the rating in all; given with directions
    same_aspects: bool = False  # whether side m of one document and side m of the other are one aspect


class RatingModel(nn.Module):
    """Subclasses give a Config, `needs`, and `forward`; everything else has a usual form here.

    Models whose two sides separate give `encode_users`, `encode_items` and `score` instead of `forward`, so that each
    document is encoded once for any number of pairs. Those that can say why name their explainer in `explained_by`;
    the one called "attention" asks for `explain`.
    """

    Config: ClassVar[type]  # a frozen dataclass with the paper's values as defaults
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # `variant` → settings
    training_presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # `variant` → how it is trained and on what
    training_defaults: ClassVar[Mapping[str, Any]] = {}  # where the paper's differ from TrainingSettings'
    text_defaults: ClassVar[Mapping[str, Any]] = {}  # where the model's differ from TextSettings'
    needs: ClassVar[frozenset[str]] = frozenset({"ids"})  # ids, documents, names, reviews, target_review
    searched: ClassVar[tuple[str, ...]] = ("latent_size", "learning_rate")  # by `carp bench --search`
    separates: ClassVar[bool] = False
    reads_alone: ClassVar[bool] = False  # whether a side has the same bits on a CPU whatever is encoded beside it
    shares_batches: ClassVar[bool] = True  # False where several processes are given whole batches all the same
    learns: ClassVar[bool] = True  # False where `start` alone fits the model
    takes_in: ClassVar[bool] = False  # whether `take_in` serves where `start` alone fits the model
    explained_by: ClassVar[str | None] = None  # one of carp.explain.explainer.EXPLAINERS; None: ratings without reasons

    def __init__(self, config: Any, sizes: Sizes) -> None:
        super().__init__()
        self.config = config
        self.sizes = sizes

    @classmethod
    def reads_single_reviews(cls) -> bool:
        """Whether it learns from the training reviews one by one, beside what their people and things are known by."""
        return not cls.needs.isdisjoint({"reviews", "target_review"})

    @classmethod
    def review_cut(cls, config: Any) -> ReviewCut | None:
        """How much of which reviews documents hold, where reviews are read one by one; None: all, up to `max_words`."""
        return None

    def check_loaded(self) -> None:
        """Raise ValueError where loaded tensors do not fit each other; each is of the right kind by itself."""

    @property
    def reads_gaps(self) -> bool:
        """Whether a gap inside a document is read as one; other models take it for the document's end."""
        return False

    @property
    def reads_documents(self) -> bool:
        """Whether somebody who is known by reviews alone can be answered."""
        return "documents" in self.needs

    @property
    def liked_above(self) -> float:
        """The rating above which a person likes a thing: the middle of the range unless the model says otherwise."""
        return (1 + self.sizes.levels) / 2

    def start(self, data: TrainingData) -> None:
        """Set what depends on the training data before the first epoch; not called again on resuming."""

    def chosen_settings(self) -> dict[str, Any]:
        """Settings that fitting chose on validation, by name: to fit again on more reviews without choosing."""
        return {}

    def welcome(self, side: str, places: Tensor, biases: Tensor, sides: Tensor | None) -> None:
        """Take in people (`user`) or things (`item`) that came after training; their rows in all tables are zero.

        `biases` are their tuned ones, and `sides` what was read in their documents, where the two sides separate.
        """
        table = getattr(self, f"{side}_bias", None)
        if isinstance(table, Tensor) and table.ndim == 1:
            table.data[places] = biases.to(table)

    def take_in(self, data: TrainingData, users: Tensor, items: Tensor) -> None:
        """Solve again for what is known of these people and things alone, with everything else held; the rows in all
        tables of those who came after training are zero."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Prediction:
        """Both documents of each pair encoded, and the two sides scored."""
        users = self.encode_users(batch.user_words, batch.user_reviews)
        items = self.encode_items(batch.item_words, batch.item_reviews)
        return self.score(batch.users, batch.items, users, items)

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        assert batch.ratings is not None
        return (prediction.rating - batch.ratings).square().mean()

    def train_epoch(self, batches: Iterable[Batch], optimizer: torch.optim.Optimizer) -> float:
        """One pass over the batches; the mean loss."""
        total, pairs = torch.zeros(()), 0.0
        for batch in batches:
            loss = self.loss(batch, self(batch))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total = total.to(loss.device) + loss.detach() * batch.weight  # a number only at the end: no wait on a GPU
            pairs += batch.weight
        return float(total) / max(pairs, 1)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        raise NotImplementedError

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        raise NotImplementedError

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        raise NotImplementedError

    def sentiment(self, prediction: Prediction) -> Tensor | None:
        """How far liking outweighs disliking [B]; None for models that do not tell the two apart."""
        return None

    def deviations(self, users: Tensor, items: Tensor) -> Tensor | None:
        """Standard deviations of ratings around their predictions [B]; None for models that do not know them."""
        return None

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """What was listened to for the prediction of this batch; asked of models explained by attention."""
        raise NotImplementedError


def shares(amounts: Tensor, there: Tensor) -> Tensor:
    """Amounts as shares that sum to 1 over dimension 1, of the places that are there; even ones where all are zero.

    >>> shares(torch.tensor([[1.0, 3.0, 9.0], [0.0, 0.0, 0.0]]), torch.tensor([[True, True, False]])).tolist()
    [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]
    """
    amounts = amounts * there
    total = amounts.sum(1, keepdim=True)
    even = there / there.sum(1, keepdim=True).clamp_min(1)
    least = torch.finfo(amounts.dtype).tiny
    return torch.where(total > least, amounts / total.clamp_min(least), even)


def additive_attention(batch: Batch, user: Tensor, item: Tensor, balance: Tensor, meaning: str) -> Attention:
    """The attention of a model whose words add to the rating or take away from it: two sides of each document.

    `user` and `item` [B, L] are what each word adds, together `balance` [B].
    """
    names = "raises the rating", "lowers the rating"
    user_words, user_weights = _up_and_down(user, batch.user_words > 0)
    item_words, item_weights = _up_and_down(item, batch.item_words > 0)
    sides = (user_words, item_words, names, names, meaning, user_weights, item_weights)
    return Attention(*sides, window=1, directions=(1, -1), balance=balance)


def _up_and_down(added: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of the words in what is added and in what is taken away [B, L, 2], and the share of each of the two."""
    both = torch.stack([added.clamp_min(0), (-added).clamp_min(0)], -1)
    total = both.sum(1)
    return shares(both, there.unsqueeze(-1)), shares(total, torch.ones_like(total, dtype=torch.bool))


def first_order_influence(rating: Callable[..., Tensor], *parts: Tensor) -> list[Tensor]:
    """How much each number of the parts moves the rating made of them, to first order: |x · ∂rating/∂x|.

    >>> found = first_order_influence(lambda x, y: (x * y).sum(-1), torch.tensor([[1.0, -2.0]]), torch.ones(1, 2))
    >>> [one.tolist() for one in found]
    [[[1.0, 2.0]], [[1.0, 2.0]]]
    """
    with torch.enable_grad():
        given = [part.detach().requires_grad_() for part in parts]
        slopes = torch.autograd.grad(rating(*given).sum(), given)
    return [(part.detach() * slope).abs() for part, slope in zip(given, slopes, strict=True)]


def make_config(model: type[RatingModel], settings: Mapping[str, Any]) -> Any:
    """A model's Config from settings by name; strings are read as the field's type; unknown names are errors.

    >>> from carp.models.carp import Carp
    >>> make_config(Carp, {"viewpoints": "7"}).viewpoints
    7
    """
    variant = settings.get("variant")
    if variant is not None and model.presets and variant not in model.presets:
        raise UsageError(f"there is no variant {variant!r}", fix=nearest(str(variant), model.presets))
    preset = dict(model.presets.get(str(variant), {})) if variant is not None else {}
    return from_settings(model.Config, {**preset, **settings})


def from_settings(config: type, settings: Mapping[str, Any]) -> Any:
    """An instance of a configuration dataclass, each value checked and converted to its field's type."""
    kinds = typing.get_type_hints(config)
    names = [f.name for f in dataclasses.fields(config)]
    for name in settings:
        if name not in names:
            raise UsageError(f"there is no setting {name!r}", fix=nearest(name, names))
    return config(**{name: _converted(name, value, kinds[name]) for name, value in settings.items()})


def _converted(name: str, value: Any, kind: Any) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise UsageError(f"{name} cannot be {value!r}", fix=f"choose one of {', '.join(map(str, choices))}")
        return value
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    try:
        if kind is bool and isinstance(value, str):
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[value.lower()]
        if kind is int and float(value) != int(float(value)):
            raise ValueError
        return kind(float(value)) if kind is int else kind(value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} cannot be {value!r}", fix=f"give a value of type {kind.__name__}") from None
