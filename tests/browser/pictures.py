"""Take the pictures of the explorer that the documentation shows.

python tests/browser/pictures.py docs/images

They are of a made-up shop with titles, categories, dates and drawn pictures. The heat maps belong to capsules, so they
are taken of another model, where one is given:

carp demo --out demo
python tests/browser/pictures.py docs/images --capsules demo/model
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import tempfile
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
REVIEW = "I carry it all day, so it has to be light. Whatever it is made of, it must not break."
TOPICS = ("weight", "durability", "price", "sound")


def conftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_conftest", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train_shop(folder: Path, pictures_from: str) -> Path:
    """A model of a made-up shop of which everything is known that the explorer can show."""
    import polars as pl

    import carp

    shop = carp.make_shop(people=150, things=40, reviews_per_person=14, topics=TOPICS, seed=1)
    frame = shop.frame()
    days = [1_640_995_200 + 86_400 * ((7 * n) % 1_000) for n in range(len(frame))]
    things = [
        {
            "id": item,
            "title": title,
            "category": title.partition(" ")[2],
            "description": f"The {title} is made for people on the road. It comes with a bag and a warranty.",
            "picture": f"{pictures_from}/{number}.svg" if number % 5 else None,
        }
        for number, (item, title) in enumerate(shop.names.items())
    ]
    pl.DataFrame(things).write_csv(folder / "things.csv")
    reviews = carp.read_reviews(frame.with_columns(pl.Series("time", days)))
    corpus = carp.build_corpus(reviews, items=carp.read_items(folder / "things.csv"))
    carp.Recommender("meeting", seed=0).fit(corpus, progress=False).save(folder / "model")
    return folder / "model"


def drawn(number: int) -> str:
    """A picture of something with two knobs, in a colour of its own."""
    colour = f"hsl({number * 47 % 360} 45% 55%)"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 60"><rect width="60" height="60" fill="#efe9de"/>'
        f'<rect x="12" y="16" width="36" height="28" rx="5" fill="{colour}"/>'
        '<circle cx="23" cy="30" r="6" fill="#fff8"/><circle cx="38" cy="30" r="4" fill="#0004"/></svg>'
    )


def asked(address: str) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Name, view, state and window of each."""
    with urllib.request.urlopen(f"{address}/api/about") as answer:
        pair: dict[str, str] = json.load(answer)["example"]
    with urllib.request.urlopen(f"{address}/api/recommend?user={pair['user']}&n=1") as answer:
        other = json.load(answer)["recommendations"][0]["item"]
    desk, dark = {"viewport": DESK}, {"viewport": DESK, "color_scheme": "dark"}
    phone = {"viewport": PHONE, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
    return [
        ("start", "start", {}, desk),
        ("why", "why", pair, desk),
        ("why-dark", "why", pair, dark),
        ("why-phone", "why", pair, phone),
        ("recommendations", "offers", pair, desk),
        ("person", "person", pair, desk),
        ("thing", "thing", pair, desk),
        ("compare", "compare", {**pair, "other": other}, desk),
        ("what-if", "whatif", {"item": pair["item"], "review": REVIEW}, desk),
        ("overview", "overview", {}, desk),
    ]


def take(tests: ModuleType, browser: Any, address: str, out: Path) -> None:
    for name, view, state, window in asked(address):
        context = browser.new_context(**window, reduced_motion="reduce")
        explorer = tests.Explorer(context.new_page(), address, out)
        explorer.page.route(f"{tests.PICTURES}/**", lambda route: route.fulfill(body=_drawn(route), content_type=SVG))
        page = explorer.open(view, **state)
        if view == "whatif":
            page.locator(".results[aria-busy=false] .answer").wait_for()
        page.wait_for_load_state("networkidle")
        explorer.keep(f"explorer-{name}")
        context.close()


SVG = "image/svg+xml"


def _drawn(route: Any) -> str:
    return drawn(int(Path(route.request.url).stem))


def take_heat_maps(tests: ModuleType, browser: Any, address: str, out: Path) -> None:
    with urllib.request.urlopen(f"{address}/api/about") as answer:
        pair = json.load(answer)["example"]
    context = browser.new_context(viewport=DESK, reduced_motion="reduce")
    page = tests.Explorer(context.new_page(), address, out).open("why", **pair)
    page.locator(".every-pair").screenshot(path=str(out / "explorer-heat-maps.png"))
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--capsules", type=Path, help="a model with capsules, for the picture of the heat maps")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    tests = conftest()
    browser_path = next(filter(None, map(shutil.which, tests.BROWSERS)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=list(tests.QUIET))
        model = train_shop(Path(folder), tests.PICTURES)
        with tests.served(model, "--pictures-from", tests.PICTURES) as address:
            take(tests, browser, address, given.out)
        if given.capsules is not None:
            with tests.served(given.capsules) as address:
                take_heat_maps(tests, browser, address, given.out)
        browser.close()


if __name__ == "__main__":
    main()
