"""MCP: ask a running tool server which tools it has, over standard input and output or over streamable HTTP.

The `mcp` package, an extra, speaks the protocol. No tool is ever called.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from upskill.errors import UsageError
from upskill.installation import add_extra

SECONDS = 30.0  # for the whole exchange
MAX_PAGES = 50


def list_tools(place: str) -> list[dict[str, Any]]:
    """The tools of the server at `mcp:COMMAND` or a URL; UsageError when none answers.

    It may take a while: an event loop calls it in a thread.
    """
    try:
        package: Any = import_module("mcp")
        _ = package.Client
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{place}: asking an MCP server needs the package mcp, version 2 or newer, which is not installed",
            f"Run `{add_extra('mcp')}`, or give the tools' schemas as a file.",
        ) from error
    # It logs a traceback for every line that is not protocol; what matters is in the error.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return asyncio.run(_ask(place, package))


async def _ask(place: str, package: Any) -> list[dict[str, Any]]:
    try:
        async with asyncio.timeout(SECONDS), _connect(place, package) as client:
            return await _list(place, client)
    except Exception as error:  # a server can fail in any way
        cause = _first(error)
        if isinstance(cause, UsageError):
            raise cause from None
        if isinstance(cause, TimeoutError):
            raise UsageError(f"{place}: did not answer within {SECONDS:.0f} seconds", "Is it an MCP server?") from error
        system = cause.strerror if isinstance(cause, OSError) else ""
        message = system or str(cause) or type(cause).__name__
        raise UsageError(f"{place}: {message}", "Is it an MCP server?") from error


@asynccontextmanager
async def _connect(place: str, package: Any) -> AsyncGenerator[Any]:
    if place.startswith(("http://", "https://")):
        async with package.Client(place, read_timeout_seconds=SECONDS) as client:
            yield client
        return
    words = shlex.split(place.removeprefix("mcp:"))
    if not words:
        raise UsageError("mcp: has no command after it", "For example --tool 'mcp:npx my-server'.")
    # With the same environment as in a shell.
    server = package.StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
    with Path(os.devnull).open("w", encoding="utf-8") as null:  # noqa: ASYNC230 - nothing to wait for
        async with package.Client(package.stdio_client(server, null), read_timeout_seconds=SECONDS) as client:
            yield client


async def _list(place: str, client: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        if not (cursor := page.next_cursor):
            return tools
    raise UsageError(f"{place}: lists tools endlessly")


def _first(error: BaseException) -> BaseException:
    """The first error in the groups that tasks wrap it in."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _first(group.exceptions[0])
    return error
