"""The drawings of the pages: `python docs/pictures/draw.py` writes them all beside itself.

Colours are those of the page that shows a drawing, by its variables, with a light page's as a fallback.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOR, AGAINST = "var(--carp-for, #1c5d99)", "var(--carp-against, #b4430b)"
INK, SOFT = "var(--md-default-fg-color, #24221e)", "var(--carp-soft, #655f56)"
LINE, CARD, TRACK = "var(--carp-line, #cfc8ba)", "var(--carp-card, #ffffff)", "var(--carp-track, #ece7dd)"
FONT = "var(--md-text-font-family, var(--md-text-font, system-ui)), sans-serif"


class Drawing:
    """An SVG that grows by its parts."""

    def __init__(self, width: int, height: int, title: str, about: str) -> None:
        self.head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="{FONT}" font-size="14" fill="{INK}">\n'
            f"<title>{escape(title)}</title>\n<desc>{escape(about)}</desc>"
        )
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, *, stroke: str = LINE, fill: str = CARD, **more: Any) -> None:
        place = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"'
        self.parts.append(f'<rect {place} fill="{fill}" stroke="{stroke}"{_attributes({"rx": 6, **more})}/>')

    def text(self, x: float, y: float, words: str, *, at: str = "start", fill: str = INK, **more: Any) -> None:
        extra = _attributes(more)
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{at}" fill="{fill}"{extra}>{escape(words)}</text>')

    def lines(self, x: float, y: float, words: Iterable[str], *, step: float = 17, **more: Any) -> None:
        for number, line in enumerate(words):
            self.text(x, y + step * number, line, **more)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, stroke: str = SOFT, **more: Any) -> None:
        extra = _attributes(more)
        reach = max(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5, 1)
        ux, uy = (to_x - x) / reach, (to_y - y) / reach
        tip = [(to_x - 8 * ux - s * 4 * uy, to_y - 8 * uy + s * 4 * ux) for s in (1, -1)]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in ((to_x, to_y), *tip))
        end = f'x2="{to_x - 6 * ux:.1f}" y2="{to_y - 6 * uy:.1f}"'
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" {end} stroke="{stroke}"{extra}/>')
        self.parts.append(f'<polygon points="{points}" fill="{stroke}"/>')

    def heat(self, x: float, y: float, size: float, share: float, colour: str) -> None:
        """A cell whose colour grows with a share from 0 to 1."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}" fill="{TRACK}"/>'
            f'<rect x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}" fill="{colour}" '
            f'fill-opacity="{min(share, 1):.2f}"/>'
        )

    def __str__(self) -> str:
        return "\n".join([self.head, *self.parts, "</svg>\n"])


def _attributes(more: dict[str, Any]) -> str:
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())


def pipeline() -> Drawing:
    drawing = Drawing(
        900,
        262,
        "The way of the data",
        "Raw files become reviews, a corpus, a split, documents, batches, predictions and explanations.",
    )
    stages = [
        ("raw files", "CSV, JSON lines,", "Amazon, Yelp, beer"),
        ("reviews", "who, what, how highly,", "in which words"),
        ("corpus", "ids, ratings, words", "and where they stand"),
        ("split", "training, validation,", "test"),
        ("documents", "of training reviews;", "words know their review"),
        ("batch", "pairs, without their", "own review"),
        ("prediction", "a rating, capsules,", "coupling"),
        ("explanation", "reasons and sentences:", "text, page, JSON"),
    ]
    for number, (name, *about) in enumerate(stages):
        x, y = 10 + 226 * (number % 4), 12 + 140 * (number // 4)
        last = number == len(stages) - 1
        drawing.box(x, y, 190, 82, stroke=FOR if last else LINE)
        drawing.text(x + 14, y + 27, name, font_weight=600, fill=FOR if last else INK)
        drawing.lines(x + 14, y + 48, about, fill=SOFT, font_size=13)
        if number % 4 < 3:
            drawing.arrow(x + 193, y + 41, x + 223, y + 41)
    drawing.parts.append(f'<path d="M783 94 V123 H105 V143" fill="none" stroke="{SOFT}"/>')
    drawing.arrow(105, 136, 105, 150)
    drawing.text(331, 112, "+ a ledger of every rejected line", at="middle", fill=SOFT, font_size=12)
    return drawing


MODEL = (
    "The person's document gives five viewpoints, the thing's document five aspects; their 25 logic units are routed "
    "to a positive and a negative capsule, whose lengths and degrees make the rating."
)


def model() -> Drawing:
    drawing = Drawing(900, 372, "The model", MODEL)
    for y, who, what, mark in (
        (30, "the person's reviews", "viewpoints", "v"),
        (212, "the thing's reviews", "aspects", "a"),
    ):
        drawing.box(8, y, 150, 118)
        drawing.text(83, y - 9, who, at="middle", font_weight=600)
        for line, width in enumerate((122, 98, 116, 70, 108, 88)):
            drawing.box(22, y + 14 + 16 * line, width, 7, stroke="none", fill=LINE if line != 2 else FOR)
        drawing.arrow(162, y + 59, 190, y + 59)
        drawing.box(194, y + 14, 118, 90)
        drawing.lines(253, y + 38, ("convolution", "gates (1)", "attention (2)"), at="middle", step=21)
        drawing.arrow(316, y + 59, 344, y + 59)
        drawing.text(384, y - 9, f"5 {what}", at="middle", font_weight=600)
        for number in range(5):
            drawing.box(352, y + 2 + 24 * number, 64, 18, fill=TRACK, stroke="none")
            drawing.text(384, y + 16 + 24 * number, f"{mark}{number + 1}", at="middle", font_size=12)
    drawing.arrow(420, 92, 452, 140)
    drawing.arrow(420, 268, 452, 220)
    drawing.text(525, 96, "25 logic units (3)", at="middle", font_weight=600)
    strong = {(1, 3): (FOR, 0.85), (3, 3): (FOR, 0.45), (1, 0): (AGAINST, 0.7)}
    for row in range(5):
        for column in range(5):
            colour, share = strong.get((row, column), (LINE, 0.35))
            drawing.heat(460 + 26 * column, 108 + 26 * row, 24, share, colour)
    drawing.text(525, 262, "routing by", at="middle", fill=SOFT, font_size=13)
    drawing.text(525, 279, "bi-agreement", at="middle", fill=SOFT, font_size=13)
    for y, name, colour, sign in ((88, "for it", FOR, "+"), (228, "against it", AGAINST, "−")):
        drawing.arrow(596, 172 + (y - 158) * 0.25, 634, y + 36)
        drawing.box(638, y, 104, 72, stroke=colour, rx=36)
        drawing.text(690, y + 32, f"{sign} {name}", at="middle", font_weight=600, fill=colour)
        drawing.text(690, y + 52, "length, degree", at="middle", fill=SOFT, font_size=12)
        drawing.arrow(746, y + 36, 790, 172 + (y - 158) * 0.15 + 14, stroke=colour)
    drawing.text(690, 74, "2 capsules (4–9)", at="middle", font_weight=600)
    drawing.box(794, 150, 98, 72, stroke=INK)
    drawing.text(843, 180, "rating (10)", at="middle", font_weight=600)
    drawing.text(843, 202, "+ biases", at="middle", fill=SOFT, font_size=12)
    drawing.text(450, 362, "Numbers in brackets are those of the equations.", at="middle", fill=SOFT, font_size=12)
    return drawing


def logic_units() -> Drawing:
    drawing = Drawing(
        900,
        318,
        "Logic units and two capsules",
        "Three viewpoints of a person meet three aspects of a thing. Two of the nine pairs are listened to by the "
        "positive capsule and one by the negative.",
    )
    rows = ("“I carry it all day”", "“the price decides”", "“I am careless with my gear”")
    columns = (("“so light that I", "forget it”"), ("“cheaper than", "all the others”"), ("“broke after", "a week”"))
    drawing.text(10, 36, "what the person cares about", fill=SOFT, font_size=13)
    drawing.text(440, 18, "what people say of the thing", at="middle", fill=SOFT, font_size=13)
    heard = {(0, 0): (FOR, 0.9), (1, 1): (FOR, 0.6), (2, 2): (AGAINST, 0.9)}
    drawing.arrow(300, 112, 714, 106, stroke=FOR, stroke_width=3, stroke_opacity=0.55)
    drawing.arrow(430, 182, 714, 126, stroke=FOR, stroke_width=2, stroke_opacity=0.55)
    drawing.arrow(560, 254, 714, 246, stroke=AGAINST, stroke_width=3, stroke_opacity=0.55)
    for number, words in enumerate(rows):
        y = 84 + 70 * number
        drawing.text(228, y + 34, words, at="end")
        for column in range(3):
            colour, share = heard.get((number, column), (LINE, 0.3))
            drawing.heat(252 + 130 * column, y, 60, share, colour)
            drawing.text(
                282 + 130 * column,
                y + 35,
                f"g{number + 1},{column + 1}",
                at="middle",
                font_size=12,
                fill=CARD if share > 0.5 else SOFT,
            )
    for column, words in enumerate(columns):
        drawing.lines(282 + 130 * column, 46, words, at="middle", font_size=12.5, step=16)
    for y, name, colour, about in (
        (76, "+ for it", FOR, "listens to g1,1 and g2,2"),
        (206, "− against it", AGAINST, "listens to g3,3"),
    ):
        drawing.box(716, y, 176, 76, stroke=colour, rx=38)
        drawing.text(804, y + 34, name, at="middle", font_weight=600, fill=colour)
        drawing.text(804, y + 54, about, at="middle", font_size=12, fill=SOFT)
    drawing.text(
        10, 308, "A made-up illustration. The grey pairs mean nothing to either capsule.", fill=SOFT, font_size=12
    )
    return drawing


def routing() -> Drawing:
    numbers = json.loads((HERE / "routing.json").read_text("utf-8"))
    side, cell = numbers["viewpoints"], 62
    drawing = Drawing(
        900,
        520,
        "Routing by bi-agreement in three rounds",
        f"Coupling of every logic unit of {numbers['user']} and {numbers['item']} in both capsules, round by round.",
    )
    for column, one in enumerate(numbers["rounds"]):
        x = 132 + 262 * column
        drawing.text(x + side * cell / 2, 18, f"round {column + 1}", at="middle", font_weight=600)
        for sentiment, colour in enumerate((FOR, AGAINST)):
            top = 46 + 244 * sentiment
            for unit, share in enumerate(one["coupling"][sentiment]):
                row, place = divmod(unit, side)
                drawing.heat(x + cell * place, top + cell * row, cell - 3, share * 1.25, colour)
                drawing.text(
                    x + cell * place + (cell - 3) / 2,
                    top + cell * row + 36,
                    f"{share:.3f}",
                    at="middle",
                    font_size=14,
                    fill=CARD if share > 0.45 else INK,
                )
            for number in range(side):
                drawing.text(x + cell * number + 30, top - 7, f"a{number + 1}", at="middle", fill=SOFT, font_size=12)
                drawing.text(x - 10, top + cell * number + 35, f"v{number + 1}", at="end", fill=SOFT, font_size=12)
            length = one["lengths"][sentiment]
            drawing.box(x, top + side * cell + 6, side * cell - 3, 8, fill=TRACK, stroke="none")
            drawing.box(x, top + side * cell + 6, (side * cell - 3) * length, 8, fill=colour, stroke="none")
            drawing.text(x, top + side * cell + 31, f"length {length:.3f}", fill=SOFT, font_size=12)
    for top, words, colour in ((124, ("+ for it",), FOR), (368, ("− against it",), AGAINST)):
        drawing.lines(8, top, words, font_weight=600, fill=colour)
    return drawing


def leave_out() -> Drawing:
    drawing = Drawing(
        900,
        262,
        "A review never predicts its own rating",
        "Ann's review of the lamp is in neither document while their pair is trained.",
    )
    sides = (
        (10, "Ann's document", ("about the desk, 4", "about the lamp, 2", "about the chair, 5", "about the mug, 4")),
        (640, "the lamp's document", ("by Bob, 3", "by Ann, 2", "by Cat, 1", "by Dan, 4")),
    )
    for x, name, reviews in sides:
        drawing.text(x, 22, name, font_weight=600)
        for number, words in enumerate(reviews):
            y = 36 + 50 * number
            out = number == 1
            dashed = {"stroke_dasharray": "5 4", "stroke": AGAINST, "fill": "none"} if out else {}
            drawing.box(x, y, 250, 40, **dashed)
            drawing.text(x + 14, y + 25, words, fill=AGAINST if out else INK)
            if out:
                drawing.text(x + 236, y + 25, "left out", at="end", fill=AGAINST, font_size=12)
    drawing.box(350, 82, 200, 108, stroke=FOR)
    drawing.text(450, 112, "Ann × lamp", at="middle", font_weight=600, fill=FOR)
    drawing.lines(450, 138, ("predict 2 from", "what is left"), at="middle", fill=SOFT, step=19)
    drawing.arrow(264, 136, 346, 136, stroke=FOR)
    drawing.arrow(636, 136, 554, 136, stroke=FOR)
    drawing.text(
        450,
        252,
        "In validation and test nothing has to be left out: those reviews are in no document.",
        at="middle",
        fill=SOFT,
        font_size=13,
    )
    return drawing


Rooms = tuple[tuple[str, str, str], ...]  # name, and two lines about it
FLOORS: tuple[tuple[str, Rooms], ...] = (
    (
        "what people see",
        (
            ("render", "text, page,", "JSON"),
            ("bench", "grids, studies,", "reports"),
            ("serve", "HTTP API,", "explorer page"),
            ("scale", "processes,", "clusters"),
            ("cli", "the commands,", "demo, doctor"),
        ),
    ),
    (
        "what you use from Python",
        (
            ("recommender", "fit, predict, explain, recommend,", "save, load; settings, answers, ranking"),
            ("upkeep", "new reviews come in,", "people are forgotten"),
        ),
    ),
    (
        "what is made of a fitted model",
        (
            ("evaluate", "errors, intervals,", "significance"),
            ("explain", "reasons, profiles,", "are they true?"),
            ("persist", "the model", "as a folder"),
        ),
    ),
    (
        "what learns",
        (
            ("models", "the mathematics,", "one model per file"),
            ("kernels", "the same, fast:", "cpu/ C, gpu/ Triton"),
            ("training", "the one loop,", "checkpoints"),
        ),
    ),
    (
        "what was written: reviews/",
        (
            ("sources", "a raw line", "becomes a review"),
            ("text", "words, sentences,", "vocabulary"),
            ("corpora", "reviews become", "a corpus"),
            ("split, documents", "training or test,", "what models read"),
        ),
    ),
)


def house() -> Drawing:
    drawing = Drawing(
        900,
        716,
        "The house",
        "Five floors of packages. At the bottom reviews are read, above them models learn, then come evaluation, "
        "explanation and saving, then the recommender and upkeep, and under the roof what people see. Imports point "
        "down only.",
    )
    left, width, height = 92, 716, 112
    roof = f"M{left - 24} 70 L450 12 L{left + width + 24} 70 Z"
    drawing.parts.append(f'<path d="{roof}" fill="{TRACK}" stroke="{LINE}"/>')
    drawing.text(450, 54, "src/carp", at="middle", font_weight=600)
    for floor, (name, rooms) in enumerate(FLOORS):
        _floor(drawing, left, 78 + (height + 6) * floor, width, height, name, rooms)
    drawing.box(left - 24, 668, width + 48, 34, fill=TRACK)
    drawing.text(450, 690, "errors · storage: the ground everything stands on", at="middle", fill=SOFT, font_size=13)
    drawing.arrow(40, 640, 40, 100, stroke=FOR, stroke_width=2)
    drawing.text(26, 370, "the data", at="middle", fill=FOR, transform="rotate(-90 26 370)", font_size=13)
    drawing.arrow(860, 100, 860, 640, stroke=AGAINST, stroke_width=2)
    drawing.text(880, 370, "imports", at="middle", fill=AGAINST, transform="rotate(-90 880 370)", font_size=13)
    return drawing


def _floor(drawing: Drawing, x: float, y: float, width: float, height: float, name: str, rooms: Rooms) -> None:
    drawing.box(x, y, width, height, fill=TRACK)
    drawing.text(x + 14, y + 20, name, fill=SOFT, font_size=12)
    room = (width - 28 - 12 * (len(rooms) - 1)) / len(rooms)
    for number, (title, *about) in enumerate(rooms):
        left = x + 14 + (room + 12) * number
        drawing.box(left, y + 30, room, height - 42)
        drawing.text(left + room / 2, y + 52, title, at="middle", font_weight=600)
        drawing.lines(left + room / 2, y + 71, about, at="middle", fill=SOFT, font_size=13)


PICTURES: dict[str, Callable[[], Drawing]] = {
    "pipeline": pipeline,
    "house": house,
    "model": model,
    "logic-units": logic_units,
    "routing": routing,
    "leave-out": leave_out,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(str(draw()), "utf-8")
