"""The report as one page that opens anywhere: no script, nothing fetched, every word from data escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence

from carp.bench.report import Section, Table, TableRow
from carp.render.wording import neutral

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c;
  background: #fff }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem }
caption { text-align: left; font-weight: 600; padding: .4rem 0 }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e3e3; white-space: nowrap }
th { background: #f4f4f2; white-space: normal; vertical-align: bottom } .word { text-align: left; white-space: normal }
.best .marked { font-weight: 700 } .second .marked { text-decoration: underline } .failed { color: #a02c1c }
figure { margin: 1rem 0 } figcaption { color: #555 } img { max-width: 100%; height: auto; background: #fff }
.note { color: #444; max-width: 50rem }
"""


def report_page(sections: Sequence[Section], *, title: str = "What was measured") -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(map(section_part, sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{_safe(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section_part(section: Section) -> str:
    parts = [f"<section>\n<h2>{_safe(section.title)}</h2>"]
    parts += map(_table, section.tables)
    parts += [f'<p class="note">{_safe(note)}</p>' for note in section.notes]
    for caption, draw in section.plots:
        image = base64.b64encode(draw().encode()).decode()
        parts.append(
            f'<figure><img alt="{_safe(caption)}" src="data:image/svg+xml;base64,{image}">'
            f"<figcaption>{_safe(caption)}</figcaption></figure>"
        )
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_word(place, table)}>{_safe(cell)}</th>' for place, cell in enumerate(table.headings)
    )
    rows = "\n".join(_row(row, table) for row in table.rows)
    return (
        f'<div class="scroll"><table>\n<caption>{_safe(table.title)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(row: TableRow, table: Table) -> str:
    cells = []
    for place, cell in enumerate(row.cells):
        kind = _word(place, table) or (' class="marked"' if place == table.marked else "")
        cells.append(f"<td{kind}>{_safe(cell)}</td>")
    mark = f' class="{_safe(row.mark)}"' if row.mark else ""
    return f"<tr{mark}>{''.join(cells)}</tr>"


def _word(place: int, table: Table) -> str:
    return ' class="word"' if place < table.left else ""


def _safe(text: str) -> str:
    return html.escape(neutral(text), quote=True)
