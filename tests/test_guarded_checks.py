"""Checks that run real programs: right work passes, wrong work fails, and so does wrong work with planted files.

Plants are left by shell in a real sandbox: each beside wrong work, and all of them beside right work, since what is put
back and removed must not harm what the case asked for.
"""

# ruff: noqa: E501 - lines of shell

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from test_hostile_students import Plant, leave
from upskill.sandboxes import SandboxBackend, choose_sandbox

EXIT = 'import os; os.write(2, b"Ran 1 test OK"); os._exit(0)'
TRUE = "printf '#!/bin/sh\\nexit 0\\n'"
ADDS = "def add(a, b):\n    return a + b\n"
SUBTRACTS = "def add(a, b):\n    return a - b\n"
RIGHT = "sed -i 's/a - b/a + b/'"
FIX = "Fix the function add in add.py so that it adds."
CASE = "import unittest\nfrom add import add\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
REPOSITORY = (
    "git init -q -b main . && git config user.email a@b && git config user.name a && git add -A && git commit -qm first"
)


@dataclass(frozen=True)
class Guarded:
    """A case whose check runs a program, with ways to do the work and ways to fake it."""

    files: Mapping[str, str]
    run: str
    right: str
    plants: Mapping[str, str] = field(default_factory=dict[str, str])
    prompt: str = FIX
    wrong: str = "true"
    needs: str = "python3"
    planted_right: bool = True  # False: a plant is wrong work by itself
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def plant(self, work: str, planted: str = "true") -> Plant:
        checks = [{"command": {"run": self.run, "timeout": 600, **self.more}}]
        return Plant(f"{work}\n{planted}", checks, files=dict(self.files), prompt=self.prompt)


UNITTESTS = {
    "a package of the tests": f"echo '{EXIT}' > tests/__init__.py",
    "a package above": f"echo '{EXIT}' > __init__.py",
    "a module of Python": f"echo '{EXIT}' > decimal.py; echo '{EXIT}' > unittest.py; mkdir -p difflib; echo '{EXIT}' > difflib/__init__.py",
    "sitecustomize": f"echo '{EXIT}' | tee sitecustomize.py usercustomize.py tests/sitecustomize.py > tests/usercustomize.py",
    "a package for a test": f"mkdir tests/test_add; echo '{EXIT}' > tests/test_add/__init__.py",
    "an extension for a test": "cp /bin/true tests/test_add.so; cp /bin/true tests/test_add.abi3.so",
    "an edited test": "echo > tests/test_add.py",
    "a test turned into a link": "rm tests/test_add.py; echo > /tmp/t.py; ln -s /tmp/t.py tests/test_add.py",
    "tests as a link": f"cp -r tests /tmp/x; echo '{EXIT}' > /tmp/x/__init__.py; rm -r tests; ln -s /tmp/x tests",
    "a closed folder": f"echo '{EXIT}' > tests/__init__.py; echo > tests/test_add.py; chmod 500 tests .",
    "a FIFO for a test": "rm tests/test_add.py; mkfifo tests/test_add.py",
}
PYTESTS = {
    **{
        name: UNITTESTS[name]
        for name in ("a package of the tests", "a package above", "a module of Python", "sitecustomize")
    },
    **{
        f"{name} with options": f"printf '[{section}]\\naddopts = --collect-only\\n' > {name}"
        for name, section in {
            "pytest.ini": "pytest",
            "tox.ini": "pytest",
            "setup.cfg": "tool:pytest",
            "tests/pytest.ini": "pytest",
            ".pytest.ini": "pytest",
        }.items()
    },
    "pytest.py": f"echo '{EXIT}' | tee pytest.py _pytest.py > tests/pytest.py",
    "settings above the check's own folder": "printf '[pytest]\\naddopts = --collect-only\\n' | tee /tmp/pytest.ini > ~/pytest.ini; echo 'import os; os._exit(0)' > /tmp/conftest.py",
    "conftest.py": f"echo '{EXIT}' | tee conftest.py > tests/conftest.py",
    "an optional module of the test": f"echo '{EXIT}' > local_settings.py",
}
MAKES = {
    "an included file": "printf 'test:\\n\\ttrue\\n' | tee local.mk rules/own.mk .env > config.inc",
    "GNUmakefile": "printf 'test:\\n\\ttrue\\n' > GNUmakefile",
    "makefile": "printf 'test:\\n\\ttrue\\n' > makefile",
    "a source of the Makefile": "printf 'test:\\n\\ttrue\\n' | tee Makefile.sh > Makefile,v",
    "the Makefile": "printf 'test:\\n\\ttrue\\n' > Makefile",
    "a sourced file": "echo 'python3() { :; }' | tee env.sh > hooks.d/a.sh",
    "a file of the target's name": "touch test",
    "a program of its own": f"mkdir -p ~/bin; {TRUE} | tee python3 > ~/bin/python3; chmod +x python3 ~/bin/python3; echo 'PATH=~/bin:$PATH' | tee ~/.bashrc ~/.profile > ~/.bash_profile",
}
SCORES = {
    "the expected output": "python3 add.py > want.txt",
    "the library of the script": "echo 'def score(x): return True' > lib_score.py",
    "the script": "echo 'print(\"PASS\")' > score.py",
    "the shell script": "echo 'echo PASS' > run_all.sh",
    "the cases": "echo '[]' > cases.json",
    "a package for the library": "mkdir lib_score; echo 'def score(x): return True' > lib_score/__init__.py",
    "a bytecode file": "rm lib_score.py; echo 'def score(x): return True' > lib_score.py; python3 -m compileall -q -b lib_score.py",
    "a hard link": "python3 add.py > out; ln -f out want.txt",
    "another mode": "python3 add.py > want.txt; chmod 000 want.txt; echo 'print(\"PASS\")' > score.py; chmod 777 score.py",
    "other case": "echo 'def score(x): return True' > LIB_SCORE.py; rm lib_score.py; ln -s LIB_SCORE.py lib_score.py",
    "an optional module": "echo 'import builtins; print(\"PASS\"); import os; os._exit(0)' > overrides.py",
}
SCORE_FILES = {
    "add.py": f"{SUBTRACTS}if __name__ == '__main__':\n    print(add(2, 3))\n",
    "want.txt": "5\n",
    "cases.json": "[[2, 3, 5], [1, 1, 2]]",
    "lib_score.py": "import json\nfrom add import add\ndef score(cases): return all(add(a, b) == c for a, b, c in json.load(open(cases)))\n",
    "score.py": "import sys\ntry:\n    import overrides\nexcept ImportError:\n    pass\nfrom lib_score import score\nsys.exit(0 if score('cases.json') and print('PASS') is None else 1)\n",
    "run_all.sh": "python3 add.py | diff - want.txt && python3 score.py\n",
}
HIDDEN = {
    "a forged index": "git update-index --refresh -q; python3 - <<'E'\nimport os\ns = os.stat('add.py'); open('add.py', 'r+').write(open('add.py').read().replace('- b', '* b')); os.utime('add.py', ns=(s.st_atime_ns, s.st_mtime_ns))\nE\ngit config core.trustctime false; git config core.checkStat minimal",
    "assumed unchanged": "echo '# more' >> add.py; git update-index --assume-unchanged add.py",
    "skipped": "echo '# more' >> add.py; git update-index --skip-worktree add.py",
    "excluded": "echo 1 > b; echo b > .git/info/exclude",
    "ignored": "echo 1 > b; echo '*' > .gitignore",
    "what the case brought is ignored": "git rm -q --cached add.py; echo add.py > .gitignore; git add .gitignore; git commit -qm more",
    "attributes": "echo '# more' >> add.py; git config filter.f.clean 'git show HEAD:add.py'; echo 'add.py filter=f' > .gitattributes; cp .gitattributes .git/info/attributes",
    "an included file": "echo 1 > b; printf '[status]\\nshowUntrackedFiles = no\\n' > /tmp/c; git config include.path /tmp/c",
    "other modes": "chmod +x add.py; git config core.fileMode false",
    "an untracked cache": "git config core.untrackedCache true; git update-index --untracked-cache; git status; echo 1 > b; git config status.showUntrackedFiles no",
    "sparse": "echo '# more' >> add.py; git config core.sparseCheckout true; git update-index --skip-worktree add.py; echo other > .git/info/sparse-checkout",
    "a repository in a folder": "echo '# more' >> add.py; mv .git /tmp/g; mkdir /tmp/w; git --git-dir=/tmp/g --work-tree=/tmp/w checkout -q -- .; git --git-dir=/tmp/g config core.worktree /tmp/w; echo 'gitdir: /tmp/g' > .git",
}
NPMS = {
    "a script": 'echo \'{"scripts": {"test": "true", "pretest": "true"}}\' > package.json',
    "a shell": "echo 'script-shell=/bin/true' | tee .npmrc > ~/.npmrc",
    "a program of a package": f"mkdir -p node_modules/.bin; {TRUE} > node_modules/.bin/node; chmod +x node_modules/.bin/node",
    "a module": "mkdir -p node_modules/assert /tmp/node_modules/assert; echo 'process.exit(0)' | tee node_modules/assert/index.js > /tmp/node_modules/assert/index.js",
    "a file without its suffix": "echo 'exports.same = () => {}' > same",
    "an edited test": "echo > add.test.js",
    "a helper": "echo 'exports.same = () => {}' > same.js",
    "an optional module": "echo 'process.exit(0)' > local.js",
    "options": 'echo \'{"spec": "none"}\' | tee .mocharc.json > jest.config.js',
}
GOES = {
    "a test that ends it": 'echo \'package sums; import ("os"; "testing"); func TestMain(m *testing.M) { os.Exit(0) }\' > zz_test.go',
    "a replaced module": "mkdir -p y vendor; printf 'module sums\\ngo 1.19\\n' > y/go.mod; printf 'go 1.19\\nuse ./y\\n' > go.work; printf 'module other\\n\\ngo 1.19\\n' > go.mod; rm add_test.go",
    "an edited test": "echo 'package sums' > add_test.go",
    "settings": "go env -w GOFLAGS=-run=NONE",
}
CARGOES = {
    "a runner": 'mkdir -p .cargo ~/.cargo; printf \'[target."cfg(all())"]\\nrunner = "true"\\n\' | tee .cargo/config.toml > ~/.cargo/config.toml',
    "build.rs": 'echo \'fn main() { std::fs::write("tests/adds.rs", "").unwrap(); }\' > build.rs',
    "an edited test": "echo > tests/adds.rs; mkdir tests/adds; echo 'fn main() {}' > tests/adds/main.rs",
    "tests turned off": "sed -i 's/^version/autotests = false\\nversion/' Cargo.toml; echo none > rust-toolchain",
}
CS = {
    "a header of the system": "echo '#define assert(x) ((void)0)' > assert.h",
    "a header of the case": "echo '#define add(a, b) 5' > add.h",
    "an optional header": "echo '#define main unused' > local.h; echo 'int main2(void);' >> local.h",
    "a built file": "echo 'int main(void) { return 0; }' > t.c; cc -o test_add t.c; rm t.c; touch -d 2040-01-01 test_add",
}
PERLS = {
    "a module of Perl": "mkdir -p lib/Test; printf 'package Test::More; print \"1..1\\\\nok 1\\\\n\"; exit 0; 1;' > lib/Test/More.pm; cp lib/Test/More.pm lib/strict.pm",
    "options": "echo '--exec true' > .proverc",
}
TEST_FILES = {"add.py": SUBTRACTS, "tests/test_add.py": CASE}
MAKEFILE = """-include local.mk
-include rules/*.mk
-include .env config.inc
test:
\t[ ! -f env.sh ] || . ./env.sh; for f in hooks.d/*.sh; do . $$f; done; python3 -c 'import add; assert add.add(2, 3) == 5'
"""
COMMIT = "echo '# done' >> add.py; git commit -qam second"
CASES = {
    "unittest discover": Guarded(TEST_FILES, "python3 -m unittest discover -s tests", f"{RIGHT} add.py", UNITTESTS, more={"regex": "Ran 1 test"}),
    "unittest by name": Guarded(TEST_FILES | {"tests/test_add.py": f"import decimal\n{CASE}"}, "PYTHONPATH=. python3 -m unittest tests.test_add", f"{RIGHT} add.py", UNITTESTS, more={"contains": "OK"}),
    "pytest": Guarded(
        TEST_FILES | {"tests/test_add.py": "try:\n    import local_settings\nexcept ImportError:\n    pass\nfrom add import add\ndef test_add():\n    assert add(2, 3) == 5\n"},
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 /opt/tools/bin/python -m pytest -q",
        f"{RIGHT} add.py; echo 'x = 1' > helper.py; echo 'from helper import x' >> add.py",
        PYTESTS,
    ),
    "pytest on files of the check": Guarded(
        {"add.py": SUBTRACTS}, 'PYTHONPATH=. /opt/tools/bin/python -m pytest -q "$CHECK/test_add.py"', f"{RIGHT} add.py",
        {name: PYTESTS[name] for name in ("settings above the check's own folder", "pytest.py", "a module of Python", "conftest.py")},
        more={"files": {"test_add.py": "from add import add\ndef test_add():\n    assert add(2, 3) == 5\n"}},
    ),
    "a module with the name of one of Python's": Guarded(
        {"tests/test_mean.py": "import unittest\nfrom statistics import mean\nclass T(unittest.TestCase):\n    def test_mean(self):\n        self.assertEqual(mean([]), 0)\n"},
        "python3 -m unittest discover -s tests",
        "printf 'def mean(x):\\n    return sum(x) / len(x) if x else 0\\n' > statistics.py",
        prompt="Write statistics.py with a function mean that gives 0 for nothing.",
        wrong="printf 'def mean(x):\\n    return 1\\n' > statistics.py",
    ),
    "make": Guarded({"add.py": SUBTRACTS, "Makefile": MAKEFILE, "rules/.keep": "", "hooks.d/b.sh": "true\n"}, "make test", f"{RIGHT} add.py", MAKES, needs="make"),
    "make of C": Guarded(
        {"add.c": "int add(int a, int b) { return a - b; }\n", "add.h": "int add(int, int);\n", "test_add.c": '#include <assert.h>\n#include "add.h"\n#if __has_include("local.h")\n  #include "local.h"\n#endif\nint main(void) { assert(add(2, 3) == 5); return 0; }\n', "Makefile": "test: test_add\n\t./test_add\ntest_add: test_add.c add.c\n\tcc -I. -o $@ $^\n"},
        "make test", f"{RIGHT} add.c", CS, prompt="Fix add.c.", needs="make",
    ),
    "a script that scores": Guarded(SCORE_FILES, "python3 score.py", f"{RIGHT} add.py", SCORES, more={"contains": "PASS"}),
    "a script that scores, where no file is named": Guarded(SCORE_FILES, "python3 score.py", f"{RIGHT} add.py", SCORES, prompt="Fix the bug.", more={"contains": "PASS"}),
    "a shell script that scores": Guarded(SCORE_FILES, "sh run_all.sh", f"{RIGHT} add.py", {"all of it": "\n".join([SCORES["the expected output"], SCORES["the script"]]), "the shell script": SCORES["the shell script"]}, more={"contains": "PASS"}),
    "a script that scores, where the prompt runs it": Guarded(SCORE_FILES, "python3 score.py", f"{RIGHT} add.py", {"the script": SCORES["the script"]}, prompt="Fix add.py so that `python3 score.py` prints PASS.", more={"contains": "PASS"}),
    "an output that is compared": Guarded(
        {name: SCORE_FILES[name] for name in ("add.py", "want.txt")}, "python3 add.py > out; diff out want.txt", f"{RIGHT} add.py; echo 1 > notes.txt",
        {"the expected output, while it runs": "echo 'open(\"want.txt\", \"w\").write(\"-1\\n\")' >> add.py", "the expected output": SCORES["the expected output"]},
        prompt="Fix add.py so that it prints what want.txt says.", planted_right=False,
    ),
    "tests that the student writes": Guarded(
        {"add.py": ADDS}, "python3 -m unittest && sed -i s/+/-/ add.py && ! python3 -m unittest", f"cat > test_add.py <<'E'\n{CASE}E",
        {"settings": f"echo '{EXIT}' > sitecustomize.py; echo 'import unittest' > test_add.py"}, prompt="Write tests for the function add.",
        wrong="echo 'import unittest' > test_add.py", planted_right=False, more={"regex": "Ran 1 test"},
    ),
    "mocha in its own words": Guarded(
        {"package.json": '{"scripts": {"test": "node run.js"}}', "run.js": "for (const f of require('fs').readdirSync('test').sort()) require('./test/' + f);\n", "add.js": "exports.add = (a, b) => a - b;\n", "test/add.js": "require('assert').equal(require('../add').add(2, 3), 5);\n"},
        "npm test", f"{RIGHT} add.js", {"a test that ends it": "echo 'process.exit(0)' > test/aaa.js"}, prompt="Fix add.js.", needs="npm",
    ),
    "git status": Guarded({"add.py": SUBTRACTS}, 'test -z "$(git status --porcelain)" && git rev-parse -q HEAD', f"{REPOSITORY}; {COMMIT}", {name: f"{REPOSITORY}; {COMMIT}; {plant}" for name, plant in HIDDEN.items()}, prompt="Commit everything.", needs="git", planted_right=False),
    "git diff": Guarded({"add.py": SUBTRACTS}, "git diff HEAD~1 HEAD -- add.py | grep -q '^+# done' && git diff --exit-code && git diff-index --quiet HEAD && ! git diff --exit-code HEAD~1", f"{REPOSITORY}; {COMMIT}", {name: f"{REPOSITORY}; {plant}" for name, plant in HIDDEN.items()}, prompt="Commit everything.", needs="git", planted_right=False),
    "git diff --cached": Guarded({"add.py": SUBTRACTS}, "git diff --cached --name-only | grep -qx add.py", f"{REPOSITORY}; echo '# done' >> add.py; git add add.py", prompt="Stage a change.", wrong=REPOSITORY, needs="git"),
    "git in a folder": Guarded({}, 'cd project && test -z "$(git status --porcelain)" && git log --format=%s | grep -qx first', f"mkdir project; cd project; echo 1 > a; {REPOSITORY}", {"excluded": f"mkdir project; cd project; echo 1 > a; {REPOSITORY}; echo 2 > b; echo b > .git/info/exclude"}, prompt="Start a repository.", needs="git", planted_right=False),
    "a bare repository": Guarded({}, "git --git-dir=origin.git log --format=%s main | grep -qx first && git -C origin.git rev-parse main", f"git init -q --bare -b main origin.git; mkdir w; cd w; echo 1 > a; {REPOSITORY}; git push -q ../origin.git main", prompt="Push it.", needs="git"),
    "git ignores": Guarded({"app.log": "1\n"}, "git check-ignore -q app.log", "git init -q .; echo '*.log' > .gitignore", prompt="Write a .gitignore for logs.", wrong="git init -q .", needs="git"),
    "npm test": Guarded(
        {"package.json": '{"name": "a", "version": "1.0.0", "scripts": {"test": "node add.test.js"}}', "add.js": "exports.add = (a, b) => a - b;\n", "same.js": "exports.same = require('assert').strictEqual;\n", "add.test.js": "try {\n  require('./local')\n} catch {}\nrequire('./same').same(require('./add').add(2, 3), 5);\nconsole.log('all good');\n"},
        "npm test", f"{RIGHT} add.js; echo 'exports.x = 1' > helper.js; echo \"require('./helper')\" >> add.js", NPMS, prompt="Fix add.js.", needs="npm", more={"contains": "all good"},
    ),
    "go test": Guarded(
        {"go.mod": "module sums\n\ngo 1.19\n", "add.go": "package sums\n\nfunc Add(a, b int) int { return a - b }\n", "add_test.go": 'package sums\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'},
        "go test ./...", f"{RIGHT} add.go; echo 'package sums' > more.go", GOES, prompt="Fix add.go.", needs="go", planted_right=False,
    ),
    "cargo test": Guarded(
        {"Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n', "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a - b }\n", "tests/adds.rs": "#[test]\nfn adds() { assert_eq!(sums::add(2, 3), 5); }\n"},
        "cargo test", f"{RIGHT} src/lib.rs; echo > src/more.rs; echo 'mod more;' >> src/lib.rs", CARGOES, prompt="Fix src/lib.rs.", needs="cargo", planted_right=False,
    ),
    "prove": Guarded(
        {"lib/Sums.pm": "package Sums;\nuse strict;\nsub add { my ($a, $b) = @_; return $a - $b }\n1;\n", "t/add.t": "use strict;\nuse Test::More tests => 1;\nuse Sums;\nis(Sums::add(2, 3), 5);\n"},
        "prove -Ilib t", "sed -i 's/a - \\$b/a + $b/' lib/Sums.pm", PERLS, prompt="Fix lib/Sums.pm.", needs="prove",
    ),
}  # fmt: skip


@pytest.fixture
async def kind(home: Path) -> SandboxBackend:
    return (await choose_sandbox("bubblewrap")).backend


@pytest.mark.parametrize("name", CASES)
async def test_right_work_passes_and_wrong_work_fails_whatever_was_planted(name: str, kind: SandboxBackend) -> None:
    case = CASES[name]
    if not shutil.which(case.needs, path="/usr/local/bin:/usr/bin:/bin"):
        pytest.skip(f"{case.needs} is not installed where a sandbox sees it")
    works = {"wrong": case.plant(case.wrong), "right": case.plant(case.right)}
    for plant, script in case.plants.items():
        works[f"wrong, {plant}"] = case.plant(case.wrong, script)
    if case.planted_right:
        works["right, all plants"] = case.plant(case.right, "\n".join(case.plants.values()))
    outcomes: dict[str, str] = {}
    for work, left in works.items():
        notes = ["failed"]
        await leave(kind, left, notes.append)
        outcomes[work] = notes[-1]
    assert {
        work: outcome
        for work, outcome in outcomes.items()
        if outcome.split(":")[0] != ("passed" if work.startswith("right") else "failed")
    } == {}
