"""Model servers on this machine: which ones are running, and with which models."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException

from upskill.models.endpoints import ENDPOINTS, first_set, is_loopback
from upskill.plain import dict_or_empty, list_or_empty

SECONDS = 2.0  # for a server on this machine to answer
MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Server:
    """What answers at a server's usual address."""

    name: str
    url: str
    is_running: bool
    models: tuple[str, ...] = ()
    problem: str = ""


def find_servers(keys: Mapping[str, str]) -> list[Server]:
    rows: list[tuple[str, str, str]] = []
    for name, row in ENDPOINTS.items():
        url = first_set(keys, row.url_variables) or row.base_url
        if not row.key_required and is_loopback(url):
            rows.append((name, url.rstrip("/"), first_set(keys, row.key_variables)))
    with ThreadPoolExecutor(len(rows) or 1) as pool:
        return list(pool.map(_probe, *zip(*rows, strict=True))) if rows else []


def _probe(name: str, url: str, key: str) -> Server:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(  # noqa: S310
        f"{url}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with opener.open(request, timeout=SECONDS) as response:
            answer = dict_or_empty(json.loads(response.read(MAX_BYTES)))
    except urllib.error.HTTPError as error:
        wants_key = error.code in (401, 403)
        problem = (
            "it needs an API key"
            if wants_key
            else f"it answered {error.code}, so it is not a model server"
        )
        return Server(name, url, wants_key, problem=problem)
    except (OSError, HTTPException):
        return Server(name, url, is_running=False)
    except ValueError:
        return Server(name, url, is_running=False, problem="it is not a model server")
    names = [dict_or_empty(row).get("id") for row in list_or_empty(answer.get("data"))]
    models = tuple(name for name in names if isinstance(name, str) and name)
    return Server(
        name, url, is_running=True, models=models, problem="" if models else "no model loaded yet"
    )
