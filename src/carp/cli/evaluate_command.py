"""The command that tells how good a model is, and whether its explanations are true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import carp
from carp.cli.messages import naming, say, show_json
from carp.cli.options import AsJson, Model
from carp.cli.places import any_place, sealed_folder
from carp.cli.train_command import seen_before
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.explain.faithfulness.measures import Faithfulness
    from carp.recommender import Recommender


def evaluate(
    model: Model,
    explanations: Annotated[
        bool, typer.Option("--explanations", help="Also measure whether the explanations are true.")
    ] = False,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="With --explanations: number of held-out pairs. Default: 1000.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MODEL",
            parser=sealed_folder,
            help="With --explanations: the same model with another seed. May be repeated.",
        ),
    ] = None,
    aspects: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=any_place,
            help="With --explanations: aspect scores, as JSON lines with user, item, aspects.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show test errors next to those of the mean and the tuned biases."""
    from carp.render.console_tables import evaluation_text

    alone = next(
        (n for n, given in (("--pairs", pairs), ("--against", against), ("--aspects", aspects)) if given), None
    )
    if alone and not explanations:
        raise UsageError(f"{alone} only works with --explanations", where="carp evaluate", fix="add --explanations")
    with naming(model):
        recommender = carp.load(model)
        judged = _judge_explanations(recommender, pairs, against or [], aspects) if explanations else None
        found = recommender.evaluate()
    if as_json:
        show_json(found if judged is None else {**found, "explanations": judged.as_dict()})
        return
    print(evaluation_text(found))
    if seen := recommender.facts.get("seen_before"):
        say(seen_before(seen))
    if judged is not None:
        from carp.render.faithfulness_text import faithfulness_text

        print(f"\n{faithfulness_text(judged)}")


def _judge_explanations(
    recommender: Recommender, pairs: int | None, against: list[Path], aspects: Path | None
) -> Faithfulness:
    from carp.cli.demo import made_up_shop
    from carp.explain.faithfulness.measures import PAIRS, measure_explanations

    others = []
    for folder in against:
        with naming(folder):
            others.append(carp.load(folder).explainer)
    options: dict[str, Any] = {"against": others, "aspects": aspects, "shop": made_up_shop(recommender)}
    return measure_explanations(
        recommender.explainer, pairs=pairs or PAIRS, tell=lambda what: say(f"{what}."), **options
    )
