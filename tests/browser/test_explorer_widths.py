"""Every view at four widths, light and dark: nothing is cut, no heading breaks within a word, and pictures to look at.

The pictures lie in the folder of artefacts (CARP_ARTEFACTS), one for each view, width and theme.
"""

from __future__ import annotations

import pytest

WIDTHS = (360, 390, 768, 1280)
VIEWS = ("start", "why", "offers", "person", "thing", "compare", "whatif", "overview")
REVIEW = "I carry it all day, so it has to be light."
MOST_LOADED = 200_000
SIDEWAYS = """() => [document.documentElement.scrollWidth > document.documentElement.clientWidth,
    [...document.querySelectorAll('#content *')].filter((element) =>
        element.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        && !element.closest('.map, .scroll, .unseen, svg')).map((element) => element.className)]"""
# Words of headings, buttons and heads of tables that stand on two lines: "Reaso/n 1".
BROKEN = r"""() => {
    const broken = [];
    for (const element of document.querySelectorAll('h1:not(.unseen), h2, h3, h4, button, th, dt, summary, nav a')) {
        const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            for (const word of walker.currentNode.data.matchAll(/[\p{L}\p{N}]+/gu)) {
                const range = document.createRange();
                range.setStart(walker.currentNode, word.index);
                range.setEnd(walker.currentNode, word.index + word[0].length);
                const lines = new Set([...range.getClientRects()].map(({top}) => Math.round(top)));
                if (lines.size > 1 && word[0].length < 18) broken.push(word[0]);
            }
        }
    }
    return broken;
}"""


@pytest.fixture
def state(new_explorer, described_address):
    explorer = new_explorer(at=described_address, reduced_motion="reduce")
    example = explorer.ask("about")["example"]
    other = next(row["id"] for row in explorer.ask("items")["items"] if row["id"] != example["item"])
    return explorer, {**example, "other": other, "review": REVIEW}


@pytest.mark.parametrize("view", VIEWS)
def test_view_is_light_and_fits_at_every_width_and_has_its_picture_light_and_dark(view, state):
    explorer, asked = state
    page = explorer.page
    with explorer.loading() as loaded:
        explorer.go(view, **asked)
    assert 0 < sum(loaded) <= MOST_LOADED
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        over, wide = page.evaluate(SIDEWAYS)
        assert (width, over, wide) == (width, False, [])
        assert (width, page.evaluate(BROKEN)) == (width, [])
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            explorer.keep(f"{view}-{width}-{theme}", whole=True)
