"""A real agent program as a student: mounted read-only in the sandbox, and run to its end there.

Its home folder has the skills on offer and settings of ours, nothing of the person's. Its only way out is the proxy.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from upskill.agents import Student, Task, skill_files
from upskill.agents.activation import CANARY_PATTERN
from upskill.agents.allow_list import Wire
from upskill.agents.mcp import (
    McpServer,
    McpServers,
    read_servers,
    redact_trace,
    rename_tools,
    secrets_of,
    show_programs,
)
from upskill.agents.proxy import Proxy, Upstream, upstream_for
from upskill.errors import AgentError, TrialError, UsageError
from upskill.models import Address, Stop, Unanswered
from upskill.models.parsing import safe_excerpt
from upskill.models.prices import Prices
from upskill.models.program import Invocation, package_version, program_version
from upskill.plain import dict_or_empty, load_json
from upskill.sandboxes import CommandResult, Limits, MiB, Setup, printable, unused_port
from upskill.skills.agent_specs import AgentSpec
from upskill.traces import FORMATS, Step, Trace
from upskill.traces.formats import Format

STOP_REASONS: dict[str, Stop] = {  # in the words of the programs
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "content-filter": "refusal",
}
EXECUTABLE_MAGIC = (
    b"\x7fELF",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)  # Linux, macOS, macOS for both processors
SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")  # in every sandbox
# Below the home folder, where programs keep settings, sessions and what they remember.
CPU_PER_SECOND = 4  # seconds of processor time for each second that a trial may take
# The runtimes of these programs reserve far more memory than they use, and start dozens of threads.
LIMITS = Limits(
    memory=3 * 1024 * MiB,
    processes=1024,
    file_size=512 * MiB,
    disk=1024 * MiB,
    output=64 * MiB,
    open_files=4096,
    address_space=None,
)


@dataclass(frozen=True, slots=True)
class Program:
    """How an installed program is started, and what has to be mounted for that."""

    command: tuple[str, ...]
    readonly_mounts: Mapping[str, Path]
    version: str = ""


class ProgramAgent(ABC):
    needs_sandbox: ClassVar[bool] = True
    spec: ClassVar[AgentSpec]

    def upstream(
        self, address: Address, keys: Mapping[str, str], prices: Prices | None = None
    ) -> Upstream:
        """UsageError if this program cannot use the API."""
        if address.provider == "command" and address.endpoint == self.spec.name:
            return self.login(address, keys, prices)
        return upstream_for(address, self.wire_for(address), keys, prices)

    @abstractmethod
    def wire_for(self, address: Address) -> Wire:
        """The API that both have; UsageError if there is none."""

    @abstractmethod
    def login(
        self, address: Address, keys: Mapping[str, str], prices: Prices | None
    ) -> Upstream: ...

    def settings(self, url: str) -> dict[str, str]:
        """Files of the home folder that turn off its updates and its questions."""
        del url
        return {}

    @abstractmethod
    def invocation(self, address: Address, proxy: Proxy) -> Invocation:
        """How it is started, with the URL and the key of the proxy."""

    def with_servers(self, invocation: Invocation, servers: Mapping[str, McpServer]) -> Invocation:
        """Name these MCP servers in its own configuration; the program starts them."""
        del servers
        return invocation

    def extra_mounts(self) -> Mapping[str, Path]:
        return {}

    def command(self, program: Program, invocation: Invocation) -> tuple[str, ...]:
        return (*program.command, *invocation.arguments)

    def stdin(self, task: Task) -> bytes:
        return task.prompt.encode("utf-8", "replace")

    # The interface of an agent.

    @property
    def version(self) -> str:
        return program_version(self.spec.program)

    def check(self, address: Address, keys: Mapping[str, str], sandbox: str = "") -> None:
        upstream = self.upstream(address, keys)
        if sandbox == "none" and upstream.headers:
            raise UsageError(
                "without a sandbox, the commands of a real agent could read its API key",
                "Drop --sandbox none, or use a server that needs no key.",
            )
        self._program()
        self.extra_mounts()

    def setup(self, task: Task) -> Setup:
        port = unused_port()
        files, runnable = skill_files(task.offered_skills, self.spec.user_skills)
        setup = Setup(
            files=task.files,
            home_files={**self.settings(f"http://127.0.0.1:{port}/v1"), **files},
            runnable=runnable,
            readonly_mounts={**self._program().readonly_mounts, **self.extra_mounts()},
            limits=LIMITS,
            proxy_port=port,
        )
        return show_programs(setup, read_servers(task.mcp_servers))

    async def run(self, task: Task, student: Student) -> Trace:
        sandbox, address = student.sandbox, student.address
        if sandbox is None or sandbox.proxy_socket is None:
            raise AgentError(f"{self.spec.name} needs a sandbox with a socket for its proxy")
        program = self._program()
        upstream = self.upstream(address, student.keys, student.prices)
        canary = (
            CANARY_PATTERN.search(task.skill.body)
            if task.skill and task.bounds.until_activated
            else None
        )
        proxy = Proxy(
            upstream, task.bounds, student.ledger, canary[0] if canary else "", student.role
        )
        limits = replace(LIMITS, wall=task.bounds.seconds, cpu=CPU_PER_SECOND * task.bounds.seconds)
        servers = read_servers(task.mcp_servers)
        if servers:  # the program would go on without one that does not start
            async with McpServers(servers, sandbox) as started:
                tools = started.tools
            await sandbox.kill_processes()
        else:
            tools = ()
        try:
            async with proxy.serve(sandbox.proxy_socket):
                invocation = self.invocation(address, proxy)
                if servers:
                    invocation = self.with_servers(invocation, servers)
                done = await sandbox.run(
                    self.command(program, invocation),
                    limits,
                    stdin=self.stdin(task),
                    environment=invocation.environment,
                )
        except TrialError as error:  # the requests so far were paid for
            error.usage, error.failure = proxy.usage, _failure_of(error, proxy)
            raise
        trace = rename_tools(
            redact_trace(self.read(done.output, proxy.calls), secrets_of(servers)), tools
        )
        # The proxy saw every request, even those of sub-agents and those that the program does not report.
        trace = replace(
            trace,
            goal=task.prompt,
            usage=proxy.usage,
            turns=proxy.turns,
            model=trace.model or upstream.model,
            agent=f"{self.spec.name} {program.version}".strip(),
            warnings=(
                *trace.warnings,
                *(f"{self.spec.name}: {warning}" for warning in proxy.warnings),
            ),
        )
        if (error := self._trial_error(done, trace, proxy)) is not None:
            if isinstance(error, Unanswered):
                return replace(trace, stop=error.stop, stop_details=error.message)
            if isinstance(error, TrialError):
                error.usage, error.failure = proxy.usage, _failure_of(error, proxy)
                error.hint = " ".join(filter(None, [error.hint, *proxy.warnings]))
            raise error
        stop = proxy.stop or ("seconds" if done.timed_out else trace.stop)
        return replace(trace, stop=STOP_REASONS.get(stop, stop))

    def _program(self) -> Program:
        return find_program(self.spec.program, self.spec.install)

    def read(self, output: str, calls: Mapping[str, Step]) -> Trace:
        """From what it printed. `calls` is what the proxy saw of its tool calls."""
        del calls
        with tempfile.TemporaryDirectory(prefix="upskill-") as folder:
            path = Path(folder) / "events.jsonl"
            lines = [line for line in output.splitlines() if line.lstrip().startswith("{")]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
            reader: Format = FORMATS.load(self.spec.trace_format)
            return replace(reader.read(path), source="") if lines else Trace(())

    def _trial_error(self, done: CommandResult, trace: Trace, proxy: Proxy) -> Exception | None:
        """Why this trial cannot be scored, if so. Reaching a bound is a normal end."""
        if proxy.ceiling is not None:
            return proxy.ceiling
        if proxy.lost is not None:
            return proxy.lost
        if proxy.stop:
            return None
        if proxy.model_error is not None:  # even if time ran out while the program kept retrying
            return proxy.model_error
        if done.timed_out:
            if proxy.turns:
                return None
            # The student did nothing that could be judged.
            return AgentError(
                f"{self.spec.name} {done.killed_why} without an answer from its model"
            )
        if done.killed_why:
            return AgentError(f"{self.spec.name} was killed: it {done.killed_why}")
        if done.code or not trace.steps:
            message = _last_error(trace) or "\n".join(
                (done.error.strip() or done.output.strip()).splitlines()[-5:]
            )
            quote = safe_excerpt(printable(message), proxy.upstream.secrets) or "it printed nothing"
            return AgentError(
                f"{self.spec.name} exited with code {done.code} without an answer: {quote}"
            )
        return None


def _failure_of(error: TrialError, proxy: Proxy) -> str:
    """The row of FAILURES. Once its model has answered, or may have, the student was asked."""
    if not proxy.asked:
        return "not started"
    return "agent" if proxy.turns else error.failure


def find_program(name: str, install: str) -> Program:
    program, hint = shutil.which(name), f"Install it with `{install}`." if install else ""
    if program is None:
        raise UsageError(f"the agent needs the `{name}` command, which is not on the PATH", hint)
    path = Path(program).resolve()
    with path.open("rb") as stream:
        head = stream.read(128)
    version = package_version(path)
    if head.startswith(EXECUTABLE_MAGIC):
        return Program((str(path),), readonly_mount(path), version)
    line, node = head.partition(b"\n")[0], shutil.which("node")
    interpreter = Path(line.removeprefix(b"#!").decode("utf-8", "replace").strip())
    environment = interpreter.parent.parent
    if (
        line.startswith(b"#!/") and (environment / "pyvenv.cfg").is_file()
    ):  # of Python, as pip and uv install them
        runtime = interpreter.resolve().parent.parent
        return Program(
            (str(interpreter), str(path)),
            {**readonly_mount(runtime), **readonly_mount(environment)},
        )
    packages = [folder for folder in path.parents if folder.name == "node_modules"]
    if not (line.startswith(b"#!") and b"node" in line and packages):
        raise UsageError(
            f"{program} is neither an executable nor a Node.js or Python package, so the sandbox cannot mount it",
            hint,
        )
    if node is None:
        raise UsageError(f"{program} needs `node`, which is not on the PATH", "Install Node.js.")
    runtime = Path(node).resolve()
    # The outermost folder: packages are beside each other, or are links to others further up.
    return Program(
        (str(runtime), str(path)),
        {**readonly_mount(runtime), **readonly_mount(packages[-1])},
        version,
    )


def readonly_mount(path: Path) -> dict[str, Path]:
    """At its own path, because not every kind of sandbox can mount it at another."""
    return {} if str(path).startswith(SYSTEM_FOLDERS) else {str(path): path}


def _last_error(trace: Trace) -> str:
    errors = [
        step.text
        for step in trace.steps
        if step.kind == "system" and step.text.startswith("error: ")
    ]
    message = errors[-1].removeprefix("error: ") if errors else ""
    try:
        error = dict_or_empty(load_json(message))
    except ValueError:
        return message
    return str(dict_or_empty(error.get("data")).get("message") or error.get("message") or message)


def incompatible_model(agent: str, address: Address, needs: str, hint: str) -> UsageError:
    return UsageError(f"{agent} cannot be run with {address.name!r}: it needs {needs}", hint)
