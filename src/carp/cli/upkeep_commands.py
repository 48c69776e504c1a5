"""Commands for the life of a model after training: new reviews come in, and people are forgotten."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carp.cli.messages import naming, say, show_json
from carp.cli.options import AsJson, ChangedModel, key_values
from carp.cli.output_files import check_may_write
from carp.cli.places import new_path
from carp.cli.reading_options import (
    Columns,
    Database,
    Encoding,
    Files,
    Format,
    NoTitles,
    Since,
    Sql,
    Until,
    days_kept,
    source_of,
)
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.upkeep.answer_moves import AnswerMoves, Moved
    from carp.upkeep.forgetting import ForgetReport
    from carp.upkeep.updating import UpdateReport

DROPPED = {
    "wordless": "without a word",
    "duplicates": "repeated",
    "copies": "copied by one person",
    "days": "of other days or without a date",
}
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:N.")]


def update(
    model: ChangedModel,
    files: Files = None,
    format: Format = "auto",
    column: Columns = None,
    encoding: Encoding = None,
    sql: Sql = None,
    database: Database = None,
    since: Since = None,
    until: Until = None,
    no_titles: NoTitles = False,
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=new_path, help="File to write: every record that could not be used."),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit again on all reviews. Only models that are solved for in closed form.")
    ] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Put new reviews into a model without training it again.

    Known people and things are read anew, new ones are taken in. If this is stopped midway, the model stays as it was.
    """
    from carp.upkeep.updating import update_model

    columns = key_values(column, "--column") or None
    source, days = source_of(files, sql, database, "carp update"), days_kept(since, until)
    if rejects is not None and rejects.exists():
        raise UsageError("this already exists", where=str(rejects), fix="choose another --rejects")
    if rejects is not None:
        check_may_write(rejects, "--rejects")
    reading: dict[str, Any] = {"format": format, "columns": columns, "encoding": encoding, "titles": not no_titles}
    with naming(model):
        report = update_model(model, source, device=device, refit=refit, days=days, rejects=rejects, **reading)
    if as_json:
        show_json({"model": str(model), **asdict(report)})
    else:
        _report_update(model, report)
        _tell_rejected(report, rejects)


def _report_update(model: Path, report: UpdateReport) -> None:
    from carp.render.console_tables import facts_table

    came = [_counted(report.reviews, "review", "reviews")]
    came += [f"{report.replaced:,} in the place of earlier ones"] if report.replaced else []
    came += [f"{report.known_already:,} more were known already"] if report.known_already else []
    people = f"{_counted(report.touched_users, 'person', 'people')} ({report.new_users:,} new)"
    things = f"{_counted(report.touched_items, 'thing', 'things')} ({report.new_items:,} new)"
    lines = [("came in", ", ".join(came))]
    lines += [("dropped", dropped)] if (dropped := _dropped(report)) else []
    lines.append(("read anew", f"{people}, {things}"))
    if report.moved is not None:
        lines += _moves(report.moved)
    print(facts_table(lines))
    if report.doubt is not None:
        say(f"Look at the ratings: {report.doubt}")
    if report.fitted_again:
        say("This model is solved for in closed form: it was fitted again on all reviews.")
    if report.moved is not None and not report.moved.touched.largest and report.touched_users > report.new_users:
        say("Known people and things are answered as before: this model learns them by training alone.")
    say(f"{model}: {'updated' if report.reviews else 'nothing to do'}. A running service takes it on SIGHUP.")


def _dropped(report: UpdateReport) -> str:
    """What was left out, by reason, in the words of carp prepare; empty where nothing was."""
    told = [f"{_counted(report.rejected, 'record', 'records')} that cannot be used"] if report.rejected else []
    return ", ".join(told + [f"{count:,} {DROPPED[reason]}" for reason, count in report.dropped.items() if count])


def _tell_rejected(report: UpdateReport, rejects: Path | None) -> None:
    for one in report.first_rejected:
        value = "" if one["value"] is None else f", {one['value']}"
        say(f"{one['file']} line {one['line']:,}: {one['reason']}{value}")
    more = report.rejected - len(report.first_rejected)
    if rejects is not None:
        say(f"All records that cannot be used are listed in {rejects}.")
    elif more:
        say(f"… and {more:,} more; --rejects FILE lists all of them.")


def _counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _moves(moves: AnswerMoves) -> list[tuple[str, str]]:
    return [("their ratings", _moved(moves.touched)), ("other ratings", _moved(moves.others))]


def _moved(moved: Moved) -> str:
    if not moved.pairs:
        return "no pairs to compare"
    if not moved.largest:
        return f"unchanged to the bit ({moved.pairs:,} pairs)"
    return f"moved by {moved.mean:.4f} on average, {moved.largest:.4f} at most ({moved.pairs:,} pairs)"


def forget(
    model: ChangedModel,
    user: Annotated[str, typer.Option(help="The person's id.")],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Take a person out of a model: their id, their reviews, and whatever was made of them.

    All files are searched for their id and texts before they replace the old ones.
    """
    from carp.upkeep.forgetting import forget_person

    with naming(model):
        report = forget_person(model, user, device=device)
    if as_json:
        show_json({"model": str(model), **asdict(report)})
    else:
        _report_forgetting(report)


def _report_forgetting(report: ForgetReport) -> None:
    from carp.render.console_tables import facts_table
    from carp.storage import readable_size

    search = report.search
    seen = f"{search.sequences:,} texts and ids in {search.files} files, {readable_size(search.bytes)}: "
    same = f"; others have written the same {search.by_others:,} times" if search.by_others else ""
    same += f"; {search.by_chance:,} matches are names of settings, or short and in numbers" if search.by_chance else ""
    theirs = f"{_counted(report.reviews, 'review', 'reviews')} of {_counted(report.things, 'thing', 'things')}"
    lines = [
        ("taken out", f"{theirs}, {_counted(report.words, 'word', 'words')} nobody else wrote"),
        ("searched for", f"{seen}nothing of theirs is left{same}"),
        *_moves(report.moved),
    ]
    print(facts_table(lines))
    learned = report.trained + report.perhaps_trained
    if report.in_weights and not learned:
        say("The weights were not learned with any of their reviews, so nothing of theirs is left there.")
    elif report.in_weights:
        share = 100 * learned / max(report.all_trained, 1)
        most = "at most " if report.perhaps_trained else ""
        say(
            f"The weights were learned with {most}{learned:,} of their reviews among {report.all_trained:,} "
            f"({share:.2g} %). Training again without them removes that too: take them out of the data, "
            "then carp prepare and carp train."
        )
    else:
        say("This model is solved for in closed form: it was fitted again, and nothing of theirs is in its weights.")
    say("Copies, corpora, checkpoints and logs outside this folder are not touched.")
