"""Commands about carp itself: its models, a check of this machine, and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from carp.cli.messages import naming, say, show_json
from carp.cli.options import MAX_SEED, AsJson
from carp.cli.output_files import check_may_write
from carp.cli.places import new_path


def models(
    settings: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print the settings of this model and their defaults.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models, what they need, and their settings."""
    from carp.models import REGISTRY, model_entry
    from carp.render.console_tables import table

    if settings is not None:
        with naming("models"):
            model_entry(settings)
    described = {name: _describe_model(name) for name in REGISTRY if settings in (None, name)}
    if as_json:
        show_json(described)
    elif settings is not None:
        meaning = described[settings]["meaning"]
        rows = [
            [name, str(value), kind, meaning[name]]
            for kind, group in described[settings]["settings"].items()
            for name, value in group.items()
        ]
        print(table(["setting", "default", "of", "what it does"], rows, left=4))
    else:
        rows = [
            [name, "yes" if about["explains"] else "no", ", ".join(about["needs"]), about["summary"]]
            for name, about in described.items()
        ]
        print(table(["model", "explains", "needs", "what it is"], rows, left=4))
        say("To see the settings of a model: carp models --settings NAME")


def _describe_model(name: str) -> dict[str, Any]:
    from dataclasses import asdict

    from carp.cli.setting_meanings import meanings_of
    from carp.explain.explainer import explains
    from carp.models import model_entry
    from carp.recommender import Recommender

    made = Recommender(name, device="cpu")
    groups = (made.config, made.training, made.text, made.fit_settings)
    return {
        "summary": model_entry(name).summary,
        "explains": explains(made.kind),
        "needs": sorted(made.kind.needs),
        "settings": {
            "model": asdict(made.config),
            "training": asdict(made.training),
            "text": asdict(made.text),
            "fitting": asdict(made.fit_settings),
        },
        "meaning": {name: words for group in groups for name, words in meanings_of(type(group)).items()},
    }


def doctor(as_json: AsJson = False) -> None:
    """Check whether carp can run on this machine, and say what to fix if not."""
    from dataclasses import asdict

    from carp.cli.doctor import examination_text, examine

    findings = examine()
    healthy = all(finding.state != "broken" for finding in findings)
    if as_json:
        show_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        print(examination_text(findings))
    if not healthy:
        raise typer.Exit(1)


def demo(
    out: Annotated[Path, typer.Option(parser=new_path, help="Folder for the reviews, the model and the page.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the shop and of training.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a tiny shop and model: done in seconds, with worse reasons.")
    ] = False,
) -> None:
    """See everything at work on a made-up shop: reviews, training, test errors, an explanation."""
    from carp.cli.demo import run_demo

    check_may_write(out)
    run_demo(out, seed=seed, quick=quick, show=print, say=say)
