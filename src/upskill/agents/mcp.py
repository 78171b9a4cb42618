"""MCP servers that a suite gives to students, in both arms alike.

A command runs in the trial's sandbox: bash connects its standard streams to the one port that the sandbox shows us. A
URL is asked from outside. A server that does not start is an error of the trial. After that, a student could end or
stop a command itself, so what goes wrong in a call is the call's result, and the next call starts the server again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from upskill.errors import AgentError, UsageError
from upskill.models import Tool
from upskill.models.keys import KEY_VARIABLES
from upskill.models.parsing import redact
from upskill.plain import dict_or_empty, list_or_empty, load_json
from upskill.sandboxes import Limits, MiB, Sandbox, Setup, printable
from upskill.traces import Trace
from upskill.version import __version__

if TYPE_CHECKING:
    import aiohttp

PROTOCOL = "2025-06-18"
SERVER_NAME = (
    r"^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$"  # without `__`, which ends it in the name of a tool
)
VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
MAX_MESSAGE = 4 * MiB
LINE_COST = 400  # bytes that each line counts for, or millions of short ones would keep us busy
MAX_LISTING = 256 * 1024  # bytes of all tools: each turn sends them to the model
MAX_PAGES = 100
MAX_TOOL_NAME = 64  # characters, as the providers have it
LOG = "/tmp/.mcp-{}.log"  # noqa: S108 - inside
LAUNCH = """\
port=$1 token=$2 log=$3; shift 3
(exec 2>"$log" 3<>"/dev/tcp/127.0.0.1/$port" && echo "mcp $token" >&3 && exec "$@" <&3 >&3 3>&-) </dev/null >/dev/null &
"""
# Of the servers together with a command of the student's. Their runtimes reserve far more than they use.
LIMITS = Limits(memory=3 * 1024 * MiB, processes=1024, open_files=4096, address_space=None)


class McpServer(BaseModel):
    """A command in the sandbox, or a URL."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    command: list[str] = Field(
        default=[], description="A program in the sandbox, and its arguments."
    )
    env: dict[str, str] = Field(
        default={}, description="Its environment; `$NAME` is read from yours, and hidden in traces."
    )
    network: list[str] = Field(
        default=[], description="The hosts that it may reach over https: `host`, `host:port`."
    )
    url: str = Field(
        default="", description="Or a server over HTTP, called from outside the sandbox."
    )
    headers: dict[str, str] = Field(
        default={}, description="Headers to send to the `url`; `$NAME` as in `env`."
    )
    timeout: float = Field(
        default=60.0,
        gt=0,
        le=600,
        description="The most seconds that its start, or one call, may take.",
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server must have either `command` or `url`, not both")
        if (self.env or self.network) if self.url else self.headers:
            raise ValueError(
                "`env` and `network` can only be used with `command`, and `headers` only with `url`"
            )
        if self.url and not re.match("https?://[^/]", self.url):
            raise ValueError("the `url` of an MCP server must begin with http:// or https://")
        if unfit := next(
            (name for name in self.env if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)), ""
        ):
            raise ValueError(f"{unfit!r} is not a valid name for an environment variable")
        return self

    @property
    def hosts(self) -> set[str]:
        """With their ports: what it reaches."""
        parts = urlsplit(self.url)
        own = (
            [f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"]
            if self.url
            else []
        )
        return {
            *own,
            *(host.lower() if ":" in host else f"{host.lower()}:443" for host in self.network),
        }

    @property
    def variables(self) -> list[str]:
        return [
            name
            for value in (*self.env.values(), *self.headers.values())
            for name in VARIABLE.findall(value)
        ]


def read_servers(servers: Mapping[str, Mapping[str, Any]]) -> dict[str, McpServer]:
    return {name: McpServer.model_validate(server) for name, server in servers.items()}


def check_servers(
    servers: Mapping[str, Mapping[str, Any]], allowed: Iterable[str], *, outside: bool
) -> None:
    """UsageError if a server cannot be given to a student here. `outside`: the agent can give it a network."""
    allowed = {host.lower() for host in allowed}
    for name, server in read_servers(servers).items():
        if server.hosts and not outside:
            raise UsageError(
                f"the MCP server {name!r} needs the network, but real agents have none",
                "Use --agent tools for servers with `url:` or `network:`.",
            )
        for host in sorted(server.hosts):
            if host not in allowed and host.rpartition(":")[0] not in allowed:
                raise UsageError(
                    f"the MCP server {name!r} connects to {host}, which you have not allowed",
                    f"If you trust the suite, allow it with --set 'mcp_hosts=[{json.dumps(host)}]'.",
                )
        for variable in server.variables:
            if variable in KEY_VARIABLES:
                raise UsageError(
                    f"the MCP server {name!r} asks for {variable}, which is a model's API key",
                    "Give it a key of its own.",
                )
            if not os.environ.get(variable):
                raise UsageError(
                    f"the MCP server {name!r} needs {variable}, which is not set",
                    f"Set {variable}.",
                )


def expand(values: Mapping[str, str]) -> dict[str, str]:
    return {
        key: VARIABLE.sub(lambda match: os.environ.get(match[1], ""), value)
        for key, value in values.items()
    }


def secrets_of(servers: Mapping[str, McpServer]) -> tuple[str, ...]:
    """What variables of ours say, longest first."""
    values = {os.environ.get(name, "") for server in servers.values() for name in server.variables}
    return tuple(sorted((value for value in values if len(value) >= 6), key=len, reverse=True))


def redact_trace(trace: Trace, hidden: tuple[str, ...]) -> Trace:
    if not hidden:
        return trace
    steps = [
        replace(step, text=redact(step.text, hidden), output=redact(step.output, hidden))
        for step in trace.steps
    ]
    return replace(trace, steps=tuple(steps))


def rename_tools(trace: Trace, tools: Iterable[Tool]) -> Trace:
    """Programs call them `mcp__server__tool`, `server_tool` and the like; checks find them under one name."""
    names: dict[str, str] = {}
    for tool in tools:
        server, _, own = tool.name.partition("__")
        names |= dict.fromkeys(
            (f"mcp__{tool.name}", f"{server}_{own}", f"mcp_{server}_{own}", f"{server}-{own}"),
            tool.name,
        )
    steps = [replace(step, tool=names.get(step.tool, step.tool)) for step in trace.steps]
    return replace(trace, steps=tuple(steps)) if names else trace


def show_programs(setup: Setup, servers: Mapping[str, McpServer]) -> Setup:
    """A sandbox that has the programs of these servers."""
    mounts = [
        mount
        for server in servers.values()
        if server.command
        for mount in _mounts(server.command[0])
    ]
    return replace(
        setup, readonly_mounts={**setup.readonly_mounts, **{str(path): path for path in mounts}}
    )


def _mounts(program: str) -> list[Path]:
    """The virtual environment of Python, the node packages or the one file that a program is."""
    path = Path(shutil.which(program) or program)
    if not path.is_absolute() or not path.exists():
        return []
    environment = path.parent.parent
    node = [folder for folder in path.resolve().parents if folder.name == "node_modules"]
    with suppress(OSError):
        head = path.read_bytes()[:4] if path.is_file() else b""
        if (environment / "pyvenv.cfg").is_file():
            interpreter = (environment / "bin" / "python").resolve()
            places = [environment, interpreter.parent.parent]
        else:
            places = [node[-1]] if node else [path] if head == b"\x7fELF" else []
        return [place for place in places if not f"{place}/".startswith(("/usr/", "/bin/", "/lib"))]
    return []


class McpError(Exception):
    """A server did not do what was asked; the message says what it did."""


class McpRefusal(McpError):
    """It answered with an error, so it is still running."""


class Connection(Protocol):
    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]: ...

    async def notify(self, method: str) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class StreamConnection:
    """JSON-RPC in lines. What is not JSON is skipped: many servers print to their output."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.sent += 1
        await self._send({"id": self.sent, "method": method, "params": params})
        taken, skipped = 0, ""
        while taken < MAX_MESSAGE:
            try:
                line = await self.reader.readline()
            except ValueError:
                break
            except OSError:  # it exited without reading what we sent
                line = b""
            if not line:
                raise McpError(
                    f"it exited before it answered{f', after {skipped[:200]!r}' if skipped else ''}"
                )
            taken += len(line) + LINE_COST
            if (message := _parse(line)) is None:
                skipped = skipped or line.decode("utf-8", "replace").strip()
            elif "method" in message and "id" in message:  # it asks us for something
                refusal = {"error": {"code": -32601, "message": "not offered here"}}
                await self._send(
                    {"id": message["id"]}
                    | ({"result": {}} if message["method"] == "ping" else refusal)
                )
            elif message.get("id") == self.sent:
                return result_of(message)
        raise McpError(f"it sent more than {MAX_MESSAGE // MiB} MiB")

    async def notify(self, method: str) -> None:
        await self._send({"method": method})

    async def _send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self.writer.write(data + b"\n")
            await self.writer.drain()
        except OSError as error:
            raise McpError("it has exited") from error

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class HttpConnection:
    """The streamable HTTP transport: a POST for each message, answered by JSON or by events."""

    session: aiohttp.ClientSession
    url: str
    headers: dict[str, str]
    sent: int = 0

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.sent += 1
        result = result_of(await self._post({"id": self.sent, "method": method, "params": params}))
        if method == "initialize":
            self.headers["MCP-Protocol-Version"] = str(result.get("protocolVersion") or PROTOCOL)
        return result

    async def notify(self, method: str) -> None:
        await self._post({"method": method})

    async def _post(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, if the message asks for one. A server may keep the stream of events open after it."""
        import aiohttp  # noqa: PLC0415 - only if a suite has a URL

        try:
            async with self.session.post(
                self.url,
                json={"jsonrpc": "2.0", **message},
                headers={**self.headers, "Accept": "application/json, text/event-stream"},
                allow_redirects=False,
            ) as answer:
                if session := answer.headers.get("Mcp-Session-Id"):
                    self.headers["Mcp-Session-Id"] = session
                if "id" not in message and answer.status < 300:
                    return {}
                body, event, begun = bytearray(), bytearray(), 0
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > MAX_MESSAGE:
                        raise McpError(f"it sent more than {MAX_MESSAGE // MiB} MiB")
                    while (end := body.find(b"\n", begun)) >= 0:
                        line, begun = bytes(body[begun:end]).strip(), end + 1
                        if line.startswith(b"data:"):
                            event += line.removeprefix(b"data:")
                        elif not line:
                            if answer.status < 300 and (found := self._find_answer(bytes(event))):
                                return found
                            event.clear()
                if answer.status >= 300:
                    raise McpError(
                        f"it answered {answer.status}: {bytes(body[:200]).decode('utf-8', 'replace')!r}"
                    )
                if found := self._find_answer(bytes(body)) or self._find_answer(bytes(event)):
                    return found
                raise McpError(
                    f"its answer is not JSON-RPC: {bytes(body[:200]).decode('utf-8', 'replace')!r}"
                )
        except (aiohttp.ClientError, OSError) as error:
            raise McpError(f"it cannot be reached: {error or type(error).__name__}") from error

    def _find_answer(self, data: bytes) -> dict[str, Any]:
        message = _parse(data) or {}
        return message if message.get("id") == self.sent and "method" not in message else {}

    def close(self) -> None:
        pass


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        return dict_or_empty(load_json(line)) or None
    except ValueError:
        return None


def result_of(message: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in message:
        error = dict_or_empty(message["error"])
        raise McpRefusal(f"it answered with an error: {error.get('message') or message['error']}")
    return dict_or_empty(message.get("result"))


async def greet(connection: Connection) -> None:
    about = {"name": "upskill", "version": __version__}
    await connection.request(
        "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
    )
    await connection.notify("notifications/initialized")


async def tools_of(connection: Connection) -> list[dict[str, Any]]:
    cursor, size, tools = "", 0, list[dict[str, Any]]()
    for _ in range(MAX_PAGES):
        page = await connection.request("tools/list", {"cursor": cursor} if cursor else {})
        listed = list_or_empty(page.get("tools"))
        size += len(json.dumps(listed))
        if size > MAX_LISTING:
            raise McpError(f"its list of tools is larger than {MAX_LISTING // 1024} KiB")
        tools += map(dict_or_empty, listed)
        cursor = str(page.get("nextCursor") or "")
        if not cursor:
            return tools
    raise McpError(f"it lists its tools on more than {MAX_PAGES} pages")


class McpServers:
    """The servers of one trial: their tools, as `server__tool`, and their calls."""

    def __init__(self, servers: Mapping[str, McpServer], sandbox: Sandbox) -> None:
        self.servers = servers
        self.sandbox = sandbox
        self.tools: tuple[Tool, ...] = ()
        self._owners: dict[str, tuple[str, str]] = {}  # of a tool: its server, and its name there
        self._connections: dict[str, Connection] = {}
        self._awaited: dict[str, asyncio.Future[StreamConnection]] = {}  # by token
        self._hosts = {
            host for server in servers.values() if server.command for host in server.hosts
        }
        self._open = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._listen()
            for name, server in self.servers.items():
                try:
                    async with asyncio.timeout(server.timeout):
                        await self._connect(name)
                        await self._list(name)
                except (McpError, TimeoutError) as error:
                    why = str(error) or f"it did not start within {server.timeout:g} s"
                    raise AgentError(
                        f"the MCP server {name!r} did not start: {await self._explain(name, why)}",
                        "Try its command, or its URL, by hand.",
                    ) from error
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()
        await self._open.aclose()

    async def _listen(self) -> None:
        if any(server.url for server in self.servers.values()):
            import aiohttp  # noqa: PLC0415 - only if a suite has a URL

            self._session = await self._open.enter_async_context(aiohttp.ClientSession())
        if any(server.command for server in self.servers.values()):
            if self.sandbox.kind != "bubblewrap" or self.sandbox.proxy_socket is None:
                raise AgentError(
                    f"MCP servers with a `command` need bubblewrap, but this sandbox is {self.sandbox.kind}",
                    "Use --sandbox bubblewrap.",
                )
            # A copy, because the server closes its socket.
            socket = self.sandbox.proxy_socket.dup()
            listener = await asyncio.start_server(self._accept, sock=socket, limit=MAX_MESSAGE)
            self._open.callback(listener.close)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A server that was launched, or one that wants out to a host."""
        with suppress(OSError, ValueError):
            words = (await reader.readline()).decode("ascii", "replace").split()
            if words[:1] == ["mcp"] and (awaited := self._awaited.pop(words[-1], None)):
                awaited.set_result(StreamConnection(reader, writer))
                return
            if words[:1] == ["CONNECT"] and len(words) > 1 and words[1].lower() in self._hosts:
                while (await reader.readline()).strip():
                    pass
                await tunnel(words[1], reader, writer)
            else:
                writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.close()

    async def _connect(self, name: str) -> Connection:
        server = self.servers[name]
        if server.url:
            assert self._session is not None
            connection: Connection = HttpConnection(
                self._session, server.url, expand(server.headers)
            )
        else:
            connection = await self._launch(name, server)
        self._connections[name] = connection
        await greet(connection)
        return connection

    async def _launch(self, name: str, server: McpServer) -> StreamConnection:
        assert self.sandbox.proxy_socket is not None
        port, token = self.sandbox.proxy_socket.getsockname()[1], secrets.token_hex(16)
        awaited = self._awaited[token] = asyncio.get_running_loop().create_future()
        arguments = [str(port), token, LOG.format(name), *server.command]
        try:
            await self.sandbox.run(
                ["/bin/bash", "-c", LAUNCH, "mcp", *arguments],
                LIMITS,
                environment={**expand(server.env), **network_variables(server, port)},
            )
            return await awaited
        finally:
            self._awaited.pop(token, None)

    async def _list(self, name: str) -> None:
        for listed in await tools_of(self._connections[name]):
            own = str(listed.get("name") or "")
            tool = Tool(
                _tool_name(name, own),
                printable(str(listed.get("description") or own)),
                _schema(listed),
            )
            if tool.name in self._owners:
                raise McpError(f"it has two tools that would be called {tool.name!r}")
            self._owners[tool.name] = name, own
            self.tools = (*self.tools, tool)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], seconds: float
    ) -> tuple[str, bool]:
        """What came of it, and whether the server calls it an error. McpError if it gave no answer."""
        name, own = self._owners[tool]
        server = self.servers[name]
        try:
            async with asyncio.timeout(min(server.timeout, max(0.0, seconds))):
                connection = self._connections.get(name) or await self._connect(name)
                try:
                    result = await connection.request(
                        "tools/call", {"name": own, "arguments": dict(arguments)}
                    )
                except McpRefusal as refusal:
                    return f"the MCP server {name!r} {str(refusal).removeprefix('it ')}", True
        except (McpError, TimeoutError) as error:
            if (broken := self._connections.pop(name, None)) is not None:
                broken.close()
            why = str(error) or f"it did not answer within {min(server.timeout, seconds):g} s"
            message = f"the MCP server {name!r} gave no result: {why}"
            # No student can cause that, unless its own time was up.
            if server.url and not (isinstance(error, TimeoutError) and seconds < server.timeout):
                raise AgentError(message) from error
            raise McpError(message) from error
        texts = [
            _block_text(dict_or_empty(block)) for block in list_or_empty(result.get("content"))
        ]
        if not texts and "structuredContent" in result:
            texts = [json.dumps(result["structuredContent"], ensure_ascii=False)]
        return "\n".join(texts) or "(no output)", bool(result.get("isError"))

    async def _explain(self, name: str, why: str) -> str:
        """With the end of what a command wrote to its standard error."""
        said = b""
        if self.servers[name].command:
            with suppress(OSError):
                said = await self.sandbox.read(LOG.format(name), MiB)
        last = printable(said.decode("utf-8", "replace").strip().rpartition("\n")[2])[:300]
        return redact(f"{why} ({last})" if last else why, secrets_of(self.servers))


def network_variables(server: McpServer, port: int) -> dict[str, str]:
    if not server.network:
        return {}
    proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), f"http://127.0.0.1:{port}")
    return {**proxy, "NO_PROXY": "localhost,127.0.0.1", "NODE_USE_ENV_PROXY": "1"}


async def tunnel(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = target.rpartition(":")
    there, back = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(_copy(reader, back), _copy(there, writer), return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _tool_name(server: str, tool: str) -> str:
    return re.sub("[^A-Za-z0-9_-]", "_", f"{server}__{tool}")[:MAX_TOOL_NAME]


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    """With the fields that every model's API wants."""
    schema = dict_or_empty(tool.get("inputSchema"))
    properties = {
        name: dict_or_empty(value)
        for name, value in dict_or_empty(schema.get("properties")).items()
    }
    required = [name for name in list_or_empty(schema.get("required")) if name in properties]
    return schema | {"type": "object", "properties": properties, "required": required}


def _block_text(block: Mapping[str, Any]) -> str:
    inner = dict_or_empty(block.get("resource"))
    text = block.get("text") or inner.get("text")
    if isinstance(text, str):
        return text
    return f"[{block.get('type') or 'content'} {block.get('mimeType') or block.get('uri') or ''}]".replace(
        " ]", "]"
    )
