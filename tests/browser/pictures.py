"""Take the pictures of the explorer that the documentation shows.

carp demo --out demo
python tests/browser/pictures.py demo/model docs/images
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
REVIEW = "I carry it all day, so it has to be light. Whatever it is made of, it must not break."


def conftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_conftest", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures(address: str) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Name, view, state and window of each."""
    with urllib.request.urlopen(f"{address}/api/about") as answer:
        pair: dict[str, str] = json.load(answer)["example"]
    with urllib.request.urlopen(f"{address}/api/recommend?user={pair['user']}&n=1") as answer:
        other = json.load(answer)["recommendations"][0]["item"]
    desk, dark = {"viewport": DESK}, {"viewport": DESK, "color_scheme": "dark"}
    phone = {"viewport": PHONE, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
    return [
        ("why", "why", pair, desk),
        ("why-dark", "why", pair, dark),
        ("why-phone", "why", pair, phone),
        ("recommendations", "offers", pair, desk),
        ("person", "person", pair, desk),
        ("thing", "thing", pair, desk),
        ("compare", "compare", {**pair, "other": other}, desk),
        ("what-if", "whatif", {"item": pair["item"], "review": REVIEW}, desk),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    tests = conftest()
    browser_path = next(filter(None, map(shutil.which, tests.BROWSERS)))
    with tests.served(given.model) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=list(tests.QUIET))
        for name, view, state, window in pictures(address):
            context = browser.new_context(**window, reduced_motion="reduce")
            explorer = tests.Explorer(context.new_page(), address, given.out)
            page = explorer.open(view, **state)
            if view == "whatif":
                page.locator(".results[aria-busy=false] .answer").wait_for()
            explorer.keep(f"explorer-{name}")
            if name == "why":
                page.locator(".every-pair").scroll_into_view_if_needed()
                page.locator(".every-pair").screenshot(path=str(given.out / "explorer-heat-maps.png"))
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
