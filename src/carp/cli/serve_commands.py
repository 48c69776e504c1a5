"""Commands that serve a model over HTTP and show profiles of people and things."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import carp
from carp.cli.messages import naming, say
from carp.cli.options import Model, Overwrite
from carp.cli.output_files import check_new_file
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.explain.profiles import PersonProfile, ThingProfile


def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 127.0.0.1: this machine only. 0.0.0.0: everyone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0 picks a free one.")] = 8000,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder made by carp bench, shown as an extra page.")] = None,
) -> None:
    """Serve the HTTP API and the explorer page until Ctrl-C."""
    try:
        from carp.serve.server import count_workers, listen, open_model
        from carp.serve.server import serve as run
    except ImportError as error:
        fix = "pip install 'carp-rec[serve]'"
        raise UsageError(f"serving needs {error.name}, which is not installed", fix=fix) from error
    if results is not None and not results.is_dir():
        raise UsageError("there is no such folder", where=str(results), fix="give a folder made by carp bench")
    number = count_workers(workers)
    sockets = listen(host, port, number)
    app = open_model(model, results, number)
    shown, bound = f"[{host}]" if ":" in host else host, sockets[0].getsockname()[1]
    say(f"Serving {model} at http://{shown}:{bound}/ with {number} worker{'s' * (number > 1)}. Press Ctrl-C to stop.")
    if not run(app, sockets, number):
        raise carp.CarpError("the service stopped as soon as it started", fix="see the messages above")
    say("Stopped.")


def profile(
    model: Model,
    user: Annotated[str | None, typer.Option(help="Show what this person cares about.")] = None,
    item: Annotated[str | None, typer.Option(help="Show what people like and dislike about this thing.")] = None,
    format: Annotated[
        Literal["text", "html", "json"] | None, typer.Option(help="Default: by the ending of --out, else text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Show what a person cares about, or what people like and dislike about a thing."""
    if (user is None) == (item is None):
        fix = "give either --user or --item"
        raise UsageError("it is not clear whose profile to show", where="carp profile", fix=fix)
    if out is not None:
        check_new_file(out, overwrite)
    recommender = carp.load(model)
    with naming(model):
        found = recommender.profile(user=user, item=item)
    suffix = {".html": "html", ".htm": "html", ".json": "json"}
    _deliver(found, format or suffix.get(out.suffix.lower() if out else "", "text"), out)


def _deliver(found: PersonProfile | ThingProfile, format: str, out: Path | None) -> None:
    from carp.render.profile_views import profile_json, profile_page, profile_text
    from carp.storage import write_bytes

    if format == "html":
        written = profile_page(found)
    elif format == "json":
        written = profile_json(found)
    else:
        written = profile_text(found, colour=out is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    content = f"{written.rstrip()}\n".encode("utf-8", "replace")
    if out is not None:
        write_bytes(out, content)
        say(f"The profile is in {out}.")
    elif format == "text":
        print(written)
    else:  # pages and JSON are always UTF-8, also where the terminal is not
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
