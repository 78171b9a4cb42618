"""The server of a `postgresql` store: connecting, reading and writing, and connecting again when it was away."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

from upskill.errors import StoreError, UsageError
from upskill.runs.stores import Run, without_password
from upskill.runs.stores.database import ConnectionLost, Database, Transaction, run_is_taken
from upskill.runs.stores.group_writer import Group, GroupWriter, by_statement
from upskill.runs.stores.postgres_driver import errors, pq, psycopg
from upskill.runs.stores.postgres_errors import hint_for, is_passing
from upskill.runs.stores.postgres_tables import OLDEST_SERVER, lock_number, migrate, version_of
from upskill.runs.stores.postgres_url import location_of, parse_url
from upskill.runs.stores.postgres_writes import INCOMING_TABLES, write_rows

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 300.0  # seconds that a server which answered before may be away
OPENING_PATIENCE = 30.0  # seconds for one that is starting, or has too many clients
LONGEST_PAUSE = 5.0
ROWS_AT_ONCE = 128
NOTE_MILLISECONDS = 1000
MOST_IDLE = 8  # connections
FULL_HINT = "Free some space on the server, then run the same command again: it resumes from what was saved."

logger = logging.getLogger(__name__)


class PostgresServer(Database):
    ERRORED = "results"
    EXACT = "{}::numeric"

    def __init__(self, url: str, *, create: bool) -> None:
        self._url = url
        self._shown = without_password(url)
        self._parameters, self.schema = parse_url(url)
        self._idle: list[Connection] = []
        self._streaming: set[Connection] = set()
        self._closed = False
        self._claims: dict[int, Connection] = {}  # by the number of the run
        self._writing: Connection | None = None
        self._unnoted: set[int] = set()  # runs that have changed, by their numbers
        db = self._retry("cannot be reached", self._connect, opening=True)
        try:
            self._shown = location_of(db, self.schema, self._parameters)
            self.found = self._prepare(db, create=create)
        except psycopg.Error as error:
            db.close()
            hint = f"It needs a schema of its own. Its owner can make one: CREATE SCHEMA {self.schema} AUTHORIZATION …"
            is_denied = isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction)
            raise UsageError(self._words("cannot be used as a store", error), hint if is_denied else "") from None
        except BaseException:
            db.close()
            raise
        self._put(db)
        self._group = GroupWriter(self._commit, self._shown)

    def _prepare(self, db: Connection, *, create: bool) -> bool:
        """False where there is no store, and it was not to be made."""
        if db.info.server_version < OLDEST_SERVER:
            raise UsageError(f"{self._shown}: is older than PostgreSQL {OLDEST_SERVER // 10000}", "Upgrade the server.")
        if (encoding := db.info.parameter_status("server_encoding")) != "UTF8":
            hint = "Make one that can hold every text: createdb --encoding UTF8 --template template0 NAME."
            raise UsageError(f"{self._shown}: the database holds {encoding} and not UTF8", hint)
        if not create and not version_of(db, self.schema):
            return False
        migrate(db, self.schema, self._shown)
        return True

    @property
    def location(self) -> str | None:
        return self._shown

    @property
    def place(self) -> str | None:
        return self._url

    def check_damage(self) -> None:
        """The server looks after its files; `upskill store check` reads everything."""

    def integrity(self) -> list[str]:
        invalid = self._rows(
            "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
            " WHERE NOT indisvalid AND relnamespace = current_schema()::regnamespace"
        )
        broken = self._rows(
            "SELECT checksum_failures FROM pg_stat_database"
            " WHERE datname = current_database() AND checksum_failures > 0"
        )
        return [
            *(f"the index {name} is not valid; REINDEX it" for (name,) in invalid),
            *(f"the server found {pages} damaged pages in this database" for (pages,) in broken),
        ]

    def compact(self) -> None:
        with self._connection() as db:
            for table in ("results", "replies", "runs"):
                db.execute(f"VACUUM (ANALYZE) {table}".encode())

    def close(self) -> None:
        """Write what is waiting, then close. What was acknowledged is safe without this."""
        try:
            self._group.close()
            if self._writing and not self._writing.closed:
                with suppress(psycopg.Error):
                    self._note_changes(self._writing)
        finally:
            self._closed = True
            self._close_idle()
            # A stream that nobody reads to its end has a connection, too, for as long as somebody holds it.
            for db in (*self._streaming, *([self._writing] if self._writing else ())):
                db.close()

    # Connections.

    def _connect(self) -> Connection:
        db = psycopg.connect(**self._parameters, autocommit=True)
        try:
            # How soon the server notices that a machine is gone, and gives up its claims.
            db.execute(
                f'SET search_path TO "{self.schema}"; SET tcp_keepalives_idle TO 30; SET tcp_keepalives_interval TO 10;'
                "SET tcp_keepalives_count TO 3; SET idle_in_transaction_session_timeout TO 0".encode()
            )
        except BaseException:
            db.close()
            raise
        return db

    def _take(self) -> Connection:
        """A connection that nobody else uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _put(self, db: Connection) -> None:
        idle = not db.closed and db.info.transaction_status is pq.TransactionStatus.IDLE
        if not idle or len(self._idle) >= MOST_IDLE:
            db.close()
        else:
            self._idle.append(db)
        if self._closed:  # maybe in another thread, a moment ago
            self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):  # other threads take some of them
            while True:
                self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        db = self._take()
        try:
            yield db
        except BaseException:
            db.close()
            raise
        self._put(db)

    def _retry(self, what: str, work: Callable[[], T], *, opening: bool = False) -> T:
        """Do this, again and again while the server is away; one that never answered has to be about to."""
        until, pause = time.monotonic() + (OPENING_PATIENCE if opening else PATIENCE), 0.0
        while True:
            try:
                return work()
            except psycopg.Error as error:
                if not is_passing(error, opening=opening) or time.monotonic() + pause > until:
                    raise self._failure(what, error, opening=opening) from None
                if not pause:
                    logger.warning("%s", self._words("connection lost, trying again", error))
            self._close_idle()  # most likely lost too
            time.sleep(pause)
            pause = min(max(2 * pause, 0.05), LONGEST_PAUSE)

    def _failure(self, what: str, error: psycopg.Error, *, opening: bool = False) -> StoreError | UsageError:
        words = self._words(what, error)
        if opening:
            return UsageError(words, hint_for(str(error)))
        if isinstance(error, errors.DiskFull):
            return StoreError(words, FULL_HINT)
        again = "Is the server running? The same command resumes from what was saved."
        return StoreError(words, again if is_passing(error) else "")

    def _words(self, what: str, error: psycopg.Error) -> str:
        """What the server says, in one line and without a password."""
        said = re.sub(r"\s+", " ", (error.diag.message_primary or str(error)).partition("\n")[0]).strip()
        for name in ("password", "sslpassword"):
            if secret := self._parameters.get(name):
                said = said.replace(str(secret), "***")
        if secret := os.environ.get("PGPASSWORD"):
            said = said.replace(secret, "***")
        return f"{self._shown}: {what}: {said}"

    # Reading.

    def _rows(self, query: str, *values: Any) -> list[Any]:
        def read() -> list[Any]:
            with self._connection() as db:
                return _restored(db.execute(_sql(query), _storable(values)).fetchall())

        return self._retry("cannot be read", read)

    def _stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Rows as they are needed, by a cursor on the server: through a connection of its own, until it is done."""

        def begin() -> tuple[Connection, psycopg.ServerCursor[Any], list[Any]]:
            db = self._take()
            cursor = db.cursor("rows")
            try:
                db.execute("BEGIN READ ONLY")
                cursor.execute(_sql(query), _storable(values))
                return db, cursor, cursor.fetchmany(ROWS_AT_ONCE)
            except BaseException:
                db.close()
                cursor.close()
                raise

        db, cursor, rows = self._retry("cannot be read", begin)
        self._streaming.add(db)
        try:
            while rows:
                yield from _restored(rows)
                rows = cursor.fetchmany(ROWS_AT_ONCE) if len(rows) == ROWS_AT_ONCE else []
        except psycopg.Error as error:
            db.close()
            raise self._failure("cannot be read", error) from None
        finally:
            try:
                cursor.close()
                db.execute("ROLLBACK")
            except psycopg.Error:  # the connection is lost
                db.close()
                cursor.close()
            self._streaming.discard(db)
            self._put(db)

    # Writing.

    @contextmanager
    def _transaction(self) -> Generator[Transaction]:
        def begin() -> Connection:
            db = self._take()
            try:
                db.execute("BEGIN")
                db.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.schema, "transaction"),))
            except BaseException:
                db.close()
                raise
            return db

        db = self._retry("cannot be written", begin)
        try:
            yield _Statements(db)
            db.execute("COMMIT")
        except psycopg.Error as error:
            db.close()
            if is_passing(error):
                raise ConnectionLost(self._words("cannot be written", error)) from None
            raise self._failure("cannot be written", error) from None
        except BaseException:
            db.close()
            raise
        self._put(db)

    def _write(self, statement: str, values: tuple[Any, ...]) -> Awaitable[None]:
        return self._group.write(statement, values)

    def _write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        self._group.write_later(statement, values)

    def _writing_connection(self) -> Connection:
        if self._writing is None or self._writing.closed:
            db = self._connect()
            try:
                db.execute(b"SET upskill.group_writer TO 'on';" + INCOMING_TABLES)
                self._renew_claims()
            except BaseException:
                db.close()
                raise
            self._writing = db
        return self._writing

    def _commit(self, groups: list[Group]) -> None:
        """All of these or none. What is written twice, because nobody knows whether it was, is there once."""

        def commit() -> None:
            db = self._writing_connection()
            try:
                with db.transaction():
                    for statement, rows in by_statement(groups):
                        self._unnoted |= write_rows(db, statement, map(_storable, rows))
                self._note_changes(db)
            except BaseException:
                db.close()
                raise

        self._retry("results cannot be saved", commit)

    def _note_changes(self, db: Connection) -> None:
        """Tell those who look which runs have changed. Somebody may be deleting a large run and keep us from it: then
        they are told with the next commit, and nobody who writes waits."""
        if not self._unnoted:
            return
        runs = ",".join(map(str, sorted(self._unnoted)))
        try:
            db.execute(  # not durable by itself: what it speaks of is
                f"BEGIN; SET LOCAL synchronous_commit TO off; SET LOCAL lock_timeout TO {NOTE_MILLISECONDS};"
                f"SELECT note_changes('{{{runs}}}'); COMMIT".encode()
            )
        except errors.LockNotAvailable:
            db.execute("ROLLBACK")
        else:
            self._unnoted.clear()

    # Claims.

    @contextmanager
    def claim(self, run: Run) -> Generator[None]:
        def take() -> Connection | None:
            db = self._take()
            try:
                if self._try_claim(db, run.number):
                    return db
            except BaseException:
                db.close()
                raise
            self._put(db)
            return None

        if (db := self._retry("cannot be written", take)) is None:
            raise run_is_taken(run)
        self._claims[run.number] = db
        try:
            yield
        finally:
            db = self._claims.pop(run.number)
            with suppress(psycopg.Error):  # a connection that is lost has given it up
                db.execute("SELECT pg_advisory_unlock(%s)", (lock_number(self.schema, f"run {run.number}"),))
            self._put(db)

    def is_claimed(self, run: Run) -> bool:
        number = lock_number(self.schema, f"run {run.number}") % 2**64
        return bool(
            self._rows(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND classid::bigint = ? AND objid::bigint = ?",
                *divmod(number, 2**32),
            )
        )

    def _try_claim(self, db: Connection, run: int) -> bool:
        row = db.execute("SELECT pg_try_advisory_lock(%s)", (lock_number(self.schema, f"run {run}"),)).fetchone()
        return bool(row and row[0])

    def _renew_claims(self) -> None:
        """A server that was away has forgotten who had which run."""
        for run, db in list(self._claims.items()):
            try:
                db.execute("SELECT 1")
            except psycopg.Error:
                db.close()
                self._claims[run] = self._connect()
                if not self._try_claim(self._claims[run], run):
                    self._claims[run].close()  # and so it is asked for again before anything is written
                    raise StoreError(
                        f"{self._shown}: another process took over the run while the connection was lost",
                        "Wait for it, then run the same command again.",
                    ) from None


class _Statements:
    """A transaction, in the words of `Database`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        return self._db.execute(_sql(query), _storable(values))

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> Any:
        with self._db.cursor() as cursor:
            cursor.executemany(_sql(query), [_storable(row) for row in rows])


@lru_cache(maxsize=256)
def _sql(query: str) -> bytes:
    return query.replace("%", "%%").replace("?", "%s").encode()


# PostgreSQL has no place for a zero in a text, so it is stored as these two characters.
_ESCAPE = "\x1a"


def _storable(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        value.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")
        if isinstance(value, str) and ("\0" in value or _ESCAPE in value)
        else value
        for value in values
    )


def _restored(rows: list[Any]) -> list[Any]:
    """Hardly any text has such characters, so a column of them is looked through at once."""
    texts = ([value for value in column if isinstance(value, str)] for column in zip(*rows, strict=True))
    return [tuple(map(_restore, row)) for row in rows] if any(_ESCAPE in "".join(text) for text in texts) else rows


def _restore(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)
