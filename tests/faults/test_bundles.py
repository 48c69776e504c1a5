"""A damaged bundle never loads silently, and a whole one needs nothing but itself.

Run as a script, this file fits and saves a small model in a fresh process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import carp
import damaged_bundles
from carp.cli.entry import main
from carp.errors import CarpError, CarpWarning, DamagedError, InputError, UsageError
from carp.persist.bundle import LAYOUT
from carp.reviews.text.tokens import tokenise
from carp.storage import MANIFEST, load_arrays, save_arrays, seal
from damaged_bundles import content_of, lay_out
from made_up_reviews import shop_reviews

pytestmark = pytest.mark.usefixtures("single_thread")

COPIES = int(os.environ.get("CARP_DAMAGED_BUNDLES", "2000"))
TINY = {"dimension": 5, "filters": 4, "latent_size": 3, "viewpoints": 2, "epochs": 2, "batch_size": 30}


def fitted():
    rec = carp.Recommender("carp", seed=4, device="cpu", min_reviews=1, **TINY)
    return rec.fit(shop_reviews(), progress=False)


@pytest.fixture(scope="module")
def rec():
    return fitted()


@pytest.fixture(scope="module")
def whole(rec, saved):
    """The files of a saved bundle, by name."""
    return {file.name: file.read_bytes() for file in saved(rec).iterdir()}


def test_no_damaged_bundle_loads_silently():
    report = damaged_bundles.run(range(COPIES))
    assert report["faults"] == []
    assert sum(report["counts"].values()) == COPIES
    assert report["counts"]["refused"] >= 0.9 * COPIES, "the rest changed nothing that is read"


def test_every_single_bit_of_the_manifest_matters(whole, tmp_path):
    """No flip of one bit in the manifest, wherever it is, leads to a bundle with other content."""
    folder = tmp_path / "model"
    lay_out(folder, whole)
    expected = content_of(folder)
    manifest = whole[MANIFEST]
    for place in range(0, len(manifest), 3):
        for bit in (0, 5):
            flipped = bytearray(manifest)
            flipped[place] ^= 1 << bit
            (folder / MANIFEST).write_bytes(flipped)
            try:
                found = content_of(folder)
            except CarpError:
                continue
            assert found == expected, (place, bit)


def test_white_space_in_the_manifest_changes_nothing(whole, tmp_path):
    lay_out(tmp_path / "model", whole)
    expected = content_of(tmp_path / "model")
    (tmp_path / "model" / MANIFEST).write_text(json.dumps(json.loads(whole[MANIFEST])))
    assert content_of(tmp_path / "model") == expected


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/hostname", "sub/../../elsewhere", "..\0"])
def test_a_manifest_that_leads_outside_the_folder_is_refused(whole, tmp_path, name):
    lay_out(tmp_path / "model", whole)
    (tmp_path / "elsewhere").write_bytes(whole["log.jsonl"])
    manifest = json.loads(whole[MANIFEST])
    manifest["files"][name] = manifest["files"]["log.jsonl"]
    (tmp_path / "model" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedError):
        carp.load(tmp_path / "model")


def test_a_file_the_manifest_does_not_name_is_never_read(whole, tmp_path):
    """An altered file cannot hide by being struck off the list."""
    for name in sorted(set(whole) - {MANIFEST}):
        manifest = json.loads(whole[MANIFEST])
        del manifest["files"][name]
        lay_out(tmp_path / "model", {**whole, MANIFEST: json.dumps(manifest).encode()})
        with pytest.raises(DamagedError):
            carp.load(tmp_path / "model")


@pytest.mark.parametrize(
    "edit",
    [
        lambda facts: facts.pop("config"),
        lambda facts: facts.pop("seed"),
        lambda facts: facts.pop("fit"),
        lambda facts: facts.update(model="no such model"),
        lambda facts: facts["config"].update(viewpoints=3),
        lambda facts: facts["config"].update(no_such_setting=3),
        lambda facts: facts.update(levels="many"),
        lambda facts: facts.update(scale={}),
        lambda facts: facts["training"].update(no_such_setting=3),
    ],
)
def test_a_sealed_bundle_that_does_not_fit_together_is_refused(whole, tmp_path, edit):
    """Every sum is right, as after an edit by hand or in a bundle of another version; still no traceback."""
    facts = json.loads(whole["model.json"])
    edit(facts)
    lay_out(tmp_path / "model", {**whole, "model.json": json.dumps(facts).encode()})
    seal(tmp_path / "model", "model")
    with pytest.raises(CarpError):
        carp.load(tmp_path / "model", device="cpu")


@pytest.mark.parametrize("name", ["model", "baseline", "records", "documents"])
def test_a_sealed_bundle_with_tensors_of_another_is_refused(whole, tmp_path, name):
    other = "records" if name != "records" else "model"
    lay_out(tmp_path / "model", {**whole, f"{name}.safetensors": whole[f"{other}.safetensors"]})
    seal(tmp_path / "model", "model")
    with pytest.raises(DamagedError):
        carp.load(tmp_path / "model", device="cpu")


def test_bundles_hold_no_code(whole):
    assert {Path(name).suffix for name in whole} == {".json", ".jsonl", ".safetensors"}
    for name, content in whole.items():
        if name.endswith(".safetensors"):
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            assert all(
                {"dtype", "shape", "data_offsets"} == set(facts) for key, facts in header.items() if key[0] != "_"
            )


def test_a_corpus_is_no_model(tmp_path, rec):
    carp.build_corpus(shop_reviews(), min_reviews=1).save(tmp_path / "corpus")
    with pytest.raises(UsageError, match="this is a corpus, not a model"):
        carp.load(tmp_path / "corpus")


def test_loading_needs_neither_the_corpus_nor_the_process_that_fitted(rec, tmp_path):
    """A fresh process fits with the same seed; another loads, in an empty folder, with reading reviews forbidden."""
    places = os.pathsep.join([str(Path(damaged_bundles.__file__).parent), os.environ.get("PYTHONPATH", "")])
    fit = subprocess.run(
        [sys.executable, __file__, str(tmp_path / "one")],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert fit.returncode == 0, fit.stderr
    rec.save(tmp_path / "two")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two, "the same seed in a fresh process gives the same weights"

    (tmp_path / "empty").mkdir()
    script = (
        "import json, sys\n"
        "for name in ('polars', 'pandas', 'carp.reviews.sources.formats', 'carp.reviews.shop.made_up_shop'):\n"
        "    sys.modules[name] = None\n"
        "import carp, torch\n"
        "torch.set_num_threads(1)\n"
        "rec = carp.load(sys.argv[1], device='cpu')\n"
        "user, item = rec.fitted_corpus.users[3], rec.fitted_corpus.items[2]\n"
        "print(json.dumps([list(rec.predict([(user, item), ('nobody', item)])), rec.explain(user, item).as_dict()]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    (tmp_path / "one").rename(tmp_path / "moved")
    loaded = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "moved")],
        cwd=tmp_path / "empty",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    ratings, explanation = json.loads(loaded.stdout)
    user, item = rec.fitted_corpus.users[3], rec.fitted_corpus.items[2]
    assert ratings == list(rec.predict([(user, item), ("nobody", item)]))
    assert explanation == json.loads(json.dumps(rec.explain(user, item).as_dict()))


def test_a_loaded_model_is_what_was_saved(rec, whole, tmp_path):
    lay_out(tmp_path / "model", whole)
    again = carp.load(tmp_path / "model", device="cpu")
    assert again.facts == rec.facts
    assert again.seed == rec.seed
    assert dataclasses.asdict(again.config) == dataclasses.asdict(rec.config)
    for name, tensor in rec.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)


# ---- bundles of other versions


def made_differently(files, folder, **made):
    """The bundle as another version would have saved it; what is None was not written down at all."""
    facts = json.loads(files["model.json"])
    facts["made_with"] = {key: value for key, value in {**facts["made_with"], **made}.items() if value is not None}
    lay_out(folder, {**files, "model.json": json.dumps(facts).encode()})
    seal(folder, "model")


def in_the_first_layout(files, folder):
    """The bundle as carp 0.1 saved it: each word knows which token of its review it is, and not its characters."""
    made_differently(files, folder, carp=None, layout=None, tokeniser=None)
    texts = carp.load(folder.parent / "whole", device="cpu").fitted_corpus.texts
    arrays = load_arrays(folder / "documents.safetensors")
    for side in ("user", "item"):
        starts, review = arrays.pop(f"{side}.characters")[:, 0], arrays[f"{side}.review"]
        place = [tokenise(texts[r])[1].index(start) for r, start in zip(review.tolist(), starts.tolist(), strict=True)]
        arrays[f"{side}.place"] = np.array(place, np.int32)
    save_arrays(folder / "documents.safetensors", arrays)
    seal(folder, "model")


@pytest.fixture
def first_layout(whole, tmp_path):
    lay_out(tmp_path / "whole", whole)
    in_the_first_layout(whole, tmp_path / "old")
    return tmp_path / "old"


def explanations_of(rec):
    known = rec.fitted_corpus
    pairs = [
        (known.users[int(user)], known.items[int(item)]) for user, item in zip(known.user, known.item, strict=True)
    ]
    return [rec.explain(user, item).as_dict() for user, item in pairs[:12]]


def test_a_bundle_of_the_first_layout_loads_and_explains_to_the_bit_as_before(rec, first_layout):
    with pytest.warns(CarpWarning, match="version 1 of the tokeniser"):
        old = carp.load(first_layout, device="cpu")
    for found, expected in (
        (old.fitted_corpus.user_documents, rec.fitted_corpus.user_documents),
        (old.fitted_corpus.item_documents, rec.fitted_corpus.item_documents),
    ):
        for name, array in expected.arrays().items():
            np.testing.assert_array_equal(found.arrays()[name], array, strict=True)
    assert explanations_of(old) == explanations_of(rec)
    assert old.facts["made_by"] == "carp 0.1 or earlier"


def test_a_bundle_of_a_newer_layout_is_refused_with_the_version_that_made_it(whole, tmp_path):
    """Even if it has files that this version does not know, and lacks files that it needs."""
    files = {name: content for name, content in whole.items() if name != "tokeniser.json"} | {"words.json": b"{}"}
    made_differently(files, tmp_path / "model", carp="9.1.0", layout=LAYOUT + 1)
    with pytest.raises(InputError, match=rf"saved by carp 9\.1\.0 in layout {LAYOUT + 1}") as caught:
        carp.load(tmp_path / "model", device="cpu")
    assert carp.__version__ in str(caught.value)
    assert "update carp" in caught.value.fix


@pytest.mark.parametrize("made", [{"layout": "2"}, {"layout": 0}, {"layout": []}])
def test_a_bundle_that_does_not_say_its_layout_in_a_number_is_refused(whole, tmp_path, made):
    made_differently(whole, tmp_path / "model", **made)
    with pytest.raises(DamagedError, match="does not say how it was made"):
        carp.load(tmp_path / "model", device="cpu")


def test_a_bundle_of_another_carp_is_noted_and_loads_in_silence(rec, whole, tmp_path):
    made_differently(whole, tmp_path / "model", carp="9.1.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = carp.load(tmp_path / "model", device="cpu")
    assert again.facts == rec.facts | {"made_by": "carp 9.1.0"}


def test_a_bundle_of_another_tokeniser_loads_with_one_warning_and_still_says_so_when_saved_again(whole, tmp_path):
    made_differently(whole, tmp_path / "model", tokeniser=7)
    for folder, saved in (("model", "again"), ("again", "and again")):
        with pytest.warns(CarpWarning, match="version 7 of the tokeniser") as told:
            again = carp.load(tmp_path / folder, device="cpu")
        assert len(told) == 1
        assert again.facts["tokeniser"] == 7
        again.save(tmp_path / saved)


def test_the_command_line_tells_of_another_tokeniser_in_one_line(rec, whole, tmp_path, capsys):
    made_differently(whole, tmp_path / "model", tokeniser=7)
    (tmp_path / "pairs.csv").write_text(f"user,item\n{rec.fitted_corpus.users[0]},{rec.fitted_corpus.items[0]}\n")
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "out.csv")]
    assert main(command) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "tokeniser" in line]
    assert len(told) == 1
    assert told[0].startswith(f"carp: {tmp_path / 'model'}: the words of this model were cut by version 7")


if __name__ == "__main__":
    torch.set_num_threads(1)
    fitted().save(sys.argv[1])
