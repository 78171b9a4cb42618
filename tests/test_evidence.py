"""Evidence: what a trace has to teach, each item with the steps that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import REPOSITORY
from upskill.authoring.evidence.command_roles import program_and_verb, role_of
from upskill.authoring.evidence.evidence import VERIFY, ReusedCommand, TraceEvidence, evidence_of
from upskill.authoring.evidence.fixes import ErrorFix
from upskill.authoring.evidence.shell import parse_shell
from upskill.authoring.evidence.trace_commands import command_runs, error_line, shell_command, split_words, step_failed
from upskill.authoring.evidence.trace_files import final_files
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
    assert len(tarn.workflow) == 15
    assert [said.step for said in tarn.corrections] == [17, 43]
    assert [file.path for file in tarn.files] == ["tarn.toml", "ship.sh"]
    assert tarn.reused == (ReusedCommand("sh ship.sh", (52, 53), "ship.sh"),)
    assert (tarn.cost.calls, tarn.cost.failed) == (44, 23)
    assert tarn.cost.usage.total_tokens == 39790
    assert [item.command for item in tarn.confirmed] == ["tarn check --level strict"]


def test_errors_are_paired_with_what_mended_them(tarn: TraceEvidence) -> None:
    by_error = {fix.error: fix for fix in tarn.fixes}
    missing = by_error["tarn: seal: a crate without wax is not sealed (--wax is required)"]
    assert missing == ErrorFix(
        *("tarn seal", missing.error, "command", "tarn seal --wax red", (23, 24), "tarn seal"), added=("--wax red",)
    )
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
    for item in tarn.workflow:
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
        ("FOO=1 /usr/bin/git -C . status", "git status"),
        ("python3 tool.py --x", "tool.py"),
        ("python manage.py migrate harbour", "manage.py migrate"),
        ("python -m ledger.audit --currency NOK", "ledger.audit"),
        ("sudo -u ada timeout -s KILL 60 uv run --extra dev pytest -q", "pytest"),
        ("npx tsc --noEmit", "tsc"),
        ("docker exec -u root db mariadb harbour", "mariadb"),
        ("docker compose up -d", "docker compose up"),
        ("kubectl --context staging -n signals rollout status deployment/beacon", "kubectl rollout"),
        ("uv pip install lamp", "pip install"),
        ("npm run build -- --watch", "npm run build"),
        ("./tools/lamp.sh on", "lamp.sh on"),
        ("python -c 'import lamp'", "python"),
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
    assert not step_failed(ran("x", "Output: a\nError: (none)\nExit Code: 0", "unknown"))
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
    assert [said.step for said in evidence_of(Trace(steps)).corrections] == [3, 4]


def test_what_a_command_is_for_is_what_the_agent_said() -> None:
    steps = (
        Step("assistant", "That failed. Let me light it."),
        ran("lampctl on"),
        ran("lampctl off", description="Put it  out"),
    )
    assert [item.purpose for item in evidence_of(Trace(steps)).workflow] == ["Let me light it.", "Put it out"]


def test_an_empty_trace_has_nothing_to_teach() -> None:
    found = evidence_of(Trace(()))
    assert (found.goal.text, found.goal.step) == ("", 0)
    assert (found.fixes, found.corrections, found.workflow, found.files, found.reused) == ((), (), (), (), ())


def test_the_check_of_a_recording_is_what_verified_success_whatever_it_looks_like() -> None:
    def verify(status: Status) -> Step:
        return Step("tool", tool=VERIFY, arguments={"command": "grep -q done\\n out.txt"}, status=status)

    assert [item.command for item in evidence_of(Trace((verify("ok"),))).confirmed] == ["grep -q done\\n out.txt"]
    assert evidence_of(Trace((verify("error"),))).confirmed == ()


# Lines of several commands.


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("cd /srv && ferrule build 2>&1 | tail -5", ["cd /srv", "ferrule build", "tail -5"]),
        ("lampctl on; lampctl off || true\nlampctl list", ["lampctl on", "lampctl off", "true", "lampctl list"]),
        ("echo 'a && b; c' | lampctl read", ["echo 'a && b; c'", "lampctl read"]),
        ("cat > a.py <<'EOF'\nx = 1; y = 2 && 3\nEOF\npython a.py", ["cat > a.py", "python a.py"]),
        ("bash -lc 'cd x && uv run pytest -q | head'", ["cd x", "uv run pytest -q", "head"]),
        ("lampctl on \\\n  --lamp north > /dev/null 2>&1", ["lampctl on --lamp north"]),
        ("lampctl dump > lamps.json", ["lampctl dump > lamps.json"]),
        ("lampctl load < lamps.json", ["lampctl load < lamps.json"]),
        ("lampctl on) && lampctl off", ["lampctl on)", "lampctl off"]),  # not shell: cut at the operators
        ("lampctl say 'open", ["lampctl say 'open"]),
        ("", []),
    ],
)
def test_a_line_is_split_as_the_shell_would(line: str, commands: list[str]) -> None:
    assert [command.text for command in parse_shell(line)] == commands


def test_no_operator_is_ever_a_word_of_a_command() -> None:
    lines = ["a --version && b", "a --x | b", "a --x; b", "a --x > f", "a --x 2>&1", "(a --x) && b", "a --x & b"]
    words = {word for line in lines for command in parse_shell(line) for word in command.words}
    assert words == {"a", "b", "--version", "--x"}


def test_commands_have_roles() -> None:
    roles = {
        "context": ["cd x", "export A=1", "A=1", "source .venv/bin/activate", "sleep 5", "echo hi", "set -e"],
        "look": [
            *(
                "ls",
                "git status",
                "cat x",
                "lampctl --help",
                "cargo --explain E0432",
                "lampctl --version",
                "sed -n 1p x",
            ),
            *("kubectl get pods", "docker compose ps", "gh pr view 3", "pip list", "make -n all", "sudo ls", "npm run"),
            *(
                "curl -s https://example.test/x",
                "sqlite3 lamps.db 'select * from lamps'",
                "psql -c '\\\\d lamps'",
                "go env GOWORK",
            ),
        ],
        "files": ["mkdir -p x", "mv a b", "sed -i s/a/b/ x", "touch x"],
        "books": ["git add -A", "git commit -m x"],
        "script": ["python -c 'print(1)'", "node -e 1"],
        "work": [
            *(
                "lampctl on",
                "release --version 2",
                "git submodule update --init",
                "python tool.py",
                "quarry view create x",
            ),
            *("curl -sf http://localhost:8090/health", "mariadb harbour -e 'create table x'"),
        ],
    }
    for role, commands in roles.items():
        for command in commands:
            assert (command, role_of(split_words(command))) == (command, role)


def test_a_line_has_one_status_and_its_commands_have_many() -> None:
    def outcomes(line: str, output: str = "", status: Status = "ok") -> dict[str, str]:
        return {run.text: run.outcome for run in command_runs(Trace((ran(line, output, status),)))}

    assert outcomes("cd x && lampctl on && ls", "", "ok") == {"cd x": "ok", "lampctl on": "ok", "ls": "ok"}
    failed = outcomes("rm x && lampctl on", "lampctl: error: no", "error")
    assert failed == {"rm x": "ok", "lampctl on": "failed"}
    assert outcomes("a go && b go", "something is wrong", "error") == {"a go": "unknown", "b go": "unknown"}
    assert outcomes("a go && b go", "b: error: no lamp", "error") == {"a go": "ok", "b go": "failed"}
    # A pager has the last word on the status, and it always succeeds.
    assert outcomes("pytest -q | tail -3", "1 failed, 6 passed")["pytest -q"] == "failed"
    assert outcomes("pytest -q | tail -3", "7 passed")["pytest -q"] == "ok"
    refused = outcomes("lampctl on", "The user doesn't want to proceed with this tool use.", "error")
    assert refused == {"lampctl on": "unknown"}
    assert outcomes("lampctl serve", "Command running in background with ID: bash_1") == {"lampctl serve": "unknown"}


def test_what_only_looks_around_mends_nothing() -> None:
    for look in ("lampctl --help", "ls lamps", "git status", "cat lamp.toml", "lampctl list"):
        steps = (ran("lampctl on", "lampctl: error: too dark", "error"), ran(look, "x"), ran("lampctl on", "on"))
        assert evidence_of(Trace(steps)).fixes == ()


def test_a_fix_is_a_later_success_of_the_same_command() -> None:
    other = (ran("lampctl on --lamp north", "lampctl: error: no", "error"), ran("lampctl off --lamp north", "off"))
    assert evidence_of(Trace(other)).fixes == ()
    same = (ran("cd a && lampctl on --lamp nroth | tail", "lampctl: error: no lamp nroth", "error"),)
    same += (ran("cd a && timeout 9 lampctl on --lamp north", "on"),)
    (fix,) = evidence_of(Trace(same)).fixes
    assert (fix.kind, fix.added, fix.dropped) == ("command", ("--lamp north",), ("--lamp nroth",))


def test_an_edit_that_did_not_help_is_no_fix() -> None:
    def edit(old: str, new: str) -> Step:
        given = {"file_path": "lamp.toml", "old_string": old, "new_string": new}
        return Step("tool", tool="Edit", arguments=given, status="ok")

    bad = ran("lampctl on", "lampctl: error: lamp.toml has no oil", "error")
    steps = (bad, wrote("other.toml", "x = 1\n"), bad, edit("oil = 0", "oil = 9"), ran("lampctl on", "on"))
    (fix,) = evidence_of(Trace(steps)).fixes
    assert (fix.kind, fix.fix, fix.change, fix.steps) == ("file", "lamp.toml", ("oil = 0", "oil = 9"), (3, 4))


def test_a_rename_in_between_is_a_fix() -> None:
    bad = ran("lampctl load", "lampctl: error: lamps.yaml not found", "error")
    for move in ("mv lamp.yaml lamps.yaml", "git mv lamp.yaml lamps.yaml"):
        (fix,) = evidence_of(Trace((bad, ran(move), ran("lampctl load")))).fixes
        assert (fix.kind, fix.fix) == ("before", move)


def test_a_turn_after_a_finished_attempt_that_is_done_again_corrects() -> None:
    steps = (
        Step("user", "Serve the lamps."),
        ran("lampctl serve --port 80"),
        Step("assistant", "They are served."),
        Step("user", "Port 8080 on this machine, 80 is the docs server."),
        ran("lampctl serve --port 8080"),
        Step("assistant", "Done."),
        Step("user", "Great, now write a README."),
        wrote("README.md", "x"),
    )
    assert [said.step for said in evidence_of(Trace(steps)).corrections] == [4]


def test_values_that_varied_become_placeholders() -> None:
    steps = (ran("lampctl cut --version 1.2 a.lmp"), ran("lampctl cut --version 1.3 b.lmp"), ran("lampctl tidy --deep"))
    commands = [item.command for item in evidence_of(Trace(steps)).workflow]
    assert commands == ["lampctl cut --version <version> <file>", "lampctl tidy --deep"]


def test_another_selection_of_tests_is_no_cure() -> None:
    failed = ran("go test -v ./pkg/... -run TestLamp", "--- FAIL: TestLamp (0.00s)\nFAIL", "error")
    assert evidence_of(Trace((failed, ran("go test -v ./pkg/lamp/", "ok")))).fixes == ()
    lint = ran("golangci-lint run ./pkg/...", "lamp.go:3:1: error: oil is unused", "error")
    (fix,) = evidence_of(Trace((lint, ran("go build -o lamp"), ran("golangci-lint run ./pkg/...")))).fixes
    assert not fix.related


def test_a_program_that_was_missing_is_mended_by_its_installation() -> None:
    missing = ran("zip -r lamps.zip lamps", "/bin/bash: line 1: zip: command not found", "error")
    steps = (missing, ran("apt-get install -y zip"), ran("lampctl tidy"), ran("zip -r lamps.zip lamps extra.log"))
    (fix,) = evidence_of(Trace(steps)).fixes
    assert (fix.kind, fix.fix) == ("before", "apt-get install -y zip")


def test_odd_lines_are_read_all_the_same() -> None:
    odd = [
        "sudo -u",
        "timeout -s",
        "docker exec -e",
        "env --",
        "xargs -n",
        "\ud800 \0",
        "$(" * 6000,
        "(ls " * 4000,
        "{",
        "fi",
    ]
    odd += ["if true; then " * 1000 + "ls" + "; fi" * 1000]
    for line in odd:
        for command in parse_shell(line):
            assert role_of(command.words)
        assert evidence_of(Trace((ran(line, "error: no", "error"), ran(line)))).corrections == ()


def test_of_alternatives_and_of_what_nobody_waits_for_it_is_not_known_what_worked() -> None:
    runs = command_runs(Trace((ran("moss push dist || moss push dist --force"), ran("moss sign dist > log 2>&1 &"))))
    assert [run.outcome for run in runs if run.role == "work"] == ["unknown"] * 3
    (quiet,) = (run for run in command_runs(Trace((ran("moss push dist || true"),))) if run.role == "work")
    assert quiet.outcome == "unknown"
