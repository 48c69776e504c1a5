"""The command that trains a model on a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import carp
from carp.cli.messages import naming, say, show_json
from carp.cli.options import (
    MAX_SEED,
    AsJson,
    CorpusFolder,
    Engine,
    OutModel,
    Overwrite,
    RayAddress,
    check_engine,
    key_values,
)
from carp.cli.output_files import check_new_folder
from carp.cli.places import sealed_folder
from carp.errors import UsageError
from carp.models import DEFAULT

if TYPE_CHECKING:
    from carp.recommender import Recommender
    from carp.reviews.corpora.corpus import Corpus


def train(
    context: typer.Context,
    corpus: CorpusFolder,
    out: OutModel,
    model: Annotated[str, typer.Option(help="Name of a model; carp models lists them.")] = DEFAULT,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the weights and the training order.")] = 0,
    split_seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the random 80:20 split.")] = 0,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|time|time:DAY",
            help="Your own split, a CSV file with user,item,split; or hold out the latest fifth of each person's "
            "reviews (time), or all since a day (time:2013-01-31).",
        ),
    ] = None,
    all_reviews: Annotated[
        bool, typer.Option("--all-reviews", help="After choosing on the split, fit on all its parts, for use.")
    ] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            parser=sealed_folder,
            help="Start from the weights, and with the settings, of this model.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting; carp models --settings NAME lists them. May be repeated."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train: auto, cpu, cuda or cuda:N.")] = "auto",
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Train in so many processes, together: of this machine, or of the cluster."),
    ] = None,
    word_table: Annotated[
        Literal["auto", "divided", "whole"],
        typer.Option(
            help="In several processes: divided, so that each keeps some rows of the word table; whole; or auto, which "
            "divides a table that needs more than half of a card."
        ),
    ] = "auto",
    engine: Engine = "here",
    ray_address: RayAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a training that was stopped.")] = False,
    overwrite: Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a corpus. Training stops when the validation error no longer improves.

    torchrun -m carp train ... trains in the processes that torchrun starts, also on several machines.
    """
    from carp.scale.launched_process import end_with_launcher
    from carp.scale.local_processes import run_together
    from carp.storage import folder_size, real_place, sole_writer
    from carp.training.company import joined, own_device, own_rank, wanted_size

    end_with_launcher()
    check_engine(engine, ray_address)
    settings = _training_settings(given)
    place = real_place(out)  # a link may be made to lead elsewhere while the training lasts
    checkpoints = real_place(place.with_name(f"{place.name}.training"))
    if own_rank() == 0:
        check_new_folder(out, "model", overwrite)
    from carp.recommender import Recommender

    earlier = None
    if start_from is not None:
        earlier = carp.load(start_from, device=device)
        model, settings = _as_before(context, earlier, model, settings)
    with naming("train"):
        recommender = Recommender(model, seed=seed, split_seed=split_seed, device=own_device(device), **settings)
    if recommender.kind.learns and engine == "ray":
        _check_checkpoints(checkpoints, resume, overwrite)
        _train_on_cluster(context, ray_address, processes, checkpoints)
        _tell(carp.load(out, device="cpu"), out, folder_size(out), quiet, as_json)
        return
    if not recommender.kind.learns and ((processes or wanted_size()) > 1 or engine == "ray"):
        if own_rank() > 0:
            return
        say(f"{model} is solved for in closed form: one process fits it, and the others have nothing to do.")
    elif processes is not None and processes > 1:
        raise typer.Exit(run_together(_words_again(context), processes, str(checkpoints)))
    else:
        context.with_resource(joined(recommender.device))
    records = _load_corpus(corpus)
    shared: dict[str, Any] = {"split": split, "all_reviews": all_reviews, "word_table": word_table}
    if own_rank() > 0:  # the first process reads, writes and speaks for all
        _fit(recommender, records, checkpoints, {**shared, "progress": False})
        return
    context.with_resource(sole_writer(place, out))  # before another training's checkpoints are looked at
    _check_checkpoints(checkpoints, resume, overwrite)
    if resume and not checkpoints.exists() and not quiet:
        say(f"{checkpoints}: there is no checkpoint to continue from; training starts from the beginning.")
    options = {"start_from": earlier, "resume": resume, "progress": not quiet}
    _fit(recommender, records, checkpoints, {**shared, **options})
    size = recommender.save(place, overwrite=overwrite)
    _remove_checkpoints(checkpoints)
    _tell(recommender, out, size, quiet, as_json)


def _tell(recommender: Recommender, out: Path, size: int, quiet: bool, as_json: bool) -> None:
    """What came of the training."""
    if as_json:
        facts = recommender.facts
        kept = {key: facts[key] for key in ("best_epoch", "epochs", "valid_mse", "seed", "split_seed", "device")}
        all_of_it = {"all_reviews": True, "chosen_on": facts["chosen_on"]} if facts.get("all_reviews") else {}
        show_json(
            {"out": str(out), "model": recommender.name, "form": recommender.form, "bytes": size, **kept, **all_of_it}
        )
    elif not quiet:
        _report_training(recommender, out, size)


def _train_on_cluster(context: typer.Context, address: str | None, count: int | None, checkpoints: Path) -> None:
    from carp.scale.ray_cluster import connected
    from carp.scale.ray_training import train_on

    words = _words_again(context, {"resume", "overwrite", "quiet", "as_json"}, absolute=True)
    with connected(address) as cluster:
        say(f"The cluster trains; the log of its epochs grows in {checkpoints}.")
        # Whether they may go on and replace was looked at here; one that begins again always may.
        train_on(cluster, train_as_one_of_many, [*words, "--resume", "--overwrite", "--quiet"], count, checkpoints)


def train_as_one_of_many(words: list[str]) -> None:
    """Train by a command line as one of several processes; what goes wrong is raised."""
    from carp.cli.entry import run_command

    run_command(words)


ELSEWHERE = {"processes", "engine", "ray_address"}  # options for who starts the processes


def _words_again(context: typer.Context, without: set[str] | None = None, *, absolute: bool = False) -> list[str]:
    """The command line of this training, for its processes; paths are absolute where these are on other machines."""
    words = ["train"]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.name in ELSEWHERE | (without or set()) or value is None or value is False:
            continue
        if absolute and (isinstance(value, Path) or (parameter.name == "split" and Path(value).is_file())):
            value = Path(value).absolute()
        option = parameter.opts[0] if parameter.param_type_name == "option" else None
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [] if option is None else [option]
            words += [] if one is True else [str(one)]
    return words


def _as_before(
    context: typer.Context, earlier: Recommender, model: str, settings: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The model and the settings of an earlier training, with those that are given now."""
    source = context.get_parameter_source("model")
    if source is not None and source.name != "DEFAULT" and model != earlier.name:
        what = f"the earlier model is {earlier.name}, and not {model}"
        raise UsageError(what, where="--from", fix=f"give --model {earlier.name}, or leave --model out")
    params = earlier.get_params()
    before = {key: params[key] for key in params if key not in ("model", "seed", "split_seed", "device", "min_reviews")}
    return earlier.name, before | settings


def _training_settings(given: list[str] | None) -> dict[str, Any]:
    settings = key_values(given, "--set")
    for key in settings:
        if key in ("model", "seed", "split_seed", "device"):
            option = f"--{key.replace('_', '-')}"
            raise UsageError(
                f"{key} has an option of its own", where="--set", fix=f"give {option} {settings[key]} instead"
            )
        if key == "min_reviews":
            raise UsageError("min_reviews is set when preparing a corpus", where="--set", fix="see carp prepare --help")
        if key == "self":
            raise UsageError("there is no setting 'self'", where="--set", fix="see carp models --settings NAME")
    return dict(settings)


def _load_corpus(folder: Path) -> Corpus:
    from carp.reviews.corpora.corpus import Corpus

    if folder.is_file():
        fix = f"run carp prepare {folder} --out corpus, then carp train corpus"
        raise UsageError("this is a file, not a prepared corpus", where=str(folder), fix=fix)
    return Corpus.load(folder)


def _fit(recommender: Recommender, corpus: Corpus, folder: Path, options: dict[str, Any]) -> None:
    from carp.training.checkpoint import CHECKPOINT
    from carp.training.company import LostCompany, own_rank
    from carp.training.divergence import DivergedError
    from carp.training.loop import Stopped

    try:
        recommender.fit(corpus, checkpoints=folder, **options)
    except LostCompany as lost:
        lost.where = str(folder)
        raise
    except DivergedError as error:  # its epochs cannot be continued with another rate, so they must not be in the way
        if own_rank() == 0 and folder.exists():
            _remove_checkpoints(folder)
        what = error.what.rpartition(";")[0]
        raise DivergedError(f"{what}; nothing is kept", fix="give a lower rate with --set learning_rate=...") from None
    except KeyboardInterrupt:
        if not (folder / CHECKPOINT).exists():
            raise
        fix = "run the same command with --resume to continue"
        raise Stopped("training was interrupted; a checkpoint is kept", where=str(folder), fix=fix) from None


def _check_checkpoints(folder: Path, resume: bool, overwrite: bool) -> None:
    if not folder.exists() or resume:
        return
    if not overwrite:
        raise UsageError(
            "an earlier training was stopped here",
            where=str(folder),
            fix="add --resume to continue it, or --overwrite to start from the beginning",
        )
    _remove_checkpoints(folder)


def _remove_checkpoints(folder: Path) -> None:
    """Remove the folder, provided that training made everything in it."""
    from carp.storage import disk_errors
    from carp.training.checkpoint import ALL_REVIEWS, CHECKPOINT, LOG

    if (folder / ALL_REVIEWS).is_dir():
        _remove_checkpoints(folder / ALL_REVIEWS)
    made = [*folder.glob("epoch-*.safetensors"), *folder.glob(".*.partial"), folder / CHECKPOINT, folder / LOG]
    strange = set(folder.glob("*")) - set(made)
    if strange:
        what = f"{min(strange).name} was not made by training"
        raise UsageError(what, where=str(folder), fix="move it elsewhere and remove the folder")
    with disk_errors(folder):
        for file in made:
            file.unlink(missing_ok=True)
        if folder.exists():
            folder.rmdir()


def seen_before(pairs: int) -> str:
    """What to say of figures that are better than they should be."""
    return (
        f"The model it started from was trained on {pairs:,} of the pairs held out here: errors on them look better "
        "than they are. Hold out by time to avoid it (--split time)."
    )


def _report_training(recommender: Recommender, out: Path, size: int) -> None:
    from carp.explain.explainer import explains
    from carp.render.console_tables import command, facts_table, own_step
    from carp.storage import readable_size

    facts, fitted = recommender.facts, recommender.fitted_corpus
    form = recommender.form
    name = recommender.name if form is None else f"{recommender.name}, {form} form"
    lines = [("model", f"{name}, in {out}, {readable_size(size)}"), ("split", str(fitted.facts["split"]))]
    if facts["valid_mse"] is not None:
        own = own_step((fitted.scale.low, fitted.scale.high), fitted.levels) ** 2
        named = "" if own == 1 else f", on your scale from {fitted.scale.low:g} to {fitted.scale.high:g}"
        best = f"{facts['valid_mse'] * own:.4f} in epoch {facts['best_epoch']} of {facts['epochs']}{named}"
        lines.append(("validation MSE", best))
    elif facts.get("all_reviews") and recommender.model.learns:
        lines.append(("epochs", f"{facts['epochs']}, the number that was best on validation"))
    print(facts_table(lines))
    if seen := facts.get("seen_before"):
        say(seen_before(seen))
    test = fitted.test_pairs()
    record = int(test.records[0]) if len(test) else 0
    user, item = fitted.users[int(fitted.user[record])], fitted.items[int(fitted.item[record])]
    steps = [command("recommend", out, user)]
    if explains(type(recommender.model)):
        steps.insert(0, command("explain", out, user, item))
    if len(test):
        steps.insert(0, command("evaluate", out))
    else:
        say("No test figure belongs to this model: it was fitted on all reviews, and none was held out.")
    say("Next: " + "\n      ".join(steps))
