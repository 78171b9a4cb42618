"""The address of a store: a folder, or a URL such as `postgresql://USER:PASSWORD@HOST/DATABASE`."""

from __future__ import annotations

import re

_URL = r"(?i)([a-z][a-z0-9+.-]+)://"
_HOST = r"(?:\[[^]@/?#]*\]|[^]\[:,@/?#]*)(?::\d*)?"
# A URL in which nothing that may be part of a password stands where it is not hidden.
_PUBLIC = (
    rf"(?i)(?P<scheme>[a-z][a-z0-9+.-]+://)(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
_PUBLIC_PARAMETERS = {"dbname", "host", "hostaddr", "port", "schema", "service", "user"}


def url_scheme(address: str) -> str:
    """Lower case; empty for a folder."""
    scheme = re.match(_URL, address)
    return scheme[1].lower() if scheme else ""


def is_url(address: str) -> bool:
    return bool(url_scheme(address))


def without_password(address: str) -> str:
    """A folder as it is, a URL without what may be secret."""
    if url_scheme(address) in ("", "sqlite"):
        return address
    if not (
        parts := re.fullmatch(_PUBLIC, address)
    ):  # a password with a character that would have to be escaped
        return f"{address.partition('://')[0]}://…"
    user = f"{parts['user']}@" if parts["user"] else ""
    parameters = [
        each
        for each in (parts["query"] or "").split("&")
        if each.partition("=")[0].lower() in _PUBLIC_PARAMETERS
    ]
    query = f"?{'&'.join(parameters)}" if parameters else ""
    return f"{parts['scheme']}{user}{parts['hosts']}{parts['path'] or ''}{query}"
