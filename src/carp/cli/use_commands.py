"""Commands that use a trained model: ratings, reasons, recommendations, and how good they are."""

from __future__ import annotations

import contextlib
import os
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
    ChangedModel,
    Engine,
    Model,
    Newcomer,
    OutFile,
    Overwrite,
    RayAddress,
    Titles,
    check_engine,
    key_values,
    newcomer_reviews,
    read_ids,
)
from carp.cli.output_files import PAGES, check_new_file, format_of
from carp.cli.places import any_place, new_place, sealed_folder
from carp.cli.train_command import seen_before
from carp.errors import InputError, UsageError

if TYPE_CHECKING:
    from carp.answers import Recommendation, Recommendations
    from carp.explain.explanation import Explanation
    from carp.explain.faithfulness.measures import Faithfulness
    from carp.explain.reading_guide import Seeds
    from carp.recommender import Recommender
    from carp.reviews.shop.made_up_shop import Shop


def predict(
    model: Model,
    pairs: Annotated[
        str | None,
        typer.Argument(
            metavar="PAIRS", help="A file with the columns user and item, or anything else that carp prepare reads."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", parser=new_place, help="CSV file to write. Default: standard output."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="One user, instead of a file.")] = None,
    item: Annotated[str | None, typer.Option(help="One item, instead of a file.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="Name the column for user or item.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoding of the file, such as cp1252. Default: look at it.")
    ] = None,
    titles: Titles = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Predict ratings for pairs of a user and an item, and where nine ratings of ten lie (low to high).

    Unknown users and items get an answer and a note.
    """
    from carp.render.console_tables import predictions_csv
    from carp.reviews.sources.pair_files import PairFile, read_pairs
    from carp.storage import write_bytes

    if (pairs is None) == (user is None and item is None) or (user is None) != (item is None):
        fix = "give a file of pairs, or both --user and --item"
        raise UsageError("it is not clear which pairs to predict", where="carp predict", fix=fix)
    if out is not None:
        if pairs is not None and out.exists() and Path(pairs).exists() and out.samefile(pairs):
            raise UsageError("--out is the file of pairs itself", where=str(out), fix="choose another --out")
        check_new_file(out, overwrite)
    columns = key_values(column, "--column")
    asked = PairFile([(str(user), str(item))], [], [[]])
    if pairs is not None:
        asked = read_pairs(pairs, columns=columns or None, encoding=encoding)
    recommender = carp.load(model)
    found = recommender.predict(asked.pairs)
    names = [recommender.title(item) for _, item in asked.pairs]
    written = predictions_csv(asked, found, names if titles else None)
    if out is not None:
        write_bytes(out, written.encode("utf-8", "replace"))
    noted = sum(note is not None for note in found.notes)
    if as_json:
        rows = zip(asked.pairs, names, found, *found.intervals(), found.notes, strict=True)
        listed = [
            {"user": u, "item": i, "title": title, "rating": rating, "low": low, "high": high, "note": note}
            for (u, i), title, rating, low, high, note in rows
        ]
        show_json({"out": None if out is None else str(out), "noted": noted, "predictions": listed})
    elif out is None:
        print(written, end="")
    else:
        remark = f" {noted:,} have an unknown user or item; see the column note." if noted else ""
        print(f"{len(found):,} predictions are in {out}.{remark}")


def explain(
    model: Model,
    user: Annotated[str, typer.Argument(metavar="USER", help="A user of the model, or - for a newcomer.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An item of the model.")],
    format: Annotated[
        Literal["text", "html", "json"] | None, typer.Option(help="Default: by the ending of --out, else text.")
    ] = None,
    out: OutFile = None,
    units: Annotated[int, typer.Option(min=0, help="Number of reasons for the stronger sentiment.")] = 2,
    other_units: Annotated[int, typer.Option(min=0, help="Number of reasons for the other sentiment.")] = 1,
    phrases: Annotated[int, typer.Option(min=1, help="Phrases considered for each viewpoint and aspect.")] = 30,
    sentences: Annotated[int, typer.Option(min=1, help="Most sentences to show for each viewpoint and aspect.")] = 2,
    reviews: Newcomer = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Explain why a person would rate a thing this way."""
    texts = newcomer_reviews(user, reviews)
    shape = format_of(out, "json" if as_json else format, PAGES)
    if out is not None:
        check_new_file(out, overwrite)
    recommender = carp.load(model)
    detail = {"prevailing_units": units, "other_units": other_units, "top_phrases": phrases, "sentences": sentences}
    with naming(model):
        if texts is None:
            found = recommender.explain(user, item, **detail)
        else:
            found = recommender.explain_for(texts, item, **detail)
    _deliver_explanation(found, shape, out)


def summary(
    model: Model,
    user: Annotated[str, typer.Argument(metavar="USER", help="A user of the model.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An item of the model.")],
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many sentences at most.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Sum up the reviews of a thing for one person: the sentences that matter to them, weightiest first."""
    recommender = carp.load(model)
    with naming(model):
        found = recommender.summary(user, item, number)
    if as_json:
        show_json(found.as_dict())
    else:
        print(found)


def aspects(
    model: ChangedModel,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="'OLD=NEW'", help="Give an aspect a name of your own; may be repeated.")
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=any_place, help="Your own aspects, one a line: 'Battery: battery, charge, hours'."
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Held-out pairs that tell how often each aspect decides.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List what people write about, under the names by which ratings are explained.

    With --rename or --words, the names are changed and kept in the model.
    """
    if words is None and not rename:
        recommender = carp.load(model)
    else:
        recommender = _with_own_aspects(model, words, rename or [])
        say(f"The aspects of {model} are kept under these names.")
    found = recommender.aspects(pairs)
    if as_json:
        show_json(found.as_dict())
    else:
        say(str(found).rstrip())


def _with_own_aspects(model: Path, words: Path | None, rename: list[str]) -> Recommender:
    """The model with aspects that somebody named, saved where it was."""
    from carp.storage import sole_writer

    with sole_writer(model) as place:  # from reading to writing, so that no other change of the model is lost
        recommender = carp.load(place)
        if words is not None:
            recommender.seed_aspects(_read_seeds(words))
        if rename:
            recommender.rename_aspects(_renamings(rename))
        recommender.save(place, overwrite=True)
    return recommender


def _read_seeds(file: Path) -> Seeds:
    from carp.explain.reading_guide import read_seeds

    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the words cannot be read ({error})", where=str(file), fix="give a UTF-8 text file") from None
    return read_seeds(text.splitlines(), str(file))


def _renamings(given: list[str]) -> dict[str, str]:
    names = {}
    for one in given:
        old, equals, new = (part.strip() for part in one.partition("="))
        if not equals or not old or not new:
            fix = "write the name it has, an equals sign, and the new name: --rename 'strap, locks=Straps'"
            raise UsageError(f"{one!r} renames nothing", where="--rename", fix=fix)
        names[old] = new
    return names


def _deliver_explanation(explanation: Explanation, format: str, out: Path | None) -> None:
    from carp.storage import write_bytes

    if format == "html":
        from carp.render.html_page import explanation_page

        written = explanation_page(explanation)
    elif format == "json":
        from carp.render.explanation_json import explanation_json

        written = explanation_json(explanation)
    else:
        from carp.render.terminal import explanation_text

        colour = out is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        written = explanation_text(explanation, colour=colour)
    if out is not None:
        write_bytes(out, f"{written.rstrip()}\n".encode("utf-8", "replace"))
        say(f"The explanation is in {out}.")
    elif format == "text":
        print(written)
    else:  # pages and JSON are always UTF-8, also where the terminal is not
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{written.rstrip()}\n".encode("utf-8", "replace"))


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
        if reviews is not None:
            raise UsageError("--reviews is for a newcomer", where="carp recommend", fix="leave out --all or --reviews")
        if why:
            raise UsageError("--why is for one person", where="carp recommend", fix="leave out --all or --why")
        if out is not None:
            check_new_file(out, overwrite)
        with _everybody(model, number, {**wish, "among": _ids(among)}, engine, ray_address) as people:
            _write_all(people, out, as_json, titles)
        return
    if engine != "here":
        raise UsageError("one person needs no cluster", where="--engine", fix="give --all, or leave --engine out")
    if out is not None or overwrite or titles:
        option = "--out" if out is not None else "--overwrite" if overwrite else "--titles"
        raise UsageError(f"{option} only works with --all", where="carp recommend", fix=f"leave out {option}")
    texts = newcomer_reviews(user, reviews)
    _recommend_one(model, user, number, {**wish, "among": _ids(among)}, texts, as_json, why=why)


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
    from carp.explain.faithfulness.measures import PAIRS, measure_explanations

    others = []
    for folder in against:
        with naming(folder):
            others.append(carp.load(folder).explainer)
    options: dict[str, Any] = {"against": others, "aspects": aspects, "shop": made_up_shop(recommender)}
    return measure_explanations(
        recommender.explainer, pairs=pairs or PAIRS, tell=lambda what: say(f"{what}."), **options
    )


def made_up_shop(recommender: Recommender) -> Shop | None:
    """The demo's shop if the model was trained on it, else None. In the shop every rating has a known cause."""
    from carp.cli.demo import QUICK_SHOP_SIZE, SHOP_SIZE
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
