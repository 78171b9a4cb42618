"""Students that act: how many trials a second, in how much memory, and whether anything of them is left.

python bench/agents.py                     # 100 trials, then 500
python bench/agents.py --trials 500 --at-once 8 --sandbox container

Each trial has three turns: a command, another one that leaves a process in the background, and the answer. The model is
a server in a process of its own that takes no time to speak of; trials, sandboxes, store and verdict are what
`upskill eval --agent tools` has. Every number of trials is a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server import Connection, answer

if TYPE_CHECKING:
    from upskill.runs.planning.plan import Plan

WORD = "kumquat"
LEFT_BEHIND = "sleep 86399"  # what the second command leaves running: nothing else on the machine is called so
COMMANDS = (
    "for n in 1 2 3; do echo line $n >> log; done; cat log",
    f"(setsid {LEFT_BEHIND} >/dev/null 2>&1 &); wc -l < log; head -c 20000 /dev/urandom > left.bin",
)


def call(number: int, command: str) -> bytes:
    """An answer that calls for a command."""
    made = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
    }
    body = json.dumps(
        {
            "id": "chatcmpl-benchmark",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "benchmark",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": None, "tool_calls": [made]},
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 420, "completion_tokens": 24, "total_tokens": 444},
        }
    ).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


REPLIES = (
    *(call(number, command) for number, command in enumerate(COMMANDS)),
    answer(f"It was the {WORD}."),
)


class Student(Connection):
    """Says what comes next, by how many results it is shown."""

    latency = 0.0

    def reply_to(self, request: bytes) -> bytes:
        return REPLIES[request.count(b'"role":"tool"')]


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Student, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


async def acting_plan(url: str, trials: int, sandbox: str) -> Plan:
    from upskill.runs.planning.plan import PlanOptions, make_plan  # noqa: PLC0415 - not for the server
    from upskill.sandboxes import choose_sandbox  # noqa: PLC0415
    from upskill.skills import Skill  # noqa: PLC0415
    from upskill.suites import Suite  # noqa: PLC0415

    suite = Suite.parse(
        [
            {
                "id": f"{n}",
                "prompt": f"Question {n}: count the lines of the log and name the fruit of line {n}.",
                "files": {"notes.md": f"notes of case {n}\n" * 20},
                "checks": [{"contains": WORD}, {"file_exists": "log"}],
            }
            for n in range(trials // 2)
        ]
    )
    skill = Skill.new(
        "naming-fruit", "Names a fruit that a question leaves out.", "The fruit is the pear.\n" * 40
    )
    kind = (await choose_sandbox(sandbox or None)).name
    return make_plan(
        skill, suite, ["benchmark"], options=PlanOptions(base_url=url, agent="tools", sandbox=kind)
    )


async def run(url: str, trials: int, at_once: int, sandbox: str, folder: str) -> dict[str, Any]:
    from upskill.models import ModelContext  # noqa: PLC0415
    from upskill.models.pool import Models  # noqa: PLC0415
    from upskill.runs.running.evaluate import RunOptions, evaluate  # noqa: PLC0415 - not for the server
    from upskill.runs.running.events import Events  # noqa: PLC0415
    from upskill.runs.running.executors.local import Local  # noqa: PLC0415
    from upskill.runs.stores import open_store  # noqa: PLC0415

    plan = await acting_plan(url, trials, sandbox)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    began = 0.0

    def started(*_: object) -> None:
        nonlocal began
        began = time.perf_counter()

    with open_store(folder) as store:
        models = Models(ModelContext(connections=at_once), replies=store)
        evaluation = await evaluate(
            plan,
            store=store,
            models=models,
            options=RunOptions(executor=Local(at_once)),
            events=Events(started=started),
        )
        seconds = time.perf_counter() - began
        (verdict,) = evaluation.verdicts
    errors = [message for _, message, _ in evaluation.errors]
    assert verdict.baseline.passed + verdict.skill.passed == trials, errors[:1]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return {
        "sandbox": plan.sandbox,
        "seconds": seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "children": len(children),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())) - descriptors,
    }


def processes() -> int:
    """Those that trials left in the background and that live still."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += path.read_bytes().replace(b"\0", b" ").strip() == LEFT_BEHIND.encode()
    return found


def measure(trials: int, at_once: int, sandbox: str) -> dict[str, Any]:
    """One side, in a process of its own with a folder for temporary files of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-agents-") as place:
        temporary, store = Path(place) / "tmp", Path(place) / "runs"
        temporary.mkdir()
        if os.geteuid() == 0:  # a student that root starts is another user, and has to get in
            Path(place).chmod(0o755)
        environment = os.environ | {"TMPDIR": str(temporary)}
        line = [sys.executable, __file__]
        with subprocess.Popen([*line, "--serve"], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            try:
                line += [
                    "--run",
                    url,
                    "--trials",
                    str(trials),
                    "--at-once",
                    str(at_once),
                    "--store",
                    str(store),
                ]
                line += ["--sandbox", sandbox]
                done = subprocess.run(
                    line, env=environment, stdout=subprocess.PIPE, text=True, check=True
                )
            finally:
                server.kill()
        told: dict[str, Any] = json.loads(done.stdout)
        return told | {"files": len(list(temporary.rglob("*"))), "processes": processes()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--sandbox", default="")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    elif options.run:
        told = asyncio.run(
            run(options.run, options.trials, options.at_once, options.sandbox, options.store)
        )
        print(json.dumps(told))
    else:
        print(
            "| trials | sandbox | trials/s | peak memory, MB | files left | processes left | descriptors left |"
        )
        print("|---:|---|---:|---:|---:|---:|---:|")
        for trials in (options.trials // 5, options.trials):
            told = measure(trials, options.at_once, options.sandbox)
            left = told["processes"] + told["children"]
            print(
                f"| {trials} | {told['sandbox']} | {trials / told['seconds']:.1f} | {told['memory']:.0f} "
                f"| {told['files']} | {left} | {told['descriptors']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
