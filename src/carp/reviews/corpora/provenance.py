"""Which version of carp saved a corpus or a model, and whether this version can read it.

`made_with` in a saved folder names the version of carp, the layout of the folder, and the version of the tokeniser that
cut its texts into words. A newer layout is an error, another tokeniser a warning, and another carp is noted in facts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from carp.errors import CarpWarning, DamagedError, InputError
from carp.reviews.text import tokens

FIRST_LAYOUT = FIRST_TOKENISER = 1  # of folders saved before these numbers were recorded
AGAIN = {"corpus": "prepare the corpus again", "model": "train the model again"}


def this_carp() -> str:
    import carp  # in here, because reviews must not need the package above them when they are imported

    return carp.__version__


def made_with(layout: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a saved corpus or model says about its origin. Facts name the tokeniser if it is not the present one."""
    return {"carp": this_carp(), "layout": layout, "tokeniser": facts.get("tokeniser", tokens.TOKENISER_VERSION)}


def check_made_with(about: Any, kind: str, newest: int, where: str) -> int:
    """The layout of a saved corpus or model. A layout newer than this carp knows is an error."""
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
    """What to add to the facts if another carp or another tokeniser made this. Warns about another tokeniser."""
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
