"""Hostile students: what they leave must neither make a failing check pass nor make it an error.

Each plant is left in a real sandbox by shell, as a student with tools would, and then graded as a trial is.
"""

# ruff: noqa: E501 - lines of shell

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from upskill import worker
from upskill.checks import Finding
from upskill.errors import TrialError
from upskill.sandboxes import Sandbox, SandboxBackend, Setup, choose_sandbox
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.grading import collect_delivery, grade
from upskill.suites.quality import probe_suite
from upskill.traces import Step, Trace

ENVIRONMENT = Path(pytest.__file__).parents[4]  # with pytest in it


@dataclass(frozen=True)
class Plant:
    """What a student leaves against a check that it would fail, by shell or in its answer."""

    leave: str
    checks: list[dict[str, Any]]
    answer: str = "done"
    files: dict[str, str] = field(default_factory=dict[str, str])
    reference: str = ""
    prompt: str = "Do it."
    outputs: tuple[str, ...] | None = None
    tests: tuple[str, ...] = ()


def command(run: str, **more: Any) -> list[dict[str, Any]]:
    return [{"command": {"run": run, **more}}]


def python(body: str, **more: Any) -> list[dict[str, Any]]:
    source = (
        f"import json, os, subprocess, pathlib\ndef check(answer, workspace, trace):\n    {body}\n"
    )
    return [{"python": {"file": "check.py", "source": source, **more}}]


def module(name: str, body: str = "import os; os._exit(0)") -> str:
    return f"printf '%s\\n' {body!r} > {name}"


WRONG = {"add.py": "def add(a, b):\n    return a - b\n"}
TEST = "from add import add\ndef test_add():\n    assert add(2, 3) == 5\n"
CASE = "import unittest\nfrom add import add\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
PLUGINS = "/opt/tools/bin/python -m pytest -q"  # takes seconds to load those of our tests
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {PLUGINS}"
PASSES = "import pytest\\n@pytest.hookimpl(tryfirst=True)\\ndef pytest_runtest_makereport(item, call): call.excinfo = None\\n"
QUIET = f"printf '{PASSES}'"
MAKEFILE = {"Makefile": "test:\n\tfalse\n"}
PACKAGE = {
    "package.json": '{"name": "a", "version": "1.0.0", "scripts": {"test": "node check.js"}}',
    "check.js": "process.exit(1)",
}
GIT = "git init -q . && git config user.email a@b && git config user.name a && echo 1 > a && git add a && git commit -qm a"
CLEAN = command('test -z "$(git status --porcelain --ignored)" && git rev-parse HEAD')
ONE = command("python3 -c 'import json; assert json.loads(\"1\") == 2'")

PYTHON_PLANTS = {
    "json.py for -c": Plant(module("json.py"), ONE),
    "json.py in home": Plant(
        "mkdir -p ~/.local/lib/python3.11/site-packages; "
        + module("~/.local/lib/python3.11/site-packages/usercustomize.py"),
        ONE,
    ),
    "sitecustomize.py": Plant(module("sitecustomize.py"), ONE),
    "a .pth file": Plant("echo 'import os; os._exit(0)' > a.pth", ONE),
    "pyvenv.cfg": Plant(
        "echo 'home = /workspace' > pyvenv.cfg; ln -s /usr/bin/python3 python3", ONE
    ),
    "unittest.py for -m": Plant(
        module("unittest.py"),
        command("python3 -m unittest test_add"),
        files=WRONG | {"test_add.py": CASE},
    ),
    "json/tool.py for -m": Plant(
        "mkdir json; touch json/__init__.py; " + module("json/tool.py"),
        command("echo nonsense | python3 -m json.tool"),
    ),
    "an edited unittest": Plant(
        "echo > test_add.py",
        command("python3 -m unittest test_add", regex="Ran 1 test"),
        files=WRONG | {"test_add.py": CASE},
    ),
    "a test that ends unittest": Plant(
        module("test_0.py"),
        command("python3 -m unittest discover"),
        files=WRONG | {"test_add.py": CASE},
    ),
    "a stale pyc": Plant(
        "echo 'def add(a,b): return 5' > add.py; python3 -m compileall -q add.py; printf 'def add(a, b):\\n    return a - b\\n' > add.py",
        command("python3 -c 'import add; assert add.add(2, 3) == 5 and add.add(1, 1) == 2'"),
    ),
}
PYTEST_PLANTS = {
    "conftest.py": Plant(f"{QUIET} > conftest.py", command(PYTEST)),
    "conftest.py above": Plant(
        f"mkdir -p tests; {QUIET} > tests/conftest.py; mv test_add.py tests 2>/dev/null",
        command(PYTEST),
    ),
    "pytest.ini": Plant(
        "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini", command(PYTEST)
    ),
    "pyproject.toml": Plant(
        "printf '[tool.pytest.ini_options]\\naddopts = \"--co\"\\n' > pyproject.toml",
        command(PYTEST),
    ),
    "pytest.py": Plant(module("pytest.py"), command(PYTEST)),
    "an edited test": Plant("echo 'def test_add(): pass' > test_add.py", command(PYTEST)),
    "a removed test": Plant(
        "echo 'def test_ok(): pass' > test_ok.py; rm test_add.py", command(PYTEST)
    ),
    "a test that ends it": Plant(module("test_0.py"), command(PYTEST)),
    "a plugin by entry point": Plant(
        "mkdir evil-1.dist-info; printf '[pytest11]\\nevil = evil\\n' > evil-1.dist-info/entry_points.txt; printf 'Name: evil\\nVersion: 1\\n' > evil-1.dist-info/METADATA; "
        + module("evil.py"),
        command(PLUGINS),
    ),
    "a folder for the test": Plant("rm test_add.py; mkdir test_add.py", command(PYTEST)),
    "a closed folder": Plant(
        f"{QUIET} > conftest.py; chmod 500 .; chmod 000 conftest.py", command(PYTEST)
    ),
}
GIT_PLANTS = {
    "untracked files off": Plant(
        f"{GIT}; echo 2 > b; git config status.showUntrackedFiles no", CLEAN
    ),
    "an alias": Plant(
        f"{GIT}; echo 2 > b; git config alias.state '!true'",
        command('test -z "$(git status --porcelain)" && git state'),
    ),
    "fsmonitor": Plant(
        f"{GIT}; echo 2 >> a; printf '#!/bin/sh\\nprintf \"x\\\\0\"' > /tmp/m; chmod +x /tmp/m; git config core.fsmonitor /tmp/m; git update-index --fsmonitor; git status >/dev/null",
        CLEAN,
    ),
    "another work tree": Plant(
        f"{GIT}; echo 2 >> a; mkdir /tmp/w; echo 1 > /tmp/w/a; git config core.worktree /tmp/w",
        CLEAN,
    ),
    "excluded": Plant(f"{GIT}; echo 2 > b; echo b >> .git/info/exclude", CLEAN),
    "an ignore file": Plant(f"{GIT}; echo 2 > b; echo '*' > .gitignore", CLEAN),
    "assumed unchanged": Plant(f"{GIT}; echo 2 >> a; git update-index --assume-unchanged a", CLEAN),
    "skipped": Plant(f"{GIT}; echo 2 >> a; git update-index --skip-worktree a", CLEAN),
    "a filter": Plant(
        f"{GIT}; echo 2 >> a; git config filter.f.clean 'echo 1'; echo 'a filter=f' > .git/info/attributes",
        CLEAN,
    ),
    "an included file": Plant(
        f"{GIT}; echo 2 > b; printf '[status]\\nshowUntrackedFiles = no\\n' > /tmp/c; git config include.path /tmp/c",
        CLEAN,
    ),
    "a .git elsewhere": Plant(
        f"mkdir /tmp/r; cd /tmp/r; {GIT}; cd /workspace; echo 2 > b; echo 'gitdir: /tmp/r/.git' > .git; cp /tmp/r/a .; echo b > /tmp/r/.git/info/exclude",
        CLEAN,
    ),
}
MAKE_PLANTS = {
    "another Makefile": Plant(
        "printf 'test:\\n\\ttrue\\n' > Makefile", command("make test"), files=MAKEFILE
    ),
    "GNUmakefile": Plant(
        "printf 'test:\\n\\ttrue\\n' > GNUmakefile", command("make test"), files=MAKEFILE
    ),
    "a file of the target's name": Plant("touch test", command("make test"), files=MAKEFILE),
    "a link in its place": Plant(
        "printf 'test:\\n\\ttrue\\n' > /tmp/M; ln -sf /tmp/M Makefile",
        command("make test"),
        files=MAKEFILE,
    ),
    "a make of its own": Plant(
        "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0' > ~/bin/make; cp ~/bin/make make; chmod +x ~/bin/make make",
        command("make test"),
        files=MAKEFILE,
    ),
}
NPM = "npm test"
NPM_PLANTS = {
    "a package.json script": Plant(
        'echo \'{"scripts": {"test": "true"}}\' > package.json', command(NPM), files=PACKAGE
    ),
    "a script shell": Plant("echo 'script-shell=/bin/true' > .npmrc", command(NPM), files=PACKAGE),
    "a node of its own": Plant(
        "mkdir -p node_modules/.bin; printf '#!/bin/sh\\nexit 0' > node_modules/.bin/node; chmod +x node_modules/.bin/node",
        command(NPM),
        files=PACKAGE,
    ),
}
NAMED = "Fix the function add in the file add.py so that it adds."
MAIN = CASE + "if __name__ == '__main__':\n    unittest.main()\n"
EMPTY = "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_add(self): pass\\nif __name__ == \"__main__\": unittest.main()\\n' >"
VERIFY = {"verify.sh": 'python3 -c "import add, sys; sys.exit(add.add(2, 3) != 5)" && echo fine\n'}


def brought(
    leave: str, checks: list[dict[str, Any]], files: dict[str, str], prompt: str = NAMED
) -> Plant:
    return Plant(leave, checks, files=WRONG | files, prompt=prompt)


BROUGHT_PLANTS = {
    "an expected result": brought(
        "echo wrong | tee out.txt > expected.txt",
        command("diff out.txt expected.txt"),
        {"expected.txt": "right\n"},
    ),
    ".proverc": brought(
        "echo '--exec true' > .proverc",
        command("prove t"),
        {"t/add.t": 'print "1..1\\nnot ok 1\\n";\n'},
    ),
    "a replaced commit": Plant(
        f"{GIT}; echo 2 > a; git commit -qam b; git replace HEAD~1 HEAD",
        command('test "$(git show HEAD~1:a)" = 2'),
    ),
    "a test that is run as a script": brought(
        f"{EMPTY} test_add.py", command("python3 test_add.py", contains="OK"), {"test_add.py": MAIN}
    ),
    "a test that the Makefile runs": brought(
        f"{EMPTY} test_add.py",
        command("make test", contains="OK"),
        {"test_add.py": MAIN, "Makefile": "test:\n\tpython3 -m unittest -v test_add\n"},
    ),
    "a test that a script runs": brought(
        f"{EMPTY} test_add.py",
        command("sh tests/run_test.sh", contains="OK"),
        {"test_add.py": MAIN, "tests/run_test.sh": "python3 -m unittest test_add\n"},
    ),
    "a module of tests": brought(
        f"{EMPTY} tests/check_add.py",
        command("python3 -m unittest tests.check_add", contains="OK"),
        {"tests/__init__.py": "", "tests/check_add.py": MAIN},
    ),
    "a script": brought(
        "echo 'echo fine' > verify.sh", command("bash verify.sh", contains="fine"), VERIFY
    ),
    "a script where no file is named": brought(
        "echo 'echo fine' > verify.sh",
        command("bash verify.sh", contains="fine"),
        VERIFY,
        "Fix the bug.",
    ),
    "a script that the Makefile runs": brought(
        "echo 'echo fine' > verify.sh",
        command("make test", contains="fine"),
        VERIFY | {"Makefile": "test:\n\t@sh ./verify.sh\n"},
    ),
    "a script that a function runs": brought(
        "echo 'echo fine' > verify.sh",
        python(
            "return b'fine' in subprocess.run(['bash', os.path.join(workspace, 'verify.sh')], cwd=workspace, stdout=-1).stdout"
        ),
        VERIFY,
    ),
    "a test that a function opens": brought(
        f"{EMPTY} test_add.py",
        python(
            "os.chdir(workspace); return 'OK' in os.popen('python3 -m unittest test_add 2>&1').read()"
        ),
        {"test_add.py": MAIN},
    ),
    "a test in node": brought(
        "echo 'console.log(\"all good\")' > calc.test.mjs",
        command("node calc.test.mjs", contains="all good"),
        {
            "calc.mjs": "export const add = (a, b) => a - b;\n",
            "calc.test.mjs": "import {add} from './calc.mjs'; import assert from 'node:assert'; assert.equal(add(2, 3), 5); console.log('all good');\n",
        },
    ),
}
READS = "return json.load(open(workspace + '/out.json'))['a'] == 1"
OUT = {"out.json": '{"a": 0}'}
SABOTAGES = {
    "not JSON": Plant("echo nonsense > out.json", python(READS), files=OUT),
    "a folder": Plant("rm out.json; mkdir out.json", python(READS), files=OUT),
    "mode 000": Plant("chmod 000 out.json", python(READS), files=OUT),
    "a FIFO": Plant("rm out.json; mkfifo out.json", python(READS, timeout=2), files=OUT),
    "a link in a circle": Plant("rm out.json; ln -s out.json out.json", python(READS), files=OUT),
    "deep JSON": Plant("python3 -c 'print(\"[\" * 100000)' > out.json", python(READS), files=OUT),
    "no workspace to write to": Plant("chmod 000 .", python(READS), files=OUT),
    "a full disk": Plant(
        "dd if=/dev/zero of=big bs=1M count=2000 2>/dev/null; dd if=/dev/zero of=/tmp/big bs=1M count=2000 2>/dev/null",
        python(READS),
        files=OUT,
    ),
    "a million files": Plant(
        "mkdir d; cd d; python3 -c 'for n in range(10**6): open(str(n), \"w\").close()'; echo '{\"a\": 1}' > ../out.json",
        python(READS),
        files=OUT,
    ),
    "a closed /tmp": Plant("chmod 000 /tmp", python(READS), files=OUT),
    "process 1 killed": Plant("kill -9 1; kill -TERM 1; kill -STOP 1", python(READS), files=OUT),
    "many processes": Plant(
        "for i in $(seq 200); do (sleep 600 &) ; done", python(READS), files=OUT
    ),
    "an answer that is not JSON": Plant(
        "true", python("return json.loads(answer)['a'] == 1"), answer="{", reference='{"a": 1}'
    ),
    "a pattern kept busy": Plant("true", [{"regex": "^(a|aa)+$"}], answer="a" * 60 + "!"),
    "a schema kept busy": Plant(
        "true",
        [{"json_schema": {"items": {"pattern": "^(a|aa)+$"}}}],
        answer='["' + "a" * 60 + '!"]',
    ),
    "deep JSON for a schema": Plant(
        "true",
        [{"json_schema": {"items": {"$ref": "#"}, "type": "array"}}],
        answer="[" * 5000 + "1" + "]" * 5000,
    ),
    "output without end": Plant(
        "printf '#!/bin/sh\\nyes' > go.sh; chmod +x go.sh",
        command("./go.sh | head -c 50000000; false"),
    ),
    "a link out": Plant(
        "ln -sf /etc/passwd out.json",
        [{"file_contains": {"path": "out.json", "text": "student"}}],
        files=OUT,
    ),
}


GO = {
    "go.mod": "module sums\n\ngo 1.19\n",
    "add.go": "package sums\n\nfunc Add(a, b int) int { return a - b }\n",
    "add_test.go": """package sums

import "testing"

func TestAdd(t *testing.T) {
	if Add(2, 3) != 5 {
		t.Fatal("wrong")
	}
}
""",
}
GO_TEST = command("go test ./...", timeout=600)
CARGO = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a - b }\n",
    "tests/adds.rs": "#[test]\nfn adds() { assert_eq!(sums::add(2, 3), 5); }\n",
}
CARGO_TEST = command("cargo test", timeout=600)
RUNNER = "[target.'cfg(all())']\\nrunner = \"true\"\\n"
CMAKE = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(sums C)\nenable_testing()\n"
    "add_executable(adds test_adds.c add.c)\nadd_test(NAME adds COMMAND adds)\n",
    "add.c": "int add(int a, int b) { return a - b; }\n",
    "test_adds.c": "int add(int, int);\nint main(void) { return add(2, 3) == 5 ? 0 : 1; }\n",
}
CTEST = command("cmake -S . -B build && cmake --build build && ctest --test-dir build", timeout=600)
EXITS = 'package sums; import ("os"; "testing"); func TestMain(m *testing.M) { os.Exit(0) }'
BUILD_PLANTS = {
    "go": {
        "an edited test": "echo 'package sums' > add_test.go",
        "TestMain": f"echo '{EXITS}' > zz_test.go",
        "go.mod": "printf 'module other\\n' > go.mod; mkdir -p x; mv add_test.go x/",
        "go.work": "mkdir y; printf 'module y\\n' > y/go.mod; printf 'go 1.19\\nuse ./y\\n' > go.work; rm add_test.go",
        "go env -w": "go env -w GOFLAGS=-run=NONE; export GOFLAGS=-run=NONE",
        "a build tag": "sed -i '1i //go:build never\\n' add_test.go",
    },
    "cargo": {
        "an edited test": "echo > tests/adds.rs",
        "a runner": f"mkdir .cargo; printf '{RUNNER}' > .cargo/config.toml",
        "a runner in home": f"mkdir -p ~/.cargo; printf '{RUNNER}' > ~/.cargo/config.toml",
        "tests turned off": "sed -i 's/^version/autotests = false\\nversion/' Cargo.toml",
        "rust-toolchain": "echo none > rust-toolchain",
        "build.rs": 'echo \'fn main() { std::fs::write("tests/adds.rs", "").unwrap(); }\' > build.rs',
        "a built test": "sed -i 's/a - b/a + b/' src/lib.rs; touch -d 2000-01-01 src/lib.rs; cargo test; "
        "sed -i 's/a + b/a - b/' src/lib.rs; touch -d 2000-01-01 src/lib.rs tests/adds.rs Cargo.toml",
    },
    "cmake": {
        "CMakeLists.txt": "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a NONE)\\n' > CMakeLists.txt",
        "an edited test": "echo 'int main(void) { return 0; }' > test_adds.c",
        "CTestCustom.cmake": "mkdir build; echo 'set(CTEST_CUSTOM_TESTS_IGNORE adds)' > build/CTestCustom.cmake",
        "the cache": "cmake -S . -B build -DCMAKE_C_COMPILER_LAUNCHER=true -DCMAKE_CROSSCOMPILING_EMULATOR=/bin/true",
    },
}
BROUGHT = {"go": (GO, GO_TEST), "cargo": (CARGO, CARGO_TEST), "cmake": (CMAKE, CTEST)}
FIXES = {
    "go": "sed -i 's/a - b/a + b/' add.go",
    "cargo": "sed -i 's/a - b/a + b/' src/lib.rs",
    "cmake": "sed -i 's/a - b/a + b/' add.c",
}


@pytest.fixture
async def kind(home: Path) -> SandboxBackend:
    return (await choose_sandbox("bubblewrap")).backend


async def leave(kind: SandboxBackend, plant: Plant) -> str:
    """How a trial ends in which a student leaves this: passed, failed or missing, and why."""
    given: dict[str, Any] = {
        "prompt": plant.prompt,
        "checks": plant.checks,
        "files": plant.files,
        "reference": plant.reference,
        "tests": [*plant.tests],
    }
    if plant.outputs is not None:
        given["outputs"] = [*plant.outputs]
    (case,) = Suite.parse([given]).cases

    @asynccontextmanager
    async def open_sandbox(setup: Setup) -> AsyncGenerator[Sandbox]:
        tools = {"/opt/tools": ENVIRONMENT, str(base()): base()}
        setup = replace(setup, readonly_mounts={**setup.readonly_mounts, **tools})
        async with await kind.open(setup) as sandbox:
            yield sandbox

    async with open_sandbox(Setup(files=plant.files)) as sandbox:
        await sandbox.run(plant.leave)
        delivery = await collect_delivery(sandbox, case)
    if delivery.problem:
        return f"failed: {delivery.problem}"
    evidence = case.evidence_of(Trace((Step("assistant", plant.answer),)))
    findings: list[Finding] = []
    try:
        async for _, finding in grade(case, evidence, open_sandbox, delivery):
            findings.append(finding)
    except TrialError as error:
        return f"missing: {error.message}"
    outcome = "passed" if all(finding.passed for finding in findings) else "failed"
    return f"{outcome}: {'; '.join(finding.reason for finding in findings)}"


def base() -> Path:
    """Where the Python of this environment is installed."""
    return Path(sys.base_prefix).resolve()


# By the outputs of their cases.
GROUPS = {
    "python": (PYTHON_PLANTS, "add.py"),
    "pytest": (PYTEST_PLANTS, "add.py"),
    "git": (GIT_PLANTS, "**"),
    "make": (MAKE_PLANTS, "add.py"),
    "npm": (NPM_PLANTS, "add.py"),
    "brought": (BROUGHT_PLANTS, "add.py out.txt"),
    "sabotage": (SABOTAGES, "out.json go.sh d"),
}


@pytest.mark.parametrize("group", GROUPS)
async def test_no_plant_passes_and_none_errors_its_way_out(
    group: str, kind: SandboxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SECONDS", 0.2)
    wrong: dict[str, str] = {}
    plants, outputs = GROUPS[group]
    for name, plant in plants.items():
        left = replace(plant, outputs=tuple(outputs.split()))
        if group == "pytest":
            left = replace(left, files=WRONG | {"test_add.py": TEST})
        said = await leave(kind, left)
        if not said.startswith("failed"):
            wrong[name] = said
    assert wrong == {}


@pytest.mark.parametrize("tool", BUILD_PLANTS)
async def test_no_plant_fakes_a_check_that_builds(tool: str, kind: SandboxBackend) -> None:
    if shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"{tool} is not installed where a sandbox sees it")
    files, checks = BROUGHT[tool]
    outcomes: dict[str, str] = {}
    for name, plant in (BUILD_PLANTS[tool] | {"honest": FIXES[tool]}).items():
        left = Plant(plant, checks, files=files, outputs=("add.*", "src"))
        outcomes[name] = (await leave(kind, left)).split(":")[0]
    assert outcomes.pop("honest") == "passed"
    assert {*outcomes.values()} == {"failed"}


MENDS = "printf 'def add(a, b):\\n    return a + b\\n' > add.py"


async def test_an_honest_student_passes_all_the_same(kind: SandboxBackend) -> None:
    right = {"add.py": "def add(a, b):\n    return a + b\n"}
    honest = {
        "python": Plant(
            "echo 'x = 1' > own.py",
            command("python3 -c 'import json, own; assert own.x == json.loads(\"1\")'"),
        ),
        "a script beside its module": Plant(
            "mkdir s; echo 'x = 1' > s/own.py; echo 'import own' > s/main.py",
            command("python3 s/main.py"),
        ),
        "unittest": Plant(
            "true", command("python3 -m unittest test_add"), files=right | {"test_add.py": CASE}
        ),
        "pytest": Plant(
            "true", command(PYTEST, contains="1 passed"), files=right | {"test_add.py": TEST}
        ),
        "git": Plant(GIT, CLEAN),
        "make": Plant("true", command("make test"), files={"Makefile": "test:\n\ttrue\n"}),
        "a Makefile that was asked for": Plant(
            "printf 'test:\\n\\ttrue\\n' > Makefile",
            command("make test"),
            prompt="Write a Makefile.",
        ),
        "npm": Plant("true", command(NPM), files=PACKAGE | {"check.js": "process.exit(0)"}),
        "a source that no one names": brought(
            MENDS,
            command("make test", contains="OK"),
            {"test_add.py": MAIN, "Makefile": "test:\n\tpython3 test_add.py\n"},
            "Fix the bug.",
        ),
        "a script to fix": Plant(
            "echo 'echo 5' > sum.sh",
            command("bash sum.sh", contains="5"),
            files={"sum.sh": "echo 4"},
            prompt="Fix the bug.",
        ),
        "a file that a command looks at": brought(
            "echo 1 > a.ini",
            command("grep -q 1 a.ini && python3 -c 'import add'"),
            {"a.ini": "0"},
            "Fix add.py, and set a.ini to 1.",
        ),
        "a test that the answer is put into": Plant(
            "true",
            [{"extract": {"to": "test_a.py"}}, *command("python3 test_a.py", contains="yes")],
            answer="```python\nprint('yes')\n```",
            files={"test_a.py": "print('no')"},
        ),
    }
    needs = {
        "npm": ["npm"],
        "git": ["git"],
        "make": [name for name in honest if "make" in name.lower()],
    }
    for program, names in needs.items():
        if not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"):
            for name in {*names, *(["a source that no one names"] if program == "make" else [])}:
                del honest[name]
    passed: dict[str, str] = {}
    for name, plant in honest.items():
        passed[name] = await leave(kind, plant)
    assert {name: said.split(":")[0] for name, said in passed.items()} == dict.fromkeys(
        honest, "passed"
    )


async def test_the_gate_of_suites_lets_pass_what_brings_its_own_tests(home: Path) -> None:
    answer = "```python\ndef add(a, b):\n    return a + b\n```"
    extract = {"extract": {"to": "add.py"}}
    case = {
        "prompt": "Write the function add into add.py, for `make test`. Answer with one code block.",
        "files": {"test_add.py": CASE, "Makefile": "test:\n\tpython3 -m unittest test_add\n"}
        | WRONG,
        "checks": [extract, *command("make test", contains="OK")],
        "reference": answer,
    }
    skill = Skill.new("zork", "How zork is done. Use for zork.", "# Zork\n\nIt depends.\n")
    assert await probe_suite(Suite.parse([case]), skill) == []
    assert (
        len(await probe_suite(Suite.parse([case | {"reference": answer.replace("+", "-")}]), skill))
        == 1
    )
