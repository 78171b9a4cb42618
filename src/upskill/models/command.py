"""A subscription agent as a plain model: the installed command answers one question, with its own login and no tools.

Each call is one process in an empty folder, with a minimal environment: an agent sees its own login and none of the
API keys that this process may hold. Settings of the person's (memory files, skills, hooks, servers) are left out as
far as the command allows, because they would be in both arms. Length limits, temperature and seeds are the agent's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from upskill.errors import ModelError, UsageError, did_you_mean
from upskill.models import Address, Message, Model, ModelContext, Reply, Request, Stop
from upskill.models.http.throttling import CircuitBreaker
from upskill.models.lenient import clean, items, mapping, number
from upskill.models.prices import find_price
from upskill.traces import Usage

# What every program needs to start, to reach the network, and to find its login.
COMMON = (
    *("HOME", "PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("SYSTEMROOT", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "TEMP", "TMP"),
)
LARGEST_OUTPUT = 32 * 1024 * 1024  # bytes
NEUTRAL = "You answer questions."  # where a request has no system prompt and the command would use its own
LOCKED_OUT = re.compile(
    r"log ?in|logged (in|out)|unauthori[sz]ed|api key|credential|\b40[134]\b|model.*not (found|exist)", re.I
)
CODEX_OFF = (
    *("shell_tool", "unified_exec", "code_mode", "code_mode_host", "multi_agent", "multi_agent_v2", "sleep_tool"),
    *("goals", "apps", "plugins", "hooks", "image_generation", "view_image"),
)
CODEX_SETTINGS = (
    'web_search="disabled"',
    "project_doc_max_bytes=0",
    "skills.include_instructions=false",
    "include_environment_context=false",
    "include_permissions_instructions=false",
    "include_apps_instructions=false",
    "include_collaboration_mode_instructions=false",
    *(f"features.{feature}=false" for feature in CODEX_OFF),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One request as a command needs it, and a folder of ours for the files it takes."""

    system: str
    prompt: str
    model: str
    effort: str
    schema: Mapping[str, Any] | None
    base_url: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Invocation:
    """How to start a command for one question: its arguments, and variables beyond the common ones."""

    arguments: tuple[str, ...]
    variables: dict[str, str]


@dataclass(frozen=True, slots=True)
class Agent:
    """A command-line agent: what to call it, which variables are its login, how to ask it, how to read it."""

    program: str
    install: str
    log_in: str
    variables: tuple[str, ...]
    ask: Callable[[Question], Invocation]
    read: Callable[[str], Reply]
    prices: str = ""
    memory: tuple[str, str, str] | None = None  # variable, folder and name of a file it cannot be kept from reading


async def open_model(address: Address, context: ModelContext) -> Model:
    agent = AGENTS.get(address.endpoint)
    if agent is None:
        raise UsageError(
            f"no command-line agent is called {address.endpoint!r}", did_you_mean(address.endpoint, AGENTS)
        )
    program = shutil.which(agent.program)
    if program is None:
        raise UsageError(
            f"{address.name!r} needs the command `{agent.program}`, which is not on the PATH",
            f"Install it with `{agent.install}`, then {agent.log_in}.",
        )
    if (memory := _memory_of(agent)) is not None:
        context.tell(f"{address.name}: `{agent.program}` reads {memory} in every call, with and without the skill")
    return CommandModel(address, agent, program, context)


def _memory_of(agent: Agent) -> Path | None:
    if agent.memory is None:
        return None
    variable, folder, name = agent.memory
    path = Path(os.environ.get(variable) or Path.home() / folder) / name
    return path if path.is_file() else None


class CommandModel:
    def __init__(self, address: Address, agent: Agent, program: str, context: ModelContext) -> None:
        self.address = address
        self.agent = agent
        self.program = program
        self.context = context
        self.price = find_price(agent.prices, address.name, address.model, given=context.prices)
        # A process of this kind takes a core for its first second, so more than a few at once only wait on each other.
        self._places = asyncio.Semaphore(max(1, min(context.connections, 2 * (os.cpu_count() or 1))))
        self._breaker = CircuitBreaker(address.name)

    async def reply(self, request: Request) -> Reply:
        self._breaker.check()
        if request.tools:
            raise ModelError(
                f"{self.address.endpoint} as a plain model has no tools", "Use it as an agent, or choose another model."
            )
        async with self._places:
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="upskill-") as folder:
                reply = await self._ask(request, Path(folder))
        self._breaker.record_success()
        usage = reply.usage
        if usage.cost_usd is None:
            cost = self.price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
            usage = replace(usage, cost_usd=cost)
        model = reply.model or self.address.model
        return replace(reply, usage=usage, model=model, seconds=time.monotonic() - started)

    async def close(self) -> None:
        pass

    async def _ask(self, request: Request, folder: Path) -> Reply:
        empty = folder / "empty"
        empty.mkdir()
        question = Question(
            "\n\n".join(message.text for message in request.messages if message.role == "system") or NEUTRAL,
            _conversation(request),
            self.address.model,
            request.effort or self.address.effort,
            request.schema,
            self.address.base_url,
            folder,
        )
        invocation = self.agent.ask(question)
        wanted = (*COMMON, *self.agent.variables)
        environment = {name: os.environ[name] for name in wanted if name in os.environ} | invocation.variables
        finished = await run_command(
            (self.program, *invocation.arguments), question.prompt, environment, empty, self.context.timeout
        )
        try:
            return self.agent.read(finished.output)
        except ModelError as error:
            raise self._explained(error, finished) from None

    def _explained(self, error: ModelError, finished: Finished) -> ModelError:
        """The error with what the command said, and a hint where it is about the login."""
        said = error.message or finished.complaint.strip() or finished.output.strip() or "nothing"
        ended = f" (exit code {finished.code})" if finished.code else ""
        logins = [name for name in self.agent.variables if name.endswith(("_KEY", "_TOKEN"))]
        words = clean(said, [os.environ[name] for name in logins if len(os.environ.get(name, "")) >= 6])
        locked_out = bool(LOCKED_OUT.search(words))
        hint = f"To use its own login: {self.agent.log_in}." if locked_out else error.hint
        told = ModelError(f"`{self.agent.program}` gave no answer{ended}: {words}", hint)
        if locked_out:
            self._breaker.record_failure(told)
        return told


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    output: str
    complaint: str


async def run_command(
    command: tuple[str, ...], said: str, environment: Mapping[str, str], folder: Path, seconds: float
) -> Finished:
    """Run a program to its end. Whatever way this ends, the program and everything it started is gone."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            output, complaint, _ = await asyncio.gather(
                _read(process.stdout), _read(process.stderr), _write(process.stdin, said.encode("utf-8", "replace"))
            )
            code = await process.wait()
    except TimeoutError as error:
        raise ModelError(f"`{Path(command[0]).name}` had not answered after {seconds:g} s") from error
    finally:
        _kill_group(process.pid)
        if process.returncode is None:
            await process.wait()
    return Finished(code, output.decode("utf-8", "replace"), complaint.decode("utf-8", "replace"))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    assert stream is not None
    with suppress(ConnectionError):  # a command that fails at once has stopped listening; its own words tell more
        stream.write(data)
        await stream.drain()
    stream.close()
    with suppress(ConnectionError):
        await stream.wait_closed()


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    chunks: list[bytes] = []
    size = 0
    while chunk := await stream.read(65536):
        size += len(chunk)
        if size > LARGEST_OUTPUT:
            raise ModelError(f"the command wrote more than {LARGEST_OUTPUT:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _conversation(request: Request) -> str:
    """The user's text; where there were earlier turns, all of them as one transcript."""
    turns = [message for message in request.messages if message.role != "system"]
    if len(turns) <= 1:
        return turns[0].text if turns else ""
    return "\n\n".join(f"{_speaker(turn)}: {turn.text}" for turn in turns) + "\n\nAssistant:"


def _speaker(turn: Message) -> str:
    return {"user": "User", "assistant": "Assistant", "tool": "Tool"}[turn.role]


def _ask_claude_code(question: Question) -> Invocation:
    arguments = [
        *("--print", "--output-format", "json", "--system-prompt", question.system),
        *("--tools", "", "--setting-sources", "", "--strict-mcp-config", "--disable-slash-commands"),
        "--no-session-persistence",
    ]
    if question.model:
        arguments += ["--model", question.model]
    if question.effort:
        arguments += ["--effort", question.effort]
    if question.schema is not None:
        arguments += ["--json-schema", json.dumps(question.schema)]
    variables = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    if question.base_url:
        variables["ANTHROPIC_BASE_URL"] = question.base_url
    return Invocation(tuple(arguments), variables)


def _read_claude_code(output: str) -> Reply:
    result = next((event for event in _events(output) if event.get("type") == "result"), None)
    if result is None:
        raise ModelError("")
    text = str(result.get("result") or "")
    reason = str(result.get("stop_reason") or "")
    if result.get("is_error") or result.get("subtype") != "success":
        words = text or ", ".join(map(str, items(result.get("errors")))) or str(result.get("subtype"))
        raise ModelError(words)
    if reason == "refusal":
        raise ModelError(f"the provider refused: {text or reason}")
    if (structured := result.get("structured_output")) is not None:
        text = json.dumps(structured, ensure_ascii=False)
    usage = mapping(result.get("usage"))
    cached = number(usage.get("cache_read_input_tokens"))
    taken = number(usage.get("input_tokens")) + cached + number(usage.get("cache_creation_input_tokens"))
    cost = result.get("total_cost_usd")
    return Reply(
        text,
        Usage(taken, number(usage.get("output_tokens")), cached, 0, cost if isinstance(cost, int | float) else None),
        "length" if reason == "max_tokens" else "end",
        model=next(iter(mapping(result.get("modelUsage"))), ""),
    )


def _ask_codex(question: Question) -> Invocation:
    instructions = question.folder / "instructions.md"
    instructions.write_text(question.system, encoding="utf-8")
    settings = [*CODEX_SETTINGS, f"model_instructions_file={json.dumps(str(instructions))}"]
    if question.effort:
        settings.append(f"model_reasoning_effort={json.dumps(question.effort)}")
    if question.base_url:
        settings.append(f"openai_base_url={json.dumps(question.base_url)}")
    arguments = [
        *("exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only"),
        *("--ignore-user-config", "--ignore-rules", "--color", "never"),
    ]
    if question.model:
        arguments += ["--model", question.model]
    if question.schema is not None:
        schema = question.folder / "schema.json"
        schema.write_text(json.dumps(question.schema), encoding="utf-8")
        arguments += ["--output-schema", str(schema)]
    for setting in settings:
        arguments += ["--config", setting]
    return Invocation((*arguments, "-"), {})


def _read_codex(output: str) -> Reply:
    text = failure = ""
    usage: Usage | None = None
    for event in _events(output):
        item = mapping(event.get("item"))
        if event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif event.get("type") == "turn.completed":
            told = mapping(event.get("usage"))
            usage = Usage(
                number(told.get("input_tokens")),
                number(told.get("output_tokens")),
                number(told.get("cached_input_tokens")),
                number(told.get("reasoning_output_tokens")),
            )
        elif event.get("type") == "turn.failed":
            failure = str(mapping(event.get("error")).get("message") or "the turn failed")
        elif event.get("type") == "error":
            failure = str(event.get("message") or failure)
    if usage is None:  # the turn did not end, whatever was said in it
        raise ModelError(_inner_message(failure))
    return Reply(text, usage)


def _ask_opencode(question: Question) -> Invocation:
    prompt = question.system
    if question.schema is not None:
        prompt += "\n\nAnswer with JSON of this schema and nothing else: " + json.dumps(question.schema)
    agent = {"mode": "primary", "prompt": prompt, "tools": {"*": False}, "permission": {"*": "deny"}}
    settings: dict[str, Any] = {"share": "disabled", "autoupdate": False, "agent": {"upskill": agent}}
    if question.base_url:
        provider, _, model = question.model.partition("/")
        settings["provider"] = {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": question.base_url},
                "models": {model: {}},
            }
        }
    # A title is given because the command would ask the model for one, in a second call.
    arguments = ["run", "--pure", "--format", "json", "--agent", "upskill", "--title", "upskill"]
    if question.model:
        arguments += ["--model", question.model]
    if question.effort:
        arguments += ["--variant", question.effort]
    own = question.folder / "opencode"
    own.mkdir()
    off = ("AUTOUPDATE", "CLAUDE_CODE", "EXTERNAL_SKILLS", "PROJECT_CONFIG", "SHARE")
    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    variables |= {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), "OPENCODE_CONFIG_DIR": str(own)}
    return Invocation(tuple(arguments), variables)


def _read_opencode(output: str) -> Reply:
    texts: list[str] = []
    usage = Usage(cost_usd=0.0)
    stop: Stop | None = None
    for event in _events(output):
        part = mapping(event.get("part"))
        if event.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        elif event.get("type") == "step_finish":
            stop = "length" if part.get("reason") == "length" else "end"
            tokens = mapping(part.get("tokens"))
            cache = mapping(tokens.get("cache"))
            cached, thought = number(cache.get("read")), number(tokens.get("reasoning"))
            cost = part.get("cost")
            usage += Usage(  # the command counts cached and reasoning tokens beside the others
                number(tokens.get("input")) + cached + number(cache.get("write")),
                number(tokens.get("output")) + thought,
                cached,
                thought,
                cost if isinstance(cost, int | float) else 0.0,
            )
        elif event.get("type") == "error":
            error = mapping(event.get("error"))
            raise ModelError(str(mapping(error.get("data")).get("message") or error.get("name") or ""))
    if stop is None:
        raise ModelError("")
    # It says 0 both for what is free and for what it has no price of.
    return Reply("".join(texts), replace(usage, cost_usd=usage.cost_usd or None), stop)


def _events(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines of a command's output."""
    for line in output.splitlines():
        if line.lstrip().startswith("{"):
            with suppress(ValueError):
                yield mapping(json.loads(line))


def _inner_message(text: str) -> str:
    """The message in a provider's error that a command hands on as it came."""
    with suppress(ValueError):
        error = mapping(json.loads(text))
        return str(mapping(error.get("error")).get("message") or error.get("message") or text)
    return text


AGENTS: dict[str, Agent] = {
    "claude-code": Agent(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        "start `claude` once and log in, or set CLAUDE_CODE_OAUTH_TOKEN (from `claude setup-token`)",
        ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        _ask_claude_code,
        _read_claude_code,
        "anthropic",
    ),
    "codex": Agent(
        "codex",
        "npm install -g @openai/codex",
        "run `codex login`, or set CODEX_API_KEY",
        ("CODEX_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
        _ask_codex,
        _read_codex,
        "openai",
        ("CODEX_HOME", ".codex", "AGENTS.md"),
    ),
    "opencode": Agent(
        "opencode",
        "npm install -g opencode-ai",
        "run `opencode auth login`",
        ("OPENCODE_API_KEY", "OPENCODE_CONFIG"),
        _ask_opencode,
        _read_opencode,
    ),
}
