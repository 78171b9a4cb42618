"""Evidence: what a trace has to teach, each item with the steps that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import REPOSITORY
from upskill.authoring.evidence import VERIFY, ErrorFix, ReusedCommand, TraceEvidence, evidence_of
from upskill.authoring.trace_commands import error_line, program_and_verb, shell_command, split_words, step_failed
from upskill.authoring.trace_files import final_files
from upskill.traces import Status, Step, Trace, read_trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"


def ran(command: str, output: str = "", status: Status = "ok", **more: Any) -> Step:
    return Step("tool", tool="Bash", arguments={"command": command, **more}, output=output, status=status)


def wrote(path: str, content: str) -> Step:
    return Step("tool", tool="Write", arguments={"file_path": path, "content": content}, status="ok")


@pytest.fixture(scope="module")
def tarn() -> TraceEvidence:
    return evidence_of(read_trace(FIXTURES / "claude_code/tarn.jsonl"))


def test_a_long_session_yields_every_kind_of_evidence(tarn: TraceEvidence) -> None:
    assert tarn.goal.step == 1
    assert tarn.goal.text.startswith("Ship the four crates to the island of Skerry")
    assert len(tarn.successes) == 15
    assert [said.step for said in tarn.corrections] == [17, 43]
    assert [file.path for file in tarn.files] == ["tarn.toml", "ship.sh"]
    assert tarn.reused == (ReusedCommand("sh ship.sh", (52, 53), "ship.sh"),)
    assert (tarn.cost.calls, tarn.cost.failed) == (44, 23)
    assert tarn.cost.usage.total_tokens == 39790
    assert [item.command for item in tarn.confirmed] == ["tarn check --level strict"]


def test_errors_are_paired_with_what_mended_them(tarn: TraceEvidence) -> None:
    by_error = {fix.error: fix for fix in tarn.fixes}
    missing = by_error["tarn: seal: a crate without wax is not sealed (--wax is required)"]
    assert missing == ErrorFix("tarn seal", missing.error, "command", "tarn seal --wax red", (23, 24))
    wrong = by_error["tarn: weigh: --unit kilogram is not possible today; --unit stone is"]
    assert (wrong.kind, wrong.fix, wrong.steps) == ("command", "tarn weigh --unit stone", (20, 21))
    unready = by_error["tarn: send: the crates were not checked; run check first"]
    assert (unready.kind, unready.fix, unready.steps) == ("before", "tarn check --level strict", (37, 39))
    unwritten = by_error["tarn: tarn.toml is missing: write courier, island, crates, retries and ledger into it"]
    assert (unwritten.kind, unwritten.fix, unwritten.steps) == ("file", "tarn.toml", (6, 8))


def test_every_item_cites_steps_that_are_there(tarn: TraceEvidence) -> None:
    steps = read_trace(FIXTURES / "claude_code/tarn.jsonl").steps
    for fix in tarn.fixes:
        assert step_failed(steps[fix.steps[0] - 1])
        assert shell_command(steps[fix.steps[0] - 1]) == fix.command
        assert not any(step_failed(steps[number - 1]) for number in fix.steps[1:])
    for item in tarn.successes:
        assert shell_command(steps[item.step - 1]) == item.command
    for said in tarn.corrections:
        assert steps[said.step - 1].kind == "user"


def test_files_are_replayed_to_their_last_content(tarn: TraceEvidence) -> None:
    settings = tarn.files[0]
    assert settings.content == 'courier = "heron"\nisland = "Skerry"\ncrates = 4\nretries = 6\nledger = "blue"\n'
    assert (settings.steps, settings.whole) == ((8, 10, 12), True)


@pytest.mark.parametrize("name", ["codex/fruit.jsonl", "opencode/orchard.json", "claude_code/orchard.jsonl"])
def test_each_agents_way_of_writing_files_is_known(name: str) -> None:
    (notes,) = evidence_of(read_trace(FIXTURES / name)).files
    assert (notes.path, notes.whole) == ("notes.txt", True)
    assert notes.content.startswith("apples = 3\npears = 5\n")


def test_patches_here_documents_and_pieces_are_files_too() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** Update File: b.txt\n@@ def\n x\n-y\n+z\n"
        "*** Delete File: c.txt\n*** End Patch"
    )
    steps = (
        wrote("b.txt", "w\nx\ny\n"),
        wrote("c.txt", "gone"),
        Step("tool", tool="shell", arguments={"command": ["apply_patch", patch]}, status="ok"),
        ran("cat > d.txt <<'EOF'\nin d\nEOF\ncat <<END > e.txt\nin e\nEND"),
        Step("tool", tool="Edit", arguments={"file_path": "f.txt", "old_string": "1", "new_string": "2"}, status="ok"),
        wrote("g.txt", "not this"),
        Step(
            "tool",
            tool="MultiEdit",
            arguments={
                "file_path": "g.txt",
                "edits": [{"old_string": "not ", "new_string": ""}, {"old_string": "this", "new_string": "that"}],
            },
            status="ok",
        ),
        Step("tool", tool="Write", arguments={"file_path": "h.txt", "content": "refused"}, status="error"),
    )
    files = {file.path: (file.content, file.whole) for file in final_files(Trace(steps))}
    assert files == {
        "a.txt": ("one\ntwo\n", True),
        "b.txt": ("w\nx\nz\n", True),
        "d.txt": ("in d\n", True),
        "e.txt": ("in e\n", True),
        "f.txt": ("2", False),
        "g.txt": ("that", True),
    }


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": "ls -l"}, "ls -l"),
        ({"cmd": "ls -l"}, "ls -l"),
        ({"command": ["bash", "-lc", "ls -l"]}, "ls -l"),
        ({"command": "/bin/bash -lc 'ls -l'"}, "ls -l"),
        ({"command": ["ls", "a b"]}, "ls 'a b'"),
        ({"command": "view", "path": "a"}, ""),
        ({"command": "echo 'open"}, "echo 'open"),
        ({"pattern": "x"}, ""),
        ({"input": "ls"}, "ls"),
    ],
)
def test_a_command_is_found_in_any_agents_call(arguments: dict[str, Any], command: str) -> None:
    assert shell_command(Step("tool", tool="bash", arguments=arguments)) == command


@pytest.mark.parametrize(
    ("command", "head"),
    [
        ("git commit -m x", "git commit"),
        ("FOO=1 /usr/bin/git -C . status", "git"),
        ("python3 tool.py --x", "python3 tool.py"),
        ("make", "make"),
        ("ls ./a.txt", "ls"),
        ("A=1", ""),
        ("", ""),
    ],
)
def test_a_command_is_known_by_its_name_and_verb(command: str, head: str) -> None:
    assert program_and_verb(split_words(command)) == head


def test_the_line_that_says_what_was_wrong_is_found() -> None:
    assert error_line("Exit code 1\nbuilding\nerror: no space left\nhint: buy more") == "error: no space left"
    assert error_line("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n") == "KeyError: 'a'"
    assert error_line("") == ""
    assert error_line("one\ntwo") == "two"


def test_where_no_status_is_told_the_words_decide() -> None:
    assert step_failed(ran("x", "bash: x: command not found", "unknown"))
    assert step_failed(ran("x", "tool: error: no", "unknown"))
    assert not step_failed(ran("x", "0 errors", "unknown"))
    assert not step_failed(ran("x", "error: expected", "ok"))


def test_another_program_that_does_the_same_mends_an_error() -> None:
    steps = (
        ran("pip install lamp", "error: externally managed", "error"),
        ran("ls"),
        ran("uv pip install lamp", "done"),
    )
    (fix,) = evidence_of(Trace(steps)).fixes
    assert (fix.fix, fix.steps) == ("uv pip install lamp", (1, 3))


def test_an_error_that_nothing_mended_is_no_lesson() -> None:
    steps = (
        ran("lampctl on", "no such lamp", "error"),
        ran("lampctl on", "no such lamp", "error"),
        ran("lampctl list", "none"),
    )
    assert evidence_of(Trace(steps)).fixes == ()


def test_a_command_that_is_run_again_is_a_helper() -> None:
    steps = (ran("lampctl sync"), ran("ls"), ran("ls"), ran("lampctl sync"))
    assert evidence_of(Trace(steps)).reused == (ReusedCommand("lampctl sync", (1, 4)),)


def test_only_turns_that_correct_are_corrections() -> None:
    turns = (
        "Light the lamp.",
        "Thanks, go on.",
        "No, not that one.",
        "You should use the big lamp.",
        "[Request interrupted by user]",
    )
    steps = (*(Step("user", turn) for turn in turns), Step("user", "Never mind me.", agent="helper"))
    assert [said.step for said in evidence_of(Trace(steps)).corrections] == [3, 4, 5]


def test_what_a_command_is_for_is_what_the_agent_said() -> None:
    steps = (
        Step("assistant", "That failed. Let me light it."),
        ran("lampctl on"),
        ran("lampctl off", description="Put it  out"),
    )
    assert [item.purpose for item in evidence_of(Trace(steps)).successes] == ["Let me light it.", "Put it out"]


def test_an_empty_trace_has_nothing_to_teach() -> None:
    found = evidence_of(Trace(()))
    assert (found.goal.text, found.goal.step) == ("", 0)
    assert (found.fixes, found.corrections, found.successes, found.files, found.reused) == ((), (), (), (), ())


def test_the_check_of_a_recording_is_what_verified_success_whatever_it_looks_like() -> None:
    def verify(status: Status) -> Step:
        return Step("tool", tool=VERIFY, arguments={"command": "grep -q done\\n out.txt"}, status=status)

    assert [item.command for item in evidence_of(Trace((verify("ok"),))).confirmed] == ["grep -q done\\n out.txt"]
    assert evidence_of(Trace((verify("error"),))).confirmed == ()
