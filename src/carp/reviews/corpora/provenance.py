"""Who made a corpus or a model, and whether this carp can read it.

What is saved says in `made_with` which carp wrote it, in which layout, and which version of the tokeniser cut its
texts into words. A newer layout is refused; another tokeniser is warned of; another carp is noted in the facts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from carp.errors import CarpWarning, DamagedError, InputError
from carp.reviews.text import tokens

FIRST_LAYOUT = FIRST_TOKENISER = 1  # of what was saved before either was written down
AGAIN = {"corpus": "prepare the corpus anew", "model": "train the model anew"}


def this_carp() -> str:
    import carp  # the package itself stands above this module, and its version is wanted when something is saved

    return carp.__version__


def made_with(layout: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is written into a corpus or a model; its facts note a tokeniser that is not the present one."""
    return {"carp": this_carp(), "layout": layout, "tokeniser": facts.get("tokeniser", tokens.TOKENISER_VERSION)}


def check_made_with(about: Any, kind: str, newest: int, where: str) -> int:
    """The layout of a saved corpus or model; one that is newer than any this carp knows is refused."""
    made = about.get("made_with", {}) if isinstance(about, dict) else None
    layout = made.get("layout", FIRST_LAYOUT) if isinstance(made, dict) else None
    if not isinstance(made, dict) or not isinstance(layout, int) or layout < FIRST_LAYOUT:
        raise DamagedError(f"the {kind} does not say how it was made", where=where, fix=AGAIN[kind])
    if layout > newest:
        raise InputError(
            f"this {kind} was saved by carp {made.get('carp')} in layout {layout}, "
            f"and carp {this_carp()} knows layouts up to {newest}",
            where=where,
            fix=f"update carp, or {AGAIN[kind]} with this version",
        )
    return layout


def differences(about: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """What the facts must note of a corpus or a model that another carp made. Another tokeniser is warned of."""
    made, noted = about.get("made_with", {}), dict[str, Any]()
    if made.get("carp") != this_carp():
        noted["made_by"] = f"carp {made.get('carp', '0.1 or earlier')}"
    tokeniser = made.get("tokeniser", FIRST_TOKENISER)
    if tokeniser != tokens.TOKENISER_VERSION:
        noted["tokeniser"] = tokeniser
        warnings.warn(
            f"{where}: the words of this {kind} were cut by version {tokeniser} of the tokeniser, and carp "
            f"{this_carp()} cuts new texts by version {tokens.TOKENISER_VERSION}. Fix: {AGAIN[kind]}.",
            CarpWarning,
            stacklevel=3,
        )
    return noted
