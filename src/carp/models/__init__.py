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
    settings: dict[str, Any] = field(default_factory=dict)


REGISTRY: dict[str, Entry] = {
    "carp": Entry("carp.models.carp:Carp", "capsule network of viewpoints and aspects, SIGIR'19"),
    "carp-ra": Entry("carp.models.carp:Carp", "CARP with plain routing by agreement", {"routing": "agreement"}),
    "mean": Entry("carp.models.bias:Mean", "the global mean rating"),
    "bias": Entry("carp.models.bias:Bias", "mean + user bias + item bias, shrinkages tuned on validation"),
}


def model_entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise UsageError(f"there is no model {name!r}", mend=nearest(name, REGISTRY))
    return REGISTRY[name]


def model_class(name: str) -> type[RatingModel]:
    module, _, attribute = model_entry(name).place.partition(":")
    model: type[RatingModel] = getattr(importlib.import_module(module), attribute)
    return model
