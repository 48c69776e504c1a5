"""The command that takes a model's answers and arithmetic elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import carp
from carp.cli.messages import naming, say, show_json
from carp.cli.options import AsJson, Model, Overwrite
from carp.cli.output_files import check_new_file, check_new_folder
from carp.cli.places import new_path
from carp.errors import UsageError


def export(
    model: Model,
    onnx: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", parser=new_path, help="Write the sides and the scorer as ONNX into this folder."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=new_path, help="Write everybody's best things with their ratings as Parquet."
        ),
    ] = None,
    explanations: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=new_path, help="The same with their reasons, as Parquet.")
    ] = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many things for each person.")] = 10,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, or its answers for everybody as Parquet.

    ONNX needs the extra "export". Its ratings are compared with the model's by onnxruntime before anything is kept.
    """
    if onnx is None and predictions is None and explanations is None:
        fix = "give --onnx FOLDER, --predictions FILE or --explanations FILE"
        raise UsageError("there is nothing to export", where="carp export", fix=fix)
    if onnx is not None:
        check_new_folder(onnx, "onnx", overwrite)
    for file in filter(None, (predictions, explanations)):
        if file.suffix.lower() != ".parquet":
            raise UsageError("this is written as Parquet", where=str(file), fix="end its name in .parquet")
        check_new_file(file, overwrite)
    recommender = carp.load(model)
    done: dict[str, Any] = {}
    with naming(model):
        if onnx is not None:
            from carp.persist.onnx_files import write_onnx

            done["onnx"] = write_onnx(recommender.fitted_model, onnx, overwrite=overwrite)
            compared, apart = done["onnx"].values()
            say(f"The sides and the scorer are in {onnx}; {compared:,} ratings differ by {apart:.1e} at most.")
            say("What reads new reviews is not exported: newcomers need carp.")
        done |= _write_answers(recommender, predictions, explanations, number)
    if as_json:
        show_json(done)


def _write_answers(
    recommender: carp.Recommender, predictions: Path | None, explanations: Path | None, number: int
) -> dict[str, int]:
    from carp.render.everybody_files import EXPLAINED, PREDICTED, explained_rows, predicted_rows, write_rows

    done = {}
    for name, file, rows, kinds in (
        ("predictions", predictions, predicted_rows, PREDICTED),
        ("explanations", explanations, explained_rows, EXPLAINED),
    ):
        if file is not None:
            done[name] = write_rows(rows(recommender, number), kinds, file)
            say(f"{done[name]:,} {name} are in {file}.")
    return done
