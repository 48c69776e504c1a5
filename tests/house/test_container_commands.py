"""The commands of the container file, where no container tool is at hand: each exists, and they do what they should.

One by one in a clean virtual environment they take minutes, so that runs with `make container` (CARP_CONTAINER=1).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import carp

ROOT = Path(__file__).resolve().parents[2]
OF_THE_IMAGE = {"apt-get", "useradd", "rm"}  # of the system that the image begins with


def instructions():
    """Each instruction of the container file with what follows it, in order; lines that go on are one."""
    text = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def listed(name):
    return json.loads(next(rest for kind, rest in instructions() if kind == name))


def health_check():
    return json.loads(next(rest for kind, rest in instructions() if kind == "HEALTHCHECK").removeprefix("CMD "))


def runs():
    return [rest for kind, rest in instructions() if kind == "RUN"]


def variables():
    """What ARG and ENV set."""
    found = " ".join(rest for kind, rest in instructions() if kind in ("ARG", "ENV"))
    return dict(word.split("=", 1) for word in shlex.split(found))


def test_every_command_parses_and_is_of_the_image_or_of_python():
    assert len(runs()) >= 3
    for command in runs():
        subprocess.run(["sh", "-n", "-c", command], check=True)
        for part in re.split(r"&&|;", command):
            assert shlex.split(part)[0] in OF_THE_IMAGE | {"pip"}, part
    known = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {kind for kind, _ in instructions()} <= known


def test_what_the_container_starts_is_a_command_of_carp_with_its_options(tmp_path, monkeypatch, capsys):
    from carp.cli import entry

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert listed("ENTRYPOINT")[0] in scripts
    for name, value in variables().items():
        if name.startswith("CARP_"):
            monkeypatch.setenv(name, str(tmp_path / "no-key") if name == "CARP_API_KEY_FILE" else value)
    assert entry.main(listed("CMD")) == 2
    assert "no-key" in capsys.readouterr().err, "everything was understood, up to the key that is not there"


def test_the_health_check_asks_the_port_of_the_service():
    python, option, code = health_check()
    assert (python, option) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert f":{variables()['CARP_PORT']}/health" in code
    exposed = next(rest for kind, rest in instructions() if kind == "EXPOSE")
    assert exposed == variables()["CARP_PORT"]


@pytest.mark.skipif(os.environ.get("CARP_CONTAINER") != "1", reason="installing torch takes minutes; make container")
def test_the_commands_one_by_one_in_a_clean_environment_serve_a_model(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    place = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CARP_"))}
    place |= {**variables(), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "EXTRAS": "serve"}
    work = tmp_path / "carp"
    work.mkdir()
    for line in (shlex.split(rest) for kind, rest in instructions() if kind == "COPY"):
        for name in line[:-1]:
            one = ROOT / name
            shutil.copytree(one, work / name) if one.is_dir() else shutil.copy(one, work / name)
    for command in runs():
        if shlex.split(command)[0] == "pip":
            subprocess.run(["sh", "-c", command], cwd=work, env=place, check=True)
    shop = carp.make_shop(people=12, things=8, reviews_per_person=6, seed=1)
    made = carp.Recommender("bias", min_reviews=1, device="cpu").fit(carp.read_reviews(shop.frame()), progress=False)
    made.save(tmp_path / "model")
    (tmp_path / "key").write_text("a-key-that-is-long-enough-for-a-test\n")
    (tmp_path / "key").chmod(0o600)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    place |= {"CARP_API_KEY_FILE": str(tmp_path / "key"), "CARP_PORT": port, "CARP_HOST": "127.0.0.1"}
    command = [*listed("ENTRYPOINT"), *(word.replace("/models", str(tmp_path)) for word in listed("CMD"))]
    service = subprocess.Popen(command, cwd=tmp_path, env=place, stderr=subprocess.PIPE, text=True)
    try:
        assert any("Serving" in line for line in iter(service.stderr.readline, ""))
        check = [word.replace(f":{variables()['CARP_PORT']}/", f":{port}/") for word in health_check()]
        subprocess.run(check, env=place, check=True)
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)
    assert service.returncode == 0
