"""Whether what was printed is what a page shows."""

from __future__ import annotations

import re

FRACTION = r"(?<![\w.])[-−]?\d[\d,]*\.\d+"
SECONDS = rf"{FRACTION}(?= m?s\b)|\b\d+(?= m?s\b)"
BAR = "[█▏▎▍▌▋▊▉·]+"
REQUEST = r'(?<="id": ")[0-9a-f]{16}(?=")'
CHANGING = re.compile(f"(?P<request>{REQUEST})|(?P<seconds>{SECONDS})|(?P<fraction>{FRACTION})|(?P<bar>{BAR})")
LEEWAY, RELATIVE_LEEWAY = 0.05, 0.05
SAME_LINES = 0.6  # of what stands below that comment
REST = re.compile(r"^ *\.\.\.$", re.M)


def difference(shown: str, printed: str) -> str | None:
    """What tells the shown output from the printed one; None where they agree.

    >>> difference("MSE 0.50\\n...\\nend 1.2 s", "MSE 0.51\\nmore\\nend 9.9 s")
    >>> difference("MSE 0.50", "MSE 0.70")
    '0.50 is shown, 0.70 was printed'
    """
    shown, printed = plain(shown), plain(printed)
    pattern, expected = _pattern(shown)
    found = re.fullmatch(pattern, printed, re.S)
    if found is None:
        return f"shown:\n{shown}\nprinted:\n{printed}"
    for said, came in zip(expected, found.groups(), strict=True):
        a, b = (float(text.replace("−", "-").replace(",", "")) for text in (said, came))
        if abs(a - b) > LEEWAY + RELATIVE_LEEWAY * abs(a):
            return f"{said} is shown, {came} was printed"
    return None


def exact_difference(shown: str, printed: str) -> str | None:
    """The same where every digit has to come out; seconds are not compared.

    >>> exact_difference("MSE 0.50 in 1.2 s", "MSE 0.50 in 9.9 s")
    >>> exact_difference("MSE 0.50", "MSE 0.51")
    '0.50 is shown, 0.51 was printed'
    """
    found = difference(shown, printed)
    if found is not None:
        return found
    pattern, expected = _pattern(plain(shown))
    matched = re.fullmatch(pattern, plain(printed), re.S)
    assert matched is not None
    other = [(said, came) for said, came in zip(expected, matched.groups(), strict=True) if said != came]
    return f"{other[0][0]} is shown, {other[0][1]} was printed" if other else None


def rough_difference(shown: str, printed: str) -> str | None:
    """The same for what a trained network says: too many lines that the other does not have.

    >>> rough_difference("1. speaks for it: aspect 2\\n  “Light.”", "1. speaks for it: aspect 3\\n  “It is light.”")
    >>> rough_difference("predicted 4", "foreseen 4") is None
    False
    """
    said, came = ([_skeleton(line) for line in plain(text).splitlines() if line.strip()] for text in (shown, printed))
    if not said and not came:
        return None
    shortened = REST.search(shown) is not None
    said = [line for line in said if line != "..."]
    there = sum(line in came for line in said) / max(len(said), 1)
    back = 1.0 if shortened else sum(line in said for line in came) / max(len(came), 1)
    if min(there, back) < SAME_LINES:
        return f"shown:\n{shown}\nprinted:\n{printed}"
    return None


def _skeleton(line: str) -> str:
    """A line without its numbers, quotations, bars and remarks."""
    line = re.sub(r"“.*|'.*'|\".*\"|also: .*|  best so far", "", line)
    return re.sub(rf"{BAR}|[-−]?\d[\d,.]*\*?|[ +−*]+", " ", line).strip()


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _pattern(shown: str) -> tuple[str, list[str]]:
    """A regular expression for the printed output, and the fractions that its groups are compared with."""
    expected: list[str] = []
    written: list[str] = []
    place = 0
    for found in re.finditer(rf"(?P<rest>^[ ]*\.\.\.$\n?)|{CHANGING.pattern}", shown, re.M):
        written.append(re.escape(shown[place : found.start()]))
        if found["rest"]:
            written.append(".*?")
        elif found["request"]:
            written.append("[0-9a-f]+")
        elif found["seconds"]:
            written.append(r"[\d.]+")
        elif found["bar"]:
            written.append(BAR)
        else:
            written.append(f"({FRACTION})")
            expected.append(found["fraction"])
        place = found.end()
    written.append(re.escape(shown[place:]))
    return "".join(written), expected
