"""Sandboxes: one contract for every kind that works here, and what each kind promises beyond it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from pathlib import Path

import pytest

import upskill.sandboxes
from conftest import REPOSITORY, Upskill, running, spawn
from upskill.cli.commands import doctor
from upskill.errors import SandboxError, UsageError
from upskill.sandboxes import (
    SANDBOXES,
    CommandResult,
    Entry,
    Limits,
    MiB,
    Sandbox,
    SandboxBackend,
    SandboxChoice,
    Setup,
    Stream,
    choose_sandbox,
    container,
    format_size,
    printable,
    processes,
    seatbelt,
    seccomp,
)
from upskill.sandboxes.bubblewrap import system_paths
from upskill.sandboxes.files import Folder, copy_in

KINDS = ("bubblewrap", "container", "seatbelt", "none")
LINUX = sys.platform == "linux"


def why_not(name: str) -> str:
    try:
        asyncio.run(choose_sandbox(name))
    except UsageError as error:
        return error.message
    return ""


REFUSED = {name: why_not(name) for name in KINDS}
WORKING = [name for name in KINDS if not REFUSED[name]]
works = pytest.mark.skipif(set(WORKING) == {"none"}, reason="no sandbox works here")


@pytest.mark.parametrize("name", KINDS)
def test_this_kind_works_here(name: str) -> None:
    if REFUSED[name]:
        pytest.skip(REFUSED[name])


def kind_called(name: str) -> SandboxBackend:
    """The kind of this name, where it works; elsewhere the test is skipped with the reason."""
    if REFUSED[name]:
        pytest.skip(REFUSED[name])
    return SANDBOXES.load(name)()


@pytest.fixture(params=WORKING)
def kind(request: pytest.FixtureRequest) -> SandboxBackend:
    return kind_called(request.param)


@pytest.fixture
async def sandbox(kind: SandboxBackend) -> AsyncGenerator[Sandbox]:
    async with await kind.open(Setup(files={"given/note.txt": "read me\n"})) as opened:
        yield opened


@pytest.fixture
async def bubblewrap() -> AsyncGenerator[Sandbox]:
    async with await kind_called("bubblewrap").open(Setup()) as opened:
        yield opened


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Where temporary files of this test are made, and of no other that runs beside it. Any user may walk in there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


# Commands.


async def test_a_command_gives_its_code_and_both_streams(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo out; echo err >&2; exit 3")
    assert (done.code, done.output, done.error) == (3, "out\n", "err\n")
    assert (done.timed_out, done.killed_why) == (False, "")
    assert done.seconds > 0


WORDS = ["a b", "$HOME", "*", "'\"\\", "", "line\nbreak", "ünï", "-n"]


async def test_the_names_of_both_streams_can_be_opened(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo out >/dev/stdout; echo err >/dev/stderr")
    assert (done.output, done.error) == ("out\n", "err\n")


async def test_commands_print_and_end_as_in_a_shell(sandbox: Sandbox) -> None:
    """Text is a line of bash, a sequence is a program and its arguments."""
    ends: list[tuple[str | list[str], int, str]] = [
        (["printf", "<%s>", *WORDS], 0, "".join(f"<{word}>" for word in WORDS)),
        ("for x in a b; do\n  echo \"<$x>\"\ndone\ncat <(echo 'it''s')", 0, "<a>\n<b>\nits\n"),
        (["nonesuch"], 127, ""),
        ("nonesuch", 127, ""),
        (["/"], 126, ""),
        ("echo \0", 126, ""),
        ([], 126, ""),
        ("kill -KILL $$", 137, ""),
        ("kill -INT $$; echo no", 130, ""),
        ("printf '\\377\\200ok'", 0, "\ufffd\ufffdok"),
        ("echo '\ud800'", 0, "?\n"),
        (f"# {'x' * 100_000}\necho end", 0, "end\n"),
        ("\n" * 20_000 + "echo end", 0, "end\n"),  # quoted, it is more than a pipe holds
    ]
    for command, code, output in ends:
        done = await sandbox.run(command)
        assert (done.code, done.output) == (code, output), command


async def test_a_command_starts_in_the_workspace_with_a_clean_environment(sandbox: Sandbox) -> None:
    done = await sandbox.run("pwd; env")
    first, *rest = done.output.splitlines()
    assert first == sandbox.workspace
    variables = dict(line.split("=", 1) for line in rest)
    assert variables["HOME"] == sandbox.home
    if sandbox.kind != "container":  # an image brings some of its own
        assert set(variables) <= upskill.sandboxes.OWN_VARIABLES


async def test_a_command_is_given_variables_and_standard_input(sandbox: Sandbox) -> None:
    given = b"\x00\xff" * 100_000
    done = await sandbox.run(
        'cat | wc -c; echo "$GREETING"', stdin=given, environment={"GREETING": "it's\n$HOME"}
    )
    assert done.output == "200000\nit's\n$HOME\n"
    assert (await sandbox.run("cat; echo end")).output == "end\n"
    with pytest.raises(SandboxError, match="is not a valid name for an environment variable"):
        await sandbox.run("true", environment={"A;rm -rf /": ""})


async def test_what_is_written_is_heard_as_it_comes(sandbox: Sandbox) -> None:
    heard: list[tuple[Stream, bytes]] = []

    answers: list[asyncio.Task[None]] = []

    def on_output(stream: Stream, data: bytes) -> None:
        heard.append((stream, data))
        answers.append(asyncio.create_task(sandbox.write("heard", "")))

    done = await sandbox.run(
        "echo one; until [ -e heard ]; do sleep 0.01; done; echo two >&2", on_output=on_output
    )
    await asyncio.gather(*answers)
    assert heard == [("output", b"one\n"), ("error", b"two\n")]
    assert done.output == "one\n"


async def test_files_stay_between_commands_and_not_between_sandboxes(kind: SandboxBackend) -> None:
    async with await kind.open(Setup()) as one, await kind.open(Setup()) as two:
        await one.run("echo mine > note; echo mine > ~/note; echo mine > $TMPDIR/note")
        assert (await one.run("cat note ~/note $TMPDIR/note")).output == "mine\n" * 3
        assert (await two.run("cat note ~/note $TMPDIR/note")).output == ""
    async with await kind.open(Setup()) as three:
        assert (await three.list()) == []


async def test_many_sandboxes_stand_side_by_side(kind: SandboxBackend) -> None:
    async def one(number: int) -> str:
        async with await kind.open(Setup(files={"number": str(number)})) as sandbox:
            return (await sandbox.run("cat number; sleep 0.05; cat number")).output

    assert await asyncio.gather(*map(one, range(12))) == [
        f"{number}{number}" for number in range(12)
    ]


async def test_commands_of_one_sandbox_wait_for_each_other(sandbox: Sandbox) -> None:
    done = await asyncio.gather(
        *(sandbox.run(f"echo {n} >> log; sleep 0.02; echo {n} >> log") for n in range(5))
    )
    assert [each.code for each in done] == [0] * 5
    assert (await sandbox.read("log")).split() == [b"%d" % n for n in range(5) for _ in range(2)]


# Limits.


async def run_too_long(
    sandbox: Sandbox, command: str, monkeypatch: pytest.MonkeyPatch
) -> CommandResult:
    """A command whose hour is long over once it has said a word, as after a machine was asleep."""
    begun = asyncio.Event()

    def note(*_: object) -> None:
        begun.set()

    loop = asyncio.get_running_loop()
    task = loop.create_task(sandbox.run(command, Limits(wall=3600), on_output=note))
    await begun.wait()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: time.monotonic() + 7200)
        return await task


async def test_a_command_that_takes_too_long_is_ended_whatever_it_ignores(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "trap '' TERM INT HUP; echo begun; while :; do sleep 0.05; done"
    done = await run_too_long(sandbox, line, monkeypatch)
    assert (done.code, done.timed_out, done.output) == (137, True, "begun\n")
    assert done.killed_why == "ran longer than 3600 s"
    assert (await sandbox.run("echo still here")).output == "still here\n"


async def test_a_stopped_command_is_ended_too(sandbox: Sandbox) -> None:
    done = await sandbox.run("kill -STOP $$", Limits(wall=0.3))
    assert (done.code, done.timed_out) == (137, True)
    assert (await sandbox.run("exit 4")).code == 4


async def test_processor_time_of_all_processes_is_limited(sandbox: Sandbox) -> None:
    if sandbox.kind == "container":
        pytest.skip("an engine limits the processor time of each process")
    # The kernel may end one that has used too much by itself before we look, but not the one that starts another.
    busy = "(while :; do bash -c 'while :; do :; done'; done)"
    done = await sandbox.run(f"for i in 1 2 3; do {busy} & done; wait", Limits(cpu=0.3, wall=600))
    assert (done.code, done.timed_out) == (137, False)
    assert done.killed_why == "used more than 0.3 s of processor time"


async def test_memory_of_all_processes_is_limited(sandbox: Sandbox) -> None:
    if sandbox.kind == "container":
        pytest.skip("an engine ends what is over its memory without a word")
    hold = "python3 -c 'import time; x = b\"x\" * 40_000_000; time.sleep(1000)'"
    done = await sandbox.run(
        f"for i in 1 2 3 4 5 6; do {hold} & done; wait", Limits(memory=128 * MiB, wall=600)
    )
    assert (done.code, done.killed_why) == (137, "used more than 128 MiB of memory")
    assert (
        "MemoryError"
        in (
            await sandbox.run("python3 -c 'bytearray(200_000_000)'", Limits(memory=128 * MiB))
        ).error
    )


async def test_output_is_limited_and_its_beginning_kept(sandbox: Sandbox) -> None:
    done = await sandbox.run("echo first; yes & yes >&2", Limits(output=1000, wall=600))
    assert (done.code, done.killed_why) == (137, "wrote more than 1000 bytes of output")
    assert len(done.output) + len(done.error) == 1000
    assert done.output.startswith("first\n")


async def test_the_size_of_a_file_and_of_all_files_is_limited(kind: SandboxBackend) -> None:
    async with await kind.open(
        Setup(limits=Limits(file_size=MiB, disk=4 * MiB, wall=600))
    ) as sandbox:
        assert (await sandbox.run("head -c 3000000 /dev/zero > big")).code != 0
        assert (await sandbox.list())[0].size <= MiB
        done = await sandbox.run(
            "for i in $(seq 100); do head -c 1000000 /dev/zero > $i; done; sleep 60", stdin=b"x"
        )
        assert done.code != 0 or "No space left" in done.error
        assert sum(entry.size for entry in await sandbox.list()) < 100 * MiB


async def test_the_number_of_files_is_limited(kind: SandboxBackend) -> None:
    if kind.name == "container":
        pytest.skip("a stand-in for an engine does not count files")
    many = (
        "import os\nos.mkdir('d')\nfor n in range(10**6): os.close(os.open(f'd/{n}', os.O_CREAT))"
    )
    async with await kind.open(Setup(limits=Limits(files=2_000, wall=600))) as sandbox:
        done = await sandbox.run(["python3", "-c", many])
        assert (done.code, done.killed_why) == (137, "made more than 2,000 files in all")
        slowly = "find d -name '*0' -delete; sleep 0.5; rm -r d"  # slow enough to be looked at in between
        assert (await sandbox.run(slowly)).code == 0  # what makes room again is not ended
        assert (await sandbox.run("touch a")).code == 0


async def test_git_works(sandbox: Sandbox) -> None:
    done = await sandbox.run("git init -q . && touch a && git add a && git ls-files")
    assert (done.code, done.output) == (0, "a\n"), done.error


async def test_background_processes_do_not_keep_a_command_waiting(sandbox: Sandbox) -> None:
    done = await sandbox.run("sleep 7777 & echo started", Limits(wall=600))
    assert (done.code, done.output, done.timed_out) == (0, "started\n", False)


async def test_a_cancelled_command_leaves_nothing_running(kind: SandboxBackend) -> None:
    mark = f"77.{os.getpid()}"
    sandbox = await kind.open(Setup())
    await cancel(sandbox, mark)
    await sandbox.stop()
    assert running(mark) == []


async def cancel(sandbox: Sandbox, mark: str) -> None:
    """Start a command with this mark, and give it up once it runs."""
    command = asyncio.create_task(sandbox.run(f"sleep {mark}"))
    while not running(mark):
        assert not command.done()
        await asyncio.sleep(0.02)
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command


# Files.


async def test_files_are_read_written_and_listed(sandbox: Sandbox) -> None:
    assert await sandbox.read("given/note.txt") == b"read me\n"
    assert await sandbox.read(f"{sandbox.workspace}/given/note.txt") == b"read me\n"
    await sandbox.write("a/b/c.sh", "#!/bin/sh\necho ran $1\n", executable=True)
    await sandbox.write("a/b/data", b"\x00\xff")
    assert (await sandbox.run(["a/b/c.sh", "it"])).output == "ran it\n"
    await sandbox.run("ln -s /etc/passwd link; mkfifo fifo; echo more >> a/b/data")
    assert await sandbox.read("a/b/data") == b"\x00\xffmore\n"
    assert await sandbox.list() == [
        Entry("a", "folder"),
        Entry("a/b", "folder"),
        Entry("a/b/c.sh", "file", 22),
        Entry("a/b/data", "file", 7),
        Entry("fifo", "other"),
        Entry("given", "folder"),
        Entry("given/note.txt", "file", 8),
        Entry("link", "link"),
    ]
    assert [entry.path for entry in await sandbox.list("a/b")] == ["a/b/c.sh", "a/b/data"]
    assert len(await sandbox.list(max_entries=3)) == 3
    done = await sandbox.run(
        "echo changed > given/note.txt && mkdir new && mv given new/ && rm -r new && ls -A given"
    )
    assert "No such file" in done.error


async def test_the_home_of_the_student_can_be_furnished(kind: SandboxBackend) -> None:
    files = {".config/x": "1", "run": "#!/bin/sh\necho ran"}
    async with await kind.open(Setup(home_files=files, runnable=frozenset({"run"}))) as sandbox:
        assert (
            await sandbox.run("cat ~/.config/x; ~/run; find ~ -type f -perm -u+x | wc -l")
        ).output == "1ran\n1\n"
        await sandbox.write(f"{sandbox.home}/.config/y", "2")
        assert (await sandbox.run("cat ~/.config/y")).output == "2"
        assert await sandbox.read(f"{sandbox.home}/.config/y") == b"2"


async def test_what_is_no_file_is_an_error_of_the_student(sandbox: Sandbox) -> None:
    await sandbox.run(
        "mkdir d; mkfifo f; ln -s given/note.txt l; ln -s given ld; truncate -s 100M sparse"
    )
    for path, wanted in (
        ("missing", FileNotFoundError),
        ("missing/x", FileNotFoundError),
        ("d", IsADirectoryError),
        ("", IsADirectoryError),
        ("f", PermissionError),
        ("l", PermissionError),
        ("sparse", OSError),
    ):
        with pytest.raises(wanted):
            await sandbox.read(path)
    with pytest.raises(IsADirectoryError):
        await sandbox.write(".", "x")
    with pytest.raises(OSError, match="directory"):
        await sandbox.write("d", "x")
    await sandbox.write("l", "a file of its own")
    assert await sandbox.read("given/note.txt") == b"read me\n"
    with pytest.raises(FileNotFoundError):
        await sandbox.list("missing")


async def test_a_path_that_leads_out_is_refused(sandbox: Sandbox) -> None:
    for path in (
        "../x",
        "/etc/x",
        "a/../../x",
        "a/..",
        "/",
        "x\0y",
        "/workspace/../x",
        "a/" * 80 + "x",
    ):
        for attempt in (sandbox.read(path), sandbox.write(path, "x"), sandbox.list(path)):
            with pytest.raises(OSError, match=r"leads out|NUL|too many"):
                await attempt


async def test_case_files_that_lead_out_are_refused_before_anything_runs(
    kind: SandboxBackend, home: Path
) -> None:
    for name in ("../../evil", f"{home}/evil", "a/../../evil", "/etc/evil", "..", "a/\0/b"):
        for setup in (Setup(files={name: "x"}), Setup(home_files={name: "x"})):
            with pytest.raises(OSError, match=r"leads out|NUL"):
                await kind.open(setup)
    with pytest.raises(SandboxError):
        await kind.open(Setup(readonly_mounts={"relative": home}))
    assert not list(Path("/tmp").glob("evil"))


async def test_a_folder_is_copied_in_without_its_links(sandbox: Sandbox, home: Path) -> None:
    (home / "work" / "bin").mkdir(parents=True)
    (home / "work" / "bin" / "go").write_text("#!/bin/sh\necho gone\n", encoding="utf-8")
    (home / "work" / "bin" / "go").chmod(0o755)
    (home / "work" / "plain").write_bytes(b"\x01")
    (home / "work" / "out").symlink_to("/etc")
    assert await copy_in(sandbox, home / "work") == ["out"]
    assert (await sandbox.run("bin/go; [ -x plain ] || echo plain")).output == "gone\nplain\n"
    assert await copy_in(sandbox, home / "work", f"{sandbox.home}/.skills/it") == ["out"]
    assert (await sandbox.run("~/.skills/it/bin/go")).output == "gone\n"


# The end.


async def test_a_stopped_sandbox_is_gone_and_says_so(kind: SandboxBackend, temporary: Path) -> None:
    sandbox = await kind.open(Setup())
    await sandbox.run("mkdir -p closed/inner && touch closed/inner/x && chmod 000 closed || true")
    await sandbox.run("mkdir -p $(printf 'd/%.0s' {1..1200})")
    await sandbox.stop()
    await sandbox.stop()
    with pytest.raises(SandboxError):
        await sandbox.run("true")
    with pytest.raises(SandboxError):
        await sandbox.read("x")
    assert list(temporary.iterdir()) == []


async def test_no_process_outlives_its_sandbox(kind: SandboxBackend) -> None:
    mark = f"78.{os.getpid()}"
    async with await kind.open(Setup()) as sandbox:
        await sandbox.run(
            f"sleep {mark} & (setsid sleep {mark} &); nohup sleep {mark} >/dev/null 2>&1 & disown"
        )
        await sandbox.run(
            f"(trap '' HUP TERM; sleep {mark}) & setsid bash -c 'sleep {mark} & sleep {mark} &'"
        )
    assert running(mark) == []


async def test_no_descriptor_is_left_open(kind: SandboxBackend) -> None:
    async def once() -> None:
        async with await kind.open(Setup(files={"a": "b"})) as sandbox:
            await sandbox.run("cat a", stdin=b"x")

    await once()
    gc.collect()  # what other tests have left is not to be found missing later
    before = len(list(Path("/proc/self/fd").iterdir())) if LINUX else 0
    for _ in range(5):
        await once()
    assert not LINUX or len(list(Path("/proc/self/fd").iterdir())) == before


DYING = """
import asyncio, sys
from upskill.sandboxes import Setup, choose_sandbox

async def main():
    sandbox = await (await choose_sandbox(sys.argv[1])).backend.open(Setup())
    print("open", flush=True)
    await sandbox.run(f"(setsid sleep {sys.argv[2]} &); trap '' TERM HUP; sleep {sys.argv[2]}; sleep {sys.argv[2]}")

asyncio.run(main())
"""


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
@pytest.mark.usefixtures(
    "temporary"
)  # a folder there is all that a killed process cannot take with it
async def test_everything_ends_when_upskill_is_killed(kind: SandboxBackend) -> None:
    mark = f"79.{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", DYING, kind.name, mark], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        while len(running(mark)) < 2:
            assert process.poll() is None
            await asyncio.sleep(0.02)
        process.kill()
    while running(mark):  # until the time limit of the test
        await asyncio.sleep(0.02)


# What bubblewrap adds.


async def test_a_start_that_is_given_up_leaves_no_process() -> None:
    kind = kind_called("bubblewrap")
    size = 512 * MiB + os.getpid()  # stands in the command line
    for delay in range(100):
        starting = asyncio.create_task(kind.open(Setup(limits=Limits(disk=size))))
        await asyncio.sleep(delay / 10_000)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).stop()
    while (
        subprocess.run(
            ["pgrep", "-f", f"size {size}"], check=False, stdout=subprocess.DEVNULL
        ).returncode
        == 0
    ):
        await asyncio.sleep(0.02)


async def test_a_student_sees_nothing_private_among_what_the_system_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = kind_called("bubblewrap")
    shared = next(path for path in system_paths() if os.access(path, os.W_OK) and path.is_dir())
    with tempfile.TemporaryDirectory(dir=shared) as name:
        project = Path(name)
        project.chmod(0o755)
        (project / "SKILL.md").write_text("secret", encoding="utf-8")
        monkeypatch.chdir(project)
        async with await kind.open(Setup(readonly_mounts={"/shown": shared})) as sandbox:
            shown = f"/shown/{project.name}/SKILL.md"
            assert (await sandbox.run(f"cat {project}/SKILL.md {shown}")).output == ""
            assert (await sandbox.run(f"touch {project}/x /usr/src/x")).code
        assert "home is hidden" in await upskill.sandboxes.probe(kind)


async def test_background_processes_run_on_until_they_are_cleared(bubblewrap: Sandbox) -> None:
    await bubblewrap.run("(while :; do echo noise; date +%s%N > beat; sleep 0.01; done) &")
    beats: set[bytes] = set()
    while len(beats) < 4:  # or until the time limit of the test
        await asyncio.sleep(0.01)
        with suppress(FileNotFoundError):
            beats.add(await bubblewrap.read("beat"))
    assert len((await bubblewrap.run("cat /proc/*/comm")).output.split()) > 4
    await bubblewrap.kill_processes()
    left = [
        line
        for line in (await bubblewrap.run("cat /proc/*/comm")).output.split()
        if line not in ("self", "cat")
    ]
    assert left == ["bash"]  # process 1; the shell became `cat`
    last = await bubblewrap.read("beat")
    await asyncio.sleep(0.1)
    assert await bubblewrap.read("beat") == last
    assert (await bubblewrap.run("echo quiet")).output == "quiet\n"


async def test_room_can_be_made_where_there_is_none_left() -> None:
    kind = kind_called("bubblewrap")
    async with await kind.open(Setup(limits=Limits(disk=4 * MiB))) as sandbox:
        filled = await sandbox.run(
            "head -c 3M /dev/zero >a; head -c 3M /dev/zero >/tmp/b; sleep 600"
        )
        assert filled.killed_why == "wrote more than 4 MiB in all"
        assert (await sandbox.run("sleep 0.5; rm a; echo gone")).output == "gone\n"
        assert (
            await sandbox.run("head -c 3M /dev/zero >a; sleep 600")
        ).killed_why == filled.killed_why


async def test_a_background_process_is_held_to_the_limits_between_commands() -> None:
    limits = Limits(memory=100 * MiB)
    async with await kind_called("bubblewrap").open(Setup(limits=limits)) as sandbox:
        grow = "import time\nopen('began', 'w')\nx = []\nwhile True:\n  x.append(b'x' * 1000000)\n  time.sleep(0.005)"
        await sandbox.write("grow.py", grow)
        await sandbox.run("for i in 1 2 3; do python3 grow.py & done", Limits(memory=100 * MiB))
        # Or until the time limit of the test.
        while (await sandbox.run("[ ! -e began ] || grep -l python3 /proc/*/comm")).code == 0:
            await asyncio.sleep(0.05)


async def test_a_student_cannot_speak_for_the_supervisor(bubblewrap: Sandbox) -> None:
    done = await bubblewrap.run(
        "for fd in 3 4 5 6; do echo 0 >&$fd; echo 0 >/proc/1/fd/$fd; done 2>/dev/null;"
        "kill -USR2 1; kill -INT 1; kill -TERM 1; kill -STOP 1; kill -KILL 1; sleep 0.1; exit 9"
    )
    assert done.code == 9
    goes_on = "(until read -r _ _ state _ </proc/$$/stat && [ $state = T ]; do sleep 0.01; done; kill -CONT $$)"
    for _ in range(10):  # a signal and the end of the command may come in either order
        done = await bubblewrap.run("kill -USR1 1; sleep 600")  # this ends the student, nobody else
        assert (done.code, done.killed_why) == (137, "")
        assert (await bubblewrap.run("kill -TERM 1; kill -INT 1; kill -HUP 1; exit 9")).code == 9
        assert (await bubblewrap.run(f"{goes_on} & kill -STOP $$; exit 3")).code == 3
        assert (await bubblewrap.run("kill -TERM $$; exit 9")).code == 143
    assert (await bubblewrap.run("echo fine")).output == "fine\n"


async def test_the_one_door_is_served_from_outside() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        await writer.drain()
        writer.close()

    port = unused_port()
    async with await kind_called("bubblewrap").open(Setup(proxy_port=port)) as sandbox:
        assert sandbox.proxy_socket is not None
        async with await asyncio.start_server(greet, sock=sandbox.proxy_socket):
            done = await sandbox.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo you >&3; cat <&3")
            assert done.output == "hello you\n", done.error
            assert (await sandbox.run(f"exec 3<>/dev/tcp/127.0.0.1/{port + 1}")).code != 0


def unused_port() -> int:
    """One below those that the kernel gives to whoever asks for any, so that nobody else has it a moment later."""
    for port in range(20_000, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


async def test_host_folders_can_be_shown_and_not_changed(home: Path) -> None:
    (home / "tool").mkdir(mode=0o755)
    (home / "tool" / "say").write_text("#!/bin/sh\necho said\n", encoding="utf-8")
    (home / "tool" / "say").chmod(0o755)
    shown = {"/opt/tool": home / "tool", "/opt/one": home / "tool" / "say"}
    async with await kind_called("bubblewrap").open(Setup(readonly_mounts=shown)) as sandbox:
        assert (await sandbox.run("/opt/tool/say; /opt/one")).output == "said\nsaid\n"
        assert (
            await sandbox.run(
                "echo x > /opt/tool/say || rm -f /opt/tool/say || echo x > /opt/tool/new"
            )
        ).code != 0
    assert (home / "tool" / "say").read_text(encoding="utf-8") == "#!/bin/sh\necho said\n"
    assert [path.name for path in (home / "tool").iterdir()] == ["say"]


async def test_ordinary_programs_work_inside(bubblewrap: Sandbox) -> None:
    done = await bubblewrap.run(
        "python3 -c 'import ssl, sqlite3, multiprocessing as m, tempfile, asyncio, socket\n"
        'sqlite3.connect("x.db").execute("create table a (b)")\n'
        'print(m.get_context("fork").Pool(2).map(abs, [-1, -2]))\n'
        's = socket.create_server(("127.0.0.1", 8000)); c = socket.create_connection(("127.0.0.1", 8000))\n'
        "print(asyncio.run(asyncio.sleep(0, 7)))'; id -un; awk 'BEGIN{print 1+1}'; hostname",
        Limits(wall=600),
    )
    assert done.output == "[1, 2]\n7\nstudent\n2\nsandbox\n", done.error


async def test_every_command_is_logged_shortened_with_its_exit_code(
    bubblewrap: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "upskill.sandboxes")
    await bubblewrap.run(f"exit 3 # {'x' * 1000}", environment={"TOKEN": "not-to-be-logged"})
    (ran,) = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("upskill.sandboxes")
    ]
    assert re.fullmatch(
        r"bubblewrap: /bin/bash -c 'exit 3 # x+: exit code 3 after \d+\.\d\d s", ran
    )
    assert len(ran) < 300
    assert "not-to-be-logged" not in caplog.text


# Choosing.


async def test_a_program_on_path_that_does_not_work_is_not_chosen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bwrap", "docker", "podman"):
        (home / name).write_text("#!/bin/sh\n[ $# = 1 ] && echo it 1.0\nexit 1\n", encoding="utf-8")
        (home / name).chmod(0o755)
    home.parent.chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    for name in ("bubblewrap", "container", "seatbelt"):
        with pytest.raises(UsageError, match=f"^{name}: ") as refused:
            await choose_sandbox(name)
        assert refused.value.hint
    monkeypatch.setattr(upskill.sandboxes, "PREFERENCE", ("bubblewrap", "container", "seatbelt"))
    with pytest.raises(UsageError) as none:
        await choose_sandbox()
    for name in ("bubblewrap", "container", "seatbelt", "--sandbox none", "apt install bubblewrap"):
        assert name in none.value.hint


async def test_what_came_before_the_chosen_kind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kind_called("bubblewrap")
    monkeypatch.setattr(upskill.sandboxes, "PREFERENCE", ("seatbelt", "bubblewrap"))
    assert (await choose_sandbox()).refused == {
        "seatbelt": "seatbelt: seatbelt only works on macOS"
    }


async def test_a_self_test_that_takes_too_long_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = kind_called("bubblewrap")
    monkeypatch.setattr(upskill.sandboxes, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(
        upskill.sandboxes, "PROPERTIES", {"home is hidden": "true", "patience": "sleep 600"}
    )
    with pytest.raises(UsageError, match=r"the self-test was killed: it ran longer than 0\.2 s"):
        await choose_sandbox(kind.name)


def test_what_was_only_run_against_a_stand_in_is_marked_experimental() -> None:
    marked = {
        name for name in KINDS if SandboxChoice(name, "1.0", 0.0, ()).label == "1.0 (experimental)"
    }
    assert marked == {"container", "seatbelt"}


def test_doctor_says_that_the_sandbox_of_macos_is_untested(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = seatbelt.Seatbelt()
    chosen = SandboxChoice("seatbelt", "sandbox-exec on macOS 27", 0.0, (), reduced=kind.reduced)
    assert chosen.warning.startswith("the 'seatbelt' sandbox offers less protection: one process")

    async def choose() -> SandboxChoice:
        return chosen

    monkeypatch.setattr("upskill.cli.commands.doctor.choose_sandbox", choose)
    row = doctor._sandbox()  # pyright: ignore[reportPrivateUsage]
    assert row.detail.startswith("sandbox-exec on macOS 27 (experimental) (reduced): ")
    assert row.detail.endswith("not yet tried on a Mac")


async def test_a_kind_that_leaks_is_found_out() -> None:
    held = await upskill.sandboxes.probe(SANDBOXES.load("none")())
    assert {"home is hidden", "no network", "processes are hidden"}.isdisjoint(held)
    assert {"workspace can be written", "environment is clean"} <= set(held)


async def test_none_is_only_ever_typed_and_warns() -> None:
    chosen = await choose_sandbox("none")
    assert not chosen.isolated
    assert "can read, change and send anything" in chosen.warning
    assert set(SANDBOXES.table) == set(KINDS) == {"none", *upskill.sandboxes.PREFERENCE}
    assert SandboxChoice("x", "1", 0.0, ()).warning == ""
    with pytest.raises(UsageError, match="no sandbox named 'bublewrap'"):
        await choose_sandbox("bublewrap")


# The filter of system calls, run by hand.


def answer(machine: str, number: int, *arguments: int) -> int:
    """What the filter says to this call: 0 for allowed, an errno, or -1 when the process is killed."""
    program = seccomp.build_filter(machine)
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, seccomp.ARCHITECTURES[machine][0], 0, *padded)
    return interpret(program, data)


def interpret(program: list[seccomp.Instruction], data: bytes) -> int:
    loaded = at = 0
    while True:
        code, true, false, operand = program[at]
        at += 1
        if code == seccomp.LOAD:
            (loaded,) = struct.unpack_from("=I", data, operand)
        elif code == seccomp.RETURN:
            return (
                -1
                if operand == seccomp.KILL
                else 0
                if operand == seccomp.ALLOW
                else operand & 0xFFFF
            )
        else:
            met = {
                seccomp.EQUAL: loaded == operand,
                seccomp.GREATER: loaded > operand,
                seccomp.ANY_BIT: bool(loaded & operand),
            }[code]
            at += true if met else false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_what_it_should_and_nothing_else(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine][1]
    for table, wanted in ((seccomp.REFUSED, errno.EPERM), (seccomp.ABSENT, errno.ENOSYS)):
        for name, numbers in table.items():
            number = numbers[column]
            assert number is None or answer(machine, number) == wanted, name
    refused = {
        numbers[column] for table in (seccomp.REFUSED, seccomp.ABSENT) for numbers in table.values()
    }
    looked_at = {seccomp.SOCKET[column], seccomp.SHMGET[column]}
    for number in range(seccomp.NEWEST + 1):
        if number not in refused | looked_at:
            assert answer(machine, number) == 0, number
    assert answer(machine, seccomp.NEWEST + 1) == errno.ENOSYS
    assert answer(machine, 0x40000000 | 39) == errno.ENOSYS
    other = "aarch64" if machine == "x86_64" else "x86_64"
    data = struct.pack("=IIQ6Q", 0, seccomp.ARCHITECTURES[other][0], 0, *[0] * 6)
    assert interpret(seccomp.build_filter(machine), data) == -1


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_looks_at_arguments(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine][1]
    clone, ioctl, socket = seccomp.CLONE[column], seccomp.IOCTL[column], seccomp.SOCKET[column]
    shmget, prlimit, personality = (
        seccomp.SHMGET[column],
        seccomp.PRLIMIT64[column],
        seccomp.PERSONALITY[column],
    )
    assert answer(machine, clone, 0x01200011) == 0  # fork
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(machine, clone, 0x11 | flag) == errno.EPERM
    assert answer(machine, ioctl, 0, 0x5401) == 0
    assert answer(machine, ioctl, 0, 0x5412) == errno.EPERM
    assert answer(machine, ioctl, 0, 0x5412 | 1 << 32) == errno.EPERM
    assert answer(machine, prlimit, 0, 7) == 0
    assert answer(machine, prlimit, 1, 7) == errno.EPERM
    assert answer(machine, shmget, 0, 100) == 0
    assert answer(machine, shmget, 0, 100_000) == errno.ENOMEM
    assert answer(machine, shmget, 0, 1 << 33) == errno.ENOMEM
    assert answer(machine, personality, 0xFFFFFFFF) == 0
    assert answer(machine, personality, 0x0400000) == errno.EPERM
    for family, wanted in ((1, 0), (2, 0), (10, 0), (17, 97), (40, 97), (38, 97), (31, 97)):
        assert answer(machine, socket, family, 1, 0) == wanted
    assert answer(machine, socket, 16, 3, 0) == 0
    assert answer(machine, socket, 16, 3, 9) == errno.EPROTONOSUPPORT


def test_the_numbers_of_system_calls_are_those_of_the_kernel() -> None:
    headers = (
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm-generic/unistd.h"),
    )
    tables = (seccomp.REFUSED, seccomp.ABSENT)
    tried = 0
    for column, header in enumerate(headers):
        if not header.is_file():
            continue
        listed = dict(
            re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s", header.read_text(encoding="utf-8"))
        )
        for name in (name for table in tables for name in table):
            number = next(table[name][column] for table in tables if name in table)
            assert (number is None and name not in listed) or str(number) == listed.get(
                name, str(number)
            ), name
            tried += 1
        for name in ("clone", "socket", "ioctl", "prlimit64", "shmget", "personality"):
            assert str(getattr(seccomp, name.upper())[column]) == listed[name]
    if not tried:
        pytest.skip("no kernel headers here")


def test_another_machine_has_no_filter() -> None:
    with pytest.raises(SandboxError, match="there is no system-call filter for riscv64"):
        seccomp.build_filter("riscv64")


# Kinds that cannot run here, as far as that can be seen from outside.


def test_a_container_gets_little(home: Path) -> None:
    limits = Limits(memory=100 * MiB, processes=50, disk=10 * MiB)
    line = " ".join(
        container.run_arguments("it", Setup(limits=limits, readonly_mounts={"/opt/x": home}))
    )
    for wanted in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 104857600 --memory-swap 104857600",
        "--pids-limit 50",
        "--pull never",
        "--user 1000:1000",
        f"--mount type=bind,source={home},target=/opt/x,readonly",
        "--tmpfs /workspace:rw,exec,nosuid,nodev,size=10485760,uid=1000,gid=1000,mode=755,nr_inodes=100000",
    ):
        assert wanted in line
    assert "--privileged" not in line
    assert "--volume" not in line


async def test_a_container_without_an_engine_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(SandboxError, match="neither docker nor podman is installed"):
        await container.Container().open(Setup())
    with pytest.raises(SandboxError, match="do not support a proxy socket"):
        await container.Container().open(Setup(proxy_port=80))


# Answers like an engine as far as we speak to one, and keeps its "container" in namespaces. Needs root.
ENGINE = """#!/bin/bash
state=${0%/*}
case $1 in
version) echo 99.1 ;;
run)
    while [ "$1" != --name ]; do shift; done
    name=$2
    while [ "$1" != bash ]; do shift; done
    exec bwrap --die-with-parent --as-pid-1 --unshare-pid --unshare-net --ro-bind /usr /usr --symlink usr/bin /bin \\
        --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --tmpfs /workspace \\
        --tmpfs /home/student --clearenv --setenv PATH /usr/bin --info-fd 3 "$@" 3>"$state/$name"
    ;;
exec)
    shift
    variables=(PATH=/usr/bin HOME=/home/student USER=student LANG=C.UTF-8 TMPDIR=/tmp)
    while :; do
        case $1 in
        --interactive) shift ;;
        --workdir) shift 2 ;;
        --env) variables+=("$2=${!2}"); shift 2 ;;
        *) break ;;
        esac
    done
    pid=$(grep -o '[0-9]*' "$state/$1" | head -1)
    [ "$pid" -gt 1 ] || exit 125
    shift
    exec nsenter --target "$pid" --mount --net --pid --root -- \\
        env -i "${variables[@]}" sh -c 'cd /workspace && exec "$@"' sh "$@"
    ;;
rm)
    pid=$(grep -o '[0-9]*' "$state/$3" | head -1)
    [ "$pid" -gt 1 ] && kill -KILL "$pid"
    ;;
esac
"""


@pytest.fixture
def engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if REFUSED["bubblewrap"] or os.geteuid() != 0 or not shutil.which("nsenter"):
        pytest.skip("the engine of this test needs root, bwrap and nsenter")
    (home / "docker").write_text(ENGINE.replace("\\\\", "\\"), encoding="utf-8")
    (home / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")


@pytest.mark.usefixtures("engine")
async def test_a_container_is_spoken_to_as_an_engine_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = container.Container()
    assert (await kind.version()).endswith("docker 99.1, python:3.12-slim")
    setup = Setup(files={"a/b": "given"}, home_files={"c": "home"})
    mark = f"76.{os.getpid()}"
    async with await kind.open(setup) as sandbox:
        line = 'cat a/b ~/c; echo; echo err >&2; echo "$GREETING"; exit 3'
        done = await sandbox.run(line, environment={"GREETING": "hi\nthere"})
        assert (done.code, done.output, done.error) == (3, "givenhome\nhi\nthere\n", "err\n")
        assert (await sandbox.run(["cat"], stdin=b"x" * 100_000)).output == "x" * 100_000
        await sandbox.write("d/run", "#!/bin/sh\necho ran\n", executable=True)
        assert (await sandbox.run(["d/run"])).output == "ran\n"
        await sandbox.run("ln -s a/b link; mkfifo fifo")
        assert [entry.kind for entry in await sandbox.list()] == [
            "folder",
            "file",
            "folder",
            "file",
            "other",
            "link",
        ]
        assert [entry.path for entry in await sandbox.list("a")] == ["a/b"]
        assert await sandbox.read("/workspace/a/b") == b"given"
        assert await sandbox.read("/home/student/c") == b"home"
        for path, wanted in (
            ("link", PermissionError),
            ("fifo", PermissionError),
            ("a", IsADirectoryError),
        ):
            with pytest.raises(wanted):
                await sandbox.read(path)
        for path in ("../x", "/etc/x", "missing"):
            with pytest.raises(OSError, match=r"leads out|No such"):
                await sandbox.read(path)
        with pytest.raises(OSError, match="more than"):
            await sandbox.read("a/b", max_bytes=3)
        with pytest.raises(IsADirectoryError):
            await sandbox.write(".", "x")
        with pytest.raises(FileNotFoundError):
            await sandbox.list("missing")
        line = f"(setsid sleep {mark} &); trap '' TERM; echo begun; sleep {mark}; sleep {mark}"
        done = await run_too_long(sandbox, line, monkeypatch)
        assert (done.code, done.timed_out) == (137, True)
        await until_gone(mark)
        done = await sandbox.run("yes", Limits(output=1000, wall=600))
        assert (done.code, len(done.output)) == (137, 1000)
        await sandbox.run(f"sleep {mark} >/dev/null 2>&1 &")
        await sandbox.kill_processes()
        await until_gone(mark)
        assert (await sandbox.run("echo \0")).code == 126
        await cancel(sandbox, mark)
    await until_gone(mark)
    with pytest.raises(SandboxError):
        await sandbox.run("true")


async def until_gone(mark: str) -> None:
    """An engine says that processes are killed before the kernel has taken them away."""
    while running(mark):  # or until the time limit of the test
        await asyncio.sleep(0.01)


def test_the_profile_of_seatbelt_denies_by_default() -> None:
    root = Path('/private/tmp/a "b')
    lines = seatbelt.profile(
        root, Setup(readonly_mounts={"/opt/x": Path("/opt/x")}, proxy_port=8080)
    ).splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    text = "\n".join(lines)
    assert text.count("(") == text.count(")")
    assert '(subpath "/private/tmp/a \\"b")' in text
    assert '(allow network-outbound (remote tcp "localhost:8080"))' in text
    assert "network" not in seatbelt.profile(root, Setup())
    assert "/Users" not in text


# Small parts.


def test_what_is_printed_cannot_speak_to_the_terminal() -> None:
    assert printable("a\tb\r\nc\n") == "a\tb\nc\n"
    assert (
        printable("\x1b]0;owned\x07\x1b[2J\x9b31m\rgone\u202e\U000e0041")
        == "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x0dgone\\x202e\\xe0041"
    )


def test_sizes_are_told_as_people_say_them() -> None:
    assert [format_size(n) for n in (10, 2048, 3 * MiB, 2**31)] == [
        "10 bytes",
        "2 KiB",
        "3 MiB",
        "2 GiB",
    ]


@pytest.mark.skipif(not shutil.which("ps"), reason="no ps here")
def test_use_can_be_told_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        exact = processes.usage_of(os.getpid())
        monkeypatch.setattr(processes, "HAS_PROC", False)
        told = processes.usage_of(os.getpid())
        process.send_signal(signal.SIGKILL)
    assert exact.processes >= 2
    assert told.processes >= 2
    assert told.memory > MiB
    assert told.cpu <= exact.cpu + 5  # `ps` does not count those that have ended


def test_a_swapped_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside" / "d").mkdir(parents=True)
    folder = Folder(os.open(tmp_path / "inside", os.O_RDONLY), "/w")
    (tmp_path / "inside" / "d").rename(tmp_path / "inside" / "e")
    (tmp_path / "inside" / "d").symlink_to(tmp_path / "outside")
    (tmp_path / "inside" / "l").symlink_to("/etc/passwd")
    with pytest.raises(PermissionError, match="links are not followed"):
        folder.write("d/x", "x")
    with pytest.raises(PermissionError, match="links are not followed"):
        folder.read("l", 100)
    assert [entry.kind for entry in folder.list("", 10)] == ["link", "folder", "link"]
    folder.close()
    folder.close()
    assert not list((tmp_path / "outside").iterdir())


# The command.


@works
def test_sandbox_runs_a_command_and_ends_with_its_code(upskill: Upskill, home: Path) -> None:
    done = upskill("doctor", "--", "bash", "-c", "echo out; echo err >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")
    (home / "in").write_text("given", encoding="utf-8")
    assert upskill("doctor", "--stdin", "in", "--", "cat").out == "given"
    done = upskill("doctor", "--allow", "wall=0.3", "--", "sleep", 600)
    assert (done.code, done.err) == (
        137,
        "upskill: the command was killed: it ran longer than 0.3 s\n",
    )


@works
def test_sandbox_copies_a_workspace_in_and_leaves_it_alone(upskill: Upskill, home: Path) -> None:
    (home / "work" / "sub").mkdir(parents=True)
    (home / "work" / "sub" / "a").write_text("a", encoding="utf-8")
    (home / "work" / "l").symlink_to("/etc")
    done = upskill("doctor", "--workspace", "work", "--", "sh", "-c", "cat sub/a; rm -r sub; ls -A")
    assert (done.code, done.out) == (0, "a")
    assert done.err == "upskill: not copied, because links are not followed: l\n"
    assert (home / "work" / "sub" / "a").is_file()
    (home / "work" / "big").write_bytes(bytes(3_000_000))
    done = upskill("doctor", "--workspace", "work", "--allow", "disk=1M", "--", "true")
    assert done.code in (0, 2)  # 2 where the workspace has a size of its own
    assert "Make room with --allow disk=SIZE." in done.err or done.code == 0


@works
def test_sandbox_in_json_is_one_document(upskill: Upskill) -> None:
    done = upskill(
        "doctor", "--json", "--allow", "memory=200M", "--", "sh", "-c", "printf '\\033[2J'; exit 3"
    )
    assert done.code == 3
    assert set(done.json) == {"sandbox", *CommandResult.__dataclass_fields__}
    assert (done.json["code"], done.json["output"]) == (3, "\x1b[2J")
    assert done.json["sandbox"]["passed"]
    assert upskill("doctor", "--sandbox", "--json").json["name"] == done.json["sandbox"]["name"]
    told = upskill("doctor", "--sandbox")
    assert told.code == 0
    assert "\n  no network\n" in told.out


def test_sandbox_none_warns_and_unknown_ones_are_refused(upskill: Upskill) -> None:
    done = upskill("doctor", "--sandbox", "none", "--", "pwd")
    assert done.code == 0
    assert "can read, change and send anything you can" in done.err
    assert upskill("doctor", "--sandbox", "seatbeld").code == 2
    for wrong in (
        ("--allow", "memory=x"),
        ("--allow", "wall=0"),
        ("--allow", "disk=0"),
        ("--allow", "x=1"),
        ("--workspace", "missing"),
    ):
        assert upskill("doctor", *wrong, "--", "true").code == 2


@works
def test_sandbox_shows_a_terminal_nothing_that_harms_it(upskill: Upskill, home: Path) -> None:
    (home / "work").mkdir()
    (home / "work" / "a\x1b[2J").symlink_to("elsewhere")  # its name is told, as it is not copied
    code = "printf '\\033]0;owned\\007\\033[2Jplain\\177'; printf '\\302\\233\\342\\200\\256' >&2"
    seen = _on_a_terminal("doctor", "--workspace", "work", "--", "sh", "-c", code)
    assert "\\x1b]0;owned\\x07\\x1b[2Jplain\\x7f" in seen
    assert "links are not followed: a\\x1b[2J" in seen
    seen += _on_a_terminal("doctor", "--json", "--", "sh", "-c", code)
    seen += upskill("doctor", "--\x1b[2Joption").err
    assert "No such option '--\\x1b[2Joption'" in seen
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", seen)


def _on_a_terminal(*argv: str) -> str:
    ours, theirs = pty.openpty()
    spawn(*argv, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with suppress(OSError):
        while data := os.read(ours, 4096):
            seen += data
    os.close(ours)
    return seen.decode()


@works
def test_the_benchmark_runs(home: Path) -> None:
    line = [sys.executable, str(REPOSITORY / "bench" / "sandbox.py"), "--repeat", "3"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "| open, run `true` |" in done.stdout
    assert "| a further `true` |" in done.stdout
