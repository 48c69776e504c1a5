"""Reviews by a query, from SQLite, DuckDB and a real PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import uuid
from datetime import date
from pathlib import Path

import duckdb
import psycopg
import pytest

from carp.cli.entry import main
from carp.errors import InputError, UsageError
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.corpora.preparation import prepare_corpus
from carp.reviews.sources.databases import SqlQuery
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.request import SourceRequest

ROWS = [
    ("ann", "lamp", 5, "Bright, and it was cheap.", "2024-03-01"),
    ("Zoë", "lamp", 2, "It flickers.", "2024-03-02"),
    ("ann", "desk", 4, "Solid wood, but heavy.", None),
    ("bob", "desk", 9, "Off the scale.", None),
]
TABLE = "create table reviews (customer varchar(40), sku varchar(40), stars numeric(3, 1), comment text, date date)"
INSTALL = "CARP_INSTALL_POSTGRES"
PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def filled(connection, sign):
    cursor = connection.cursor()
    cursor.execute(TABLE)
    cursor.executemany(f"insert into reviews values ({', '.join([sign] * 5)})", ROWS)
    connection.commit()
    connection.close()


@pytest.fixture
def sqlite_file(tmp_path):
    filled(sqlite3.connect(tmp_path / "shop.sqlite"), "?")
    return str(tmp_path / "shop.sqlite")


@pytest.fixture
def duckdb_file(tmp_path):
    filled(duckdb.connect(str(tmp_path / "shop.duckdb")), "?")
    return str(tmp_path / "shop.duckdb")


def expect(database, shown=None):
    reviews = read_reviews("select * from reviews", database=database, rating_range=(1, 5))
    found = sorted(zip(reviews.users, reviews.items, reviews.ratings.tolist(), strict=True))
    assert found == [("Zoë", "lamp", 2), ("ann", "desk", 4), ("ann", "lamp", 5)]
    assert sorted(time or 0 for time in reviews.times) == [0, 1709251200, 1709337600]
    assert (reviews.ledger.read, reviews.ledger.accepted) == (4, 3)
    assert "9" in reviews.ledger.rejections[0].value
    assert reviews.columns == {"user": "customer", "item": "sku", "rating": "stars", "text": "comment", "time": "date"}
    assert (reviews.format, reviews.sources) == ("sql", [shown or database])


def test_a_query_to_sqlite_and_duckdb_gives_reviews(sqlite_file, duckdb_file):
    for database in (sqlite_file, duckdb_file, f"sqlite:///{sqlite_file}", f"duckdb://{duckdb_file}"):
        expect(database)


def test_duckdb_reads_files_by_a_query(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating,text\nann,lamp,5,fine\nbob,desk,1,bad\n")
    query = f"select *, upper(text) as shouted from '{tmp_path}/r.csv' where rating > 2"
    reviews = read_reviews(query, database="duckdb://", columns={"text": "shouted"})
    assert reviews.texts == ["FINE"]


def test_preparing_by_a_query_makes_a_corpus(tmp_path, sqlite_file, capsys):
    out = tmp_path / "corpus"
    query = SqlQuery("select customer, sku, stars, comment from reviews where stars <= 5", sqlite_file)
    assert prepare_corpus(query, out, SourceRequest(), min_reviews=1).facts["read"] == 3
    words = ["prepare", "--sql", query.query, "--database", query.database, "--out", str(out), "--overwrite"]
    assert main([*words, "--min-reviews", "1"]) == 0
    assert "user is customer, item is sku" in capsys.readouterr().out
    assert len(Corpus.load(out)) == 3


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select * from nothing", "refuses the query.*nothing"),
        ("selec", "refuses the query"),
        ("delete from reviews", "refuses the query|gives no rows"),
        ("select sku, stars from reviews", "no column is recognised as user or text"),
        ("select * from reviews where stars > 100", "the query gives no rows"),
    ],
)
def test_a_query_that_fails_is_told_in_one_sentence_and_changes_nothing(sqlite_file, duckdb_file, query, words):
    for database in (sqlite_file, duckdb_file):
        with pytest.raises(InputError, match=words) as refused:
            read_reviews(query, database=database)
        assert database in str(refused.value)
        expect(database)


def test_a_command_whose_query_fails_prints_one_line_and_no_complaint_of_the_library_as_it_ends(duckdb_file, tmp_path):
    query = [
        "prepare",
        "--sql",
        "select * from nothing",
        "--database",
        str(duckdb_file),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run([sys.executable, "-m", "carp", *query], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    [said] = done.stderr.splitlines()
    assert said.startswith("carp: ")
    assert "refuses the query" in said


def test_databases_that_are_none_are_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("not a database")
    with pytest.raises(InputError, match="no database of SQLite or DuckDB"):
        read_reviews("select 1", database=str(tmp_path / "notes.txt"))
    with pytest.raises(InputError, match="no such database"):
        read_reviews("select 1", database=str(tmp_path / "absent.db"))
    with pytest.raises(UsageError, match="query is empty"):
        read_reviews(" ", database="duckdb://")
    for words in (["--sql", "select 1"], ["--database", "x"], [], ["a.csv", "--sql", "x", "--database", "y"]):
        assert main(["prepare", *words, "--out", str(tmp_path / "out")]) == 2
    assert "files and a query cannot be mixed" in capsys.readouterr().err


def test_a_password_is_never_shown():
    address = "postgresql://ann:secret@127.0.0.1:1/shop"
    with pytest.raises(InputError, match=r"ann:…@127\.0\.0\.1:1/shop") as refused:
        read_reviews("select 1", database=address)
    assert "secret" not in str(refused.value)


# ---- PostgreSQL


def postgres_programs():
    """The folder of PostgreSQL's programs; installed from the distribution's packages where that is asked for."""
    if not PLACES and os.environ.get(INSTALL) == "1" and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "postgresql"], check=True)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not found:
        pytest.skip(f"PostgreSQL is not installed; make test-postgres installs it (sets {INSTALL}=1)")
    return found[0]


@pytest.fixture
def postgres(tmp_path):
    """A server of our own on a free port of this machine, gone after the test."""
    programs, folder = postgres_programs(), tmp_path / "server"
    folder.mkdir()
    owner = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        owner = {"user": "postgres"}
        shutil.chown(folder, "postgres")
        for parent in folder.parents:
            if parent.owner() == "root" and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o055)
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, quiet = folder / "data", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **owner}
    setup = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "carp",
        "--auth=trust",
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C",
    ]
    subprocess.run(setup, check=True, **quiet)
    control = [programs / "pg_ctl", "-D", data, "-w"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    subprocess.run([*control, "-o", options, "-l", folder / "log", "start"], check=True, **quiet)
    yield f"postgresql://carp:secret@127.0.0.1:{port}/postgres"
    subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)


def test_a_query_to_a_real_postgresql_gives_reviews(tmp_path, postgres):
    filled(psycopg.connect(postgres), "%s")
    shown = postgres.replace("secret", "…")
    expect(postgres, shown)
    with pytest.raises(InputError, match=r'refuses the query \(relation "nothing" does not exist'):
        read_reviews("select * from nothing", database=postgres)
    with pytest.raises(InputError, match="refuses the query"):
        read_reviews("delete from reviews returning *", database=postgres)
    expect(postgres, shown)
    with psycopg.connect(postgres) as connection:
        connection.execute("create table rated (id uuid, thing int, grade float8, said text, at timestamptz)")
        row = (uuid.UUID(int=7), 12, 4.5, "Fine.", date(2024, 3, 1))
        connection.execute("insert into rated values (%s, %s, %s, %s, %s)", row)
        connection.execute(
            "insert into rated select id, n, 3, 'Text ' || n, null from rated, generate_series(1, 25000) n"
        )
    columns = {"user": "id", "item": "thing", "rating": "grade", "text": "said", "time": "at"}
    reviews = read_reviews("select * from rated", database=postgres, columns=columns)
    assert len(reviews) == 25_001
    assert (reviews.users[0], reviews.items[0], reviews.ratings[0]) == (str(uuid.UUID(int=7)), "12", 4.5)
    query = SqlQuery("select * from reviews where stars < 6", postgres)
    assert prepare_corpus(query, tmp_path / "corpus", SourceRequest(), min_reviews=1).facts["sources"] == [shown]
