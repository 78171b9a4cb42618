"""MCP: ask a running tool server which tools it has. No tool is ever called."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from upskill.agents.mcp import (
    MAX_MESSAGE,
    Connection,
    HttpConnection,
    McpError,
    StreamConnection,
    greet,
    tools_of,
)
from upskill.errors import UsageError
from upskill.sandboxes import printable

SECONDS = 30.0  # for the whole exchange


def list_tools(address: str) -> list[dict[str, Any]]:
    """The tools of the server at `mcp:COMMAND` or a URL; UsageError when none answers."""
    return asyncio.run(_ask(address))


async def _ask(address: str) -> list[dict[str, Any]]:
    try:
        async with asyncio.timeout(SECONDS), _connect(address) as connection:
            await greet(connection)
            return await tools_of(connection)
    except TimeoutError:
        why = f"did not answer within {SECONDS:.0f} seconds"
    except (OSError, McpError) as error:
        why = printable(getattr(error, "strerror", "") or str(error))
    raise UsageError(f"{address}: {why}", "Is it an MCP server?")


@asynccontextmanager
async def _connect(address: str) -> AsyncGenerator[Connection]:
    if address.startswith(("http://", "https://")):
        import aiohttp  # noqa: PLC0415 - only for a URL

        async with aiohttp.ClientSession() as session:
            yield HttpConnection(session, address, {})
        return
    command = shlex.split(address.removeprefix("mcp:"))
    if not command:
        raise UsageError("no command after mcp:", "For example --tool 'mcp:npx my-server'.")
    # With the same environment as in a shell.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MAX_MESSAGE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield StreamConnection(process.stdout, process.stdin)
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
