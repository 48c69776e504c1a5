"""The registry: one line a model. A name leads to `module:class` and the settings that come with the name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carp.errors import UsageError, nearest

if TYPE_CHECKING:
    from carp.models.base import RatingModel


@dataclass(frozen=True)
class Entry:
    place: str  # module:class
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)  # that make the model what its name says
    variant: str | None = None  # taken unless another is given


REGISTRY: dict[str, Entry] = {
    "carp": Entry("carp.models.carp:Carp", "capsule network of viewpoints and aspects, SIGIR'19", variant="calibrated"),
    "carp-paper": Entry("carp.models.carp:Carp", "CARP as the paper has it", variant="paper"),
    "carp-ra": Entry(
        "carp.models.carp:Carp", "the paper's CARP with plain routing by agreement", {"routing": "agreement"}
    ),
    "mean": Entry("carp.models.bias:Mean", "the global mean rating"),
    "bias": Entry("carp.models.bias:Bias", "mean + user bias + item bias, shrinkages tuned on validation"),
    "deepconn": Entry(
        "carp.models.deepconn:DeepConn", "two convolutional networks and a factorisation machine, WSDM'17"
    ),
    "transnet": Entry(
        "carp.models.transnet:TransNet", "documents transformed towards the pair's own review, RecSys'17"
    ),
    "dattn": Entry("carp.models.dattn:DAttn", "convolutions under local and global word attention, RecSys'17"),
    "rblt": Entry("carp.models.rblt:Rblt", "rating-boosted latent topics, IJCAI'16"),
    "tarmf": Entry("carp.models.tarmf:Tarmf", "factors and a recurrent reading that pull each other, WWW'18"),
    "mpcn": Entry("carp.models.mpcn:Mpcn", "pointers to one review of each side, compared word by word, KDD'18"),
    "narre": Entry("carp.models.narre:Narre", "reviews weighed by how useful they are, beside factors, WWW'18"),
    "daml": Entry("carp.models.daml:Daml", "two documents that attend to each other, and a factorisation, KDD'19"),
    "transformer": Entry(
        "carp.models.transformer:Transformer", "a small transformer over each review, from scratch, beside factors"
    ),
    "anr": Entry("carp.models.anr:Anr", "aspects weighed by co-attention, CIKM'18"),
    "cmle": Entry("carp.models.cmle:Cmle", "collaborative multi-level embeddings, IJCAI'16"),
    "hft": Entry("carp.models.hft:Hft", "hidden factors that are hidden topics of reviews, RecSys'13"),
    "convmf": Entry("carp.models.convmf:ConvMf", "item factors around a convolutional reading of the item, RecSys'16"),
    "mf": Entry("carp.models.mf:Mf", "biased matrix factorisation, ratings only"),
    "pmf": Entry("carp.models.pmf:Pmf", "probabilistic matrix factorisation, ratings only, NIPS'07"),
    "gaussian-process": Entry(
        "carp.models.gaussian_process:GaussianProcess", "the exact Gaussian process over pairs, at most 15,000 of them"
    ),
    "meeting": Entry("carp.models.meeting:Meeting", "what people write about meets what is written about things"),
    "ridge": Entry("carp.models.ridge:Ridge", "ridge regression on leave-one-out biases and TF-IDF of both documents"),
}


DEFAULT = "meeting"  # the most accurate on every corpus of the tables


def model_entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise UsageError(f"there is no model {name!r}", fix=nearest(name, REGISTRY))
    return REGISTRY[name]


def model_class(name: str) -> type[RatingModel]:
    module, _, attribute = model_entry(name).place.partition(":")
    model: type[RatingModel] = getattr(importlib.import_module(module), attribute)
    return model
