"""Everything at work on the made-up shop: reviews, corpus, training, test errors, an explanation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carp.cli.messages import coloured
from carp.errors import UsageError
from carp.storage import disk_errors, read_json, readable_size, write_bytes, write_json

if TYPE_CHECKING:
    from carp.recommender import Recommender
    from carp.reviews.shop.made_up_shop import Shop

SHOP_SIZE: dict[str, Any] = {
    "people": 300,
    "things": 80,
    "reviews_per_person": 16,
    "topics": ("weight", "durability", "price", "sound", "comfort", "battery"),
}
# A small CARP: the shop has only 650 words, and the demo should take two minutes on two cores.
DEMO_SETTINGS: dict[str, Any] = {
    "variant": "calibrated",
    "dimension": 64,
    "filters": 32,
    "dropout": 0.1,
    "max_words": 200,
    "batch_size": 25,
    "learning_rate": 0.002,
    "epochs": 24,
    "settling_share": 0.15,
    "patience": 8,
}
QUICK_SHOP_SIZE: dict[str, Any] = {"people": 30, "things": 15, "reviews_per_person": 8}
QUICK_SETTINGS: dict[str, Any] = {
    "variant": "calibrated",
    "dimension": 16,
    "filters": 8,
    "latent_size": 8,
    "viewpoints": 2,
    "epochs": 1,
}
MARK = "demo.json"
MADE = ("reviews.jsonl", "model", "explanation.html", MARK)

Tell = Callable[[str], None]


def run_demo(out: Path, *, seed: int = 0, quick: bool = False, show: Tell = print, say: Tell = print) -> dict[str, Any]:
    """Run the demo. Results go to `show`, progress to `say`; the facts that were found are returned."""
    from carp.explain.faithfulness.planted_causes import planted_causes_found
    from carp.recommender import Recommender
    from carp.render.console_tables import evaluation_text
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.corpora.dataset_statistics import dataset_statistics, statistics_table
    from carp.reviews.shop.made_up_shop import make_shop
    from carp.reviews.sources.formats import read_reviews

    began = time.monotonic()
    _claim(out, seed)
    shop = make_shop(seed=seed, **(QUICK_SHOP_SIZE if quick else SHOP_SIZE))
    _write_reviews(shop, out / "reviews.jsonl")
    show("A made-up shop. Each person cares about two or three topics and writes about them.\n")
    corpus = build_corpus(read_reviews(out / "reviews.jsonl"))
    show(f"{statistics_table(dataset_statistics(corpus))}\n")
    say("Training CARP on these reviews.")
    recommender = Recommender("carp", seed=seed, split_seed=seed, **(QUICK_SETTINGS if quick else DEMO_SETTINGS))
    recommender.fit(corpus)
    size = recommender.save(out / "model", overwrite=True)
    found = recommender.evaluate()
    show(f"\n{evaluation_text(found)}\n")
    causes = planted_causes_found(recommender.explainer, shop)
    show(f"{causes}\n")
    user, item = _telling_pair(recommender)
    _explain(recommender, user, item, out / "explanation.html", show)
    seconds = time.monotonic() - began
    show(
        f"\nreviews.jsonl, explanation.html and model ({readable_size(size)}) are in {out}. It took {seconds:.0f} s.\n"
    )
    show(_next_steps(recommender, out, user))
    return {"seconds": seconds, "evaluation": found, "planted": asdict(causes), "user": user, "item": item}


def _claim(out: Path, seed: int) -> None:
    """Mark the folder as the demo's own. A later demo replaces only the files that a demo makes."""
    with disk_errors(out):
        if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
            fix = "choose another place with --out"
            raise UsageError("this already exists and was not made by carp demo", where=str(out), fix=fix)
    if (out / MARK).is_file():
        mark = read_json(out / MARK)
        if not isinstance(mark, dict) or mark.get("made_by") != "carp demo":
            raise UsageError(
                f"its {MARK} was not made by carp demo", where=str(out), fix="choose another place with --out"
            )
    write_json(out / MARK, {"made_by": "carp demo", "seed": seed, "made": MADE})


def _write_reviews(shop: Shop, path: Path) -> None:
    lines = (json.dumps(record, ensure_ascii=False) for record in shop.records())
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


def _telling_pair(recommender: Recommender) -> tuple[str, str]:
    """The held-out pair where the texts help most: the prediction is close and the biases alone are far off."""
    import numpy as np
    import torch

    fitted, test = recommender.fitted_corpus, recommender.fitted_corpus.test_pairs()
    pairs = [(fitted.users[int(u)], fitted.items[int(i)]) for u, i in zip(test.users, test.items, strict=True)]
    with torch.no_grad():
        places = [torch.from_numpy(side).to(recommender.device) for side in (test.users, test.items)]
        stars = recommender.baseline(*places).clamp(1, fitted.levels).cpu().numpy()
    true = fitted.scale.from_stars(test.ratings, fitted.levels)
    biases = fitted.scale.from_stars(stars, fitted.levels)
    gain = np.abs(biases - true) - np.abs(np.asarray(recommender.predict(pairs)) - true)
    return pairs[int(np.argmax(gain))]


def _explain(recommender: Recommender, user: str, item: str, page: Path, show: Tell) -> None:
    from carp.render.html_page import explanation_page
    from carp.render.terminal import explanation_text

    explanation = recommender.explain(user, item)
    write_bytes(page, explanation_page(explanation).encode())
    show("An explanation, for the held-out pair where the texts help most:\n")
    show(explanation_text(explanation, colour=coloured()))


def _next_steps(recommender: Recommender, out: Path, user: str) -> str:
    from carp.render.console_tables import command

    model = out / "model"
    fitted = recommender.fitted_corpus
    test = fitted.test_pairs()
    other = fitted.users[int(test.users[0])], fitted.items[int(test.items[0])]
    steps = [
        f"open {out / 'explanation.html'} in a browser",
        command("explain", model, *other),
        command("recommend", model, user, options=["-n", "5"]),
        command("evaluate", model),
        command("prepare", out / "reviews.jsonl", options=["--out", out / "corpus"]),
        command("train", out / "corpus", options=["--model", "bias", "--out", out / "bias"]),
    ]
    return "\n".join(["What to try next:", *(f"  {step}" for step in steps)])


def made_up_shop(recommender: Recommender) -> Shop | None:
    """The demo's shop if the model was trained on it, else None. In the shop every rating has a known cause."""
    from carp.reviews.shop.made_up_shop import make_shop

    fitted = recommender.fitted_corpus
    if not fitted.users[0].startswith("person-") or not fitted.items[0].startswith("thing-"):
        return None
    for size in (SHOP_SIZE, QUICK_SHOP_SIZE):
        for seed in sorted({recommender.seed, recommender.split_seed}):
            shop = make_shop(seed=seed, **size)
            written = {(review.user, review.item): review.text for review in shop.reviews}
            pairs = zip(fitted.user.tolist(), fitted.item.tolist(), strict=True)
            if all(
                written.get((fitted.users[user], fitted.items[item])) == fitted.texts[record]
                for record, (user, item) in enumerate(pairs)
            ):
                return shop
    return None
