"""What is known of one thing besides its reviews."""

from __future__ import annotations

from typing import NamedTuple


class ItemText(NamedTuple):
    """The texts of one thing. Fields are empty where nothing is known."""

    title: str = ""
    categories: tuple[str, ...] = ()
    description: str = ""
    picture: str = ""  # an address that begins with http:// or https://
