"""What is at the address of a cluster, and whether it lets this process in: asked before Ray is."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from carp.errors import CarpError, UsageError
from carp.scale import cluster_address
from carp.scale.cluster_address import MODE, TOKEN, TOKEN_FILE, check_cluster


@pytest.fixture(autouse=True)
def without_a_token(monkeypatch, tmp_path):
    for name in (MODE, TOKEN, TOKEN_FILE, "RAY_USE_TLS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def listening():
    """The address of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield f"127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:999999", "127.0.0.1:", ":6379", "ray://here", "here:port"])
def test_an_address_that_is_none_is_told_with_the_form_of_one(address):
    with pytest.raises(UsageError, match="is not the address of a cluster") as caught:
        check_cluster(address)
    assert "HOST:PORT" in caught.value.fix


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_nobody_at_the_address_is_told_at_once(address):
    with pytest.raises(CarpError, match="there is no cluster to join"):
        check_cluster(address)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("UNAVAILABLE", "somebody listens there, but it is not a Ray cluster"),
        ("UNIMPLEMENTED", "somebody listens there, but it is not a Ray cluster"),
        ("DEADLINE_EXCEEDED", "nothing there answered as a Ray cluster does within 20 seconds"),
    ],
)
def test_somebody_else_at_the_address_is_told_from_nobody(listening, monkeypatch, answer, said):
    monkeypatch.setattr(cluster_address, "_answer", lambda target, token: answer)
    with pytest.raises(CarpError, match=said) as caught:
        check_cluster(listening)
    assert caught.value.where == listening


def test_ray_client_answers_other_questions(listening, monkeypatch):
    monkeypatch.setattr(cluster_address, "_answer", lambda target, token: "UNIMPLEMENTED")
    check_cluster(f"ray://{listening}")


def test_a_server_that_speaks_another_protocol_is_no_cluster(monkeypatch):
    pytest.importorskip("grpc")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            while True:
                try:
                    with server.accept()[0] as one:
                        one.recv(100)
                        one.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(CarpError, match="it is not a Ray cluster"):
            check_cluster(f"127.0.0.1:{server.getsockname()[1]}")


def test_a_server_that_says_nothing_is_waited_for_as_long_as_is_allowed(listening, monkeypatch):
    pytest.importorskip("grpc")
    monkeypatch.setattr(cluster_address, "PATIENCE", 0.2)
    with pytest.raises(CarpError, match="nothing there answered as a Ray cluster does"):
        check_cluster(listening)


@pytest.fixture
def guarded(monkeypatch):
    """A cluster that lets in who sends its token; what was sent."""
    sent = []

    def answer(target, token):
        sent.append(token)
        return "OK" if token == "right" else "UNAUTHENTICATED"

    monkeypatch.setattr(cluster_address, "_answer", answer)
    return sent


def keep_token(home, token):
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(f"{token}\n")


def test_a_cluster_of_this_machine_gets_the_token_that_ray_keeps(listening, guarded, tmp_path):
    keep_token(tmp_path, "right")
    check_cluster(listening)
    assert guarded == [None, "right"]
    assert os.environ[MODE] == "token"


def test_no_token_goes_to_another_machine_that_was_not_trusted(listening, guarded, monkeypatch, tmp_path):
    keep_token(tmp_path, "right")
    monkeypatch.setattr(cluster_address, "_is_this_machine", lambda host: False)
    with pytest.raises(CarpError, match="none is sent without RAY_AUTH_MODE=token") as caught:
        check_cluster(listening)
    assert "~/.ray/auth_token" in caught.value.fix
    assert guarded == [None]
    assert MODE not in os.environ


def test_a_mode_that_was_chosen_stays(listening, guarded, monkeypatch, tmp_path):
    keep_token(tmp_path, "right")
    monkeypatch.setenv(MODE, "disabled")
    with pytest.raises(CarpError, match="none is sent without RAY_AUTH_MODE=token"):
        check_cluster(listening)
    assert guarded == [None]
    monkeypatch.setenv(MODE, "token")
    check_cluster(listening)
    assert guarded == [None, "right"]


@pytest.mark.parametrize(
    ("place", "said"),
    [(None, "there is none here"), ("variable", "another token than the one"), ("file", "another token")],
)
def test_a_missing_token_is_told_from_a_wrong_one(listening, guarded, monkeypatch, tmp_path, place, said):
    monkeypatch.setenv(MODE, "token")
    if place == "variable":
        monkeypatch.setenv(TOKEN, "wrong")
    if place == "file":
        (tmp_path / "token").write_text("wrong")
        monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    with pytest.raises(CarpError, match=said) as caught:
        check_cluster(listening)
    assert "ray get-auth-token" in caught.value.fix


def test_only_addresses_of_this_machine_are_its_own():
    assert cluster_address._is_this_machine("127.0.0.1")
    assert cluster_address._is_this_machine("localhost")
    assert not cluster_address._is_this_machine("192.0.2.77")


def test_the_cluster_of_this_machine_is_for_ray_to_find(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("nobody is asked"))
    check_cluster("auto")
