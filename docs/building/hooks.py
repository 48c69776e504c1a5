"""What mkdocs does with our pages beyond Markdown: generated references, formulas as MathML, pictures with captions.

A comment `<!-- make: name argument -->` in a page is replaced by what the function of that name gives.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from command_reference import command_reference
from routing_words import routing_words
from settings_reference import models_reference, settings_reference
from sources import fields_table

EXPLORER = Path(__file__).resolve().parents[2] / "src" / "carp" / "serve" / "page"
PICTURES = Path(__file__).resolve().parents[1] / "pictures"
TAG = re.compile(r"\\tag\{(\w+)\}")
MAKE = re.compile(r"^<!-- make: (\S+)(?: (.+?))? -->$", re.M)
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>', re.S)


def picture(given: str) -> str:
    """`name | caption`: the drawing itself, so that it follows the page's colours, and a caption."""
    name, _, caption = given.partition("|")
    drawn = (PICTURES / f"{name.strip()}.svg").read_text("utf-8")
    return (
        f'<figure class="picture">\n{drawn.strip()}\n<figcaption>{html.escape(caption.strip())}</figcaption>\n</figure>'
    )


MAKERS: dict[str, Any] = {
    "commands": lambda _: command_reference(),
    "settings": lambda _: settings_reference(),
    "models": lambda _: models_reference(),
    "fields": fields_table,
    "picture": picture,
    "routing_words": lambda _: routing_words(),
}


def on_files(files: Files, config: Any) -> Files:
    """The explorer's own scripts, by which tables are sorted here too."""
    for name in ("sorting.js", "dom.js"):
        content = (EXPLORER / name).read_text("utf-8")
        files.append(File.generated(config, f"javascripts/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return MAKE.sub(lambda found: MAKERS[found[1]](found[2]), markdown)


def on_page_content(rendered: str, **_: Any) -> str:
    return FORMULA.sub(_formula, rendered)


def _formula(found: re.Match[str]) -> str:
    block = found["open"] == "["
    tex, number = html.unescape(found["tex"]).strip(), TAG.search(found["tex"])
    written = convert(TAG.sub("", tex).strip(), display="block" if block else "inline")
    if not block:
        return str(written)
    label = f'<span class="number">({number[1]})</span>' if number else ""
    return f'<div class="formula">{written}{label}</div>'
