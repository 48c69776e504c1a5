"""Every command with its arguments and options, from the functions behind the command line."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.models import ArgumentInfo

from carp.cli.entry import COMMANDS
from sources import cell, code, table

SHAPES = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True)
class Parameter:
    """An argument or an option as a user types it."""

    names: str  # empty for an argument
    shape: str  # empty for a switch
    help: str
    required: bool
    default: str

    @property
    def typed(self) -> str:
        return " ".join(part for part in (self.names, self.shape) if part)


def command_reference() -> str:
    parts = []
    for command in COMMANDS:
        given = parameters_of(command)
        usage = ["carp", command.__name__]
        usage += [one.shape if one.required else f"[{one.shape}]" for one in given if not one.names]
        usage += [one.typed for one in given if one.names and one.required]
        usage += ["[OPTIONS]"] if any(one.names and not one.required for one in given) else []
        parts += [f"## carp {command.__name__}", cell(inspect.getdoc(command) or "")]
        parts.append(f"```text\n{' '.join(usage)}\n```")
        rows = [[code(one.typed), cell(one.help), "required" if one.required else code(one.default)] for one in given]
        if rows:
            parts.append(table(("", "what it does", "default"), rows))
    return "\n\n".join(parts)


def parameters_of(command: Callable[..., Any]) -> list[Parameter]:
    """
    >>> from carp.cli.recommend_command import recommend
    >>> [one.typed for one in parameters_of(recommend)]  # doctest: +ELLIPSIS
    ['MODEL', 'USER', '--all', '-n, --number N', ...]
    """
    hints = typing.get_type_hints(command, include_extras=True)
    found = []
    for name, parameter in inspect.signature(command).parameters.items():
        if hints[name] is typer.Context:  # given by typer, not typed by anybody
            continue
        kind, info = typing.get_args(hints[name])
        required = parameter.default is inspect.Parameter.empty
        shape = info.metavar or _shape(kind)
        default = "" if required or parameter.default in (None, False) else str(parameter.default)
        if isinstance(info, ArgumentInfo):
            found.append(Parameter("", info.metavar or name.upper(), info.help or "", required, default))
        else:
            # beside Annotated, the first name of an option is taken for its default until typer looks closer
            told = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
            names = ", ".join(told) or f"--{name.replace('_', '-')}"
            found.append(Parameter(names, "" if kind is bool else shape, info.help or "", required, default))
    return found


def _shape(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    return SHAPES.get(kind, "VALUE")
