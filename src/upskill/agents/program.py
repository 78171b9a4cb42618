"""A real agent program as a student: found on this machine, shown read-only in the sandbox, and run to its end there.

Its home folder holds the skills on offer and settings of ours, nothing of the person's. Its only way out is the proxy.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from typing import Any, ClassVar

from upskill.agents import Student, Task, runnable_files, skill_files
from upskill.agents.activation import CANARY
from upskill.agents.proxy import Proxy, Upstream
from upskill.errors import AgentError, TrialError, UsageError
from upskill.models import Address
from upskill.models.command.process import Invocation
from upskill.models.parsing import safe_excerpt
from upskill.models.prices import Prices
from upskill.plain import dict_or_empty
from upskill.sandboxes import CommandResult, Limits, MiB, Setup, printable
from upskill.skills.agent_specs import AgentSpec
from upskill.traces import FORMATS, Trace
from upskill.traces.formats import Format

DUMMY = "upskill-has-the-key"  # programs refuse to start without a key; this one opens nothing
NATIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # of Linux, of macOS, of both its processors
SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")  # in every sandbox
CORES = 4  # of processor time for each second that a trial may take
# The runtimes of these programs reserve far more than they use, and start dozens of threads each.
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
    """How an installed program is started, and what a sandbox has to show for that."""

    command: tuple[str, ...]
    readonly_mounts: Mapping[str, Path]
    version: str = ""


class ProgramAgent(ABC):
    """What the three programs share. A kind says where its model is, what is in its home, and how it is started."""

    acts: ClassVar[bool] = True
    spec: ClassVar[AgentSpec]

    @abstractmethod
    def upstream(self, address: Address, keys: Mapping[str, str], prices: Prices | None = None) -> Upstream:
        """The API behind an address; UsageError where this program cannot speak to it."""

    def settings(self, url: str) -> dict[str, str]:
        """Files of the home folder that make the program quiet and let it do what it likes in there."""
        del url
        return {}

    @abstractmethod
    def invocation(self, address: Address, upstream: Upstream, url: str) -> Invocation: ...

    def helpers(self) -> Mapping[str, Path]:
        """Further files that the program needs to see."""
        return {}

    # What every agent has.

    def check(self, address: Address, keys: Mapping[str, str]) -> None:
        self.upstream(address, keys)
        find_program(self.spec.program, self.spec.install)
        self.helpers()

    def setup(self, task: Task) -> Setup:
        port = _free_port()
        skills = self.spec.user_skills
        return Setup(
            files=task.files,
            home_files={**self.settings(f"http://127.0.0.1:{port}/v1"), **skill_files(task.offered, skills)},
            runnable=runnable_files(task.offered, skills),
            readonly_mounts={**find_program(self.spec.program, self.spec.install).readonly_mounts, **self.helpers()},
            limits=LIMITS,
            proxy_port=port,
        )

    async def run(self, task: Task, student: Student) -> Trace:
        sandbox, address = student.sandbox, student.address
        if sandbox is None or sandbox.proxy_socket is None:
            raise AgentError(f"{self.spec.name} needs a sandbox with a socket for its proxy")
        program = find_program(self.spec.program, self.spec.install)
        upstream = self.upstream(address, student.keys, student.prices)
        proxy = Proxy(upstream, task.bounds, student.ledger, _marker(task))
        limits = replace(LIMITS, wall=task.bounds.seconds, cpu=CORES * task.bounds.seconds)
        try:
            async with proxy.served(sandbox.proxy_socket) as url:
                invocation = self.invocation(address, upstream, url)
                done = await sandbox.run(
                    [*program.command, *invocation.arguments],
                    limits,
                    stdin=task.prompt.encode("utf-8", "replace"),
                    environment=invocation.environment,
                )
        except TrialError as error:  # what was asked until then was paid for
            error.usage = proxy.usage
            raise
        trace = self.read(done.output)
        # The proxy saw every question, also those of sub-agents and those that the program does not tell of.
        trace = replace(
            trace,
            goal=task.prompt,
            usage=proxy.usage,
            turns=proxy.turns,
            model=trace.model or upstream.model,
            agent=" ".join(filter(None, [self.spec.name, program.version])),
        )
        if (error := self._error(done, trace, proxy, sandbox.kind)) is not None:
            if isinstance(error, TrialError):
                error.usage = proxy.usage
            raise error
        stop = proxy.stop or ("seconds" if done.timed_out else trace.stop)
        # How long an answer may be is the program's own affair, so its limit is not one that a plan could raise.
        return replace(trace, stop="output limit" if stop == "length" else stop)

    def read(self, output: str) -> Trace:
        """The steps in the program's events."""
        with tempfile.TemporaryDirectory(prefix="upskill-") as folder:
            path = Path(folder) / "events.jsonl"
            lines = [line for line in output.splitlines() if line.lstrip().startswith("{")]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
            reader: Format = FORMATS.load(self.spec.trace_format)
            return replace(reader.read(path), source="") if lines else Trace(())

    def _error(self, done: CommandResult, trace: Trace, proxy: Proxy, kind: str) -> Exception | None:
        """Why this is no trial that could be scored. A bound that was reached is a normal end."""
        if proxy.ceiling is not None:
            return proxy.ceiling
        if proxy.stop:
            return None
        if proxy.trouble is not None:  # also when time ran out while the program asked again and again
            return proxy.trouble
        if done.timed_out and not proxy.turns:  # nothing of the student's that could be judged
            return AgentError(f"{self.spec.name} {done.killed_why} without an answer of its model")
        if done.timed_out:
            return None
        if done.killed_why:
            return AgentError(f"{self.spec.name} was ended: it {done.killed_why}")
        if done.code or not trace.steps:
            said = _complaint(trace) or "\n".join((done.error.strip() or done.output.strip()).splitlines()[-5:])
            words = safe_excerpt(printable(said), proxy.upstream.secrets) or "it said nothing"
            return AgentError(
                f"{self.spec.name} ended with code {done.code} and without an answer: {words}", _advice(kind)
            )
        return None


def find_program(name: str, install: str) -> Program:
    """The program of this name on the PATH: a file of machine code, or a script for node with the packages around."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(
            f"the agent needs the command `{name}`, which is not on the PATH", f"Install it with `{install}`."
        )
    path = Path(found).resolve()
    try:
        with path.open("rb") as stream:
            head = stream.read(128)
    except OSError as error:
        raise UsageError(f"{found} cannot be read: {error.strerror}", f"Install it with `{install}`.") from error
    version = _version(path)
    if head.startswith(NATIVE):
        return Program((str(path),), in_place(path), version)
    line, node = head.partition(b"\n")[0], shutil.which("node")
    packages = [folder for folder in path.parents if folder.name == "node_modules"]
    if not (line.startswith(b"#!") and b"node" in line and packages):
        raise UsageError(
            f"{found} is neither a program nor a package of node, so it cannot be shown to a sandbox",
            f"Install it with `{install}`.",
        )
    if node is None:
        raise UsageError(f"{found} needs `node`, which is not on the PATH", "Install Node.js.")
    runtime = Path(node).resolve()
    # The outermost folder: packages lie beside each other, or are links to others further up.
    return Program((str(runtime), str(path)), {**in_place(runtime), **in_place(packages[-1])}, version)


def in_place(path: Path) -> dict[str, Path]:
    """At its own path, as not every kind of sandbox can show it at another."""
    return {} if str(path).startswith(SYSTEM) else {str(path): path}


def _version(path: Path) -> str:
    """Of the package that a program came in; empty where it came in none."""
    for folder in path.parents:
        if (said := read_json(folder / "package.json")).get("version"):
            return str(said["version"])
        if folder.name == "node_modules":
            break
    return ""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        return dict_or_empty(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _advice(kind: str) -> str:
    """Runtimes want things of the system that not every kind of sandbox has: under landlock, only Codex starts."""
    return "" if kind == "bubblewrap" else f"These programs are at home in bubblewrap; this was {kind}."


def _complaint(trace: Trace) -> str:
    """The last error that a program told of in its events."""
    told = [step.text for step in trace.steps if step.kind == "system" and step.text.startswith("error: ")]
    said = told[-1].removeprefix("error: ") if told else ""
    try:
        error = dict_or_empty(json.loads(said))
    except ValueError:
        return said
    return str(dict_or_empty(error.get("data")).get("message") or error.get("message") or said)


def _marker(task: Task) -> str:
    """What comes before the model when the skill under test is opened, where the trial ends there."""
    found = re.search(re.escape(CANARY) + "[0-9a-f]+", task.skill.body) if task.skill else None
    return found[0] if found and task.bounds.until_activated else ""


def _free_port() -> int:
    """A port that is free out here, too: not every kind of sandbox has a loopback of its own."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cannot_pair(agent: str, address: Address, needs: str, works: str) -> UsageError:
    return UsageError(f"{agent} cannot be run with {address.name!r}: it needs {needs}", works)
