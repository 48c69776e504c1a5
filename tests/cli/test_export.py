"""A model taken elsewhere: ONNX says what the model says, and Parquet holds everybody's answers."""

from __future__ import annotations

import json

import numpy as np
import polars
import pytest

import carp
from carp.cli.entry import main

SMALL = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1}


@pytest.fixture(scope="module", params=["carp", "meeting", "bias"])
def saved_model(request, single_thread, tmp_path_factory):
    shop = carp.make_shop(people=24, things=10, reviews_per_person=7, seed=3)
    ratings = polars.col("rating") * 25 - 25  # a scale from 0 to 100
    frame = shop.frame().with_columns(ratings.alias("rating"))
    settings = SMALL if request.param == "carp" else {}
    made = carp.Recommender(request.param, device="cpu", min_reviews=1, **settings)
    made.fit(carp.read_reviews(frame, rating_range=(0, 100)), progress=False)
    made.save(folder := tmp_path_factory.mktemp("export") / "model")
    return folder


def test_onnxruntime_rates_as_the_model_does_on_the_scale_of_the_data(saved_model, tmp_path, capsys):
    loaded = carp.load(saved_model)
    if not loaded.model.separates:
        assert main(["export", str(saved_model), "--onnx", str(tmp_path / "onnx")]) == 2
        assert "it has no sides to export" in capsys.readouterr().err
        return
    from carp.persist.onnx_files import rate_by_onnx

    assert main(["export", str(saved_model), "--onnx", str(tmp_path / "onnx"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["onnx"]
    assert told["pairs_compared"] > 50
    ids = json.loads((tmp_path / "onnx" / "ids.json").read_text())
    corpus = loaded.fitted_corpus
    every = np.ndindex(len(ids["users"]), len(ids["items"]))
    new = [pair for pair in every if pair not in corpus.record_of_pair]
    users, items = np.array(new[:40], dtype=np.int64).T
    rated = loaded.predict([(ids["users"][u], ids["items"][i]) for u, i in new[:40]])
    found = rate_by_onnx(tmp_path / "onnx", users, items)
    assert np.abs(np.array(list(rated)) - found).max() < 0.01
    assert found.max() > 10


def test_everybody_is_written_with_ratings_and_reasons(saved_model, tmp_path, capsys):
    loaded = carp.load(saved_model)
    predictions, explanations = tmp_path / "p.parquet", tmp_path / "e.parquet"
    assert main(["export", str(saved_model), "--predictions", str(predictions), "-n", "2"]) == 0
    rows = polars.read_parquet(predictions)
    assert set(rows["user"]) == set(loaded.fitted_corpus.users)
    assert rows.columns == ["user", "rank", "item", "title", "rating", "low", "high"]
    first = rows.row(0, named=True)
    assert first["rating"] == pytest.approx(loaded.predict([(first["user"], first["item"])])[0])
    code = main(["export", str(saved_model), "--explanations", str(explanations), "-n", "1"])
    if loaded.name == "bias":
        assert code == 2
        assert "gives ratings without reasons" in capsys.readouterr().err
        assert not explanations.exists()
        return
    assert code == 0
    told = polars.read_parquet(explanations).row(3, named=True)
    assert json.loads(told["explanation"])["item"] == told["item"]
    assert told["summary"]


@pytest.mark.parametrize("words", [[], ["--predictions", "a.csv"], ["--explanations", "a"]])
def test_nothing_to_export_and_other_endings_are_refused(words, tmp_path, capsys):
    assert main(["export", str(tmp_path), *words]) == 2
    assert "Fix:" in capsys.readouterr().err
