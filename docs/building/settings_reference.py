"""Every setting of every model, from the configuration classes themselves."""

from __future__ import annotations

from typing import Any

from carp.cli.setting_meanings import meanings_of
from carp.cli.written_fields import fields_of
from carp.explain.explainer import explains
from carp.models import REGISTRY, model_class
from carp.recommender import Recommender
from carp.reviews.text.vocabulary import TextSettings
from carp.settings import FitSettings
from carp.training.loop import TrainingSettings
from sources import cell, code, table

SHARED = (
    ("Training", TrainingSettings, "How any model is trained."),
    ("Text", TextSettings, "Which words a model sees."),
    ("Fitting", FitSettings, "What fitting does with the corpus before a model sees it."),
)


def settings_reference() -> str:
    parts = []
    for title, kind, about in SHARED:
        parts += [f"## {title}", about, _settings(kind, {})]
    for name, entry in REGISTRY.items():
        made = Recommender(name, device="cpu")
        parts += [f"## {name}", f"{entry.summary[0].upper()}{cell(entry.summary[1:])}."]
        if made.kind.__doc__:
            parts.append(cell(made.kind.__doc__.strip().split("\n\n")[0]))
        parts.append(_settings(type(made.config), entry.settings) or "Nothing to set.")
        usual = dict(made.kind.training_defaults)
        if usual:
            listed = ", ".join(f"`{key}={value}`" for key, value in usual.items())
            parts.append(f"Trained with {listed} by default.")
        for variant, changes in made.kind.presets.items():
            if changes:
                listed = ", ".join(f"`{key}={value}`" for key, value in changes.items())
                parts.append(f"`variant={variant}` is {listed}.")
    return "\n\n".join(parts)


def _settings(kind: type, fixed: dict[str, Any]) -> str:
    rows = []
    meaning = meanings_of(kind)
    for one in fields_of(kind):
        words = cell(meaning[one.name])
        comment = f"{words}; {code(str(fixed[one.name]))} here" if one.name in fixed else words
        rows.append([code(one.name), code(one.default), _choices(one.kind), comment])
    return table(("setting", "default", "may be", "meaning"), rows) if rows else ""


def _choices(kind: str) -> str:
    kind = {"TargetReviews": "Literal['leave out', 'keep']"}.get(kind, kind)
    if kind.startswith("Literal["):
        return " or ".join(code(choice.strip("' ")) for choice in kind[8:-1].split(","))
    words = {"int": "whole number", "float": "number", "bool": "`true` or `false`", "str": "text"}
    return " or ".join(
        words.get(part.strip(), "`none`" if part.strip() == "None" else code(part.strip())) for part in kind.split("|")
    )


def models_reference() -> str:
    rows = []
    for name, entry in REGISTRY.items():
        kind = model_class(name)
        link = f"[`{name}`](settings.md#{name})"
        rows.append([link, "yes" if explains(kind) else "no", ", ".join(sorted(kind.needs)), cell(entry.summary)])
    return table(("model", "explains", "needs", "what it is"), rows)
