"""What `upskill --help` costs beside `import openai`: CPU time of whole processes, both sides in one run.

python -m venv /tmp/openai && /tmp/openai/bin/pip install openai
python bench/startup.py --other /tmp/openai/bin/python
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys


def cpu_ms(command: list[str]) -> float:
    """User and system time of one process, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def median(values: list[float]) -> float:  # `import statistics` would find the benchmark of that name beside this one
    return sorted(values)[len(values) // 2]


def modules() -> int:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "upskill", "--help"], check=True, capture_output=True, text=True
    )
    return sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1  # the heading


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", default=sys.executable, help="a Python that has openai installed")
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    ours = [sys.executable, "-m", "upskill", "--help"]
    theirs = [options.other, "-c", "import openai"]
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for command in (ours, theirs):  # warm the file cache
        cpu_ms(command)
    for _ in range(options.repeat):  # in turn, so that a busy moment hits both
        times["ours"].append(cpu_ms(ours))
        times["theirs"].append(cpu_ms(theirs))
    one, two = (median(times[side]) for side in ("ours", "theirs"))
    print(f"upskill --help   {one:7.0f} ms of CPU, {modules()} modules")
    print(f"import openai    {two:7.0f} ms of CPU")
    print(f"ratio            {one / two:7.2f}")


if __name__ == "__main__":
    main()
