"""The command line: collects the commands, runs one, and turns every error into one line and an exit code.

Results go to standard output, everything else to standard error. Commands import what they need inside their
functions, so that `carp --help` stays fast.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import carp
from carp.cli import (
    about_commands,
    evaluate_command,
    explain_commands,
    export_command,
    measure_commands,
    predict_command,
    prepare_command,
    recommend_command,
    serve_command,
    sign_command,
    train_command,
    upkeep_commands,
)
from carp.cli.elsewhere import at_addresses
from carp.errors import CarpError, CarpWarning, UsageError, is_missing_memory, telling_of_options

COMPANY_LOST = 75  # another process of a training ended
INTERRUPTED = 130  # what typer makes of Ctrl-C
NEW_BEFORE_A_LOOK = 400_000  # objects after which Python looks for garbage; importing torch makes 260,000 that stay
COMMANDS = (
    prepare_command.prepare,
    train_command.train,
    evaluate_command.evaluate,
    predict_command.predict,
    explain_commands.explain,
    explain_commands.summary,
    explain_commands.aspects,
    recommend_command.recommend,
    export_command.export,
    upkeep_commands.update,
    upkeep_commands.forget,
    explain_commands.profile,
    serve_command.serve,
    measure_commands.bench,
    measure_commands.study,
    measure_commands.report,
    sign_command.sign,
    about_commands.models,
    about_commands.doctor,
    about_commands.demo,
)
# typer brings a click of its own or uses the installed one; the class of wrong usage is found in either.
WrongUse: type[Exception] = typer.BadParameter.__mro__[1]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"carp {carp.__version__}")
        raise typer.Exit


def _carp(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _app_with(commands: Iterable[Callable[..., None]]) -> typer.Typer:
    made = typer.Typer(
        name="carp",
        help="Predict how a person would rate a thing from what people wrote, and explain why.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage. New here? Try: carp demo",
        add_completion=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_carp)
    for command in commands:
        made.command()(at_addresses(command))
    return made


app = _app_with(COMMANDS)


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """An app with the one command that is asked for: typer reads the parameters of every command that an app has."""
    asked = [command for command in COMMANDS if [command.__name__] == list(arguments[:1])]
    return _app_with(asked) if asked else app


def run_command(arguments: Sequence[str]) -> None:
    """Run a command inside a process that has its own way with errors: they are raised."""
    code = app(list(arguments), prog_name="carp", standalone_mode=False)
    if isinstance(code, int) and code:
        raise CarpError(f"carp {arguments[0]} ended with exit code {code}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. No exception escapes."""
    ending = begin_process() if arguments is None else Ending()
    with telling_of_options():
        ending.code = _run(arguments)
    return ending.code


def begin_process() -> Ending:
    """What saves time where this process is the command, and nothing else is to come after it."""
    open_standard_streams()
    ending = Ending()
    gc.set_threshold(NEW_BEFORE_A_LOOK)
    atexit.register(ending.leave)  # before anybody else does, so that it is the last to be called
    return ending


def open_standard_streams() -> None:
    """Let those that were closed at the start (`carp … >&-`) lead nowhere. Else a file or a connection would get the
    number of one, be written to as if it were the terminal, and end the service when libuv closes it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


class Ending:
    """How a command leaves. Importing torch makes hundreds of thousands of objects, and Python would take a tenth of a
    second to give each of them back: they go with the process."""

    code: int | None = None  # not known where something ended the command before it had one

    def leave(self) -> None:
        if self.code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.code)


def _run(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _warnings_in_one_line():
            given = sys.argv[1:] if arguments is None else list(arguments)
            code = _app_for(given)(given, prog_name="carp", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as asked:  # completion for a shell ends so
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        return 0 if asked.code in (None, 0) else 1
    except BrokenPipeError:  # the reader of our output has gone, so there is nobody to tell
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("CARP_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        from carp.render.wording import neutral

        words, code = _last_words(error)
        if words:
            print(neutral(words), file=sys.stderr)
        return code


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print a CarpWarning as one line, like an error, without the source line that raised it."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, CarpWarning):
            before(message, category, *place, **more)
            return
        from carp.render.wording import neutral

        print(neutral(f"carp: {message}"), file=sys.stderr)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _last_words(error: BaseException) -> tuple[str, int]:
    """The message for the user, and the exit code."""
    if isinstance(error, CarpError):
        lost_in_company = error.exit_code == COMPANY_LOST and os.environ.get("CARP_STARTED_BY_CARP") == "1"
        return "" if lost_in_company else f"carp: {error}", error.exit_code  # who started us says who was lost
    if isinstance(error, WrongUse):
        return _wrong_use(error), UsageError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "carp: interrupted; nothing incomplete was left at --out.", 1
    if is_missing_memory(error):
        fix = (
            "close other programs or use a larger machine; carp train needs less with a smaller batch_size or max_words"
        )
        return f"carp: {CarpError('this machine has too little memory', fix=fix)}", 1
    if isinstance(error, OSError):
        return f"carp: {_refusal(error)}", 1
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else None
    message = (str(error).strip().splitlines() or ["no message"])[0][:300]
    bug = CarpError(
        f"this is a bug in carp ({type(error).__name__}: {message})",
        where=where,
        fix="run the command again with CARP_DEBUG=1 and report the traceback it prints",
    )
    return f"carp: {bug}", bug.exit_code


def _wrong_use(error: Any) -> str:
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "carp"
    message = error.format_message().strip()
    if not message or message.startswith("Usage:"):  # `carp` alone prints its help
        return str(message)
    hint = f"see {name} --help"
    if "No such option" in message:
        hint += "; an id that begins with a dash needs -- before it"
    return f"{name}: {message if message.endswith('?') else message.rstrip('.') + '.'} Fix: {hint}."


def _refusal(error: OSError) -> CarpError:
    from carp.storage import disk_errors

    try:
        with disk_errors(Path(str(error.filename or "standard output"))):
            raise error
    except CarpError as refusal:
        return refusal
