"""What starting costs: CPU time of whole processes, both sides in one run.

python -m venv /tmp/openai && /tmp/openai/bin/pip install openai
python bench/startup.py --other /tmp/openai/bin/python     # `upskill --help` beside `import openai`
python bench/startup.py --eval                             # `upskill eval` until its first call, beside three imports
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

SKILL = Path(__file__).resolve().parent.parent / "examples" / "tern-deploy"  # 20 cases
IMPORTS = "import aiohttp, numpy, pydantic"
# As installed packages are: with the bytecode that the run before has left.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def cpu_ms(command: list[str]) -> float:
    """User and system time of one process, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def first_call_ms() -> float:
    """The same of `upskill eval`, which is killed when its first request arrives over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        command = [
            sys.executable,
            "-m",
            "upskill",
            "eval",
            str(SKILL),
            "-m",
            "benchmark",
            "--base-url",
            url,
        ]
        child = subprocess.Popen(
            [*command, "--store", folder, "--json"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            child.send_signal(signal.SIGKILL)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
    return 1000 * (used.ru_utime + used.ru_stime)


def median(
    values: list[float],
) -> float:  # `import statistics` would find the benchmark of that name beside this one
    return sorted(values)[len(values) // 2]


def modules() -> int:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "upskill", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    return (
        sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1
    )  # the heading


def compare_eval(repeat: int) -> None:
    imports = [sys.executable, "-c", IMPORTS]
    first_call_ms()  # warm the file cache, and leave bytecode
    cpu_ms(imports)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(repeat):  # in turn, so that a busy moment hits both
        ours.append(first_call_ms())
        theirs.append(cpu_ms(imports))
    one, two = median(ours), median(theirs)
    print(
        f"upskill eval, until its first call over HTTP   {one:5.0f} ms of CPU ({min(ours):.0f} to {max(ours):.0f})"
    )
    print(f"{IMPORTS:<45}  {two:5.0f} ms of CPU ({min(theirs):.0f} to {max(theirs):.0f})")
    print(f"ratio {one / two:.2f}")


def compare_help(other: str, repeat: int) -> None:
    ours = [sys.executable, "-m", "upskill", "--help"]
    theirs = [other, "-c", "import openai"]
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for command in (ours, theirs):  # warm the file cache
        cpu_ms(command)
    for _ in range(repeat):  # in turn, so that a busy moment hits both
        times["ours"].append(cpu_ms(ours))
        times["theirs"].append(cpu_ms(theirs))
    one, two = (median(times[side]) for side in ("ours", "theirs"))
    print(f"upskill --help   {one:7.0f} ms of CPU, {modules()} modules")
    print(f"import openai    {two:7.0f} ms of CPU")
    print(f"ratio            {one / two:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--other", default=sys.executable, help="a Python that has openai installed"
    )
    parser.add_argument(
        "--eval", action="store_true", help="`upskill eval` instead of `upskill --help`"
    )
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    if options.eval:
        compare_eval(options.repeat)
    else:
        compare_help(options.other, options.repeat)


if __name__ == "__main__":
    main()
