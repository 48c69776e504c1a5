"""The reference says what the code does: every command, option, model and setting, and nothing else."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

from carp.cli.entry import COMMANDS
from carp.models import REGISTRY, model_class
from command_reference import parameters_of
from sources import fields_of


def text_of(path):
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text("utf-8")))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_options_are_those_that_the_command_line_takes(command):
    """Not by what the reference was made from, but by what the command says of itself."""
    from typer.testing import CliRunner

    from carp.cli.entry import app

    shown = CliRunner().invoke(app, [command.__name__, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output
    taken = set(re.findall(r"(?:^|\s)(-{1,2}[a-z][a-z-]*)\b", re.sub(r"│", " ", shown.split("Options", 1)[1])))
    told = {name for one in parameters_of(command) for name in one.names.split(", ") if name}
    in_help_texts = {name for name in taken if re.search(rf"\S {name}\b", shown)}  # one option's words name another
    assert told <= taken
    assert taken - told - in_help_texts <= {"--help", "-h"}


def test_every_command_has_its_place(site):
    text = text_of(site / "reference" / "commands.html")
    for command in COMMANDS:
        assert f"carp {command.__name__}" in text
        for one in parameters_of(command):
            assert one.typed in text


def test_every_setting_of_every_model_is_listed(site):
    text = (site / "reference" / "settings.html").read_text("utf-8")
    for name in REGISTRY:
        section = text.split(f'<h2 id="{name}">', 1)[1].split("<h2", 1)[0]
        for field in dataclasses.fields(model_class(name).Config):
            assert f"<code>{field.name}</code>" in section


def test_the_fields_of_a_configuration_are_read_from_its_source():
    from carp.models.carp import CarpConfig

    found = fields_of(CarpConfig)
    assert [one.name for one in found] == [field.name for field in dataclasses.fields(CarpConfig)]
    assert next(one for one in found if one.name == "margin").comment == "ε"


def test_the_public_names_are_described(site):
    import carp

    text = "".join(path.read_text("utf-8") for path in (site / "reference").glob("*.html"))
    for name in carp.__all__:
        if not name.startswith("__"):
            assert re.search(rf'id="carp\.[\w.]*\b{name}"', text), name
