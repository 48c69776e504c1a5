"""Reviews by a query: from SQLite and DuckDB files, and from PostgreSQL by its address.

Databases are opened for reading only, and rows are taken from them little by little.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from carp.errors import CarpError, InputError, UsageError
from carp.reviews.sources.frames import table_source
from carp.reviews.sources.request import OpenSource, SourceRequest
from carp.shown_addresses import shown_address, without_secrets
from carp.storage import shown_path

ROWS_AT_ONCE = 10_000
IN_MEMORY = "duckdb://"
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"


class SqlQuery(NamedTuple):
    """A query, and the database that answers it: a file, or an address such as postgresql://user@host/name."""

    query: str
    database: str

    @property
    def shown(self) -> str:
        """The database as it may be shown and kept: without the password.

        >>> SqlQuery("select 1", "postgresql://ann:secret@shop/reviews").shown
        'postgresql://ann:…@shop/reviews'
        """
        return shown_address(shown_path(self.database))


class _Answer(NamedTuple):
    names: list[str]
    rows: Iterator[Sequence[Any]]


def read_sql(asked_for: SqlQuery, asked: SourceRequest) -> OpenSource:
    """The rows that a query gives, as reviews. The columns are recognised by their names."""
    if not asked_for.query.strip():
        raise UsageError("the query is empty", where="--sql", fix="write a query such as: select * from reviews")
    rows = _rows(asked_for)
    names = next(rows)
    return table_source([str(name) for name in names], rows, asked_for.shown, "sql", asked)


def _rows(asked_for: SqlQuery) -> Iterator[Sequence[Any]]:
    """The names of the columns, and then the rows. The database is closed after the last one."""
    with (
        _sql_errors(asked_for),
        closing(_connection(asked_for)) as connection,
        closing(_cursor(connection)) as cursor,
    ):
        cursor.execute(asked_for.query)
        if cursor.description is None:
            fix = "write a query that selects rows, such as: select * from reviews"
            raise InputError("the query gives no rows", where=asked_for.shown, fix=fix)
        yield [column[0] for column in cursor.description]
        while found := cursor.fetchmany(ROWS_AT_ONCE):
            for row in found:
                yield [str(value) if isinstance(value, UUID) else value for value in row]


def _cursor(connection: Any) -> Any:
    """A cursor that does not bring all rows at once: PostgreSQL keeps them only for one with a name."""
    return connection.cursor("carp") if type(connection).__module__.startswith("psycopg") else connection.cursor()


def _connection(asked_for: SqlQuery) -> Any:
    database = asked_for.database
    if database.startswith(("postgresql://", "postgres://")):
        import psycopg

        connection = psycopg.connect(database, connect_timeout=10)
        connection.read_only = True
        return connection
    if database in (IN_MEMORY, ":memory:"):
        import duckdb

        return duckdb.connect()
    path = _file_of(database)
    if not path.is_file():
        fix = "give a file of SQLite or DuckDB, or an address such as postgresql://user@host/name"
        raise InputError("there is no such database", where=asked_for.shown, fix=fix)
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(_SQLITE):
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    if head[8:12] == _DUCKDB:
        import duckdb

        return duckdb.connect(str(path), read_only=True)
    fix = "give its file, or leave out --sql"
    raise InputError("this is no database of SQLite or DuckDB", where=asked_for.shown, fix=fix)


def _file_of(database: str) -> Path:
    """The file of a database, which may be given as sqlite:///shop.db or sqlite:////data/shop.db."""
    written = re.sub(r"^(?:sqlite|duckdb)://", "", database)
    after_slash = Path(written.removeprefix("/"))
    return after_slash if written != database and after_slash.is_file() else Path(written)


@contextmanager
def _sql_errors(asked_for: SqlQuery) -> Iterator[None]:
    """What a database says is told in one sentence. Each driver has its own kinds of errors."""
    try:
        yield
    except (CarpError, GeneratorExit):
        raise
    except ImportError as error:
        fix = "install it with: pip install 'carp-rec[stores]'"
        raise InputError(f"this database needs the package {error.name}", where=asked_for.shown, fix=fix) from None
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        told = without_secrets(first, asked_for.database)[:300]
        what = f"the database refuses the query ({told})"
        raise InputError(what, where=asked_for.shown, fix="check the query and the address") from None
