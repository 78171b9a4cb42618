"""The URL of a `postgresql` store: what the driver is told, and what people are shown."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

from upskill.errors import UsageError
from upskill.runs.stores import without_password
from upskill.runs.stores.postgres_driver import conninfo, psycopg

SCHEMA = "upskill"  # unless the URL names one


def parse_url(url: str) -> tuple[dict[str, Any], str]:
    """What libpq is told, and the schema, which is a parameter of ours."""
    place, _, query = f"postgresql://{url.partition('://')[2]}".partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    schema = next((value for name, value in given if name == "schema"), SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][\w$]{0,62}", schema, re.ASCII):
        raise UsageError(f"{schema!r} cannot be the name of a schema", "Give letters, digits and underscores.")
    rest = urlencode([pair for pair in given if pair[0] != "schema"])
    shown = without_password(url)
    try:
        if shown.endswith("…"):  # or a part of the password would be taken for the host
            raise psycopg.ProgrammingError
        parameters = conninfo.conninfo_to_dict(f"{place}?{rest}" if rest else place)
    except psycopg.Error:  # whose words may quote the password
        raise UsageError(
            f"{shown}: is not the URL of a PostgreSQL database",
            "It is postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in a password, @ / : ? # are %40 %2F %3A %3F %23.",
        ) from None
    usual = {"application_name": "upskill", "connect_timeout": 10, "keepalives_idle": 30, "client_encoding": "UTF8"}
    return {**usual, **{name: value for name, value in parameters.items() if value is not None}}, schema


def location_of(db: psycopg.Connection[Any], schema: str, parameters: dict[str, Any]) -> str:
    info = db.info
    host = parameters.get("host") or info.host  # several, where several were named
    is_socket = host.startswith("/")
    place = f"postgresql://{info.user}@{'' if is_socket else f'{host}:{info.port}'}/{info.dbname}"
    query = {**({"host": host} if is_socket else {}), **({"schema": schema} if schema != SCHEMA else {})}
    return f"{place}?{urlencode(query, safe='/')}" if query else place
