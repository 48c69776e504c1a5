"""Are the explanations true? Every measure for models on corpora, one JSON line a model × corpus × seed.

    python benchmarks/faithfulness.py --bundles MODEL... [--aspects FILE] --out results/faithfulness.jsonl
    python benchmarks/faithfulness.py CORPUS... --models carp anr --seeds 0 1 2 \\
        --aspects tripadvisor=tripadvisor.jsonl.gz --out results/faithfulness.jsonl
    python benchmarks/faithfulness.py --shop --models carp --out results/faithfulness.jsonl

CORPUS is a folder made by `carp prepare`; models of the same name and corpus that differ in their seed alone are also
held against each other (stability). Settings follow a model's name after colons. With --shop the demo's made-up shop
is a corpus too, where every rating has a known cause. Lines are added as they are measured, and what is there already
is not measured again; faithfulness_tables.py makes tables of them. CORPUS alone needs torch, numpy, safetensors, scipy
and scikit-learn, so that networks can be trained and measured on a bare machine with a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faithfulness_tables
import source_tree  # noqa: F401  carp of this checkout

SHOP = "made-up-shop"
Line = dict[str, Any]


@dataclass
class Group:
    """Models that differ in their seed alone, on one corpus."""

    corpus: str
    label: str
    members: list[Any] = field(default_factory=list)  # Recommender
    aspects: Path | None = None
    shop: Any = None


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def trained(given: argparse.Namespace) -> Iterator[Group]:
    """Each model on each corpus, with all its seeds."""
    from carp.bench.grid import read_systems

    aspects = dict(text.split("=", 1) for text in given.aspects if "=" in text)
    systems = read_systems(",".join(given.models))
    for corpus_name, corpus, shop in corpora(given):
        for system in systems:
            settings = {**(shop_settings(system.model) if shop is not None else {}), **system.settings}
            group = Group(corpus_name, system.label, shop=shop)
            group.aspects = Path(aspects[corpus_name]) if corpus_name in aspects else None
            todo = [seed for seed in given.seeds if not known(given, corpus_name, system.label, seed)]
            for seed in [*given.seeds, *given.others] if todo else []:
                group.members.append(fit(corpus, system.model, settings, seed, given))
            if group.members:
                yield group


def corpora(given: argparse.Namespace) -> Iterator[tuple[str, Any, Any]]:
    from carp.reviews.corpora.corpus import Corpus

    for path in given.corpora:
        yield Path(path).resolve().name, Corpus.load(Path(path)), None
    if given.shop:
        yield SHOP, *made_up_shop()


def made_up_shop() -> tuple[Any, Any]:
    """The demo's, which needs more packages than the measures do."""
    from carp.cli.demo import SHOP_SIZE
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.shop.made_up_shop import make_shop
    from carp.reviews.sources.formats import read_reviews

    shop = make_shop(seed=0, **SHOP_SIZE)
    return build_corpus(read_reviews(shop.frame())), shop


def shop_settings(name: str) -> dict[str, Any]:
    from carp.cli.demo import DEMO_SETTINGS
    from carp.models import model_entry

    return DEMO_SETTINGS if model_entry(name).place.endswith(":Carp") else {}


def fit(corpus: Any, name: str, settings: dict[str, Any], seed: int, given: argparse.Namespace) -> Any:
    from carp.recommender import Recommender

    began = time.monotonic()
    found = Recommender(name, seed=seed, split_seed=given.split_seed, device=given.device, **settings)
    found.fit(corpus, progress=False)
    say(f"{name}, seed {seed}: trained in {time.monotonic() - began:.0f} s")
    return found


def loaded(given: argparse.Namespace) -> Iterator[Group]:
    """Bundles as they are; those of one model on one split belong together."""
    import carp
    from carp.bench.cells import all_settings, changed
    from carp.cli.demo import made_up_shop as shop_of

    groups: dict[tuple[Any, ...], Group] = {}
    for path in given.bundles:
        member = carp.load(path, device=given.device)
        facts = member.fitted_corpus.facts
        settings = json.dumps({**member.facts["training"], **vars(member.config)}, sort_keys=True, default=str)
        key = (member.name, facts["fingerprint"], member.fitted_corpus.part.tobytes(), settings)
        sources = facts["corpus"].get("sources") or [facts["fingerprint"][:12]]
        corpus = Path(sources[0]).name.partition(".")[0]
        variant = changed(member.name, all_settings(member)).get("variant")
        label = f"{member.name}:variant={variant}" if variant else member.name
        group = groups.setdefault(key, Group(corpus, label))
        group.aspects = next((Path(text) for text in given.aspects if "=" not in text), None)
        group.shop = shop_of(member)
        group.members.append(member)
    yield from groups.values()


def known(given: argparse.Namespace, corpus: str, label: str, seed: int) -> bool:
    wanted = (corpus, label, seed, given.split_seed, given.pairs)
    return any(tuple(line[k] for k in KEY) == wanted for line in lines_of(given.out))


KEY = ("corpus", "model", "seed", "split_seed", "asked")


def lines_of(path: Path | None) -> list[Line]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def measure(group: Group, given: argparse.Namespace) -> Iterator[Line]:
    from carp.bench.cells import all_settings, changed, current_commit, machine
    from carp.explain.faithfulness.measures import measure_explanations

    for member in group.members:
        if member.seed in given.others or known(given, group.corpus, group.label, member.seed):
            continue
        others = [other.explainer for other in group.members if other is not member]
        found = measure_explanations(
            member.explainer, pairs=given.pairs, against=others, aspects=group.aspects, shop=group.shop, tell=say
        )
        test = member.evaluate()
        yield {
            "corpus": group.corpus,
            "fingerprint": member.fitted_corpus.facts["fingerprint"],
            "model": group.label,
            "seed": member.seed,
            "split_seed": member.split_seed,
            "asked": given.pairs,
            "settings": changed(member.name, all_settings(member)),
            "test_mse": test["rows"][member.name]["mse"],
            "bias_mse": test["rows"]["bias"]["mse"],
            "explanations": found.as_dict(),
            "command": " ".join(["python", *sys.argv]),
            "commit": given.commit or current_commit(),
            "machine": machine(member.device.type),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*")
    parser.add_argument("--bundles", nargs="+", default=[], help="models that are trained already")
    parser.add_argument("--models", nargs="+", default=["carp"])
    parser.add_argument("--shop", action="store_true", help="the demo's made-up shop too")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--others", type=int, nargs="+", default=[], help="seeds that those are held against, no more")
    parser.add_argument("--split-seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--aspects", nargs="+", default=[], help="CORPUS=FILE with the reviewers' own scores, or FILE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", help="recorded where the runs are made on a copy without git")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for groups in (loaded(given) if given.bundles else (), trained(given)):
        for group in groups:
            for line in measure(group, given):
                lines.append(line)
                say(f"{line['corpus']}, {line['model']}, seed {line['seed']}: {line['explanations']['seconds']:.0f} s")
                if given.out:
                    with given.out.open("a") as file:
                        file.write(json.dumps(line, allow_nan=False) + "\n")
    for name, make in faithfulness_tables.TABLES.items():
        print(f"{name}\n\n{make(faithfulness_tables.groups(lines))}\n")


if __name__ == "__main__":
    main()
