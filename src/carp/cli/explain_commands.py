"""Commands that say why: reasons of a rating, profiles, what matters to a person, and what people write about."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import carp
from carp.cli.messages import coloured, naming, say, show_json
from carp.cli.options import AsJson, ChangedModel, Model, Newcomer, OutFile, Overwrite, newcomer_reviews
from carp.cli.output_files import PAGES, check_new_file, format_of
from carp.cli.places import any_place
from carp.errors import InputError, UsageError

if TYPE_CHECKING:
    from carp.explain.explanation import Explanation
    from carp.explain.profiles import PersonProfile, ThingProfile
    from carp.explain.reading_guide import Seeds
    from carp.recommender import Recommender


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
    _deliver(_explanation_as(found, shape, out), shape, out, "explanation")


def _explanation_as(found: Explanation, shape: str, out: Path | None) -> str:
    if shape == "html":
        from carp.render.html_page import explanation_page

        return explanation_page(found)
    if shape == "json":
        from carp.render.explanation_json import explanation_json

        return explanation_json(found)
    from carp.render.terminal import explanation_text

    return explanation_text(found, colour=out is None and coloured())


def _deliver(written: str, shape: str, out: Path | None, what: str) -> None:
    """Write it to the file that was asked for, or print it."""
    from carp.storage import write_bytes

    content = f"{written.rstrip()}\n".encode("utf-8", "replace")
    if out is not None:
        write_bytes(out, content)
        say(f"The {what} is in {out}.")
    elif shape == "text":
        print(written)
    else:  # pages and JSON are always UTF-8, also where the terminal is not
        sys.stdout.flush()
        sys.stdout.buffer.write(content)


def profile(
    model: Model,
    user: Annotated[str | None, typer.Option(help="Show what this person cares about.")] = None,
    item: Annotated[str | None, typer.Option(help="Show what people like and dislike about this thing.")] = None,
    format: Annotated[
        Literal["text", "html", "json"] | None, typer.Option(help="Default: by the ending of --out, else text.")
    ] = None,
    out: OutFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Show what a person cares about, or what people like and dislike about a thing."""
    if (user is None) == (item is None):
        fix = "give either --user or --item"
        raise UsageError("it is not clear whose profile to show", where="carp profile", fix=fix)
    shape = format_of(out, "json" if as_json else format, PAGES)
    if out is not None:
        check_new_file(out, overwrite)
    recommender = carp.load(model)
    with naming(model):
        found = recommender.profile(user=user, item=item)
    _deliver(_profile_as(found, shape, out), shape, out, "profile")


def _profile_as(found: PersonProfile | ThingProfile, shape: str, out: Path | None) -> str:
    from carp.render.profile_views import profile_json, profile_page, profile_text

    if shape == "html":
        return profile_page(found)
    return profile_json(found) if shape == "json" else profile_text(found, colour=out is None and coloured())


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
