"""The command line, thin: parse, call, print. Results go to standard output, everything else to standard error.

Whatever a command needs is imported inside it, so that `carp --help` waits for nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import carp
from carp.errors import CarpError, StorageError, UsageError

if TYPE_CHECKING:
    from carp.explain import Explanation
    from carp.recommender import Recommender
    from carp.reviews.corpus import Corpus
    from carp.reviews.ledger import Ledger

INTERRUPTED = 130  # what typer makes of Ctrl-C
NEWCOMER = "-"
DEVICES = ("auto", "cpu", "cuda")
MAX_SEED = 2**32 - 1
# typer brings a click of its own or uses the installed one; the class of wrong usage is found in either.
WrongUse: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="carp",
    help="Predict how a person will rate a thing from what people wrote, and say why.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong use. Start with: carp demo",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder made by carp train.")]
Out = Annotated[Path, typer.Option("--out", help="Where the result goes; it must not exist yet.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left at --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")]
Newcomer = Annotated[
    str | None,
    typer.Option("--reviews", metavar="FILE", help="What a newcomer wrote, reviews apart by blank lines; - is stdin."),
]


# ---- the way in, and every way out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and say how it went: the exit code. No exception leaves it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(None if arguments is None else list(arguments), prog_name="carp", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (SystemExit, BrokenPipeError):  # whoever was reading has gone: no words for nobody
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("CARP_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        from carp.render.text import neutral

        words, code = _last_words(error)
        if words:
            print(neutral(words), file=sys.stderr)
        return code


def _last_words(error: BaseException) -> tuple[str, int]:
    """What to tell the user of an error, and the exit code."""
    if isinstance(error, CarpError):
        return f"carp: {error}", error.exit_code
    if isinstance(error, WrongUse):
        return _wrong_use(error), UsageError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "carp: interrupted; nothing half-finished was left at --out.", 1
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        mend = "lower it with --set batch_size=... or --set max_words=..., or use a larger machine"
        return f"carp: {CarpError('the memory of this machine is not enough', mend=mend)}", 1
    if isinstance(error, OSError):
        return f"carp: {_refusal(error)}", 1
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else None
    message = (str(error).strip().splitlines() or ["no message"])[0][:300]
    bug = CarpError(
        f"this is a bug of carp ({type(error).__name__}: {message})",
        where=where,
        mend="report it with the traceback that CARP_DEBUG=1 shows",
    )
    return f"carp: {bug}", bug.exit_code


def _wrong_use(error: Any) -> str:
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "carp"
    message = error.format_message().strip()
    if not message or message.startswith("Usage:"):  # carp alone shows its help
        return str(message)
    hint = f"see {name} --help"
    if "No such option" in message:
        hint += "; an id that begins with a dash needs -- before it"
    return f"{name}: {message.rstrip('.')}. To mend it: {hint}."


def _refusal(error: OSError) -> CarpError:
    from carp.storage import disk_errors

    try:
        with disk_errors(Path(str(error.filename or "standard output"))):
            raise error
    except CarpError as refusal:
        return refusal


# ---- what several commands do


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _show_json(value: Any) -> None:
    from carp.render.tables import json_document

    print(json_document(value))


@contextlib.contextmanager
def _about(place: str | Path) -> Iterator[None]:
    """Name the place of errors that do not know theirs."""
    try:
        yield
    except CarpError as error:
        error.where = error.where or str(place)
        raise


def _load(model: Path) -> Recommender:
    from carp.recommender import load

    return load(model)


def _check_new_folder(path: Path, kind: str, overwrite: bool) -> None:
    """Refuse before the work what could only be refused after it."""
    from carp.storage import MANIFEST, disk_errors, read_json, refuse_existing

    with disk_errors(path):
        refuse_existing(path, overwrite)
        if (path / MANIFEST).is_file():
            manifest = read_json(path / MANIFEST)
            found = manifest.get("kind") if isinstance(manifest, dict) else None
            if found != kind:
                what = f"this is a {found}, which no {kind} replaces"
                raise UsageError(what, where=str(path), mend="choose another --out")
        _check_may_write(path)


def _check_new_file(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), mend="give the path of a file with --out")
    if path.exists() and not overwrite:
        raise UsageError("this already exists", where=str(path), mend="choose another --out, or add --overwrite")
    _check_may_write(path)


def _check_may_write(path: Path) -> None:
    parent = path.absolute().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise StorageError("a file stands where a folder is needed", where=str(parent), mend="choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError("writing is not allowed here", where=str(parent), mend="choose a folder you may write to")


def _settings(given: list[str] | None, option: str) -> dict[str, str]:
    """`key=value` strings as a mapping; the last of a key wins."""
    pairs = [text.partition("=") for text in given or []]
    for (key, equals, _), text in zip(pairs, given or [], strict=True):
        if not key.strip() or not equals:
            raise UsageError(f"{text!r} is not of the form key=value", where=option, mend=f"write {option} key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _newcomer_reviews(user: str, file: str | None) -> list[str] | None:
    """What a newcomer wrote; None where the user is one the model knows."""
    if file is None and user != NEWCOMER:
        return None
    if file is None or user != NEWCOMER:
        what = "the user - is a newcomer, who needs --reviews" if file is None else "--reviews is for a newcomer"
        raise UsageError(what, where="USER", mend="give - as the user together with --reviews FILE, or neither")
    from carp.render.tables import read_newcomer

    return read_newcomer(file)


@contextlib.contextmanager
def _stages() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars for work that reports (done, in all): only where a person watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def stage(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield stage


# ---- commands


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"carp {carp.__version__}")
        raise typer.Exit


@app.callback()
def _carp(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say it.")] = False,
) -> None:
    pass


@app.command()
def prepare(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with reviews, packed or not.")],
    out: Out,
    format: Annotated[str, typer.Option(help="amazon, amazon2023, yelp, beer, jsonl, csv or parquet.")] = "auto",
    min_reviews: Annotated[int, typer.Option(min=1, help="Users and items with fewer are dropped.")] = 5,
    rating_range: Annotated[
        tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="The scale of the ratings.")
    ] = None,
    clip_ratings: Annotated[bool, typer.Option("--clip-ratings", help="Move ratings outside it to its edge.")] = False,
    column: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="Which column is user, item, rating, text, time.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read reviews, clean them, and keep them as a corpus."""
    from carp.reviews.corpus import build_corpus
    from carp.reviews.formats import read_reviews

    columns = _settings(column, "--column")
    _check_new_folder(out, "corpus", overwrite)
    with _stages() as stage:
        reviews = read_reviews(
            list(files),
            format=format,
            columns=columns or None,
            rating_range=rating_range,
            clip_ratings=clip_ratings,
            progress=stage("reading"),
        )
        corpus = build_corpus(reviews, min_reviews=min_reviews, progress=stage("cutting into words"))
    with _about(", ".join(map(str, files))):
        statistics = corpus.statistics()  # before saving: a corpus without a word for the model is refused here
    corpus.save(out, overwrite=overwrite, ledger=reviews.ledger)
    _report_corpus(corpus, statistics, reviews.ledger, out, as_json)


def _report_corpus(corpus: Corpus, statistics: dict[str, float], ledger: Ledger, out: Path, as_json: bool) -> None:
    from carp.render.tables import command, corpus_text
    from carp.storage import folder_size

    size = folder_size(out)
    if as_json:
        about = {"out": str(out), "bytes": size, "fingerprint": corpus.fingerprint, "statistics": statistics}
        _show_json({**about, "reasons": ledger.counts, **corpus.facts})
    else:
        print(corpus_text(corpus.facts, statistics, ledger, out, size))
        _say(f"Next: {command('train', out, options=['--out', 'model'])}")


@app.command()
def train(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A folder made by carp prepare.")],
    out: Out,
    model: Annotated[str, typer.Option(help="One of those that carp models lists.")] = "carp",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the weights and the order of the pairs.")] = 0,
    split_seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the 80:20 split.")] = 0,
    split: Annotated[Path | None, typer.Option(metavar="FILE", help="Your own: CSV with user,item,split.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; carp models --settings NAME.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of a stopped run.")] = False,
    overwrite: Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no closing words.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a corpus, with early stop on validation."""
    settings = _training_settings(given)
    if device.partition(":")[0] not in DEVICES:
        raise UsageError(f"there is no device {device!r}", where="--device", mend=f"use {', '.join(DEVICES)}")
    _check_new_folder(out, "model", overwrite)
    from carp.recommender import Recommender

    with _about("train"):
        recommender = Recommender(model, seed=seed, split_seed=split_seed, device=device, **settings)
    records = _load_corpus(corpus)
    checkpoints = out.with_name(f"{out.name}.training")
    _check_checkpoints(checkpoints, resume, overwrite)
    if resume and not checkpoints.exists() and not quiet:
        _say(f"{checkpoints}: there is no checkpoint to go on from; training starts from the beginning.")
    _fit(recommender, records, split, checkpoints, resume=resume, bar=not quiet)
    size = recommender.save(out, overwrite=overwrite)
    _remove_checkpoints(checkpoints)
    if as_json:
        facts = recommender.facts
        kept = {key: facts[key] for key in ("best_epoch", "epochs", "valid_mse", "seed", "split_seed", "device")}
        _show_json({"out": str(out), "model": model, "bytes": size, **kept})
    elif not quiet:
        _report_training(recommender, out, size)


def _training_settings(given: list[str] | None) -> dict[str, Any]:
    settings = _settings(given, "--set")
    for key in settings:
        if key in ("model", "seed", "split_seed", "device"):
            option = f"--{key.replace('_', '-')}"
            raise UsageError(f"{key} is no setting", where="--set", mend=f"give {option} {settings[key]} instead")
        if key == "min_reviews":
            raise UsageError("min_reviews is decided when a corpus is prepared", where="--set", mend="see carp prepare")
        if key == "self":
            raise UsageError("there is no setting 'self'", where="--set", mend="see carp models --settings NAME")
    return dict(settings)


def _load_corpus(folder: Path) -> Corpus:
    from carp.reviews.corpus import Corpus

    if folder.is_file():
        mend = f"run carp prepare {folder} --out corpus, then carp train corpus"
        raise UsageError("this is a file, not a prepared corpus", where=str(folder), mend=mend)
    return Corpus.load(folder)


def _fit(
    recommender: Recommender, corpus: Corpus, split: Path | None, folder: Path, *, resume: bool, bar: bool
) -> None:
    from carp.render.progress import Bar
    from carp.train import CHECKPOINT, Silent, Stopped

    watcher = Bar(recommender.training.epochs) if bar else Silent()
    try:
        recommender.fit(corpus, split=split, checkpoints=folder, resume=resume, progress=False, watcher=watcher)
    except KeyboardInterrupt:
        if not (folder / CHECKPOINT).exists():
            raise
        mend = "run the same command with --resume to go on"
        raise Stopped("training was interrupted; a checkpoint is kept", where=str(folder), mend=mend) from None
    finally:
        if isinstance(watcher, Bar):
            watcher.progress.stop()  # a bar that is left running hides the cursor of the terminal


def _check_checkpoints(folder: Path, resume: bool, overwrite: bool) -> None:
    if not folder.exists() or resume:
        return
    if not overwrite:
        raise UsageError(
            "an earlier training stopped here",
            where=str(folder),
            mend="add --resume to go on with it, or --overwrite (or remove the folder) to start anew",
        )
    _remove_checkpoints(folder)


def _remove_checkpoints(folder: Path) -> None:
    """Remove the folder if training made everything in it."""
    from carp.storage import disk_errors
    from carp.train import CHECKPOINT, LOG

    made = [*folder.glob("epoch-*.safetensors"), *folder.glob(".*.partial"), folder / CHECKPOINT, folder / LOG]
    strange = set(folder.glob("*")) - set(made)
    if strange:
        what = f"{min(strange).name} was not made by training"
        raise UsageError(what, where=str(folder), mend="move it elsewhere and remove the folder")
    with disk_errors(folder):
        for file in made:
            file.unlink(missing_ok=True)
        if folder.exists():
            folder.rmdir()


def _report_training(recommender: Recommender, out: Path, size: int) -> None:
    from carp.models.carp import Carp
    from carp.render.tables import command, facts_table
    from carp.storage import readable_size

    facts, archive = recommender.facts, recommender.archive
    lines = [("model", f"{recommender.name}, in {out}, {readable_size(size)}"), ("split", str(archive.facts["split"]))]
    if facts["valid_mse"] is not None:
        best = f"{facts['valid_mse']:.4f} in epoch {facts['best_epoch']} of {facts['epochs']}"
        lines.append(("validation MSE", best))
    print(facts_table(lines))
    test = archive.test_pairs()
    user, item = archive.users[int(test.users[0])], archive.items[int(test.items[0])]
    _say(f"Next: {command('evaluate', out)}")
    if isinstance(recommender.model, Carp):
        _say(f"      {command('explain', out, user, item)}")
    _say(f"      {command('recommend', out, user)}")


@app.command()
def evaluate(model: Model, as_json: AsJson = False) -> None:
    """Test errors beside those of the mean and of the tuned biases on the same pairs."""
    from carp.render.tables import evaluation_text

    with _about(model):
        found = _load(model).evaluate()
    if as_json:
        _show_json(found)
    else:
        print(evaluation_text(found))


@app.command()
def predict(
    model: Model,
    pairs: Annotated[Path | None, typer.Argument(metavar="PAIRS.CSV", help="CSV with the columns user,item.")] = None,
    out: Annotated[Path | None, typer.Option(help="A CSV file; standard output if left out.")] = None,
    user: Annotated[str | None, typer.Option(help="One user instead of a file.")] = None,
    item: Annotated[str | None, typer.Option(help="One item instead of a file.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Ratings of pairs; other columns are kept, and unknown users and items noted."""
    from carp.render.tables import PairFile, predictions_csv, read_pairs
    from carp.storage import write_bytes

    if (pairs is None) == (user is None and item is None) or (user is None) != (item is None):
        mend = "give a file of pairs, or both --user and --item"
        raise UsageError("it is not clear which pairs to predict", where="carp predict", mend=mend)
    if out is not None:
        if pairs is not None and out.exists() and out.samefile(pairs):
            raise UsageError("the output is the file of pairs itself", where=str(out), mend="choose another --out")
        _check_new_file(out, overwrite)
    asked = PairFile([(str(user), str(item))], [], [[]]) if pairs is None else read_pairs(pairs)
    found = _load(model).predict(asked.pairs)
    if out is not None:
        write_bytes(out, predictions_csv(asked, list(found), found.notes).encode("utf-8", "replace"))
    noted = sum(note is not None for note in found.notes)
    if as_json:
        rows = zip(asked.pairs, found, found.notes, strict=True)
        listed = [{"user": u, "item": i, "rating": rating, "note": note} for (u, i), rating, note in rows]
        _show_json({"out": None if out is None else str(out), "noted": noted, "predictions": listed})
    elif out is None:
        print(predictions_csv(asked, list(found), found.notes), end="")
    else:
        remark = f"; {noted:,} have an unknown user or item, see the column note" if noted else ""
        print(f"{len(found):,} predictions are in {out}{remark}.")


@app.command()
def explain(
    model: Model,
    user: Annotated[str, typer.Argument(metavar="USER", help="A user of the corpus; - for a newcomer.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An item of the corpus.")],
    format: Annotated[
        Literal["text", "html", "json"] | None, typer.Option(help="text unless --out ends in .html or .json.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file; standard output if left out.")] = None,
    units: Annotated[int, typer.Option(min=0, help="Reasons of the prevailing sentiment.")] = 2,
    other_units: Annotated[int, typer.Option(min=0, help="Reasons of the other sentiment.")] = 1,
    phrases: Annotated[int, typer.Option(min=1, help="Phrases looked at for each viewpoint and aspect.")] = 30,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences shown for each viewpoint and aspect.")] = 2,
    reviews: Newcomer = None,
    overwrite: Overwrite = False,
) -> None:
    """Why this person would rate this thing so."""
    texts = _newcomer_reviews(user, reviews)
    if out is not None:
        _check_new_file(out, overwrite)
    recommender = _load(model)
    detail = {"prevailing_units": units, "other_units": other_units, "top_phrases": phrases, "sentences": sentences}
    with _about(model):
        if texts is None:
            found = recommender.explain(user, item, **detail)
        else:
            found = recommender.explain_for(texts, item, **detail)
    suffix = {".html": "html", ".htm": "html", ".json": "json"}
    _deliver_explanation(found, format or suffix.get(out.suffix.lower() if out else "", "text"), out)


def _deliver_explanation(explanation: Explanation, format: str, out: Path | None) -> None:
    from carp.storage import write_bytes

    if format == "html":
        from carp.render.page import explanation_page

        written = explanation_page(explanation)
    elif format == "json":
        from carp.render.json import explanation_json

        written = explanation_json(explanation)
    else:
        from carp.render.text import explanation_text

        colour = out is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        written = explanation_text(explanation, colour=colour)
    if out is not None:
        write_bytes(out, f"{written.rstrip()}\n".encode("utf-8", "replace"))
        _say(f"The explanation is in {out}.")
    elif format == "text":
        print(written)
    else:  # pages and JSON are UTF-8 whatever the terminal speaks
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{written.rstrip()}\n".encode("utf-8", "replace"))


@app.command()
def recommend(
    model: Model,
    user: Annotated[str, typer.Argument(metavar="USER", help="A user of the corpus; - for a newcomer.")],
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many.")] = 10,
    reviews: Newcomer = None,
    as_json: AsJson = False,
) -> None:
    """The things this person would rate highest, without those already rated."""
    from dataclasses import asdict

    from carp.render.tables import table

    texts = _newcomer_reviews(user, reviews)
    recommender = _load(model)
    with _about(model):
        found = recommender.recommend(user, number) if texts is None else recommender.recommend_for(texts, number)
    if as_json:
        _show_json({"user": user if texts is None else None, "recommendations": [asdict(one) for one in found]})
    elif not found:
        print(f"{user} has rated everything the model knows.")
    else:
        means = ["unknown" if one.item_mean is None else f"{one.item_mean:.2f}" for one in found]
        rows = [[one.item, f"{one.rating:.2f}", mean] for one, mean in zip(found, means, strict=True)]
        print(table(["item", "predicted", "average"], rows))


@app.command()
def models(
    settings: Annotated[str | None, typer.Option(metavar="NAME", help="List the settings of one model.")] = None,
    as_json: AsJson = False,
) -> None:
    """The models there are, what they need, and their settings."""
    from carp.models import REGISTRY, model_entry
    from carp.render.tables import table

    if settings is not None:
        with _about("models"):
            model_entry(settings)
    described = {name: _describe_model(name) for name in REGISTRY if settings in (None, name)}
    if as_json:
        _show_json(described)
    elif settings is not None:
        rows = [
            [name, str(value), kind]
            for kind, group in described[settings]["settings"].items()
            for name, value in group.items()
        ]
        print(table(["setting", "default", "of"], rows, left=3))
    else:
        rows = [
            [name, "yes" if about["explains"] else "no", ", ".join(about["needs"]), about["summary"]]
            for name, about in described.items()
        ]
        print(table(["model", "explains", "needs", "what it is"], rows, left=4))
        _say("Settings of a model and their defaults: carp models --settings NAME")


def _describe_model(name: str) -> dict[str, Any]:
    from dataclasses import asdict

    from carp.models import model_entry
    from carp.models.carp import Carp
    from carp.recommender import Recommender

    made = Recommender(name, device="cpu")
    return {
        "summary": model_entry(name).summary,
        "explains": issubclass(made.kind, Carp),
        "needs": sorted(made.kind.needs),
        "settings": {
            "model": asdict(made.config),
            "training": asdict(made.training),
            "text": asdict(made.text),
            "fitting": asdict(made.fit_settings),
        },
    }


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Whether carp can work here, and what to mend if not."""
    from dataclasses import asdict

    from carp.doctor import examination_text, examine

    findings = examine()
    healthy = all(finding.state != "broken" for finding in findings)
    if as_json:
        _show_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        print(examination_text(findings))
    if not healthy:
        raise typer.Exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where reviews, model and page go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the shop and of training.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny shop and model: seconds, but worse reasons.")] = False,
) -> None:
    """The whole way on a made-up shop: reviews, training, errors, an explanation."""
    from carp.demo import run_demo

    _check_may_write(out)
    run_demo(out, seed=seed, quick=quick, show=print, say=_say)
