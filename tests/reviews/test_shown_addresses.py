"""Passwords, keys and tokens in addresses: they reach the store, and nothing that is printed or kept."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from carp.cli.entry import main
from carp.errors import CarpError, InputError
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources import databases
from carp.reviews.sources.addresses import address_errors, in_short
from carp.reviews.sources.databases import SqlQuery
from carp.reviews.sources.formats import read_reviews
from carp.scale.served_copies import ServedCopies
from carp.serve.server import ServiceOptions
from carp.shown_addresses import shown_address, without_secrets

WITH_SECRETS = {
    "postgresql://ann:pw-1@shop/r": "postgresql://ann:…@shop/r",
    "postgresql://shop/r?user=ann&password=pw-1": "postgresql://shop/r?user=ann&password=…",
    "postgresql://shop/r?password=p@pw-1&sslpassword=pw-1&sslmode=require": "postgresql://shop/r?password=…"
    "&sslpassword=…&sslmode=require",
    "postgresql:///r?host=/run&pass%77ord=pw-1": "postgresql:///r?host=/run&pass%77ord=…",
    "postgresql://ann:p@pw-1@shop/r": "postgresql://ann:…@shop/r",
    "postgresql://ann:p/pw-1@shop/r": "postgresql://ann:…@shop/r",
    "postgresql://ann:12/pw-1@shop/r": "postgresql://ann:…@shop/r",
    "postgresql://ann:p?pw-1@shop/r": "postgresql://ann:…@shop/r",
    "postgresql://ann:pw-1@shop:5432,other:5433/r": "postgresql://ann:…@shop:5432,other:5433/r",
    "host=shop user=ann password=pw-1": "host=shop user=ann password=…",
    "host=shop password='pw-1' user=ann": "host=shop password=… user=ann",
    "mysql://:pw-1@shop": "mysql://:…@shop",
    "ftp://ann:pw-1@host/a.csv": "ftp://ann:…@host/a.csv",
    "https://ann:pw-1@host:80/a@b.csv": "https://ann:…@host:80/a@b.csv",
    "https://pw-1@host/a.csv": "https://…@host/a.csv",
    "https://host/a.csv?page=1;token=x;pw-1&page=2#access_token=pw-1": "https://host/a.csv?page=1;token=…&page=2"
    "#access_token=…",
    "https://b.host/a?X-Amz-Credential=A/2&X-Amz-Date=1&X-Amz-Signature=pw-1": "https://b.host/a?X-Amz-Credential=…"
    "&X-Amz-Date=1&X-Amz-Signature=…",
    "zip://*.csv::ftp://ann:pw-1@host/a.zip": "zip://*.csv::ftp://ann:…@host/a.zip",
}
WITHOUT = [
    "postgresql://ann@shop:5432/reviews?sslmode=require",
    "postgresql://shop:5432,other:5433/reviews",
    "s3://bucket/year=2014/token=5/a.csv",
    "s3://arn:aws:s3:us-west-2:123:accesspoint/name/key",
    "abfs://container@account.dfs.core.windows.net/a.csv",
    "hf://datasets/ann/reviews@main/a.csv",
    "https://[::1]:8000/a@b.csv?page=2",
    "memory://bucket/*.csv",
    "file:///data/a@b:c.csv",
    "shop.sqlite",
    "duckdb://",
]


@pytest.mark.parametrize(("address", "shown"), WITH_SECRETS.items())
def test_an_address_is_shown_without_its_secrets(address, shown):
    assert shown_address(address) == shown
    assert shown_address(shown) == shown
    assert SqlQuery("select 1", address).shown == shown
    assert "pw-1" not in without_secrets(f"no answer from {address}: is pw-1 right?", address)


@pytest.mark.parametrize("address", WITHOUT)
def test_an_address_without_secrets_is_shown_as_it_is(address):
    assert shown_address(address) == address
    assert without_secrets(f"{address}: nothing is there, see https://host/help", address).startswith(address)


def test_what_a_driver_made_of_a_password_is_hidden_too(monkeypatch):
    address = "postgresql://ann:p@ss%21@shop/r"

    def refuse(_):
        raise RuntimeError('could not translate host name "ss%21@shop", user "ann", password p@ss! or p@ss%21')

    monkeypatch.setattr(databases, "_connection", refuse)
    with pytest.raises(InputError) as refused:
        read_reviews("select 1", database=address)
    told = str(refused.value)
    assert told.startswith(
        'postgresql://ann:…@shop/r: the database refuses the query (could not translate host name "…'
    )
    assert 'user "ann"' in told
    assert "ss!" not in told
    assert "ss%21" not in told


@pytest.mark.parametrize(
    "database", ["host=shop password=pw-1", r"host=shop password='it\'s pw-1'", "mysql://ann:pw-1@shop/r"]
)
def test_a_database_that_is_none_is_named_without_its_password(database):
    with pytest.raises(InputError, match="no such database") as refused:
        read_reviews("select 1", database=database)
    assert "pw-1" not in f"{refused.value} {refused.value.where}"


def test_a_short_secret_is_hidden_where_it_stands_alone():
    assert without_secrets("is 12 right? line 312", "ftp://ann:12@host/a") == "is … right? line 312"
    assert without_secrets("it has no letter", "ftp://ann:t@host/a") == "it has no letter"


def test_every_error_names_addresses_without_their_secrets():
    address = "ftp://ann:pw-1@host/a.csv"
    assert "pw-1" not in str(CarpError("it is not there", where=address, fix=f"look at {address}, or try again"))
    error = OSError(f"{'long ' * 36}{address}")
    assert "pw" not in in_short(error), "also where what is said is cut short"
    with pytest.raises(InputError) as refused, address_errors(address):
        raise OSError(f"530 {address}: pw-1 is no password")
    assert refused.value.what == "the address cannot be read (OSError: 530 ftp://ann:…@host/a.csv: … is no password)"
    assert refused.value.where == "ftp://ann:…@host/a.csv"


def test_a_served_model_is_named_without_its_secrets():
    copies = ServedCopies("ftp://ann:pw-1@host/model", Path("copies"))
    assert ServiceOptions(Path("copies/model"), copies=copies).place == "ftp://ann:…@host/model"


class Guarded(MemoryFileSystem):  # type: ignore[misc]
    """A store that asks for a password, which is written in the address; its paths do not have the host."""

    protocol = "guarded"
    store: dict[str, object] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def __init__(self, password=None, **more):
        assert password == "pw-1"
        super().__init__(**more)

    @classmethod
    def _strip_protocol(cls, path):
        if "://" in path:
            path = f"/{path.partition('://')[2].partition('/')[2]}"
        return path.rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        return {"password": path.partition("://")[2].partition("@")[0].partition(":")[2]}


@pytest.fixture
def guarded():
    fsspec.register_implementation("guarded", Guarded, clobber=True)
    system = fsspec.filesystem("guarded", password="pw-1")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def everything_in(folder):
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())


@pytest.mark.parametrize("given", ["set/a.csv", "set", "set/*.csv"])
def test_a_password_reaches_the_store_and_neither_the_terminal_nor_the_corpus_nor_the_model(
    guarded, tmp_path, monkeypatch, capsys, given, single_thread
):
    monkeypatch.chdir(tmp_path)
    rows = [f"{one['user']},{one['item']},{one['rating']},{one['text']!r}" for one in _shop()]
    guarded.pipe("/set/a.csv", "\n".join(["user\titem\trating\ttext", *_tabbed(rows), "ann\tlamp\tmany\tno"]).encode())
    address = f"guarded://ann:pw-1@host/{given}"
    shown = "guarded://ann:…@host/set/a.csv"
    assert main(["prepare", address, "--out", "corpus", "--min-reviews", "1"]) == 0
    assert Corpus.load(tmp_path / "corpus").facts["sources"] == [shown]
    assert json.loads((tmp_path / "corpus" / "rejects.jsonl").read_text().splitlines()[1])["file"] == shown
    corpus = Corpus.load(tmp_path / "corpus")
    split = [f"{corpus.users[u]},{corpus.items[i]}" for u, i in zip(corpus.user, corpus.item, strict=True)]
    parts = ["valid"] * 3 + ["test"] * 3 + ["train"] * (len(split) - 6)
    listed = [f"{pair},{part}" for pair, part in zip(split, parts, strict=True)]
    guarded.pipe("/split.csv", "\n".join(["user,item,split", *listed]).encode())
    words = ["--model", "bias", "--device", "cpu", "--split", "guarded://ann:pw-1@host/split.csv"]
    assert main(["train", "corpus", "--out", "model", *words]) == 0
    assert main(["prepare", f"{address}.not", "--out", "none"]) == 1
    said = capsys.readouterr()
    assert "guarded://ann:…@host/split.csv" in said.out
    assert "pw-1" not in said.out + said.err
    assert b"pw-1" not in everything_in(tmp_path)


def _shop():
    return make_shop(people=12, things=8, reviews_per_person=6, seed=1).records()


def _tabbed(rows):
    return ["\t".join(row.split(",", 3)) for row in rows]
