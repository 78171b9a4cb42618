"""Checks on what was done: files that were left, commands run on them, tools that were called. In a real sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, evaluate, read_check, write_script, write_skill
from test_checks import OF_THE_ANSWER
from upskill import Evidence, Finding, Trace, UsageError
from upskill.checks import CHECKS, workspace
from upskill.checks.extract import blocks
from upskill.checks.programs import harness
from upskill.checks.programs.compiles import LANGUAGES
from upskill.checks.programs.python import HARNESS
from upskill.errors import CheckError
from upskill.models import Reply, Request
from upskill.plain import counted
from upskill.runs.planning.plan import PlanOptions, make_plan
from upskill.runs.stores import open_store
from upskill.sandboxes import Sandbox, Setup, bubblewrap, choose_sandbox
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.quality import probe_case, probe_suite, summarize_weak
from upskill.traces import Step

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
LISTS = {"type": ["array", "number"], "multipleOf": 0.01, "items": {"$ref": "#"}}
FILES = {
    "report.md": "# Report\n\nAll 3 tests passed.\n",
    "data/out.json": '{"count": 3}',
    "broken.json": "{",
    "deep.json": "[" * 500 + "]" * 500,
    "large.json": "1" + "0" * 400,
    "add.c": "int add(int a, int b) { return a + b; }\n",
    "broken.c": "int add(int a, int b) { return a + }\n",
    "add.py": "def add(a, b):\n    return a + b\n",
    "broken.py": "def add(a, b):\n    return a +\n",
    "empty.txt": "",
}


async def open_sandbox(**setup: Any) -> Sandbox:
    try:
        kind = (await choose_sandbox("bubblewrap")).backend
    except UsageError as error:
        pytest.skip(error.message)
    return await kind.open(Setup(**setup))


@pytest.fixture
async def sandbox(home: Path) -> AsyncGenerator[Sandbox]:
    async with await open_sandbox(files=FILES) as opened:
        yield opened


def needs(*programs: str) -> None:
    """Skip where a sandbox would not find one of these either: in a folder of the system."""
    for program in programs:
        if not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/local/cuda/bin"):
            pytest.skip(f"{program} is not installed for all users")


def only_tools(home: Path) -> dict[str, Any]:
    """A PATH with what every system has, and no language."""
    (home / "tools").mkdir()
    for name in ("mktemp", "mkdir", "chmod", "cat", "rm", "bash"):
        (home / "tools" / name).symlink_to(f"/usr/bin/{name}")
    return {
        "readonly_mounts": {"/opt/tools": home / "tools"},
        "environment": {"PATH": "/opt/tools"},
    }


async def look(
    line: dict[str, Any], sandbox: Sandbox | None, answer: str = "done", **more: Any
) -> Finding:
    trace = Trace((*more.pop("steps", ()), Step("assistant", answer)), turns=more.pop("turns", 0))
    check = read_check(line, "suite.yaml").check
    own = f"{sandbox.home}/own" if sandbox else ""
    for name, text in check.own_files.items():
        assert sandbox is not None
        await sandbox.write(f"{own}/{name}", text, executable=text.startswith("#!"))
    return await check.run(Evidence(trace, sandbox=sandbox, check_files=own, **more))


# Files.

LOOKS: list[tuple[dict[str, Any], bool, str]] = [
    ({"file_exists": "report.md"}, True, "report.md exists"),
    (
        {"file_exists": ["report.md", "data/out.json", "empty.txt"]},
        True,
        "report.md, data/out.json, empty.txt exist",
    ),
    ({"file_exists": ["report.md", "nothing.md"]}, False, "nothing.md: does not exist"),
    ({"file_exists": "report.md/below"}, False, "report.md/below: does not exist"),
    ({"file_exists": "data"}, False, "data: is a folder"),
    ({"file_exists": "data/"}, True, "data/ exists"),
    ({"file_exists": "report.md/"}, False, "report.md/: is not a folder"),
    ({"file_contains": {"path": "report.md", "text": "passed"}}, True, "report.md has 'passed'"),
    (
        {"file_contains": {"path": "report.md", "text": ["passed", "PASSED"]}},
        False,
        "report.md lacks 'PASSED'",
    ),
    (
        {"file_contains": {"path": "report.md", "text": "PASSED", "ignore_case": True}},
        True,
        "report.md has 'PASSED'",
    ),
    ({"file_contains": {"path": "nothing.md", "text": "x"}}, False, "nothing.md: does not exist"),
    (
        {"file_matches": {"path": "report.md", "pattern": r"^All \d+"}},
        True,
        r"report.md matches '^All \d+' with 'All 3'",
    ),
    (
        {"file_matches": {"path": "report.md", "pattern": r"\d{2}"}},
        False,
        r"report.md does not match '\d{2}'",
    ),
    ({"file_matches": {"path": "data", "pattern": "x"}}, False, "data: is a folder"),
    (
        {"file_json_schema": {"path": "data/out.json", "schema": COUNT}},
        True,
        "data/out.json is JSON that matches the schema",
    ),
    (
        {"file_json_schema": {"path": "data/out.json", "schema": {"type": "array"}}},
        False,
        """data/out.json's JSON does not match the schema at $: {'count': 3} is not of type 'array'""",
    ),
    (
        {"file_json_schema": {"path": "nothing.json", "schema": COUNT}},
        False,
        "nothing.json: does not exist",
    ),
    (
        {"file_json_schema": {"path": "broken.json", "schema": COUNT}},
        False,
        "broken.json is not JSON: a key in double quotes",
    ),
    (
        {"file_json_schema": {"path": "deep.json", "schema": LISTS}},
        False,
        "deep.json is not JSON: nested too deeply",
    ),
    (
        {"file_json_schema": {"path": "large.json", "schema": LISTS}},
        False,
        "large.json is not JSON: a number has more than 300 digits",
    ),
]


async def test_a_check_of_files_says_whether_and_why(sandbox: Sandbox) -> None:
    for line, passed, reason in LOOKS:
        finding = await look(line, sandbox)
        assert finding.passed is passed, line
        assert finding.reason.startswith(reason), line


async def test_a_reason_cannot_speak_to_a_terminal(sandbox: Sandbox) -> None:
    finding = await look({"command": "printf '\\e]0;x\\a'; exit 1"}, sandbox)
    assert finding.reason.endswith("exit code 1: \\x1b]0;x\\x07")


async def test_without_a_sandbox_nothing_that_was_left_can_be_judged() -> None:
    for name in ("file_exists", "command", "compiles"):
        named = read_check({name: "a.c"}, "suite.yaml")
        assert named.check.needs_sandbox
        with pytest.raises(CheckError, match="there is no sandbox to check"):
            await named.check.run(Evidence(Trace(())))


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"file_exists": "/etc/passwd"},
        "file_exists.path: '/etc/passwd' is not a path inside the workspace",
    ),
    ({"file_exists": "../x"}, "file_exists.path: '../x' is not a path inside the workspace"),
    ({"file_exists": []}, "file_exists.path: an empty list, so it can never fail"),
    ({"file_contains": "report.md"}, "file_contains: no text"),
    (
        {"file_matches": {"path": "a", "pattern": "("}},
        "file_matches.pattern: '(' is not a valid regular expression",
    ),
    ({"extract": "../a.c"}, "extract.to: '../a.c' is not a path inside the workspace"),
    (
        {"compiles": "a.zig"},
        "compiles: cannot tell the language of 'a.zig' from its name; set `language`: c,",
    ),
    (
        {"compiles": {"file": "a.c", "language": "rst"}},
        "compiles: 'rst' is not a language this check can compile. Did you mean 'rust'?",
    ),
    (
        {"command": {"run": "true", "exit_code": None}},
        "command: can never fail: any exit code and any output",
    ),
    (
        {"command": {"run": "true", "regex": "("}},
        "command.regex: '(' is not a valid regular expression",
    ),
    (
        {"command": {"run": "true", "files": [1]}},
        "command: `files` must list files beside the suite",
    ),
    ({"command": {"run": "true", "files": {"/etc/x": ""}}}, "command.files"),
    (
        {"command": {"run": "true", "timeout": 0.0}},
        "command.timeout: Input should be greater than 0",
    ),
    ({"python": "check.py"}, "python: the file 'check.py' does not exist"),
    (
        {"python": {"file": "c.py", "source": "def"}},
        "python.source: not valid Python: invalid syntax",
    ),
    (
        {"tool_called": {"tool": "bash", "at_least": 3, "at_most": 2}},
        "tool_called: at_most 2 is less than at_least 3",
    ),
    ({"max_turns": 0}, "max_turns.turns: Input should be greater than or equal to 1"),
    ({"skill_activated": "yes"}, "skill_activated.wanted: Input should be a valid boolean"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_a_check_of_what_was_done_that_could_not_be_meant_is_refused(
    line: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        read_check(line, "suite.yaml")
    assert error.value.message.startswith(f"suite.yaml: {message}")


# What a hostile agent leaves where a file is looked for.


async def test_what_is_not_a_plain_file_is_not_followed_and_keeps_nobody_waiting(
    sandbox: Sandbox,
) -> None:
    for left, why in (
        ("ln -s /etc/passwd wanted", "is a link, and links are not followed"),
        ("mkfifo wanted", "is not a regular file"),
        ("mkdir wanted", "is a folder"),
        ("truncate -s 100M wanted", "has 104,857,600 bytes; at most 4,194,304 are read"),
    ):
        assert (await sandbox.run(f"rm -rf wanted; {left}")).code == 0
        for line in (
            {"file_contains": {"path": "wanted", "text": "root"}},
            {"file_json_schema": {"path": "wanted", "schema": COUNT}},
            {"compiles": {"file": "wanted", "language": "c"}},
        ):
            assert await look(line, sandbox) == Finding(False, f"wanted: {why}")
        expected = (
            Finding(True, "wanted exists")
            if "truncate" in left
            else Finding(False, f"wanted: {why}")
        )
        assert await look({"file_exists": "wanted"}, sandbox) == expected


async def test_a_folder_that_is_a_link_leads_nowhere(sandbox: Sandbox) -> None:
    await sandbox.run("ln -s /etc out")
    assert await look({"file_exists": "out/passwd"}, sandbox) == Finding(
        False, "out/passwd: is a link, and links are not followed"
    )
    finding = await look({"extract": "out/a.c"}, sandbox, "```c\nint x;\n```")
    assert finding == Finding(False, "out/a.c: is a link, and links are not followed")


# Code from the answer.

ANSWER = """Two ways:

```python
print("one")
```

~~~~ C
int one(void) { return 1; }
~~~
still code
~~~~

  ```c title="two"
int two(void) { return 2; }
```

and a word in ```back ticks```.
"""


async def test_a_code_block_of_the_answer_becomes_a_file(sandbox: Sandbox) -> None:
    one = "int one(void) { return 1; }\n~~~\nstill code\n"
    for to, options, content in (
        ("a.c", {}, "int two(void) { return 2; }\n"),
        ("a.c", {"which": "first"}, 'print("one")\n'),
        ("new/a.c", {"language": "C", "which": "first"}, one),
        ("a.py", {"language": ["py", "python"]}, 'print("one")\n'),
    ):
        finding = await look({"extract": {"to": to, **options}}, sandbox, ANSWER)
        assert finding == Finding(
            True, f"copied {counted(len(content.splitlines()), 'line')} from the answer to {to}"
        )
        assert (await sandbox.read(to)).decode() == content


async def test_an_answer_without_such_a_block_fails(sandbox: Sandbox) -> None:
    assert await look({"extract": "a.c"}, sandbox, "int x;") == Finding(
        False, "the answer has no fenced code block"
    )
    finding = await look({"extract": {"to": "a.c", "language": ["go", "rust"]}}, sandbox, ANSWER)
    assert finding == Finding(False, "the answer has no fenced code block in go or rust")
    assert await look({"extract": "data"}, sandbox, ANSWER) == Finding(
        False, "data: Is a directory"
    )


def test_a_block_that_was_cut_off_ends_with_the_answer() -> None:
    assert list(blocks("```cuda\n__global__\n```c")) == [("cuda", "__global__\n```c\n")]
    assert list(blocks("    ```\nindented by four\n")) == []
    assert list(blocks("- so:\n\n    ```c\n    x\n    ```\n")) == [("c", "x\n")]
    assert list(blocks("1. so\n\nNo list any more.\n\n    ```\nindented by four\n")) == []
    assert list(blocks("```\n```\n")) == [("", "")]


# Compilers.


@pytest.mark.parametrize(
    ("name", "good", "bad", "words"),
    [
        ("c", "int f(void) { return 1; }", "int f(void) { return x; }", "undeclared"),
        ("cpp", "#include <vector>\nstd::vector<int> v;", "std::vector<int> v;", "std"),
        ("python", "x = 1", "x =", "SyntaxError"),
        (
            "cuda",
            "__global__ void k(int *x) { *x = 1; }",
            "__global__ int k() { return 1; }",
            "void",
        ),
        ("rust", "pub fn f() -> i32 { 1 }", 'pub fn f() -> i32 { "" }', "mismatched types"),
        ("go", "package main\nfunc main() {}", "package main\nfunc main() { x }", "undefined: x"),
        ("typescript", "let x: number = 1", 'let x: number = "a"', "not assignable"),
    ],
)
async def test_a_file_compiles_or_fails_with_what_the_compiler_said(
    sandbox: Sandbox, name: str, good: str, bad: str, words: str
) -> None:
    needs(LANGUAGES[name].programs[0])
    suffix = LANGUAGES[name].suffixes[0]
    await sandbox.write(f"good{suffix}", good)
    await sandbox.write(f"bad{suffix}", bad)
    before = await sandbox.list()
    assert await look({"compiles": f"good{suffix}"}, sandbox) == Finding(
        True, f"good{suffix} compiles as {name}"
    )
    finding = await look({"compiles": {"file": f"bad{suffix}", "language": name}}, sandbox)
    assert not finding.passed
    assert finding.reason.startswith(f"bad{suffix} does not compile as {name}: exit code ")
    assert words in finding.reason
    assert await sandbox.list() == before


async def test_a_student_does_not_choose_the_compiler(home: Path) -> None:
    """rustup runs what a rust-toolchain.toml of the current folder names."""
    fake = home / "fake"
    fake.mkdir()
    (fake / "rustc").write_text("#!/bin/sh\npwd\ntest -f rust-toolchain.toml\n", encoding="utf-8")
    (fake / "rustc").chmod(0o755)
    setup = {
        "readonly_mounts": {"/opt/rust": fake},
        "environment": {"PATH": "/opt/rust:/usr/bin:/bin"},
    }
    async with await open_sandbox(
        files={"a.rs": "x", "rust-toolchain.toml": ""}, **setup
    ) as opened:
        finding = await look({"compiles": "a.rs"}, opened)
    assert not finding.passed
    assert finding.reason.endswith("/scratch")


async def test_flags_reach_the_compiler(sandbox: Sandbox) -> None:
    needs("cc")
    await sandbox.write("warned.c", "int f(void) { int unused; return 1; }")
    assert (await look({"compiles": "warned.c"}, sandbox)).passed
    line = {"compiles": {"file": "warned.c", "flags": ["-Wall", "-Werror"]}}
    assert "unused" in (await look(line, sandbox)).reason


async def test_a_compiler_that_is_missing_is_an_error_and_says_what_to_install(home: Path) -> None:
    files = {f"a{language.suffixes[0]}": "x" for language in LANGUAGES.values()}
    async with await open_sandbox(files=files, **only_tools(home)) as opened:
        for name, language in LANGUAGES.items():
            if any(Path(folder).is_dir() for folder in language.beside):
                continue
            with pytest.raises(CheckError) as error:
                await look({"compiles": f"a{language.suffixes[0]}"}, opened)
            assert error.value.message.startswith(f"no compiler for {name} in the sandbox (")
            assert error.value.message.endswith(f"install {language.install}")


# Commands.

COMMANDS: list[tuple[dict[str, Any], bool, str]] = [
    ({"run": "test -f report.md"}, True, "the command did what it should: exit code 0"),
    (
        {"run": "echo no; echo why >&2; exit 3"},
        False,
        "the command failed (expected exit code 0): exit code 3: no\nwhy",
    ),
    ({"run": "exit 3", "exit_code": 3}, True, "the command did what it should: exit code 3"),
    (
        {"run": "cat", "stdin": "hello", "contains": "hello"},
        True,
        "the command did what it should: exit code 0: hello",
    ),
    (
        {"run": "echo one", "contains": ["one", "two"]},
        False,
        "the output lacks 'two': exit code 0: one",
    ),
    (
        {"run": "echo one >&2", "contains": "one"},
        True,
        "the command did what it should: exit code 0: one",
    ),
    (
        {"run": "echo one", "not_contains": ["one"]},
        False,
        "the output contains 'one', which it must not: exit code 0: one",
    ),
    (
        {"run": "echo 12", "regex": r"^\d$"},
        False,
        r"the output does not match '^\d$': exit code 0: 12",
    ),
    (
        {"run": "echo 1; exit 9", "regex": r"^\d$", "exit_code": None},
        True,
        "the command did what it should: exit code 9: 1",
    ),
    (
        {"run": "sleep 60", "timeout": 0.2},
        False,
        "the command was killed: it ran longer than 0.2 s",
    ),
    (
        {"run": 'cat "$CHECK/a/b"', "files": {"a/b": "mine"}},
        True,
        "the command did what it should: exit code 0: mine",
    ),
]


async def test_a_command_is_judged_by_its_code_and_output(sandbox: Sandbox) -> None:
    for line, passed, reason in COMMANDS:
        assert await look({"command": line}, sandbox) == Finding(passed, reason)
    # Nothing of the check stays behind.
    assert (await sandbox.run("ls -A /tmp")).output == ""


async def test_a_program_that_a_command_needs_and_lacks_is_an_error(sandbox: Sandbox) -> None:
    line = {"command": {"run": "true", "needs": ["bash", "no-such-program"]}}
    with pytest.raises(
        CheckError, match="the command needs 'no-such-program', which is not in the sandbox"
    ):
        await look(line, sandbox)
    assert "command not found" in (await look({"command": "no-such-program"}, sandbox)).reason


async def test_long_output_is_told_from_its_end(sandbox: Sandbox) -> None:
    finding = await look({"command": "seq 1000; exit 1"}, sandbox)
    assert finding.reason.startswith("the command failed (expected exit code 0): exit code 1: … ")
    assert finding.reason.endswith("\n999\n1000")
    assert len(finding.reason) < 500


FORGERY = """
mkdir -p bin ~/bin
for name in python3 cc ls cat bash env mktemp; do
    printf '#!/bin/bash\\necho FORGED\\n' | tee bin/$name > ~/bin/$name; chmod +x bin/$name ~/bin/$name
done
echo 'echo FORGED' > ~/.bashrc; echo mine > test.sh
"""


async def test_nothing_that_was_left_stands_in_for_a_program(home: Path) -> None:
    needs("python3", "cc")
    environment = {"BASH_ENV": "/home/student/.bashrc", "PYTHONPATH": "/workspace"}
    async with await open_sandbox(files=FILES, environment=environment) as opened:
        assert (await opened.run(["/bin/sh", "-c", FORGERY])).code == 0
        assert "FORGED" in (await opened.run("python3 -c 1")).output  # the trap is one
        line = {
            "run": "type -P python3 cc; ls $HOME; env | cut -d= -f1 >names.txt",
            "not_contains": "FORGED",
        }
        finding = await look({"command": line}, opened)
        assert finding.passed
        programs = finding.reason.removeprefix(
            "the command did what it should: exit code 0: "
        ).splitlines()
        assert all(program.startswith(("/usr/", "/bin/")) for program in programs)
        names = set((await opened.read("names.txt")).decode().split())
        own = {"CHECK", "HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "TMPDIR", "_"}
        own |= {"PYTHONPATH", "PYTHONPYCACHEPREFIX"}
        assert names == own | set(workspace.ENVIRONMENT)
        run = {
            "run": 'bash "$CHECK/test.sh"',
            "files": {"test.sh": "echo theirs"},
            "contains": "theirs",
        }
        assert (await look({"command": run}, opened)).passed
        assert (await opened.read("test.sh")) == b"mine\n"
        assert not (await look({"compiles": "broken.c"}, opened)).passed


async def test_a_program_of_the_student_does_not_outlive_the_command_that_ran_it(
    sandbox: Sandbox,
) -> None:
    await sandbox.write(
        "serve", "#!/bin/bash\nsetsid sleep 1000 >/dev/null 2>&1 &\n", executable=True
    )
    assert (await look({"command": "./serve"}, sandbox)).passed
    finding = await look(
        {
            "command": {
                "run": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
                "not_contains": "sleep 1000",
            }
        },
        sandbox,
    )
    assert finding.passed


# Functions.


async def called(sandbox: Sandbox, body: str, answer: str = "done", **more: Any) -> Finding:
    source = "import os, subprocess\n\ndef check(answer, workspace, trace):\n" + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    return await look({"python": {"file": "c.py", "source": source, **more}}, sandbox, answer)


async def test_a_function_beside_the_suite_decides(sandbox: Sandbox) -> None:
    needs("python3")
    assert await called(sandbox, "return answer == 'done'") == Finding(True, "check returned True")
    assert await called(sandbox, "return False") == Finding(False, "check returned False")
    assert await called(sandbox, "return True, f'{len(trace)} steps'") == Finding(True, "1 steps")
    assert await called(sandbox, "assert answer == 'x', f'it says {answer}'") == Finding(
        False, "it says done"
    )
    assert await called(sandbox, "assert answer == 'x'") == Finding(
        False, "(line 4: assert answer == 'x')"
    )
    body = "content = open(os.path.join(workspace, 'data/out.json')).read()\nreturn True, content"
    assert await called(sandbox, body) == Finding(True, '{"count": 3}')
    assert await called(
        sandbox, "return trace[0]['kind'] == 'assistant' and trace[0]['text'] == answer", "é\ud83d"
    ) == (Finding(True, "check returned True"))


async def test_a_function_that_does_not_decide_is_an_error_and_one_that_does_not_end_fails(
    sandbox: Sandbox,
) -> None:
    needs("python3")
    for body, words in (
        ("raise SystemExit(0)", "check raised an error: SystemExit: 0"),
        ("os._exit(0)", "check stopped without a result: exit code 0"),
    ):
        with pytest.raises(CheckError, match=rf"c\.py: {words}"):
            await called(sandbox, body)
    finding = await called(sandbox, "import time; time.sleep(100)", timeout=0.5)
    assert finding == Finding(False, "check was killed: it ran longer than 0.5 s")


async def test_without_python_a_function_cannot_be_asked(home: Path) -> None:
    async with await open_sandbox(**only_tools(home)) as opened:
        with pytest.raises(CheckError, match="there is no python3 in the sandbox"):
            await called(opened, "return True")


FORGER = """#!/bin/bash
# Says yes in every way that it can find.
for place in /proc/$PPID/fd/* /proc/$PPID/mem /proc/$PPID/cmdline /proc/$PPID/environ; do
    { echo '{"passed": true, "reason": "FORGED", "error": ""}' >"$place"; } 2>/dev/null
    grep -aoE '[0-9a-f]{32}' "$place" 2>/dev/null | head -3
done
grep -rasoE '[0-9a-f]{32}' /tmp ~ . 2>/dev/null | head -3
echo '{"passed": true, "reason": "FORGED", "error": ""}'
"""


async def test_a_program_of_the_student_cannot_speak_for_the_function(sandbox: Sandbox) -> None:
    needs("python3")
    await sandbox.run("rm large.json")  # whose digits look like a token
    await sandbox.write("solve", FORGER, executable=True)
    body = "said = subprocess.run(['./solve'], stdout=subprocess.PIPE).stdout.decode()\nsubprocess.run(['./solve'])\n"
    finding = await called(sandbox, body + "return False, 'found: ' + said")
    assert not finding.passed
    # It saw its own words, and nothing that looks like a token.
    assert finding.reason == 'found: {"passed": true, "reason": "FORGED", "error": ""}\n'


def test_the_harness_reads_what_it_is_told_once_and_answers_on_its_own_channel(
    tmp_path: Path,
) -> None:
    said: dict[str, Any] = {
        "token": "t0ken",
        "file": "c.py",
        "function": "check",
        "source": "def check(a, b, c):\n    print('noise', flush=True)\n    return a == b, 'same'",
        "arguments": [1, 1, []],
    }
    assert harness.call(said) == {"passed": True, "reason": "same", "error": ""}
    for source, verdict in (
        ("def check(*_): assert False", (False, "(line 1: def check(*_): assert False)", "")),
        ("def check(*_): return 3", (False, "", "check returned 3; it must return True or False")),
        ("", (False, "", "has no function 'check'")),
        (
            "1/0",
            (False, "", "check raised an error: ZeroDivisionError: division by zero (line 1: 1/0)"),
        ),
    ):
        assert tuple(harness.call(said | {"source": source}).values()) == verdict
    place = tmp_path / "call.json"
    place.write_text(json.dumps(said), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, HARNESS, place], capture_output=True, text=True, check=True
    )
    assert not place.exists()
    assert done.stdout.split("\n") == [
        "",
        't0ken{"passed": true, "reason": "same", "error": ""}',
        "",
    ]
    assert done.stderr == "noise\n"


# What was done.

STEPS = (
    Step("tool", tool="Bash", arguments={"command": "pytest -q"}, output="ok", status="ok"),
    Step(
        "tool",
        tool="read_file",
        arguments={"path": "skills/greeter/references/tone.md"},
        output="…",
        status="ok",
    ),
    Step("tool", tool="bash", arguments={"command": "rm -rf build"}, output="", status="error"),
)
DONE: list[tuple[dict[str, Any], bool, str]] = [
    ({"tool_called": "bash"}, True, "bash was called 2 times; it must be called at least once"),
    (
        {"tool_called": {"tool": ["shell", "bash"], "arguments": "pytest"}},
        True,
        "shell or bash with 'pytest' was called once;",
    ),
    (
        {"tool_called": {"tool": "bash", "at_least": 3}},
        False,
        "bash was called 2 times; it must be called at least 3 times",
    ),
    (
        {"tool_called": "edit_file"},
        False,
        "edit_file was called 0 times; it must be called at least once",
    ),
    ({"tool_not_called": "edit_file"}, True, "edit_file was not called"),
    (
        {"tool_not_called": {"tool": "bash", "arguments": "git push"}},
        True,
        "bash with 'git push' was not called",
    ),
    (
        {"tool_not_called": {"tool": "bash", "arguments": "rm -rf"}},
        False,
        """bash with 'rm -rf' was called once, which it must not: {"command": "rm -rf build"}""",
    ),
    ({"max_turns": 4}, True, "the model took 4 turns; the limit is 4"),
    ({"max_turns": {"turns": 3}}, False, "the model took 4 turns; the limit is 3"),
    ({"skill_activated": True}, False, "the skill was not opened"),
    ({"skill_activated": False}, True, "the skill was not opened"),
    (
        {"resource_read": "references/tone.md"},
        True,
        "the agent read references/tone.md in the skill",
    ),
    (
        {"resource_read": ["./references/tone.md", "a.md"]},
        False,
        "the agent did not read a.md in the skill",
    ),
]


@pytest.mark.parametrize(("line", "passed", "reason"), DONE)
async def test_a_check_of_what_was_done_says_whether_and_why(
    line: dict[str, Any], passed: bool, reason: str
) -> None:
    finding = await look(line, None, steps=STEPS, turns=4, skill="greeter")
    assert finding.passed is passed
    assert finding.reason.startswith(reason)


async def test_where_no_skill_was_on_offer_its_use_is_not_asked_for() -> None:
    for line in ({"skill_activated": True}, {"skill_activated": False}, {"resource_read": "a.md"}):
        assert await look(line, None, steps=STEPS) == Finding(True, "no skill was available")


def test_every_kind_of_check_on_what_was_done_is_tried_both_ways() -> None:
    tried = {(next(iter(line)), passed) for line, passed, _ in (*LOOKS, *DONE)}
    others = {"judge", "extract", "compiles", "command", "python"}  # each has a part of its own
    names = {
        name
        for name in set(CHECKS.table) - set(OF_THE_ANSWER) - others
        if not name.startswith("kernel")
    }
    assert tried == {(name, passed) for name in names for passed in (True, False)}


# Judges that see files.


class Judge:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def ask(self, request: Request) -> Reply:
        self.asked.append(json.loads(request.messages[1].text))
        grade = {
            "number": 1,
            "evidence": "All 3 tests passed",
            "reason": "it says so",
            "passed": True,
        }
        return Reply(json.dumps({"grades": [grade]}))


async def test_a_judge_can_be_shown_files(sandbox: Sandbox) -> None:
    judge = Judge()
    line = {"judge": {"statement": "The report is clear.", "files": ["report.md"]}}
    assert read_check(line, "suite.yaml").check.needs_sandbox
    finding = await look(line, sandbox, ask=judge.ask)
    assert finding == Finding(True, "judge: all 1 hold (evidence: 'All 3 tests passed')")
    assert judge.asked[0]["files"] == {"report.md": FILES["report.md"]}
    line["judge"]["files"] = ["nothing.md"]
    assert await look(line, sandbox, ask=judge.ask) == Finding(False, "nothing.md: does not exist")
    assert len(judge.asked) == 1


async def test_a_judge_and_whoever_reads_its_finding_are_told_where_a_file_was_cut(
    sandbox: Sandbox,
) -> None:
    text = "All 3 tests passed.\n" + 30_000 * "x" + "the end of the report"
    await sandbox.write("long.md", text.encode())
    judge, cut = Judge(), "only the first 20,000 of 30,041 characters are shown"
    finding = await look(
        {"judge": {"statement": "It is clear.", "files": ["long.md"]}}, sandbox, ask=judge.ask
    )
    assert finding == Finding(
        True, f"judge: all 1 hold (evidence: 'All 3 tests passed') (long.md: {cut})"
    )
    assert (judge.asked[0]["cut"], judge.asked[0]["files"]) == (
        {"long.md": cut},
        {"long.md": text[:20_000]},
    )


# Files beside the suite.

CHECK = "def check(answer, workspace, trace):\n    return 'ahoy' in answer, 'looked'\n"


def write_suite_with_files(folder: Path) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "checks.py").write_text(CHECK, encoding="utf-8")
    (folder / "tests" / "run.sh").write_text("test -f out.txt\n", encoding="utf-8")
    case = {
        "id": "a",
        "prompt": "Greet.",
        "checks": [
            {"python": "checks.py"},
            {"command": {"run": 'bash "$CHECK/tests/run.sh"', "files": ["tests/run.sh"]}},
        ],
    }
    (folder / "suite.json").write_text(json.dumps([case]), encoding="utf-8")
    return folder / "suite.json"


def test_files_beside_the_suite_are_part_of_the_case(tmp_path: Path) -> None:
    place = write_suite_with_files(tmp_path)
    suite = Suite.load(place)
    (case,) = suite.cases
    assert case.checks[0].config == {"file": "checks.py", "source": CHECK}
    assert case.checks[1].config["files"] == {"tests/run.sh": "test -f out.txt\n"}
    # What is stored says it all: it can be read where the files are not.
    again = Suite.parse(suite.to_dict())
    assert again.cases == suite.cases
    assert again.fingerprint == suite.fingerprint
    for name in ("checks.py", "tests/run.sh"):
        file = tmp_path / name
        file.write_text(file.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
        changed = Suite.load(place)
        assert changed.cases[0].fingerprint != suite.cases[0].fingerprint
        suite = changed


# The gate.


def case_with(*checks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "a", "prompt": "Write the report.", "checks": list(checks), **more}


async def probes(*checks: dict[str, Any], **more: Any) -> list[str]:
    suite = Suite.parse([case_with(*checks, **more)])
    return [
        leak.probe
        for leak in await probe_suite(suite, Skill.new("writer", "Writes.", "Use `wc -w`."))
    ]


@pytest.fixture
def no_sandbox(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no sandbox works."""
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr("upskill.sandboxes.PREFERENCE", ("bubblewrap",))


@pytest.mark.usefixtures("no_sandbox")
async def test_traces_are_tried_without_a_sandbox_and_files_are_not() -> None:
    assert await probes({"file_exists": "report.md"}) == ["untried"]
    assert await probes({"tool_called": "bash"}, {"max_turns": 5}) == []
    assert await probes({"equals": "ready"}, {"command": "true"}) == []


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "checks",
    [
        [{"max_turns": 5}],
        [{"tool_not_called": "bash"}],
        [{"resource_read": "a.md"}, {"max_length": 500}],
        [{"file_exists": "given.md"}],
        [{"file_exists": "docs/"}],
        [{"file_matches": {"path": "docs/b.md", "pattern": "^b"}}],
    ],
)
async def test_a_case_that_doing_nothing_passes_is_caught(checks: list[dict[str, Any]]) -> None:
    assert await probes(*checks, files={"given.md": "a", "docs/b.md": "b"}) == ["empty"]


@pytest.mark.usefixtures("sandbox")
async def test_answers_that_know_nothing_in_the_asked_form_are_caught() -> None:
    texts = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string"}, "n": {"minimum": 3}},
    }
    closed = {"type": "object", "required": ["a"], "properties": {"a": {"const": "42"}}}
    found = {
        "min_length": await probes({"min_length": 1}),
        "not_empty": await probes({"regex": r"know|\{"}),
        "object": await probes({"json_schema": {"type": "object"}}),
        "texts": await probes({"json_schema": texts}, prompt="Write an object with a and n."),
        "closed": await probes({"json_schema": closed}),
        "beginning": await probes({"starts_with": "feat:"}, {"min_length": 10}),
        "block": await probes({"extract": {"to": "a.py", "language": "python"}}),
        "code": await probes(
            {"extract": "a.md"}, {"file_contains": {"path": "a.md", "text": "report"}}
        ),
    }
    assert found == {
        "min_length": ["unknown", "yes", "no", "json", "fence", "prompt", "skill"],
        "not_empty": ["unknown", "json"],
        "object": ["json", "format"],
        "texts": ["format"],
        "closed": [],
        "beginning": ["format"],
        "block": ["fence", "format"],
        "code": ["format"],
    }


@pytest.mark.usefixtures("no_sandbox")
async def test_names_and_values_that_only_the_schema_has_are_no_words_of_the_prompt() -> None:
    fields = {"stamp": {"const": "17.4"}, "reaction": {"enum": ["eyes"]}}
    schema = {"type": "object", "required": [*fields], "properties": fields}
    unnamed = 'Fix this call: {"ts": "17.4", "emoji": ":eyes:"} of add_reaction.'
    assert await probes({"json_schema": schema}, prompt=unnamed) == []
    assert await probes({"json_schema": schema}, prompt=f"{unnamed} Use stamp and reaction.") == [
        "values"
    ]
    assert (
        await probes(
            {"json_schema": schema}, prompt="Use stamp and reaction: 117.4, black-eyes-2x."
        )
        == []
    )


@pytest.mark.usefixtures("no_sandbox")
async def test_the_reference_of_another_case_must_not_pass() -> None:
    def case(name: str, reference: str, pattern: str) -> dict[str, Any]:
        return {
            "id": name,
            "prompt": "Which?",
            "checks": [{"regex": pattern}],
            "reference": reference,
        }

    loose, strict = case("loose", "push it", r"^\w+ it"), case("strict", "pull it", "^pull it$")
    same = case(
        "same", "to pull it", "pull"
    )  # another's answer with all of its words is no wrong one
    leaks = await probe_suite(Suite.parse([loose, strict, same]))
    assert [(leak.case, leak.probe) for leak in leaks] == [("loose", "other")]
    assert str(leaks[0]).startswith("case 'loose': the reference answer of another case passes")


@pytest.mark.usefixtures("no_sandbox")
async def test_what_would_have_to_be_run_is_told_of_once_where_nothing_can_be_run() -> None:
    cases = [
        case_with({"command": "test -f report.md"}) | {"id": f"case-{number}"}
        for number in range(5)
    ]
    leaks = await probe_suite(Suite.parse([*cases, case_with({"equals": "x"})]))
    assert [(leak.case, leak.probe) for leak in leaks] == [
        (f"case-{number}", "untried") for number in range(5)
    ]
    (line,) = summarize_weak(leaks)
    assert line.startswith(
        "5 cases ('case-0', 'case-1', 'case-2', …): could not test whether an empty answer passes;"
    )


@pytest.mark.usefixtures("sandbox")
async def test_commands_are_tried_in_a_workspace_where_nothing_was_done() -> None:
    assert await probes({"command": "test -f report.md"}) == []
    assert await probes({"command": "test -f given.md"}, files={"given.md": ""}) == ["empty"]
    assert await probes({"command": {"run": "ls", "not_contains": "oops"}}, {"max_turns": 3}) == [
        "empty"
    ]
    assert await probes(
        {"extract": {"to": "a.py", "language": ["python"]}}, {"command": "python3 a.py"}
    ) == ["fence"]
    source = "def check(answer, workspace, trace): return 'report' in answer"
    assert await probes({"python": {"file": "c.py", "source": source}}) == ["prompt"]


@pytest.mark.usefixtures("sandbox")
async def test_a_reference_is_held_against_what_an_answer_can_pass() -> None:
    needs("cc")
    good, bad = "```c\nint f(void) { return 1; }\n```", "```c\nint f(void) { return x; }\n```"
    checks = (
        {"extract": "a.c"},
        {"compiles": "a.c"},
        {"command": "grep -q return a.c"},
        {"tool_called": "bash"},
    )
    assert await probes(*checks, reference=good) == []
    assert await probes(*checks, reference=bad) == ["reference"]
    # What only an agent can do is not asked of an answer.
    assert await probes({"file_exists": "report.md"}, {"contains": "done"}, reference="done") == []
    assert await probes({"file_exists": "report.md"}, {"contains": "done"}, reference="no") == [
        "reference"
    ]


@pytest.mark.usefixtures("sandbox")
async def test_a_command_is_tried_once_for_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    started = bubblewrap.BubblewrapSandbox.start

    async def start(self: Any) -> None:
        opened.append(self)
        await started(self)

    monkeypatch.setattr(bubblewrap.BubblewrapSandbox, "start", start)
    (case,) = Suite.parse([case_with({"command": "test -f report.md"}, {"contains": "done"})]).cases
    assert await probe_case(case, Skill.new("writer", "Writes.", "Say done.")) == []
    assert len(opened) <= 2  # one to see that it works here, and one for the case


@pytest.mark.usefixtures("sandbox")
def test_validate_catches_a_command_that_doing_nothing_passes(upskill: Upskill, home: Path) -> None:
    skill = write_skill(home / "greeter", suite={"cases": [case_with({"command": "true"})]})
    done = upskill("validate", skill)
    assert done.code == 2
    assert "error: case 'a': an empty answer passes (command passes)" in done.out


# A whole evaluation.

RIGHT = "Here:\n\n```c\nint add(int a, int b) { return a + b; }\n```\n\n```python\ndef add(a, b): return a + b\n```\n"
TEST = """
import sys, os
sys.path.append(os.getcwd())
from add import add
assert add(2, 3) == 5, add(2, 3)
print("all well")
"""


@pytest.mark.usefixtures("sandbox")
def test_code_in_a_chat_answer_is_compiled_and_run(upskill: Upskill, home: Path) -> None:
    needs("cc", "python3")
    suite = {
        "cases": [
            case_with(
                {"extract": {"to": "add.c", "language": "c"}},
                {"compiles": "add.c"},
                {"extract": {"to": "add.py", "language": "python"}},
                {"compiles": "add.py"},
                {
                    "command": {
                        "run": 'python3 "$CHECK/test.py"',
                        "files": {"test.py": TEST},
                        "contains": "all well",
                    }
                },
                {"python": "checks.py"},
                reference=RIGHT,
            )
        ]
    }
    skill = write_skill(home / "greeter", suite=suite)
    test = "open(workspace + '/add.c').read().startswith('int add')"
    source = f"def check(answer, workspace, trace):\n    return {test}\n"
    (skill / "evals" / "checks.py").write_text(source, encoding="utf-8")
    wrong = RIGHT.replace("a + b", "a - b")
    model = write_script(
        home / "model.yaml", [{"system": "ahoy", "answer": RIGHT}, {"answer": wrong}]
    )
    done = upskill(
        "eval", skill, "-m", model, "--set", "strict_suite=true", "--json", "--store", home / "runs"
    )
    assert done.code == 0, done.err
    (verdict,) = done.json["models"]
    assert (verdict["skill"]["passed"], verdict["baseline"]["passed"]) == (1, 0)
    with open_store(home / "runs") as store:
        run = next(iter(store.runs()))
        results = {result.trial.arm: result for result in store.results(run)}
        assert run.plan.suite.cases[0].checks[-1]["python"]["source"] == source
    names = ["extract", "compiles", "extract", "compiles", "command", "python"]
    for result in results.values():
        assert [finding.check for finding in result.findings] == names
    failed = [finding for finding in results["baseline"].findings if not finding.passed]
    assert [finding.check for finding in failed] == ["command"]
    assert "AssertionError: -1" in failed[0].reason


@pytest.mark.usefixtures("sandbox")
async def test_an_output_file_stands_for_the_answer_of_an_agent_that_acts(home: Path) -> None:
    cases = [
        {
            "id": name,
            "input": f"Greet {name}.",
            "expected": {"contains": "ahoy"},
            "output_file": "out.txt",
        }
        for name in ("written", "said", "spoilt")
    ]
    suite = Suite.parse(
        {"cases": [*cases[:2], cases[2] | {"checks": [{"file_exists": "out.txt"}]}]}
    )

    def writes(content: str) -> list[Any]:
        return [
            {
                "calls": [
                    {"name": "write_file", "arguments": {"path": "out.txt", "content": content}}
                ]
            },
            "Done.",
        ]

    rules: list[dict[str, Any]] = [
        {"when": "Greet written.", "turns": writes("Ahoy, all.\n")},
        {"when": "Greet said.", "turns": ["Ahoy, all."]},
        {"when": "Greet spoilt.", "turns": [*writes("Hello.")[:1], "I wrote ahoy."]},
    ]
    model = write_script(home / "model.yaml", rules)
    plan = make_plan(
        Skill.new("greeter", "Greets.", "Write a greeting."),
        suite,
        [model],
        options=PlanOptions(agent="tools"),
    )
    with open_store(None) as store:
        evaluation = await evaluate(plan, store=store)
        results = {result.trial.case: result for result in store.results(evaluation.run)}
    assert {case: result.passed for case, result in results.items()} == {
        "written": True,
        "said": True,
        "spoilt": False,
    }
    told = {
        case: [finding.reason for finding in result.findings] for case, result in results.items()
    }
    assert told["written"] == ["out.txt as the answer: the answer has 'ahoy'"]
    assert told["said"] == [
        "the answer has 'ahoy'"
    ]  # nothing was written: what it said is all there is
    assert told["spoilt"] == ["out.txt as the answer: the answer lacks 'ahoy'", "out.txt exists"]
    assert not any("output_file" in warning for warning in evaluation.warnings)


async def test_an_output_file_is_not_looked_at_where_nobody_can_write_it(home: Path) -> None:
    suite = Suite.parse(
        [{"id": "a", "input": "Greet.", "expected": {"contains": "ahoy"}, "output_file": "out.txt"}]
    )
    model = write_script(home / "model.yaml", [{"answer": "Ahoy."}])
    evaluation = await evaluate(
        make_plan(Skill.new("greeter", "Greets.", "Greet."), suite, [model])
    )
    assert [outcome.passed for outcome in evaluation.outcomes] == [True, True]
    assert (
        "an output_file in 1 case (a), but --agent chat writes no files: the checks read the answer instead"
        in evaluation.warnings
    )
