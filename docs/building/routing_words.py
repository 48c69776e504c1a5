"""The routing picture in words, every number from the file it is drawn from."""

from __future__ import annotations

import json
import math
from pathlib import Path

NUMBERS = Path(__file__).resolve().parents[1] / "pictures" / "routing.json"
CAPSULES = {"positive": 0, "negative": 1}


def routing_words() -> str:
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    rounds, side = numbers["rounds"], numbers["viewpoints"]
    parts = []
    x, y, sentiment = numbers["units"][0]
    unit, capsule = (x - 1) * side + y - 1, CAPSULES[sentiment]
    coupling = [one["coupling"][capsule][unit] for one in rounds]
    last = rounds[-1]["agreement"]
    between, within = shares(last, capsule, unit)
    parts.append(
        f"**The strongest unit, g{x},{y}.** “{numbers['phrases'][0][0]}” meets “{numbers['phrases'][0][1]}” After the "
        f"first round its agreement with the {sentiment} capsule is {rounds[1]['agreement'][capsule][unit]:.2f}, more "
        f"than that of any other unit, and its coupling grows from {coupling[0]:.3f} to {coupling[1]:.3f}. The capsule "
        f"turns further towards it, and before the last round the agreement is {last[capsule][unit]:.2f} with this "
        f"capsule and {last[1 - capsule][unit]:.2f} with the other. So č = {between:.3f} between the capsules and "
        f"ĉ = {within:.3f} inside this one, and the normalised geometric mean of the two is the final "
        f"c = **{coupling[-1]:.3f}**."
    )
    x, y, sentiment = numbers["units"][-1]
    unit, capsule = (x - 1) * side + y - 1, CAPSULES[sentiment]
    between, within = shares(last, capsule, unit)
    parts.append(
        f"**The strongest unit of the other capsule, g{x},{y}.** Its agreement with the {sentiment} capsule is only "
        f"{last[capsule][unit]:.2f}, but with the other it is {last[1 - capsule][unit]:.2f}: č = {between:.3f}, "
        f"ĉ = {within:.3f}, c = **{rounds[-1]['coupling'][capsule][unit]:.3f}**. It is only listed because a capsule "
        f"has to listen to something. The capsule itself stays short, {rounds[-1]['lengths'][capsule]:.3f} against "
        f"{rounds[-1]['lengths'][1 - capsule]:.3f}. Look at this length before you believe its reasons."
    )
    return "\n\n".join(parts)


def shares(agreement: list[list[float]], capsule: int, unit: int) -> tuple[float, float]:
    """Lines 5 and 6 of Algorithm 1 for one unit: č over the capsules, ĉ inside its capsule.

    >>> [round(share, 3) for share in shares([[0.0, 0.0], [0.0, math.log(3)]], 1, 1)]
    [0.75, 0.75]
    """
    own = math.exp(agreement[capsule][unit])
    between = own / sum(math.exp(row[unit]) for row in agreement)
    return between, own / sum(map(math.exp, agreement[capsule]))
