"""Names on a disk are bytes: a file whose name is not UTF-8 is read like any other, and named in messages and files."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import sys
import zipfile
from pathlib import Path

import polars
import pytest

import carp
from carp.cli.entry import main
from carp.errors import InputError
from carp.reviews.sources.databases import SqlQuery
from carp.reviews.sources.pair_files import read_pairs
from carp.storage import shown_path

TEXTS = ["A loud amplifier.", "Light and loud.", "The strap broke.", "A cheap strap, and light."]
ROWS = [(f"u{n % 4}", f"i{n % 3}", 1 + n % 5, f"{TEXTS[n % 4]} Number{n}") for n in range(12)]
TABLE = polars.DataFrame(ROWS, schema=["user", "item", "rating", "text"], orient="row")
STRANGE, SHOWN = b"caf\xe9", r"caf\xe9"

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")


def strange(folder, ending):
    """A path in a folder whose name is not UTF-8, which begins a file with an ending."""
    return Path(os.fsdecode(os.fsencode(folder) + b"/" + STRANGE + ending.encode()))


def write_workbook(file):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (TABLE.columns, *ROWS):
        book.active.append(list(row))
    with file.open("wb") as content:
        book.save(content)


def write_zip(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("reviews.csv", TABLE.write_csv())


WRITERS = {
    ".csv": lambda file: file.write_text(TABLE.write_csv()),
    ".jsonl": lambda file: file.write_text(TABLE.write_ndjson()),
    ".parquet": lambda file: file.write_bytes(parquet()),
    ".xlsx": write_workbook,
    ".zip": write_zip,
}


def parquet():
    content = io.BytesIO()
    TABLE.write_parquet(content)
    return content.getvalue()


def written(folder, ending):
    file = strange(folder, ending)
    WRITERS[ending](file)
    return file


@pytest.mark.parametrize("ending", WRITERS)
def test_reviews_are_prepared_and_their_file_is_named(tmp_path, ending):
    file = written(tmp_path, ending)
    assert main(["prepare", str(file), "--out", str(tmp_path / "corpus"), "--min-reviews", "1"]) == 0
    about = json.loads((tmp_path / "corpus" / "corpus.json").read_text("utf-8"))
    assert SHOWN in json.dumps(about, ensure_ascii=False).replace("\\\\", "\\")
    assert len(carp.Corpus.load(tmp_path / "corpus")) == len(ROWS)
    assert file.exists(), "what was read stays, by whatever name it was read"


def test_rejected_records_name_their_file(tmp_path, capsys):
    file = strange(tmp_path, ".csv")
    file.write_text(TABLE.write_csv() + "ann,tea,five stars,Good\n")
    assert main(["prepare", str(file), "--out", str(tmp_path / "corpus"), "--min-reviews", "1"]) == 0
    assert SHOWN in capsys.readouterr().out.replace("\n", "")
    lines = (tmp_path / "corpus" / "rejects.jsonl").read_text("utf-8").splitlines()
    assert json.loads(lines[1])["file"] == f"{tmp_path}/{SHOWN}.csv"


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_folder_of_such_a_name_is_read(tmp_path, ending):
    folder = strange(tmp_path, "") / "year=2014"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        WRITERS[ending](folder / f"{name}{ending}")
    reviews = carp.read_reviews(folder.parent)
    assert len(reviews) == 2 * len(ROWS)
    assert all(SHOWN in name for name in reviews.sources)


def test_a_table_with_a_part_of_such_a_name_is_refused_in_words(tmp_path):
    (tmp_path / "table").mkdir()
    part = strange(tmp_path / "table", ".parquet")
    part.write_bytes(parquet())
    with pytest.raises(InputError, match="the name of this part of the table is not in UTF-8") as caught:
        carp.read_reviews(tmp_path / "table")
    assert caught.value.where == f"{tmp_path}/table/{SHOWN}.parquet"
    assert len(carp.read_reviews([part])) == len(ROWS)


def test_files_about_items_have_such_names(tmp_path):
    reviews, items = written(tmp_path, ".csv"), strange(tmp_path, "-items.csv")
    items.write_text("item,title\ni0,Zero\ni1,One\ni2,\n")
    command = ["prepare", str(reviews), "--items", str(items), "--min-reviews", "1"]
    assert main([*command, "--out", str(tmp_path / "corpus")]) == 0
    assert carp.Corpus.load(tmp_path / "corpus").item_texts is not None


@pytest.mark.parametrize("ending", WRITERS)
def test_pairs_are_read_from_such_a_file(tmp_path, ending):
    pairs = read_pairs(str(written(tmp_path, ending)))
    assert pairs.pairs[0] == ("u0", "i0")


def test_a_bad_row_of_pairs_names_the_file(tmp_path):
    file = strange(tmp_path, ".csv")
    file.write_text("user,item\nu0\n")
    with pytest.raises(InputError) as caught:
        read_pairs(str(file))
    assert caught.value.where == f"{tmp_path}/{SHOWN}.csv, line 2"


def test_a_database_has_such_a_name(tmp_path):
    file = strange(tmp_path, ".db")
    made = sqlite3.connect(tmp_path / "plain.db")
    made.execute("create table reviews (user, item, rating, text)")
    made.executemany("insert into reviews values (?, ?, ?, ?)", ROWS)
    made.commit()
    made.close()
    shutil.move(tmp_path / "plain.db", file)
    query = ["--sql", "select * from reviews", "--database", str(file)]
    assert main(["prepare", *query, "--out", str(tmp_path / "corpus"), "--min-reviews", "1"]) == 0
    assert SqlQuery("select 1", str(file)).shown == f"{tmp_path}/{SHOWN}.db"


@pytest.mark.parametrize("name", [os.fsdecode(STRANGE), "caf\ud800"], ids=["bytes", "half a pair"])
def test_what_is_not_there_is_named_in_words_that_can_be_written(tmp_path, name):
    for place in (tmp_path / name, f"{tmp_path}/{name}*.csv"):
        with pytest.raises(InputError) as caught:
            carp.read_reviews(str(place))
        str(caught.value).encode()


def test_a_split_and_a_corpus_may_have_such_names(tmp_path):
    corpus, split = strange(tmp_path, ""), strange(tmp_path, "-split.csv")
    source = tmp_path / "reviews.csv"
    source.write_text(TABLE.write_csv())
    assert main(["prepare", str(source), "--out", str(corpus), "--min-reviews", "1"]) == 0
    parts = [*["train"] * 8, "valid", "valid", "test", "test"]
    split.write_text(TABLE.select("user", "item").with_columns(split=polars.Series(parts)).write_csv())
    command = ["train", str(corpus), "--model", "mean", "--split", str(split), "--quiet"]
    assert main([*command, "--out", str(tmp_path / "model")]) == 0
    about = (tmp_path / "model" / "model.json").read_text("utf-8")
    assert json.dumps(f"{tmp_path}/{SHOWN}-split.csv")[1:-1] in about
    assert main(["bench", str(corpus), "--models", "mean", "--seeds", "1", "--out", str(tmp_path / "results")]) == 0
    line = json.loads((tmp_path / "results" / "bench.jsonl").read_text("utf-8").splitlines()[0])
    assert line["corpus"] == SHOWN


def test_a_path_in_utf_8_is_shown_as_it_is():
    assert shown_path(Path("Bücher/本.csv")) == "Bücher/本.csv"
