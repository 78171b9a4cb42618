"""The `postgresql` store: a schema in a database on a server, for many processes and machines that write at once.

A run is claimed by an advisory lock, which the server releases when its holder's connection ends.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from upskill.errors import StoreError, UsageError
from upskill.installation import add_extra
from upskill.runs.stores.addresses import without_password
from upskill.runs.stores.database import ROWS_AT_ONCE, ConnectionLost, Database, Transaction
from upskill.runs.stores.tables import VERSION, describe_other_version, postgres_schema

try:
    import psycopg
    from psycopg import conninfo, errors, pq
except ImportError as error:
    raise UsageError(
        "a postgresql:// store needs psycopg, which is not installed",
        f"Run `{add_extra('postgres')}`.",
    ) from error

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

MIN_SERVER = 120000  # PostgreSQL 12
DEFAULT_SCHEMA = "upskill"
PATIENCE = 300.0  # seconds that a server which answered before may be away
OPENING_PATIENCE = 30.0  # seconds for one that is starting, or has too many clients
MAX_PAUSE = 5.0
MAX_IDLE = 8  # connections
FULL_HINT = "Free some space on the server, then run the same command again: it resumes from what was saved."

# Of errors that pass: the server is stopping, starting or full of clients, or two writers waited for each other.
_PASSING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.IdleInTransactionSessionTimeout,
)
# The same of one that cannot be connected to, where there is no code.
_SOON = (
    "starting up",
    "not yet accepting",
    "recovery mode",
    "shutting down",
    "too many clients",
    "connection slots",
)

logger = logging.getLogger(__name__)


def open_postgres(address: str | None, *, create: bool) -> Database | None:
    """The store at a URL `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`."""
    assert address is not None
    database = PostgresDatabase(address, create=create)
    if database.exists:
        return database
    database.close()
    return None


class PostgresDatabase(Database):
    errored_results = "results"

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__(without_password(url), url)
        self._parameters, self.schema = parse_url(url)
        self._idle: list[Connection] = []
        self._streaming: set[Connection] = set()
        self._closed = False
        self._claims: dict[int, Connection] = {}  # by the number of the run
        self._has_reconnected = False  # since the claims were last known to be ours
        db = self._retry("cannot be reached", self._connect, opening=True)
        try:
            with _close_on_error(db):
                self.exists = self._prepare(db, create=create)
        except psycopg.Error as error:
            hint = f"upskill needs its own schema. Its owner can create it: CREATE SCHEMA {self.schema} AUTHORIZATION …"
            is_denied = isinstance(
                error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction
            )
            raise UsageError(
                self._message("cannot be used as a store", error), hint if is_denied else ""
            ) from None
        self._put(db)

    def _prepare(self, db: Connection, *, create: bool) -> bool:
        """False if there is no store and `create` is false."""
        if db.info.server_version < MIN_SERVER:
            raise UsageError(
                f"{self.location}: the server is older than PostgreSQL {MIN_SERVER // 10000}",
                "Upgrade the server.",
            )
        if (encoding := db.info.parameter_status("server_encoding")) != "UTF8":
            hint = "Create one with UTF8: createdb --encoding UTF8 --template template0 NAME."
            raise UsageError(
                f"{self.location}: the database encoding is {encoding}, not UTF8", hint
            )
        if not create and not _version(db, self.schema):
            return False
        _create_tables(db, self.schema, str(self.location))
        return True

    def compact(self) -> None:
        with self._connection() as db:
            for table in ("results", "replies", "runs"):
                db.execute(f"VACUUM (ANALYZE) {table}".encode())

    def close(self) -> None:
        self._writer.close()
        self._closed = True
        self._close_idle()
        # A stream that nobody reads to its end has a connection, too, for as long as somebody holds it.
        for db in self._streaming:
            db.close()

    # Connections.

    def _connect(self) -> Connection:
        db = psycopg.connect(**self._parameters, autocommit=True)
        self._has_reconnected = True
        with _close_on_error(db):
            # How soon the server notices that a machine is gone, and gives up its claims.
            db.execute(
                f'SET search_path TO "{self.schema}"; SET tcp_keepalives_idle TO 30; SET tcp_keepalives_interval TO 10;'
                "SET tcp_keepalives_count TO 3; SET idle_in_transaction_session_timeout TO 0".encode()
            )
        return db

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _put(self, db: Connection) -> None:
        is_idle = not db.closed and db.info.transaction_status is pq.TransactionStatus.IDLE
        if not is_idle or len(self._idle) >= MAX_IDLE:
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
        """A connection; closed when the block fails."""
        db = self._take()
        with _close_on_error(db):
            yield db
        self._put(db)

    def _retry(self, activity: str, work: Callable[[], T], *, opening: bool = False) -> T:
        """Repeat the work while the server is away; one that never answered gets less time."""
        until, pause = time.monotonic() + (OPENING_PATIENCE if opening else PATIENCE), 0.0
        while True:
            try:
                return work()
            except psycopg.Error as error:
                if not _is_passing(error, opening=opening) or time.monotonic() + pause > until:
                    raise self._failure(activity, error, opening=opening) from None
                if not pause:
                    logger.warning("%s", self._message("connection lost, trying again", error))
            self._close_idle()  # most likely lost too
            time.sleep(pause)
            pause = min(max(2 * pause, 0.05), MAX_PAUSE)

    def _failure(
        self, activity: str, error: psycopg.Error, *, opening: bool = False
    ) -> StoreError | UsageError:
        message = self._message(activity, error)
        if opening:
            return UsageError(message, _connection_hint(str(error)))
        if isinstance(error, errors.DiskFull):
            return StoreError(message, FULL_HINT)
        resume = "Is the server running? The same command resumes from what was saved."
        return StoreError(message, resume if _is_passing(error) else "")

    def _message(self, activity: str, error: psycopg.Error) -> str:
        """In one line and without a password."""
        text = re.sub(
            r"\s+", " ", (error.diag.message_primary or str(error)).partition("\n")[0]
        ).strip()
        secrets = (
            self._parameters.get("password"),
            self._parameters.get("sslpassword"),
            os.environ.get("PGPASSWORD"),
        )
        for secret in filter(None, secrets):
            text = text.replace(str(secret), "***")
        return f"{self.location}: {activity}: {text}"

    # Reading.

    def rows(self, query: str, *values: Any) -> list[Any]:
        def read() -> list[Any]:
            with self._connection() as db:
                return _unescape_rows(db.execute(_sql(query), _escape_zeros(values)).fetchall())

        return self._retry("cannot be read", read)

    def stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Reads through a server-side cursor on a connection of its own."""

        def begin() -> tuple[Connection, psycopg.ServerCursor[Any], list[Any]]:
            db = self._take()
            cursor = db.cursor("rows")
            with _close_on_error(db, cursor):
                db.execute("BEGIN READ ONLY")
                cursor.execute(_sql(query), _escape_zeros(values))
                return db, cursor, cursor.fetchmany(ROWS_AT_ONCE)

        db, cursor, rows = self._retry("cannot be read", begin)
        self._streaming.add(db)
        try:
            while rows:
                yield from _unescape_rows(rows)
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
    def transaction(self) -> Generator[Transaction]:
        def begin() -> Connection:
            db = self._take()
            with _close_on_error(db):
                if self._has_reconnected:
                    self._renew_claims()
                    self._has_reconnected = False
                db.execute("BEGIN")
                db.execute(
                    "SELECT pg_advisory_xact_lock(%s)", (_lock_number(self.schema, "transaction"),)
                )
            return db

        db = self._retry("cannot be written", begin)
        try:
            with _close_on_error(db):
                yield _Statements(db)
                db.execute("COMMIT")
        except psycopg.Error as error:
            if _is_passing(error):
                raise ConnectionLost(self._message("cannot be written", error)) from None
            raise self._failure("cannot be written", error) from None
        self._put(db)

    # Claims.

    @contextmanager
    def claim(self, run: int) -> Generator[bool]:
        def take() -> Connection | None:
            db = self._take()
            with _close_on_error(db):
                if self._try_claim(db, run):
                    return db
            self._put(db)
            return None

        if (db := self._retry("cannot be written", take)) is None:
            yield False
            return
        self._claims[run] = db
        try:
            yield True
        finally:
            db = self._claims.pop(run)
            with suppress(psycopg.Error):  # a connection that is lost has given it up
                db.execute("SELECT pg_advisory_unlock(%s)", (self._claim_number(run),))
            self._put(db)

    def is_claimed(self, run: int) -> bool:
        query = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND classid::bigint = ? AND objid::bigint = ?"
        )
        return bool(self.rows(query, *divmod(self._claim_number(run) % 2**64, 2**32)))

    def _try_claim(self, db: Connection, run: int) -> bool:
        row = db.execute("SELECT pg_try_advisory_lock(%s)", (self._claim_number(run),)).fetchone()
        return bool(row and row[0])

    def _claim_number(self, run: int) -> int:
        return _lock_number(self.schema, f"run {run}")

    def _renew_claims(self) -> None:
        """A server that was away has forgotten who had which run."""
        for run, db in list(self._claims.items()):
            try:
                db.execute("SELECT 1")
            except psycopg.Error:
                db.close()
                self._claims[run] = self._connect()
                if not self._try_claim(self._claims[run], run):
                    self._claims[
                        run
                    ].close()  # and so it is asked for again before anything is written
                    raise StoreError(
                        f"{self.location}: another process took over the run while the connection was lost",
                        "Wait for it, then run the same command again.",
                    ) from None


@contextmanager
def _close_on_error(*resources: Connection | psycopg.ServerCursor[Any]) -> Generator[None]:
    try:
        yield
    except BaseException:
        for each in resources:
            each.close()
        raise


class _Statements:
    def __init__(self, db: Connection) -> None:
        self._db = db

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        return self._db.execute(_sql(query), _escape_zeros(values))

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(_sql(query), [_escape_zeros(row) for row in rows])


# The URL.


def parse_url(url: str) -> tuple[dict[str, Any], str]:
    """libpq's parameters, and the schema, which is a parameter of ours."""
    address, _, query = f"postgresql://{url.partition('://')[2]}".partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    schema = next((value for name, value in pairs if name == "schema"), DEFAULT_SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][\w$]{0,62}", schema, re.ASCII):
        raise UsageError(
            f"{schema!r} is not a valid schema name", "Use letters, digits and underscores."
        )
    others = urlencode([pair for pair in pairs if pair[0] != "schema"])
    safe_url = without_password(url)
    try:
        if safe_url.endswith("…"):  # or a part of the password would be taken for the host
            raise psycopg.ProgrammingError
        parameters = conninfo.conninfo_to_dict(f"{address}?{others}" if others else address)
    except psycopg.Error:  # whose words may quote the password
        raise UsageError(
            f"{safe_url}: not a PostgreSQL URL",
            "Use postgresql://USER:PASSWORD@HOST:PORT/DATABASE. In a password, write @ / : ? # as %40 %2F %3A %3F %23.",
        ) from None
    usual = {
        "application_name": "upskill",
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "client_encoding": "UTF8",
    }
    return {
        **usual,
        **{name: value for name, value in parameters.items() if value is not None},
    }, schema


# Errors.


def _is_passing(error: psycopg.Error, *, opening: bool = False) -> bool:
    if isinstance(error, _PASSING):
        return True
    is_starting = any(phrase in str(error) for phrase in _SOON)
    is_lost = error.sqlstate is None or error.sqlstate.startswith(
        "08"
    )  # the server said nothing at all
    return is_starting or (not opening and isinstance(error, psycopg.OperationalError) and is_lost)


def _connection_hint(message: str) -> str:
    if "password" in message or "authentication" in message:
        return "Put the password in UPSKILL_STORE (postgresql://USER:PASSWORD@…), PGPASSWORD or ~/.pgpass."
    if "database" in message and "does not exist" in message:
        return "Create it first: createdb NAME."
    return "Is the server running, and are host and port right?"


# Tables.


def _lock_number(schema: str, purpose: str) -> int:
    """The number of an advisory lock: they belong to a database, which may hold several stores."""
    return int.from_bytes(
        hashlib.sha256(f"upskill {schema} {purpose}".encode()).digest()[:8], signed=True
    )


def _version(db: Connection, schema: str) -> int:
    """The version of the tables of a store; 0 where there is none."""
    # Not `to_regclass`, which may remember that there was none before it waited for another process to make it.
    known = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'version'"
    if not db.execute(known, (schema,)).fetchone():
        return 0
    row = db.execute(f'SELECT max(version) FROM "{schema}".version'.encode()).fetchone()  # noqa: S608
    return row[0] or 0 if row else 0


def _create_tables(db: Connection, schema: str, location: str) -> None:
    """In a new schema, wholly or not at all."""
    if _has_tables(db, schema, location):
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema, "tables"),))
        if _has_tables(db, schema, location):  # another process may have created them meanwhile
            return
        db.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
        db.execute("CREATE TABLE version (version integer PRIMARY KEY)")
        for statement in postgres_schema():
            db.execute(statement.encode())
        db.execute("INSERT INTO version (version) VALUES (%s)", (VERSION,))


def _has_tables(db: Connection, schema: str, location: str) -> bool:
    """False for a new schema; UsageError for a store of another version."""
    version = _version(db, schema)
    if version not in (0, VERSION):
        raise UsageError(
            describe_other_version(location, version),
            "Use another schema (?schema=NAME in the URL). Or pass another --store.",
        )
    return version == VERSION


# Queries and texts.


@lru_cache(maxsize=256)
def _sql(query: str) -> bytes:
    return query.replace("%", "%%").replace("?", "%s").encode()


# PostgreSQL cannot hold a zero in a text, so it is stored as these two characters.
_ESCAPE = "\x1a"


def _escape_zeros(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        value.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")
        if isinstance(value, str)
        else value
        for value in values
    )


def _unescape_rows(rows: list[Any]) -> list[Any]:
    return [
        tuple(
            value.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)
            if isinstance(value, str)
            else value
            for value in row
        )
        for row in rows
    ]
