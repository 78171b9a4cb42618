"""MCP: ask a running tool server which tools it has. No tool is ever called."""

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


def list_tools(address: str) -> list[dict[str, Any]]:
    """The tools of the server at `mcp:COMMAND` or a URL; UsageError when none answers."""
    try:
        package: Any = import_module("mcp")
        _ = package.Client
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{address}: connecting to an MCP server needs the `mcp` package (2 or newer), which is not installed",
            f"Run `{add_extra('mcp')}`, or pass the tool schemas as a file.",
        ) from error
    # It logs a traceback for every line that is not protocol; what matters is in the error.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return asyncio.run(_ask(address, package))


async def _ask(address: str, package: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(SECONDS), _connect(address, package) as client:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [
                    tool.model_dump(mode="json", by_alias=True, exclude_none=True)
                    for tool in page.tools
                ]
                if not (cursor := page.next_cursor):
                    return tools
        raise UsageError(f"{address}: never stops listing tools")
    except Exception as error:  # a server can fail in any way
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # tasks wrap it in groups
            cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        if isinstance(cause, UsageError):
            raise cause from None
        message = str(cause) or type(cause).__name__
        if isinstance(cause, TimeoutError):
            message = f"did not answer within {SECONDS:.0f} seconds"
        elif isinstance(cause, OSError) and cause.strerror:
            message = cause.strerror
        raise UsageError(f"{address}: {message}", "Is it an MCP server?") from error


@asynccontextmanager
async def _connect(address: str, package: Any) -> AsyncGenerator[Any]:
    if address.startswith(("http://", "https://")):
        async with package.Client(address, read_timeout_seconds=SECONDS) as client:
            yield client
        return
    command = shlex.split(address.removeprefix("mcp:"))
    if not command:
        raise UsageError("no command after mcp:", "For example --tool 'mcp:npx my-server'.")
    # With the same environment as in a shell.
    server = package.StdioServerParameters(
        command=command[0], args=command[1:], env=dict(os.environ)
    )
    with Path(os.devnull).open("w", encoding="utf-8") as null:  # noqa: ASYNC230 - nothing to wait for
        async with package.Client(
            package.stdio_client(server, null), read_timeout_seconds=SECONDS
        ) as client:
            yield client
