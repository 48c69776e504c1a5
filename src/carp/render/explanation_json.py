"""An explanation as JSON that every reader accepts: no NaN, and nothing that a terminal or a page would obey."""

from __future__ import annotations

import json
import math
import re
from numbers import Integral, Real
from typing import Any

from carp.explain.explanation import Explanation

# Written as escapes, which read back as the same data: controls of terminals and of the order of text, lone
# surrogates, the start of a tag.
_UNSAFE = re.compile("[<\x7f-\x9f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")


def explanation_json(explanation: Explanation, indent: int | None = 2) -> str:
    """The explanation as one JSON document; a number that is not finite becomes null, letters of any script stay."""
    written = json.dumps(_plain(explanation.as_dict()), indent=indent, ensure_ascii=False, allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _plain(value: Any) -> Any:
    """Numbers of any library as Python's own, and None for what JSON cannot hold."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None
