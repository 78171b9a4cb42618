"""Weights from the Hugging Face hub, over plain HTTPS. An interrupted download is kept and resumed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import HubFile, LocalModel
from upskill.models.embedded.weight_files import move_into_place, sibling
from upskill.models.parsing import collect_secrets, safe_excerpt

HUB = "https://huggingface.co"
CHUNK_SIZE = 1 << 20
CONNECT_TIMEOUT = 6.0  # seconds; there may be another origin
READ_TIMEOUT = 60.0


class HubUnavailable(UsageError):
    """The hub did not give anything; another origin may."""


async def fetch_from_hub(model: LocalModel, origin: HubFile, path: Path, context: ModelContext) -> None:
    import aiohttp  # noqa: PLC0415  a fifth of a second, and only needed here

    part = sibling(path, "part")
    hub = context.keys.get("HF_ENDPOINT") or os.environ.get("HF_ENDPOINT") or HUB
    url = f"{hub.rstrip('/')}/{origin.repository}/resolve/main/{origin.file}"
    token = context.keys.get("HF_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    before = _size_of(part)
    try:
        async with open_session(headers) as session:
            expected = model.sha256 or await _sha256_at_hub(session, url)
            actual = await download(session, url, part, partial(context.progress, f"fetching {model.name}"))
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = safe_excerpt(str(error), collect_secrets(token, {})) or type(error).__name__
        is_silent = isinstance(error, aiohttp.ClientConnectionError | TimeoutError)
        kind = UsageError if _size_of(part) > before else HubUnavailable
        raise kind(
            f"the Hugging Face hub cannot be reached: {reason}" if is_silent else f"fetching {url}: {reason}",
            f"Check the network, then run `upskill models pull {model.name}`: it resumes where it stopped. "
            "Behind a firewall, set HF_ENDPOINT to a mirror.",
        ) from error
    try:
        move_into_place(part, path, expected, actual, url)
    except UsageError as error:
        raise HubUnavailable(error.message, error.hint) from error


def open_session(headers: dict[str, str]) -> Any:
    """An HTTP client that gives up soon where nobody answers."""
    import aiohttp  # noqa: PLC0415

    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
    headers = {"User-Agent": "upskill", "Accept-Encoding": "identity"} | headers
    return aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=True)


async def download(session: Any, url: str, part: Path, progress: Callable[[int, int], None]) -> str:
    """Download the rest of a file; returns the SHA-256 of all of it."""
    have, digest = await asyncio.to_thread(_resume_point, part)
    async with session.get(url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if have and response.status == 416:  # the file is complete
            return digest.hexdigest()
        response.raise_for_status()
        if response.status != 206:
            have, digest = 0, hashlib.sha256()
        total = have + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            async for block in response.content.iter_chunked(CHUNK_SIZE):
                file.write(block)
                digest.update(block)
                have += len(block)
                progress(have, max(total, have))
    return digest.hexdigest()


async def _sha256_at_hub(session: Any, url: str) -> str:
    """The hub states it in a header, before it redirects to the file."""
    for _ in range(5):
        async with session.head(url, allow_redirects=False) as response:
            response.raise_for_status()
            etag = (response.headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
            if re.fullmatch(r"[0-9a-f]{64}", etag):
                return etag
            location = response.headers.get("Location")
        if not location:
            break
        url = urljoin(url, location)
    raise HubUnavailable(f"{url} does not state the file's SHA-256, so it cannot be verified")


def _resume_point(part: Path) -> tuple[int, Any]:
    """How many bytes are here already, and their digest."""
    digest, have = hashlib.sha256(), 0
    with suppress(FileNotFoundError), part.open("rb") as file:
        while block := file.read(CHUNK_SIZE):
            digest.update(block)
            have += len(block)
    return have, digest


def _size_of(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
