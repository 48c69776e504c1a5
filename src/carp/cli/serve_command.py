"""The command that serves a model over HTTP."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from carp.cli.messages import say
from carp.cli.options import check_engine
from carp.cli.places import Address, any_place, new_path, secret_path, served_folder, shared_folder
from carp.errors import UsageError
from carp.shown_addresses import shown_address

if TYPE_CHECKING:
    from carp.serve.server import ServiceOptions


def serve(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", parser=served_folder, help="A folder made by carp train, or its address."),
    ],
    host: Annotated[
        str,
        typer.Option(
            envvar="CARP_HOST",
            help="Address to listen on. 127.0.0.1: this machine only. Any other needs a key or --open-to-everyone.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="CARP_PORT", min=0, max=65535, help="Port to listen on. 0 picks a free one.")
    ] = 8000,
    workers: Annotated[
        int | None, typer.Option(envvar="CARP_WORKERS", min=1, help="Processes that compute. Default: one per core.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            envvar="CARP_RESULTS", parser=any_place, help="Folder made by carp bench, shown as an extra page."
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="CARP_API_KEY_FILE",
            parser=secret_path,
            help="File whose first line is a key that every request must send.",
        ),
    ] = None,
    open_to_everyone: Annotated[
        bool,
        typer.Option(
            "--open-to-everyone", envvar="CARP_OPEN_TO_EVERYONE", help="Listen beyond this machine without a key."
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name that the service may be called by, besides this machine's own.")
    ] = None,
    pictures_from: Annotated[
        list[str] | None,
        typer.Option(help="Where pictures of things may be loaded from, as https://images.example. Default: nowhere."),
    ] = None,
    rate_limit: Annotated[
        float | None,
        typer.Option(
            envvar="CARP_RATE_LIMIT",
            min=0,
            help="Requests a second from one client. 0: no limit. Default: 200, this machine spared.",
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(envvar="CARP_CONNECTIONS", min=8, help="Most connections at once. Default: 1000."),
    ] = None,
    client_connections: Annotated[
        int | None,
        typer.Option(
            envvar="CARP_CLIENT_CONNECTIONS",
            min=1,
            help="Connections that one client keeps where all are taken and others come. Default: half of them.",
        ),
    ] = None,
    waiting: Annotated[
        int | None,
        typer.Option(envvar="CARP_WAITING", min=1, help="Most requests that wait. Default: 128 for each worker."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="CARP_METRICS_PORT", min=0, max=65535, help="Serve /metrics on this port instead, without a key."
        ),
    ] = None,
    engine: Annotated[
        Literal["here", "ray"],
        typer.Option(envvar="CARP_ENGINE", help="Serve from processes of this machine, or from replicas by Ray Serve."),
    ] = "here",
    ray_address: Annotated[
        str | None,
        typer.Option(
            envvar="CARP_RAY_ADDRESS",
            metavar="ADDRESS",
            help="With --engine ray: the cluster to join. Default: one on this machine.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            envvar="CARP_LOG",
            parser=new_path,
            help="File for the log, a line of JSON a request. Default: standard error.",
        ),
    ] = None,
) -> None:
    """Serve the HTTP API and the explorer page until Ctrl-C.

    The key can also be given by CARP_API_KEY, names by CARP_ALLOWED_HOSTS, and places of pictures by
    CARP_PICTURES_FROM, separated by commas.

    With CARP_KEY_FILE only a model that was signed with that key is served. CARP_DEBUG=1 puts tracebacks into the log,
    and CARP_NATIVE=0 does without compiled code.
    """
    try:
        from carp.serve.access_control import AccessRules, allowed_names, check_reach, picture_origins, read_key
        from carp.serve.front_door import MOST_CONNECTIONS
        from carp.serve.server import ServiceOptions, count_workers
    except ImportError as error:
        fix = "pip install 'carp-rec[serve]'"
        raise UsageError(f"serving needs {error.name}, which is not installed", fix=fix) from error
    check_engine(engine, ray_address)
    if engine == "ray":
        from carp.serve.ray_replicas import check_replica_options

        places = {"connections": connections, "client_connections": client_connections}
        check_replica_options(log=log, metrics_port=metrics_port, waiting=waiting, **places)
    if results is not None and not results.is_dir():
        raise UsageError("there is no such folder", where=str(results), fix="give a folder made by carp bench")
    key = read_key(api_key_file, os.environ.get("CARP_API_KEY"))
    check_reach(host, key, open_to_everyone)
    names = allowed_names([*(allowed_host or []), *_listed("CARP_ALLOWED_HOSTS")])
    options = ServiceOptions(
        model=Path(model),
        results=results,
        workers=count_workers(workers),
        rules=AccessRules.of(host, names, key),
        rate=rate_limit,
        connections=connections or MOST_CONNECTIONS,
        share=client_connections,
        waiting=waiting,
        pictures=picture_origins([*(pictures_from or []), *_listed("CARP_PICTURES_FROM")]),
    )
    with _with_copies(model, options, shared_folder(engine)) as options:
        if engine == "ray":
            from carp.serve.ray_replicas import run_replicas

            run_replicas(options, host, port, ray_address, say)
        else:
            _serve_here(options, (host, port), metrics_port, log, unguarded=open_to_everyone and key is None)
    _say_if_heard("Stopped.")


@contextlib.contextmanager
def _with_copies(model: Path | Address, options: ServiceOptions, shared: Path | None) -> Iterator[ServiceOptions]:
    """The options with a copy of a model that is at an address, and the means to fetch a newer one."""
    if not isinstance(model, Address):
        yield options
        return
    from carp.scale.served_copies import served_copies

    with served_copies(model, shared) as copies:
        say(f"Fetching {shown_address(model)} ...")
        yield replace(options, model=copies.fetch() or options.model, copies=copies)


def _serve_here(
    options: ServiceOptions, address: tuple[str, int], metrics_port: int | None, log: Path | None, *, unguarded: bool
) -> None:
    """Listen, load the model in processes of this machine, and answer until told to stop."""
    from carp.serve.log_lines import LogLines, log_stream
    from carp.serve.server import run_service

    if unguarded:
        _say_if_heard("Everybody who reaches this address can read all reviews: there is no key.")
    with log_stream(log) as stream:
        lines = LogLines(stream)
        run_service(options, address, metrics_port=metrics_port, say=_say_if_heard, log=lines)
        lines.close()


def _say_if_heard(words: str) -> None:
    """Say it to the terminal; one that is gone, or a file on a full disk, keeps nobody from being answered."""
    with contextlib.suppress(OSError):
        say(words)


def _listed(variable: str) -> list[str]:
    """What a variable of the environment holds, separated by commas."""
    return [part for part in os.environ.get(variable, "").split(",") if part]
