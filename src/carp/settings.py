"""Settings by name, sorted into what they concern: the model, training, the text, and fitting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from carp.errors import UsageError, nearest
from carp.models import model_class, model_entry
from carp.models.base import from_settings, make_config
from carp.models.batch import TargetReviews
from carp.reviews.text.vocabulary import TextSettings
from carp.training.loop import TrainingSettings


@dataclass(frozen=True)
class FitSettings:
    """What fitting does with the corpus before a model sees it."""

    target_reviews: TargetReviews = "leave out"  # "keep" gives the paper's static documents
    min_reviews: int = 5


@dataclass(frozen=True)
class Settings:
    fit: FitSettings
    text: TextSettings
    training: TrainingSettings
    config: Any  # the model's own


def sort_settings(model: str, given: Mapping[str, Any]) -> Settings:
    """Every group from what was given; an unknown name is an error that names the nearest known one."""
    kind = model_class(model)
    groups = (FitSettings, TextSettings, TrainingSettings, kind.Config)
    names = {f.name for group in groups for f in dataclasses.fields(group)}
    for name in given:
        if name not in names:
            raise UsageError(f"there is no setting {name!r} for {model}", fix=_whose(name) or nearest(name, names))
    config = {**_usual_config(model), **_share(given, kind.Config)}
    trained = {**kind.training_defaults, **kind.training_presets.get(str(config.get("variant")), {}), **given}
    settings = Settings(
        from_settings(FitSettings, _share(trained, FitSettings)),
        from_settings(TextSettings, {**kind.text_defaults, **_share(given, TextSettings)}),
        from_settings(TrainingSettings, _share(trained, TrainingSettings)),
        make_config(kind, config),
    )
    for group in (settings.fit, settings.text, settings.training, settings.config):
        _check_numbers(group, given)
    return settings


def _whose(name: str) -> str | None:
    """What to do with a setting that is CARP's alone, and was given to another model."""
    if name in {f.name for f in dataclasses.fields(model_class("carp").Config)}:
        return f"{name} is a setting of the model carp: choose that one, or leave the setting out"
    return None


def _usual_config(model: str) -> dict[str, Any]:
    """What a name of the registry brings along."""
    entry = model_entry(model)
    return {**entry.settings, **({} if entry.variant is None else {"variant": entry.variant})}


def _share(settings: Mapping[str, Any], group: type) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(group)}
    return {name: value for name, value in settings.items() if name in names}


def _check_numbers(group: Any, given: Mapping[str, Any]) -> None:
    """Numbers that were given count or weigh something: none is negative, and nothing is made of zero parts."""
    for name in given.keys() & {f.name for f in dataclasses.fields(group)}:
        value = getattr(group, name)
        if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= 10**9:
            raise UsageError(f"{name} cannot be {given[name]}", fix="give a whole number from 1 to 1,000,000,000")
        most = 1.0 if name in ("dropout", "decay") else float("inf")
        if isinstance(value, float) and not 0 <= value < most:
            rest = " below 1" if most == 1 else ""
            raise UsageError(f"{name} cannot be {given[name]}", fix=f"give a number from 0{rest}")
