"""The command that lists things for one person, or for everybody."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import carp
from carp.cli.messages import naming, say, show_json
from carp.cli.options import (
    AsJson,
    Engine,
    Model,
    Newcomer,
    Overwrite,
    RayAddress,
    Titles,
    check_engine,
    newcomer_reviews,
    read_ids,
)
from carp.cli.output_files import check_new_file
from carp.cli.places import any_place, new_place
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.answers import Recommendation, Recommendations
    from carp.recommender import Recommender


def recommend(
    model: Model,
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="A user of the model, or - for a newcomer.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Recommend to every user, as CSV.")] = False,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many things to recommend.")] = 10,
    by: Annotated[
        Literal["taste", "rating"],
        typer.Option(help="Order by what suits the person, or by the predicted rating alone."),
    ] = "taste",
    diversity: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The higher, the fewer things that many people have. Default: 0.3."),
    ] = None,
    among: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=any_place, help="Choose from these things alone: a file with one item a line."
        ),
    ] = None,
    min_reviews: Annotated[int, typer.Option(min=0, help="Leave out things with fewer training reviews.")] = 0,
    category: Annotated[str | None, typer.Option(help="Choose from the things of this category alone.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", parser=new_place, help="With --all: file to write. Default: standard output."),
    ] = None,
    titles: Titles = False,
    why: Annotated[bool, typer.Option("--why", help="Say beside each thing why it suits the person.")] = False,
    reviews: Newcomer = None,
    engine: Engine = "here",
    ray_address: RayAddress = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """List things that suit a person, without those already rated.

    With --all, a file whose name ends in .parquet gets a row for each recommendation, any other file CSV.
    """
    check_engine(engine, ray_address)
    if (user is None) != everybody:
        what = "no user was given" if user is None else "both --all and a user were given"
        raise UsageError(what, where="carp recommend", fix="give either a user or --all")
    wish: dict[str, Any] = {"by": by, "diversity": diversity, "min_reviews": min_reviews, "category": category}
    if user is None:
        _refuse_for_everybody(reviews, why)
        if out is not None:
            check_new_file(out, overwrite)
        with _everybody(model, number, {**wish, "among": _ids(among)}, engine, ray_address) as people:
            _write_all(people, out, as_json, titles)
    else:
        _refuse_for_one(engine, {"--out": out is not None, "--overwrite": overwrite, "--titles": titles})
        texts = newcomer_reviews(user, reviews)
        _recommend_one(model, user, number, {**wish, "among": _ids(among)}, texts, as_json, why=why)


def _refuse_for_everybody(reviews: str | None, why: bool) -> None:
    if reviews is not None:
        raise UsageError("--reviews is for a newcomer", where="carp recommend", fix="leave out --all or --reviews")
    if why:
        raise UsageError("--why is for one person", where="carp recommend", fix="leave out --all or --why")


def _refuse_for_one(engine: str, given: dict[str, bool]) -> None:
    """Options that only make sense with --all, where they are given."""
    if engine != "here":
        raise UsageError("one person needs no cluster", where="--engine", fix="give --all, or leave --engine out")
    option = next((name for name, is_given in given.items() if is_given), None)
    if option is not None:
        raise UsageError(f"{option} only works with --all", where="carp recommend", fix=f"leave out {option}")


def _ids(file: Path | None) -> list[str] | None:
    return None if file is None else read_ids(file)


def _recommend_one(
    model: Path, user: str, number: int, wish: dict[str, Any], texts: list[str] | None, as_json: bool, *, why: bool
) -> None:
    recommender = carp.load(model)
    chosen = {name: wish[name] for name in ("among", "min_reviews", "category")}
    with naming(model):
        found = (
            recommender.recommend(user, number, **wish)
            if texts is None
            else recommender.recommend_for(texts, number, **wish)
        )
        reasons = _reasons(recommender, user, texts, found) if why else None
    if as_json:
        told = {} if found.note is None else {"note": found.note}
        beside: list[dict[str, str]] = (
            [{"reason": one} for one in reasons] if reasons is not None else [{}] * len(found)
        )
        rows = [{**asdict(one), **reason} for one, reason in zip(found, beside, strict=True)]
        show_json({"user": user if texts is None else None, "recommendations": rows, **told})
    else:
        _show_recommendations(user, found, filtered=any(chosen.values()))
        _show_reasons(found, reasons or [])


def _reasons(recommender: Recommender, user: str, texts: list[str] | None, found: Recommendations) -> list[str]:
    """Why each of the things suits the person; of somebody nobody knows there is nothing to say but that."""
    from carp.render.summed_telling import reason_line

    if texts is None and found.note is not None:
        return [found.note] * len(found)
    explained = (
        recommender.explain(user, one.item) if texts is None else recommender.explain_for(texts, one.item)
        for one in found
    )
    return [reason_line(one) for one in explained]


def _show_reasons(found: Recommendations, reasons: list[str]) -> None:
    from carp.render.wording import thing_name

    for one, reason in zip(found, reasons, strict=False):
        print(f"\n{thing_name(one.item, one.title)}\n{reason}")


def _show_recommendations(user: str, found: Recommendations, *, filtered: bool) -> None:
    from carp.render.console_tables import table
    from carp.render.wording import thing_name

    if found.note is not None:
        say(f"{found.note[0].upper()}{found.note[1:]}.")
    if not found and filtered:
        print(f"Nothing is left to recommend to {user}: too few things pass the filters.")
    elif not found:
        print(f"{user} has already rated everything the model knows.")
    else:
        means = ["unknown" if one.item_mean is None else f"{one.item_mean:.2f}" for one in found]
        rows = [
            [thing_name(one.item, one.title), f"{one.rating:.2f}", mean] for one, mean in zip(found, means, strict=True)
        ]
        print(table(["item", "predicted", "average"], rows))


@contextlib.contextmanager
def _everybody(
    model: Path, number: int, wish: dict[str, Any], engine: str, address: str | None
) -> Iterator[Iterator[tuple[str, list[Recommendation]]]]:
    """Each person's recommendations as soon as they are found, here or on a cluster."""
    if engine == "here":
        recommender = carp.load(model)
        with naming(model):
            yield recommender.recommend_all(number, **wish)
        return
    from carp.scale.ray_cluster import connected
    from carp.scale.ray_jobs import recommend_on

    recommender = carp.load(model)
    people = list(recommender.fitted_corpus.users)
    with connected(address) as cluster, naming(model):
        yield recommend_on(cluster, model, people, number, wish, recommender.bundle_sum)


def _write_all(
    people: Iterator[tuple[str, list[Recommendation]]], out: Path | None, as_json: bool, titles: bool
) -> None:
    from carp.render.console_tables import recommendations_csv
    from carp.render.recommendation_files import recommendations_parquet
    from carp.storage import new_file

    count = 0

    def counted() -> Iterator[tuple[str, list[Recommendation]]]:
        nonlocal count
        for one in people:
            count += 1
            yield one

    listed = list(people) if as_json else []
    people = iter(listed) if as_json else people
    if out is not None:
        with new_file(out) as file:
            if out.suffix == ".parquet":
                recommendations_parquet(counted(), file)
            else:
                pieces = recommendations_csv(counted(), titles=titles)
                file.writelines(piece.encode("utf-8", "replace") for piece in pieces)
    if as_json:
        rows = [{"user": user, "recommendations": [asdict(one) for one in found]} for user, found in listed]
        show_json({"out": None if out is None else str(out), "users": rows})
    elif out is None:
        sys.stdout.writelines(recommendations_csv(people, titles=titles))
    else:
        print(f"Recommendations for {count:,} users are in {out}.")
