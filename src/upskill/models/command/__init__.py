"""A subscription agent as a plain model: the installed program answers one request, with its own login and no tools.

Each call is one process in an empty folder, which sees its own login and none of our API keys. The person's settings
are left out as far as the program allows. `claude_code`, `codex` and `opencode` each have a `Command`: how the program
is asked, and how its output is read.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from upskill.errors import ModelError, UsageError, did_you_mean
from upskill.models import Address, Model, ModelContext, Reply, Request, Unanswered
from upskill.models.parsing import safe_excerpt, unanswered_stop
from upskill.models.prices import price_for
from upskill.models.program import Invocation, ProcessResult, run_process
from upskill.models.throttling import CircuitBreaker
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec

# The variables that every program needs to start, to reach the network, and to find its login.
COMMON_VARIABLES = (
    *("HOME", "PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
DEFAULT_SYSTEM = "You answer questions."  # instead of the program's own
LOGIN_ERROR = re.compile(
    r"log ?in|logged (in|out)|unauthori[sz]ed|api key|credential|\b40[134]\b|model.*not (found|exist)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """One request as a program needs it, and an empty folder for files that it takes."""

    system: str
    model: str
    effort: str
    schema: Mapping[str, Any] | None
    base_url: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Command:
    """How a program is started for one request, and how its reply is read from its output."""

    invoke: Callable[[CommandRequest], Invocation]
    read: Callable[[str], Reply]


async def open_model(address: Address, context: ModelContext) -> Model:
    specs = {spec.name: spec for spec in AGENT_SPECS.values() if spec.model}
    spec = specs.get(address.endpoint)
    if spec is None:
        raise UsageError(
            f"unknown command-line agent {address.endpoint!r}",
            did_you_mean(address.endpoint, specs),
        )
    program = shutil.which(spec.program)
    if program is None:
        raise UsageError(
            f"{address.name!r} needs the `{spec.program}` command, which is not on the PATH",
            f"Install it with `{spec.install}`, then {spec.log_in}.",
        )
    if spec.memory_file and (memory := spec.folder_in() / spec.memory_file).is_file():
        context.tell(f"{address.name}: `{spec.program}` reads {memory} on every call, in both arms")
    return CommandModel(address, spec, program, context)


class CommandModel:
    def __init__(
        self, address: Address, spec: AgentSpec, program: str, context: ModelContext
    ) -> None:
        self.address = address
        self.spec = spec
        self.command: Command = resolve_name(spec.model)
        self.program = program
        self.context = context
        self.price = price_for(address, context.prices)
        # Each takes a whole core for its first second.
        self._slots = asyncio.Semaphore(max(1, min(context.connections, 2 * (os.cpu_count() or 1))))
        self.breaker = CircuitBreaker(address.name, context.failures.get(address.name, 0))

    async def reply(self, request: Request) -> Reply:
        self.breaker.check()
        if request.tools:
            raise ModelError(
                f"{self.address.endpoint} cannot call tools as a plain model",
                "Use it as an agent, or choose another model.",
            )
        async with self._slots:
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="upskill-") as folder:
                reply = await self._ask(request, Path(folder))
        self.breaker.record_success()
        usage = reply.usage
        if usage.cost_usd is None:
            cost = self.price.cost(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
            usage = replace(usage, cost_usd=cost)
        model = reply.model or self.address.model
        return replace(reply, usage=usage, model=model, seconds=time.monotonic() - started)

    async def close(self) -> None:
        pass

    async def _ask(self, request: Request, folder: Path) -> Reply:
        empty = folder / "empty"
        empty.mkdir()
        system = "\n\n".join(
            message.text for message in request.messages if message.role == "system"
        )
        turns = [message for message in request.messages if message.role != "system"]
        if len(turns) > 1:
            prompt = (
                "\n\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns)
                + "\n\nAssistant:"
            )
        else:
            prompt = turns[0].text if turns else ""
        command_request = CommandRequest(
            system=system or DEFAULT_SYSTEM,
            model=self.address.model,
            effort=request.effort or self.address.effort,
            schema=request.schema,
            base_url=self.address.base_url,
            folder=folder,
        )
        invocation = self.command.invoke(command_request)
        passed_on = (*COMMON_VARIABLES, *self.spec.login_variables)
        environment = {name: os.environ[name] for name in passed_on if name in os.environ}
        environment |= invocation.environment
        result = await run_process(
            (self.program, *invocation.arguments),
            stdin=prompt,
            environment=environment,
            folder=empty,
            seconds=self.context.timeout,
        )
        try:
            return self.command.read(result.stdout)
        except ModelError as error:
            raise (
                error if isinstance(error, Unanswered) else self._explained(error, result)
            ) from None

    def _explained(self, error: ModelError, result: ProcessResult) -> ModelError:
        output = error.message or result.stderr.strip() or result.stdout.strip() or "nothing"
        exit_code = f" (exit code {result.exit_code})" if result.exit_code else ""
        logins = [name for name in self.spec.login_variables if name.endswith(("_KEY", "_TOKEN"))]
        excerpt = safe_excerpt(
            output, [os.environ[name] for name in logins if len(os.environ.get(name, "")) >= 6]
        )
        if stop := unanswered_stop(excerpt):
            return Unanswered(f"`{self.spec.program}` returned no answer: {excerpt}", stop=stop)
        about_login = bool(LOGIN_ERROR.search(excerpt))
        hint = f"To use its own login: {self.spec.log_in}." if about_login else error.hint
        explained = ModelError(
            f"`{self.spec.program}` returned no answer{exit_code}: {excerpt}", hint
        )
        if about_login:
            self.breaker.record_failure(explained)
        return explained
