"""A damaged bundle never loads silently, and a whole one needs nothing but itself.

Run as a script, this file fits and saves a small model in a fresh process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import carp
from carp.errors import CarpError, DamagedError, UsageError
from carp.persist.bundle import read_bundle
from carp.storage import MANIFEST, seal

pytestmark = pytest.mark.usefixtures("single_thread")

COPIES = int(os.environ.get("CARP_DAMAGED_BUNDLES", "2000"))
TINY = {"dimension": 5, "filters": 4, "latent_size": 3, "viewpoints": 2, "epochs": 2, "batch_size": 30}


def fitted():
    import polars

    rows = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2).records()
    rec = carp.Recommender("carp", seed=4, device="cpu", min_reviews=1, **TINY)
    return rec.fit(carp.read_reviews(polars.DataFrame(rows)), progress=False)


@pytest.fixture(scope="module")
def rec():
    return fitted()


@pytest.fixture(scope="module")
def whole(rec, saved):
    """The files of a saved bundle, by name."""
    return {file.name: file.read_bytes() for file in saved(rec).iterdir()}


def lay_out(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def content_of(folder):
    """Everything a bundle says, as one sum."""
    name, model, baseline, fitted, facts = read_bundle(folder)
    total = hashlib.sha256(json.dumps([name, facts, fitted.vocabulary.words], sort_keys=True).encode())
    for module in (model, baseline):
        for key, tensor in module.state_dict().items():
            total.update(key.encode() + tensor.numpy().tobytes())
    arrays = [fitted.user, fitted.item, fitted.rating, fitted.part]
    arrays += [column for docs in (fitted.user_documents, fitted.item_documents) for column in docs.arrays().values()]
    for strings in (fitted.users, fitted.items, fitted.texts):
        arrays += [strings.data, strings.offsets]
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    total.update((folder / "log.jsonl").read_bytes())
    return total.hexdigest()


# ---- ways to damage a bundle: each takes the files and gives them back altered


def flip_bits(files, rng):
    name = rng.choice(sorted(files))
    content = bytearray(files[name])
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return {**files, name: bytes(content)}


def truncate(files, rng):
    name = rng.choice(sorted(files))
    return {**files, name: files[name][: rng.randrange(len(files[name]))]}


def cut_out(files, rng):
    name = rng.choice(sorted(files))
    start = rng.randrange(len(files[name]))
    return {**files, name: files[name][:start] + files[name][start + rng.randrange(1, 200) :]}


def append(files, rng):
    name = rng.choice(sorted(files))
    return {**files, name: files[name] + rng.randbytes(rng.randrange(1, 20))}


def overwrite(files, rng):
    name = rng.choice(sorted(files))
    content, start = files[name], rng.randrange(len(files[name]))
    noise = rng.choice([bytes(16), rng.randbytes(16), b"9" * 16])
    return {**files, name: (content[:start] + noise + content[start + 16 :])[: len(content)]}


def delete(files, rng):
    gone = rng.choice(sorted(files))
    return {name: content for name, content in files.items() if name != gone}


def swap(files, rng):
    one, other = rng.sample(sorted(files), 2)
    return {**files, one: files[other], other: files[one]}


def drop_a_line(files, rng):
    name = rng.choice(sorted(name for name in files if name.endswith("json")))
    lines = files[name].splitlines(keepends=True)
    lines.pop(rng.randrange(len(lines)))
    return {**files, name: b"".join(lines)}


DAMAGES = [flip_bits, truncate, cut_out, append, overwrite, delete, swap, drop_a_line]


def test_no_damaged_bundle_loads_silently(whole, tmp_path):
    folder = tmp_path / "model"
    lay_out(folder, whole)
    expected = content_of(folder)
    refused, same = 0, 0
    for number in range(COPIES):
        damage, rng = DAMAGES[number % len(DAMAGES)], random.Random(number)
        files = damage(whole, rng)
        lay_out(folder, files)
        try:
            found = content_of(folder)
        except CarpError as error:
            refused += 1
            assert error.fix, f"{damage.__name__} {number}"  # noqa: PT017  a copy that loads is judged below
        else:
            same += 1
            assert found == expected, f"{damage.__name__} {number} loaded with other content"
    assert refused + same == COPIES
    assert refused >= 0.9 * COPIES, "nearly every damage shows; the rest changed nothing that is read"


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
    import polars

    rows = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2).records()
    carp.build_corpus(carp.read_reviews(polars.DataFrame(rows)), min_reviews=1).save(tmp_path / "corpus")
    with pytest.raises(UsageError, match="this is a corpus, not a model"):
        carp.load(tmp_path / "corpus")


def test_loading_needs_neither_the_corpus_nor_the_process_that_fitted(rec, tmp_path):
    """Two fresh processes fit with the same seed; a third loads, in an empty folder, with reading reviews forbidden."""
    asked = [[sys.executable, __file__, str(tmp_path / name)] for name in ("one", "two")]
    fits = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in asked]
    for fit in fits:
        assert fit.wait(timeout=120) == 0, fit.stderr.read()
        fit.stderr.close()
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two, "the same seed in fresh processes gives the same weights"
    rec.save(tmp_path / "three")
    assert (tmp_path / "three" / "model.safetensors").read_bytes() == one

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


if __name__ == "__main__":
    torch.set_num_threads(1)
    fitted().save(sys.argv[1])
