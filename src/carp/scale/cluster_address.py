"""Whether a Ray cluster is at an address, and whether it lets this process in.

The cluster is asked before Ray is told of it: Ray would try for minutes, and print raw lines of its own.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from carp.errors import CarpError, UsageError

PATIENCE = 20.0  # seconds for a cluster to answer
QUESTION = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # which the first node of every cluster answers
OF_THIS_MACHINE = "auto"  # Ray's word for the cluster that was started here
CLIENT = "ray://"  # Ray Client, which answers other questions
FORM = "write it as HOST:PORT, as in 10.0.0.5:6379, which ray start --head prints"
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
DEFAULT_TOKEN_FILE = "~/.ray/auth_token"
TOKEN_PLACES = f"{TOKEN}, the file named by {TOKEN_FILE}, or {DEFAULT_TOKEN_FILE}"


def check_cluster(address: str) -> None:
    """Refuse an address where no cluster answers, or one that does not let this process in.

    A cluster of this machine that asks for a token gets the one that Ray keeps for this user, as it would from Ray
    where no address is named. To other machines a token is sent only if RAY_AUTH_MODE says so.
    """
    if address == OF_THIS_MACHINE:
        return
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        raise no_cluster(address, error.strerror or str(error)) from error
    if os.environ.get("RAY_USE_TLS", "0") in ("0", "", "false"):  # with TLS nobody answers who is asked in the open
        _check_answer(address, host, port)


def no_cluster(address: str | None, reason: str) -> CarpError:
    fix = "start one with ray start --head, or leave --ray-address out"
    return CarpError(f"there is no cluster to join ({reason})", where=address, fix=fix)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} is not the address of a cluster", where="--ray-address", fix=FORM)
    return host.strip("[]"), int(port)


def _check_answer(address: str, host: str, port: int) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    mode = os.environ.get(MODE, "").lower()
    token = _token()
    said = _answer(target, token if mode == "token" else None)
    if said == "UNAUTHENTICATED" and not mode and token and _is_this_machine(host):
        said = _answer(target, token)
        if said == "OK":
            os.environ[MODE] = "token"
    if said == "UNAUTHENTICATED":
        raise _not_let_in(address, mode, token)
    if said == "DEADLINE_EXCEEDED":
        what = f"nothing there answered as a Ray cluster does within {PATIENCE:.0f} seconds"
        raise CarpError(what, where=address, fix="give the address that ray start --head prints")
    if said != "OK" and not address.startswith(CLIENT):
        what = "somebody listens there, but it is not a Ray cluster"
        raise CarpError(what, where=address, fix="give the address that ray start --head prints")


def _answer(target: str, token: str | None) -> str:
    """OK, or how Ray's protocol names what went wrong."""
    try:
        import grpc
    except ImportError:  # it comes with ray[serve]; without it Ray has to find out by itself
        return "OK"
    sent = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(QUESTION)(b"", timeout=PATIENCE, metadata=sent)
        except grpc.RpcError as error:
            return _name_of(error)
    return "OK"


def _name_of(error: Any) -> str:
    return str(error.code().name)


def _token() -> str | None:
    """The token that Ray would send."""
    if given := os.environ.get(TOKEN):
        return given.strip()
    try:
        return Path(os.environ.get(TOKEN_FILE) or DEFAULT_TOKEN_FILE).expanduser().read_text().strip() or None
    except (OSError, ValueError, RuntimeError):
        return None


def _is_this_machine(host: str) -> bool:
    """Whether an address is one of this machine, so that nothing leaves it: only those can be listened on."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.bind(place)
    except OSError:
        return False
    return True


def _not_let_in(address: str, mode: str, token: str | None) -> CarpError:
    put = f"put it into {TOKEN_PLACES} (ray get-auth-token shows it where the cluster was started)"
    if token is None:
        what, fix = "the cluster asks for a token, and there is none here", f"{put}, and set {MODE}=token"
    elif mode != "token":
        what = f"the cluster asks for a token, and none is sent without {MODE}=token"
        fix = f"set {MODE}=token if its token is here: in {TOKEN_PLACES}"
    else:
        what, fix = "the cluster asks for another token than the one here", put
    return CarpError(what, where=address, fix=fix)
