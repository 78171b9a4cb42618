"""`--executor ray` does what the local executor does, on a real Ray, whatever dies meanwhile."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    Done,
    Upskill,
    greetings,
    scores_of,
    serving,
    spawn,
    start,
    write_script,
    write_skill,
)
from loopback import Call, Gate, Loopback, refuse
from postgres_server import PASSWORD, QUOTED_PASSWORD, Server
from upskill import open_store
from upskill.models.throttling import MAX_FAILURES
from upskill.runs.running.executors.chunks import UNSAVED
from upskill.runs.running.executors.ray import NAME, import_ray, start_ray
from upskill.runs.stores.sqlite import FILE

CASES = 24
CONCURRENCY = 4
KEY = "sk-a-secret-that-nobody-may-read"
TRIALS = CASES * 2 * 2
PROBES = 2


@pytest.fixture(scope="module")
def ray() -> Generator[Any]:
    """One Ray of two CPUs for all tests; the command line in this process uses it, and others can join it."""
    pytest.importorskip("ray")
    ray = import_ray()
    os.environ["RAY_AUTH_MODE"] = (
        "disabled"  # a token would be in the home folder, and that changes with every test
    )
    start_ray(ray, num_cpus=2)
    yield ray
    ray.shutdown()
    del os.environ["RAY_AUTH_MODE"]


@pytest.fixture
def skill(home: Path) -> Path:
    return write_skill(home / "greeter", suite=greetings(CASES))


def answer(call: Call) -> str:
    """Always the same for the same request: right with the skill, and now and then without it."""
    if not call.system:
        return f"prose {call.seed}"  # for the probe
    is_lucky = call.seed and call.seed % 2 and "guest 3" in call.prompt
    return "ahoy" if "ahoy" in call.system or is_lucky else "hello"


def command(skill: Path, server: Loopback, store: str, *more: object) -> list[object]:
    return [
        *(
            "eval",
            skill,
            "-m",
            "small",
            "--base-url",
            server.url,
            "--repeats",
            2,
            "--concurrency",
            CONCURRENCY,
        ),
        *("--store", store, "--json", *more),
    ]


def asked(server: Loopback) -> Counter[tuple[str, str, int | None]]:
    """Without the probes, which have no system prompt."""
    found: Counter[tuple[str, str, int | None]] = Counter()
    for logged in server.requests:
        if len(logged.body["messages"]) == 1:
            continue
        system, user = (message["content"] for message in logged.body["messages"])
        found[system, user, logged.body.get("seed")] += 1
    return found


def stored(folder: Path) -> int:
    """How many results there are, read without upskill's own code."""
    with closing(sqlite3.connect(folder / FILE)) as db:
        return db.execute("SELECT COUNT(*) FROM results WHERE passed IS NOT NULL").fetchone()[0]


def unused_replies(folder: Path) -> int:
    """Replies that were stored while the result of their trial was not: a resumed run uses them for nothing."""
    with closing(sqlite3.connect(folder / FILE)) as db:
        replies, results = (
            db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
            for name in ("replies", "results")
        )
        return replies - results


def workers() -> list[int]:
    """The processes of our cluster that run a chunk at the moment; somebody else may have one on this machine."""
    session = Path(import_ray()._private.worker._global_node.get_session_dir_path()).name.encode()
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(f"ray::{NAME}".encode()):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if session in Path(f"/proc/{parent}/cmdline").read_bytes():
                    found.append(int(process.name))
    return found


class Killer:
    """Answers, and kills a worker -9 when it has been asked so many times."""

    def __init__(self, *at: int) -> None:
        self.at = list(at)
        self.count = 0
        self.killed = 0

    def __call__(self, call: Call) -> str:
        self.count += 1
        if self.at and self.count >= self.at[0] and (found := workers()):
            self.at.pop(0)
            os.kill(found[0], signal.SIGKILL)
            self.killed += 1
        return answer(call)


@pytest.mark.usefixtures("ray")
def test_it_ends_as_the_local_executor_does_and_either_goes_on_where_the_other_stopped(
    upskill: Upskill, home: Path, skill: Path
) -> None:
    with serving(answer) as server:
        local = upskill(*command(skill, server, "local"))
        assert local.code == 0, local.err
        server.requests.clear()
        whole = upskill(*command(skill, server, "ray"), "--executor", "ray")
        assert (whole.code, whole.out) == (0, local.out), whole.err
        assert set(asked(server).values()) == {1}
        assert stored(home / "ray") == TRIALS
        ended: list[Any] = []
        for first, second in (("ray", "local"), ("local", "ray")):
            server.requests.clear()
            place = f"{first}-{second}"
            part = upskill(
                *command(skill, server, place), "--executor", first, "--set", "max_calls=50"
            )
            assert part.json["halted"] == "the limit of 50 calls was reached"
            assert len(server.requests) == stored(home / place) + PROBES == 50
            rest = upskill(*command(skill, server, place), "--executor", second)
            assert rest.code == 0, rest.err
            assert set(asked(server).values()) == {1}
            ended.append(rest.json["models"][0]["skill"] | rest.json["models"][0]["baseline"])
        assert ended[0] == ended[1]


@pytest.mark.usefixtures("ray")
def test_workers_that_are_killed_lose_nothing_and_change_nothing(
    upskill: Upskill, home: Path, skill: Path
) -> None:
    killer = Killer()
    with serving(killer, latency=0.02) as server:
        whole = upskill(*command(skill, server, "whole"))
        server.requests.clear()
        killer.at = [TRIALS + 10, TRIALS + 35, TRIALS + 60]
        done = upskill(*command(skill, server, "broken", "--executor", "ray"))
        assert (done.code, killer.killed) == (0, 3), done.err
        assert scores_of(done) == scores_of(whole)
        assert stored(home / "broken") == TRIALS == len(asked(server))
        # What a worker had asked for and not stored is asked once more, and no more of its chunk.
        most = TRIALS + PROBES + killer.killed * UNSAVED * CONCURRENCY
        assert len(server.requests) <= most


@pytest.mark.usefixtures("ray")
def test_ceilings_hold_over_all_workers_also_when_some_are_killed(
    upskill: Upskill, home: Path, skill: Path
) -> None:
    killer = Killer(20)
    with serving(killer, latency=0.02) as server:
        ended = upskill(
            *command(skill, server, "calls", "--executor", "ray", "--set", "max_calls=70")
        )
        assert (killer.killed, ended.json["halted"].startswith("the limit")) == (1, True)
        assert stored(home / "calls") <= len(server.requests) <= 70
    with serving(answer) as server:
        local = upskill(*command(skill, server, "tokens-local", "--set", "max_tokens=1500"))
        most = len(server.requests)
        server.requests.clear()
        ended = upskill(
            *command(skill, server, "tokens", "--executor", "ray", "--set", "max_tokens=1500")
        )
        assert ended.json["halted"].startswith("the limit of 1,500 tokens was reached")
        assert local.json["halted"].startswith("the limit of 1,500 tokens was reached")
        assert (
            most - 2 * CONCURRENCY <= len(server.requests) < TRIALS / 2
        )  # what is in flight still comes in


@pytest.mark.usefixtures("ray")
def test_a_model_that_only_fails_is_given_up_by_all_workers_together(
    upskill: Upskill, skill: Path
) -> None:
    with serving(refuse(401, "Wrong key.", "invalid_api_key")) as server:
        local = upskill(*command(skill, server, "local"))
        server.requests.clear()
        done = upskill(*command(skill, server, "ray", "--executor", "ray"))
        assert done.code == local.code, done.err
        assert len(server.requests) <= PROBES + MAX_FAILURES + 2 * CONCURRENCY
        assert done.json["stopped"] == local.json["stopped"] != {}


class Node:
    """Another node of the cluster, on this machine, with CPUs of its own."""

    def __init__(self, address: str, cpus: int) -> None:
        script = Path(sys.executable).with_name("ray")
        given = [
            "start",
            f"--address={address}",
            f"--num-cpus={cpus}",
            "--object-store-memory=80000000",
            "--block",
        ]
        self.process = subprocess.Popen(
            [script, *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processes(self) -> list[int]:
        """All that descend from it, itself first."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for one in found:
            found += [child for child, parent in parents.items() if parent == one]
        return found

    def is_working(self) -> bool:
        return bool(set(workers()) & set(self.processes()))

    def kill(self) -> None:
        for one in self.processes():
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()


def test_a_node_that_dies_and_a_database_that_restarts_cost_nothing_but_time(
    ray: Any, upskill: Upskill, postgres: Server, skill: Path
) -> None:
    node = Node(ray.get_runtime_context().gcs_address, 2)

    def restart() -> None:
        postgres.stop("immediate")
        postgres.start()

    def kill_node() -> None:
        while (
            not node.is_working()
        ):  # nobody is answered meanwhile, so none of its chunks goes elsewhere
            time.sleep(0.05)
        node.kill()

    troubles = [
        (TRIALS + 10, kill_node),
        (TRIALS + 50, restart),
    ]  # the first as many calls are those of `whole`
    count = 0

    def disturbed(call: Call) -> str:
        nonlocal count
        count += 1
        if troubles and count >= troubles[0][0]:
            troubles.pop(0)[1]()
        return answer(call)

    try:
        while sum(each["Alive"] for each in ray.nodes()) < 2:
            if (
                node.process.poll() is not None
            ):  # Ray gives up after 30 seconds, which is little on a busy machine
                node = Node(ray.get_runtime_context().gcs_address, 2)
            time.sleep(0.1)
        with serving(disturbed, latency=0.02) as server:
            whole = upskill(*command(skill, server, "whole"))
            server.requests.clear()
            place = postgres.new_place()
            done = upskill(*command(skill, server, place, "--executor", "ray", "--concurrency", 8))
            assert (done.code, scores_of(done)) == (0, scores_of(whole)), done.err
            assert not troubles
            assert len(asked(server)) == TRIALS
            assert len(server.requests) <= TRIALS + PROBES + 2 * UNSAVED * 8
        with open_store(place) as store:
            run = store.run("last")
            assert (run.passed + run.failed, run.errored) == (TRIALS, 0)
        assert not [path for path in log_files(ray) if PASSWORD.encode() in path.read_bytes()]
        assert not [
            path for path in log_files(ray) if QUOTED_PASSWORD.encode() in path.read_bytes()
        ]
    finally:
        node.kill()


def log_files(ray: Any) -> list[Path]:
    """All that Ray has written to files."""
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    return [path for path in session.rglob("*") if path.is_file()]


def test_keys_and_passwords_are_nowhere_to_be_read(
    ray: Any, upskill: Upskill, home: Path, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(answer, key=KEY) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = upskill(
            *("eval", skill, "-m", "openai:gpt-4o-mini", "--repeats", 1),
            *("--executor", "ray", "--store", "runs", "-v"),
        )
        assert done.code == 0, done.err
        assert server.requests
    read = [*log_files(ray), *filter(Path.is_file, Path("runs").rglob("*"))]
    assert len(read) > 10
    assert not [path for path in read if KEY.encode() in path.read_bytes()]
    assert KEY not in done.out + done.err
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            assert KEY.encode() not in (process / "cmdline").read_bytes()


def test_ctrl_c_leaves_what_is_stored_and_can_be_resumed(ray: Any, home: Path, skill: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    gate = Gate(answer, 30)
    with serving(gate, latency=0.05) as server:
        process = start(
            *command(skill, server, "runs", "--executor", "ray", "--set", f"ray_address={address}")
        )
        while len(server.requests) < 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (130, ""), err
        assert "Every finished trial is stored. Run the same command again to continue." in err
        assert "Traceback" not in err
        kept = stored(home / "runs")
        assert 20 - PROBES - UNSAVED * CONCURRENCY <= kept < TRIALS
        gate.left = math.inf
        rest = spawn(*command(skill, server, "runs"))
        assert rest.code == 0, rest.err
        assert len(server.requests) <= TRIALS + PROBES + UNSAVED * CONCURRENCY


def test_a_command_that_was_killed_and_the_one_that_goes_on_share_a_ceiling(
    upskill: Upskill, home: Path, skill: Path
) -> None:
    gate = Gate(answer, 30)
    with serving(gate, latency=0.05) as server:
        arguments = command(skill, server, "runs", "--set", "max_calls=40")
        process = start(*arguments)
        while len(server.requests) < 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
        process.communicate()
        free = unused_replies(home / "runs")
        gate.left = math.inf
        rest = upskill(*arguments)
        assert rest.json["halted"] == "the limit of 40 calls was reached"
        assert 40 - PROBES <= stored(home / "runs") <= 40 + free
        assert (
            40 <= len(server.requests) <= 40 + UNSAVED * CONCURRENCY
        )  # what was in flight is not in the store
        again = upskill(
            *arguments
        )  # the last one has ended by itself, so this one may spend as much again
        assert 80 - PROBES <= stored(home / "runs") <= 80 + free, again.err


@pytest.mark.usefixtures("ray")
def test_what_is_kept_nowhere_and_rounds_until_a_decision_work_too(
    upskill: Upskill, skill: Path
) -> None:
    with serving(answer) as server:
        for more in (("--no-log-runs",), ("--until-decided",)):
            local = upskill(*command(skill, server, f"local{more[0]}", *more))
            done = upskill(*command(skill, server, f"ray{more[0]}", *more), "--executor", "ray")
            assert (done.code, done.out) == (local.code, local.out), done.err


@pytest.mark.usefixtures("ray")
def test_scripted_models_by_relative_names_and_their_errors(upskill: Upskill, skill: Path) -> None:
    model = write_script(
        Path("model.yaml"), [{"when": "guest 3", "error": "the line is dead"}, {"answer": "ahoy"}]
    )
    local = upskill("eval", skill, "-m", model, "--json", "--store", "local")
    done = upskill("eval", skill, "-m", model, "--json", "--store", "ray", "--executor", "ray")
    assert (done.code, done.out) == (local.code, local.out)


@pytest.mark.usefixtures("ray")
def test_students_that_act_do_so_in_their_sandbox_one_to_a_worker_that_has_what_they_need(
    upskill: Upskill, home: Path
) -> None:
    suite = {
        "cases": [
            {"id": f"write-{number}", "prompt": f"Write file {number}."} for number in range(4)
        ],
        "checks": [{"file_contains": {"path": "a.txt", "text": "ahoy"}}],
    }
    skill = write_skill(home / "writer", suite=suite)
    call = {"name": "write_file", "arguments": {"path": "a.txt", "content": "ahoy"}}
    model = write_script(Path("model.yaml"), [{"turns": [{"calls": [call]}, "done"]}])
    given = ("eval", skill, "-m", model, "--agent", "tools", "--repeats", 1, "--json")
    local = upskill(*given, "--store", "local")
    assert (local.code, local.json["models"][0]["skill"]["passed"]) == (0, 4), local.err
    done = upskill(
        *given,
        "--store",
        "ray",
        "--executor",
        "ray",
        "--set",
        "trial_cpus=1",
        "--set",
        "trial_memory=200",
    )
    assert (done.code, done.out) == (0, local.out), done.err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "cannot join the Ray cluster at 127.0.0.1:1: "),
        ("auto", "no Ray cluster is running on this machine"),
        ("nonsense", "'nonsense' is not a Ray cluster address"),
        ("ray://127.0.0.1:1", "ray://127.0.0.1:1: the Ray client is not supported"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_said_at_once_and_leaves_no_run(
    home: Path, skill: Path, address: str, message: str
) -> None:
    pytest.importorskip("ray")
    model = write_script(home / "model.yaml")
    environment = {**os.environ, "RAY_TMPDIR": str(home), "RAY_ADDRESS": address}
    refused = spawn("eval", skill, "-m", model, "--executor", "ray", env=environment)
    assert (refused.code, message in refused.err) == (2, True), refused.err
    with open_store(home / "runs") as store:
        assert store.count_runs() == 0


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("-m", "local", "--executor", "ray"),
            "an embedded model already uses all cores of this machine",
        ),
        (
            ("-m", "handoff:answers", "--executor", "ray"),
            "nothing to parallelize while a person answers",
        ),
        (
            ("-m", "scripted:model.yaml", "--executor", "ray", "--set", "trial_gpus=99"),
            "with trial_gpus 99",
        ),
        (("-m", "scripted:model.yaml", "--set", "trial_cpus=1"), "only works with --executor ray"),
    ],
)
def test_what_ray_cannot_do_is_refused(
    upskill: Upskill, skill: Path, given: tuple[str, ...], message: str
) -> None:
    write_script(Path("model.yaml"))
    refused: Done = upskill("eval", skill, *given)
    assert (refused.code, message in refused.err) == (2, True), refused.err
