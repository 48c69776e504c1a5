"""Examples in docstrings are shown as code: what follows `>>>` would be a quotation in Markdown, and lists be links."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

SESSION = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """
    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    return SESSION.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)


class FencedExamples(Extension):
    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
