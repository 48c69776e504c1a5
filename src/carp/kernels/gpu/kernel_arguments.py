"""Named tuples of the kernels' arguments: tensors that belong together, and the sizes a kernel is compiled for.

A kernel reads the fields by name and passes the tuples on whole, so that no list of twenty arguments is written twice.
`compiled_in` marks sizes as constants: Triton compiles a kernel of its own for each combination of them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from torch import Tensor

from carp.kernels.gpu.availability import interpreted
from carp.models.carp import Carp

Constants = TypeVar("Constants", bound=tuple[object, ...])


def compiled_in(sizes: Constants) -> Constants:
    """The same tuple with every field marked as a constant; Triton's interpreter takes plain numbers."""
    import triton.language as tl

    return sizes if interpreted() else type(sizes)(*map(tl.constexpr, sizes))


class DocumentBatch(NamedTuple):
    """All documents, and where a step finds its pairs among them: see GpuCorpus."""

    words: Tensor
    reviews: Tensor
    offsets: Tensor
    owners: Tensor
    records: Tensor
    order: Tensor  # [pairs] the epoch's
    state: Tensor  # the step's number, the epoch's seed
    pairs: int
    first: int  # of the rows of every batch that this process computes
    last: int


class GateWeights(NamedTuple):
    """What turns a document's features into viewpoints."""

    gates: Tensor  # W_1 [2, M, N, N]
    answers: Tensor  # W_2 q + b [2, M, N]
    projection: Tensor  # W_p [2, K, N]


class ReadingTrace(NamedTuple):
    """The documents' features, and what reading them leaves for going backward: see Buffers."""

    features: Tensor
    wide: Tensor
    narrow: Tensor
    vectors: Tensor
    normal: Tensor
    counts: Tensor
    attention: Tensor


class ReadingSizes(NamedTuple):
    """Sizes of the kernels that read documents; N and K are padded."""

    BATCH: int  # pairs of a step
    LONGEST: int  # words that every document has room for
    BLOCK: int  # words a program takes at once
    N: int  # filters
    K: int  # latent size
    M: int  # viewpoints
    WINDOW: int
    COLUMNS: int  # of the projected words
    KEEP: float  # share of the features that dropout keeps
    SCALE: float  # of the attention
    PRECISION: str  # of products


class HighwayWeights(NamedTuple):
    """The weights behind the two capsules, or their gradients."""

    gate_weight: Tensor  # [2, K, K]
    gate_bias: Tensor  # [2, K]
    weight: Tensor
    bias: Tensor
    regression: Tensor  # [2, K]
    regression_bias: Tensor  # [2]


class PairSizes(NamedTuple):
    """Sizes of the kernels that take a batch's pairs from viewpoints to the loss and back; U and K are padded."""

    BATCH: int
    M: int
    U: int  # logic units
    K: int
    ITERATIONS: int  # of the routing
    BI: bool  # bi-agreement
    PRECISION: str


class RatedPairs(NamedTuple):
    """The pairs' ratings, and what a guess adds to their balance."""

    ratings: Tensor
    base: Tensor  # added to the balance before the sigmoid
    user_bias: Tensor
    item_bias: Tensor
    users: int


class LossTerms(NamedTuple):
    """The constants of the loss."""

    LEARNED: bool  # biases are parameters
    SPAN: float  # from the lowest rating to the highest
    LIKED: float  # ratings above are favourable
    MARGIN: float
    WEIGHT: float  # of the rating's part
    OPPOSITE: float  # of the capsule that should be short
    SQUARED: bool  # the hinge

    @staticmethod
    def of(model: Carp) -> LossTerms:
        config = model.config
        return LossTerms(
            LEARNED=config.biases != "leave-one-out",
            SPAN=float(model.sizes.levels - 1),
            LIKED=float(model.liked_above),
            MARGIN=config.margin,
            WEIGHT=config.rating_weight,
            OPPOSITE=config.opposite_weight if config.mutual_exclusion else 0.0,
            SQUARED=config.hinge == "squared",
        )


class JudgedPairs(NamedTuple):
    """What judging a batch's pairs leaves for the gradients: see Buffers."""

    vote_gradients: Tensor
    vectors: Tensor
    degrees: Tensor
    losses: Tensor
    errors: Tensor
    lengths: Tensor


class ParameterPlaces(NamedTuple):
    """All parameters but the word table: see Packed."""

    native: Tensor
    squares: Tensor
    where: Tensor
    packed: Tensor
    gradients: Tensor


class Rates(NamedTuple):
    """The settings of RMSprop."""

    learning: float
    decay: float
    epsilon: float
    weight_decay: float


class ScoringSizes(NamedTuple):
    """Sizes of the kernel that rates pairs from ready sides."""

    M: int
    K: int
    ITERATIONS: int
    BI: bool
    DENSE: bool  # every person with every item
    BLOCK: int  # pairs a program takes at once
    PRECISION: str
