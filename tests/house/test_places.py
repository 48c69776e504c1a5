"""Every parameter that names a place says whether it may be an address: by its parser, or by a reason listed here."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from carp.cli import places
from carp.cli.entry import COMMANDS, main

READ = {places.sealed_folder, places.changed_folder, places.served_folder, places.any_place, places.text_or_file}
MADE = {places.new_place, places.new_corpus, places.new_model, places.new_path}
OUTPUTS = {"out", "onnx", "predictions", "explanations", "rejects", "log"}
SECRETS = {("serve", "api_key_file"), ("sign", "key_file")}  # who may read them is looked at
CHANGING = {("update", "model"), ("forget", "model"), ("aspects", "model"), ("sign", "folder")}
NAMING_FILES = ("FILE", "PATH", "FOLDER", "MODEL", "CORPUS", "RESULTS", "PAIRS")
READ_BY_THEMSELVES = {  # words that are no paths, and why their commands want them as they are typed
    ("prepare", "files"): "patterns, folders, archives and standard input too; reviews.sources reads addresses",
    ("prepare", "items"): "the same",
    ("update", "files"): "the same",
    ("predict", "pairs"): "the same",
    ("train", "split"): "a rule too, and a model keeps the name of the file; reviews.split reads addresses",
}


def parameters():
    for command in COMMANDS:
        hints = get_type_hints(command, include_extras=True)
        for name in inspect.signature(command).parameters:
            info = next((one for one in getattr(hints[name], "__metadata__", ()) if hasattr(one, "parser")), None)
            kind = get_args(hints[name])[0] if info is not None else hints[name]
            yield command.__name__, name, str(kind), info


def of_places():
    """The parameters that are paths, or texts that are said to name files."""
    for command, name, kind, info in parameters():
        said = str(getattr(info, "metavar", None) or "").rstrip(".").split("|")
        if "Path" in kind or set(said) & set(NAMING_FILES):
            yield command, name, kind, info


def test_every_place_that_is_read_may_be_an_address():
    found = {(command, name): getattr(info, "parser", None) for command, name, _, info in of_places()}
    assert len(found) > 40, "the parameters were not found"
    inputs = {one: parser for one, parser in found.items() if one[1] not in OUTPUTS and one not in SECRETS}
    bare = {one for one, parser in inputs.items() if parser not in READ}
    assert bare == set(READ_BY_THEMSELVES), "give it a parser of carp.cli.places"
    assert {one for one, parser in found.items() if parser is places.changed_folder} == CHANGING


def test_places_that_are_read_by_themselves_are_texts():
    """A Path would make file:/reviews.csv of file:///reviews.csv."""
    kinds = {(command, name): kind for command, name, kind, _ in parameters()}
    assert not [one for one in READ_BY_THEMSELVES if "Path" in kinds[one]]


def test_every_place_that_is_made_is_delivered_or_refused_and_so_is_every_secret():
    found = {(command, name): info.parser for command, name, kind, info in of_places() if "Path" in kind}
    assert not [one for one, parser in found.items() if (one[1] in OUTPUTS) != (parser in MADE)]
    assert {one for one, parser in found.items() if parser is places.secret_path} == SECRETS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "m", "a", "b", "--out", "s3://bucket/why.html"], "the result is written on this machine alone"),
        (["bench", "c", "--out", "s3://bucket/results"], "the result is written on this machine alone"),
        (["export", "m", "--onnx", "s3://bucket/onnx"], "the result is written on this machine alone"),
        (["sign", "m", "--key-file", "s3://bucket/key"], "a key is read from a file that nobody else may read"),
    ],
)
def test_addresses_that_cannot_be_are_refused_in_plain_words(words, said, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Fix: give a path of this machine" in told


def test_a_path_stays_a_path():
    assert places.any_place("results") == Path("results")
    assert places.any_place("file:///data/results") == Path("/data/results")
