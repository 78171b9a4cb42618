"""Checks that run real programs: right work passes, wrong work fails, and so does wrong work with planted files.

Plants are left by shell in a real sandbox: each beside wrong work, and all of them beside right work.
"""

# ruff: noqa: E501 - lines of shell

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from test_hostile_students import Plant, command, leave, python
from upskill.errors import UsageError
from upskill.sandboxes import SandboxBackend, choose_sandbox
from upskill.suites import Suite

EXIT = 'import os; os.write(2, b"Ran 1 test OK"); os._exit(0)'
TRUE = "printf '#!/bin/sh\\nexit 0\\n'"
ADDS = "def add(a, b):\n    return a + b\n"
SUBTRACTS = "def add(a, b):\n    return a - b\n"
RIGHT = "sed -i 's/a - b/a + b/'"
FIX = "Fix the function add in add.py so that it adds."
CASE = "import unittest\nfrom add import add\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
REPOSITORY = "git init -q -b main . && git config user.email a@b && git config user.name a && git add -A && git commit -qm first"


@dataclass(frozen=True)
class Guarded:
    """A case whose check runs a program, with ways to do the work and ways to fake it."""

    files: Mapping[str, str]
    run: str
    right: str
    plants: Mapping[str, str] = field(default_factory=dict[str, str])
    wrong: str = "true"
    needs: str = "python3"
    planted_right: bool = True  # False: a plant is wrong work by itself
    outputs: str = "add.py"
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def plant(self, work: str, planted: str = "true") -> Plant:
        checks = [{"command": {"run": self.run, "timeout": 600, **self.more}}]
        outputs = tuple(self.outputs.split())
        return Plant(f"{work}\n{planted}", checks, files=dict(self.files), outputs=outputs)


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
        for name in (
            "a package of the tests",
            "a package above",
            "a module of Python",
            "sitecustomize",
        )
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
        outputs="add.py helper.py",
    ),
    "pytest on files of the check": Guarded(
        {"add.py": SUBTRACTS}, 'PYTHONPATH=. PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 /opt/tools/bin/python -m pytest -q "$CHECK/test_add.py"', f"{RIGHT} add.py",
        {name: PYTESTS[name] for name in ("settings above the check's own folder", "pytest.py", "a module of Python", "conftest.py")},
        more={"files": {"test_add.py": "from add import add\ndef test_add():\n    assert add(2, 3) == 5\n"}},
    ),
    "a module with the name of one of Python's": Guarded(
        {"tests/test_mean.py": "import unittest\nfrom statistics import mean\nclass T(unittest.TestCase):\n    def test_mean(self):\n        self.assertEqual(mean([]), 0)\n"},
        "python3 -m unittest discover -s tests",
        "printf 'def mean(x):\\n    return sum(x) / len(x) if x else 0\\n' > statistics.py",
        wrong="printf 'def mean(x):\\n    return 1\\n' > statistics.py",
        outputs="statistics.py",
    ),
    "make": Guarded({"add.py": SUBTRACTS, "Makefile": MAKEFILE, "rules/.keep": "", "hooks.d/b.sh": "true\n"}, "make test", f"{RIGHT} add.py", MAKES, needs="make"),
    "make of C": Guarded(
        {"add.c": "int add(int a, int b) { return a - b; }\n", "add.h": "int add(int, int);\n", "test_add.c": '#include <assert.h>\n#include "add.h"\n#if __has_include("local.h")\n  #include "local.h"\n#endif\nint main(void) { assert(add(2, 3) == 5); return 0; }\n', "Makefile": "test: test_add\n\t./test_add\ntest_add: test_add.c add.c\n\tcc -I. -o $@ $^\n"},
        "make test", f"{RIGHT} add.c", CS, needs="make",
        outputs="add.c",
    ),
    "a script that scores": Guarded(SCORE_FILES, "python3 score.py", f"{RIGHT} add.py", SCORES, more={"contains": "PASS"}),
    "a shell script that scores": Guarded(SCORE_FILES, "sh run_all.sh", f"{RIGHT} add.py", {"all of it": "\n".join([SCORES["the expected output"], SCORES["the script"]]), "the shell script": SCORES["the shell script"]}, more={"contains": "PASS"}),
    "tests that the student writes": Guarded(
        {"add.py": ADDS}, "python3 -m unittest && sed -i s/+/-/ add.py && ! python3 -m unittest", f"cat > test_add.py <<'E'\n{CASE}E",
        {"settings": f"echo '{EXIT}' > sitecustomize.py; echo 'import unittest' > test_add.py"},
        wrong="echo 'import unittest' > test_add.py", planted_right=False, more={"regex": "Ran 1 test"},
        outputs="test_add.py",
    ),
    "mocha in its own words": Guarded(
        {"package.json": '{"scripts": {"test": "node run.js"}}', "run.js": "for (const f of require('fs').readdirSync('test').sort()) require('./test/' + f);\n", "add.js": "exports.add = (a, b) => a - b;\n", "test/add.js": "require('assert').equal(require('../add').add(2, 3), 5);\n"},
        "npm test", f"{RIGHT} add.js", {"a test that ends it": "echo 'process.exit(0)' > test/aaa.js"}, needs="npm",
        outputs="add.js",
    ),
    "git status": Guarded({"add.py": SUBTRACTS}, 'test -z "$(git status --porcelain --ignored)" && git rev-parse -q HEAD', f"{REPOSITORY}; {COMMIT}", {name: f"{REPOSITORY}; {COMMIT}; {plant}" for name, plant in HIDDEN.items()}, needs="git", planted_right=False, outputs="**"),
    "git diff": Guarded({"add.py": SUBTRACTS}, "git diff HEAD~1 HEAD -- add.py | grep -q '^+# done' && git diff --exit-code && git diff-index --quiet HEAD && ! git diff --exit-code HEAD~1", f"{REPOSITORY}; {COMMIT}", {name: f"{REPOSITORY}; {plant}" for name, plant in HIDDEN.items()}, needs="git", planted_right=False, outputs="**"),
    "git diff --cached": Guarded({"add.py": SUBTRACTS}, "git diff --cached --name-only | grep -qx add.py", f"{REPOSITORY}; echo '# done' >> add.py; git add add.py", wrong=REPOSITORY, needs="git", outputs=".git add.py"),
    "git in a folder": Guarded({}, 'cd project && test -z "$(git status --porcelain)" && git log --format=%s | grep -qx first', f"mkdir project; cd project; echo 1 > a; {REPOSITORY}", {"excluded": f"mkdir project; cd project; echo 1 > a; {REPOSITORY}; echo 2 > b; echo b > .git/info/exclude"}, needs="git", planted_right=False, outputs="**"),
    "a bare repository": Guarded({}, "git --git-dir=origin.git log --format=%s main | grep -qx first && git -C origin.git rev-parse main", f"git init -q --bare -b main origin.git; mkdir w; cd w; echo 1 > a; {REPOSITORY}; git push -q ../origin.git main", needs="git", outputs="origin.git"),
    "git ignores": Guarded({"app.log": "1\n"}, "git check-ignore -q app.log", "git init -q .; echo '*.log' > .gitignore", wrong="git init -q .", needs="git", outputs=".git .gitignore"),
    "npm test": Guarded(
        {"package.json": '{"name": "a", "version": "1.0.0", "scripts": {"test": "node add.test.js"}}', "add.js": "exports.add = (a, b) => a - b;\n", "same.js": "exports.same = require('assert').strictEqual;\n", "add.test.js": "try {\n  require('./local')\n} catch {}\nrequire('./same').same(require('./add').add(2, 3), 5);\nconsole.log('all good');\n"},
        "npm test", f"{RIGHT} add.js; echo 'exports.x = 1' > helper.js; echo \"require('./helper')\" >> add.js", NPMS, needs="npm", more={"contains": "all good"},
        outputs="add.js helper.js",
    ),
    "go test": Guarded(
        {"go.mod": "module sums\n\ngo 1.19\n", "add.go": "package sums\n\nfunc Add(a, b int) int { return a - b }\n", "add_test.go": 'package sums\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'},
        "go test ./...", f"{RIGHT} add.go; echo 'package sums' > more.go", GOES, needs="go", planted_right=False,
        outputs="add.go more.go",
    ),
    "cargo test": Guarded(
        {"Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n', "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a - b }\n", "tests/adds.rs": "#[test]\nfn adds() { assert_eq!(sums::add(2, 3), 5); }\n"},
        "cargo test", f"{RIGHT} src/lib.rs; echo > src/more.rs; echo 'mod more;' >> src/lib.rs", CARGOES, needs="cargo", planted_right=False,
        outputs="src/",
    ),
    "prove": Guarded(
        {"lib/Sums.pm": "package Sums;\nuse strict;\nsub add { my ($a, $b) = @_; return $a - $b }\n1;\n", "t/add.t": "use strict;\nuse Test::More tests => 1;\nuse Sums;\nis(Sums::add(2, 3), 5);\n"},
        "prove -Ilib t", "sed -i 's/a - \\$b/a + $b/' lib/Sums.pm", PERLS, needs="prove",
        outputs="lib/Sums.pm",
    ),
}  # fmt: skip
WANT = "import os\nwant = os.environ['CHECK'] + '/want.txt'\n"
FAKE_WANT = {
    "in place": "open(want, 'w').write('-1\\n')",
    "with another mode": "os.chmod(want, 0o777); open(want, 'w').write('-1\\n')",
    "by another file": "open('w', 'w').write('-1\\n'); os.replace('w', want)",
    "by its folder": "os.rename(os.environ['CHECK'], '/tmp/x'); os.mkdir(os.environ['CHECK']); open(want, 'w').write('-1\\n')",
    "by the memory of its shell": "open(f'/proc/{os.getppid()}/mem', 'wb')",
}
SHADOWS = {
    "a module beside a package": Guarded(
        {"add.py": SUBTRACTS, "scoring/rules.py": "from add import add\ndef score(): return add(2, 3) == 5\n", "run.py": "import sys\nfrom scoring import rules\nsys.exit(0 if rules.score() and print('PASS') is None else 1)\n"},
        "python3 run.py", f"{RIGHT} add.py", {"scoring.py": "printf 'class rules:\\n    score = lambda: True\\n' > scoring.py"}, more={"contains": "PASS"},
    ),
    "a module on the path": Guarded(
        {"add.py": SUBTRACTS, "tools/verify.py": "from add import add\nassert add(2, 3) == 5\nprint('PASS')\n", "lib/.keep": ""},
        "PYTHONPATH=lib:tools:. python3 -m verify", f"{RIGHT} add.py", {"lib/verify.py": "echo 'print(\"PASS\")' > lib/verify.py", "a package": "mkdir lib/verify; echo 'print(\"PASS\")' | tee lib/verify/__init__.py > lib/verify/__main__.py"}, more={"contains": "PASS"},
    ),
    "a script before its folder": Guarded(
        {"add.js": "exports.add = (a, b) => a - b;\n", "lib/index.js": "exports.same = require('assert').strictEqual;\n", "data/wanted.json": "5", "t.js": "require('./lib').same(require('./add').add(2, 3), require('./data/wanted'));\nconsole.log('PASS');\n"},
        "node t.js", f"{RIGHT} add.js", {"lib.js": "echo 'exports.same = () => {}' > lib.js", "wanted.js": "echo 'module.exports = -1' > data/wanted.js", "wanted": "echo 'module.exports = -1' > data/wanted"}, needs="node", more={"contains": "PASS"},
        outputs="add.js",
    ),
    "a header": Guarded(
        {"add.c": "int add(int a, int b) { return a - b; }\n", "inc/.keep": "", "own/harness.h": "#include <stdlib.h>\n#define CHECK(x) ((x) ? 0 : (exit(1), 1))\nint add(int, int);\n", "t.c": "#include \"harness.h\"\nint main(void) { return CHECK(add(2, 3) == 5); }\n"},
        "cc -Iinc -Iown -o /tmp/t t.c add.c && /tmp/t", f"{RIGHT} add.c", {"before it": "printf '#define CHECK(x) 0\\nint add(int, int);\\n' > inc/harness.h", "compiled": "printf '#define CHECK(x) 0\\nint add(int, int);\\n' > x.h; cc -o own/harness.h.gch x.h; rm x.h"}, needs="cc",
        outputs="add.c",
    ),
    "expectations": Guarded(
        {"add.py": f"{SUBTRACTS}import sys\nprint(add(*map(int, sys.argv[1:])))\n", "expected/2-3.txt": "5\n", "verify.sh": "n=0; for f in expected/*; do b=${f##*/}; b=${b%.txt}; [ \"$(python3 add.py ${b%-*} ${b#*-})\" = \"$(cat $f)\" ] && n=$((n+1)); done; [ $n -ge 1 ] && echo PASS\n"},
        "bash verify.sh", f"{RIGHT} add.py", {"one more": "echo 0 > expected/3-3.txt"}, more={"contains": "PASS"},
    ),
    "a result that is read if it is there": Guarded(
        {"add.py": SUBTRACTS, "score.py": "import json, os, sys\nfrom add import add\nif os.path.exists('score.json'):\n    ok = json.load(open('score.json'))['ok']\nelse:\n    ok = add(2, 3) == 5\nprint('PASS' if ok else 'FAIL')\n"},
        "python3 score.py", f"{RIGHT} add.py", {"score.json": "echo '{\"ok\": true}' > score.json"}, more={"contains": "PASS"},
    ),
    "an expectation of the check": Guarded(
        {"add.py": f"{SUBTRACTS}print(add(2, 3), flush=True)\n"}, 'python3 add.py > out || exit 0; diff out "$CHECK/want.txt"', f"{RIGHT} add.py",
        {f"while it runs, {way}": f"cat >> add.py <<'E'\n{WANT}try:\n    {script}\nexcept OSError:\n    pass\nelse:\n    exit(1)\nE" for way, script in FAKE_WANT.items()}, planted_right=False, more={"files": {"want.txt": "5\n"}},
    ),
    "settings in the home folder": Guarded(
        {"q.sql": "select 4;\n"}, "sqlite3 :memory: < q.sql | grep -qx 5", "echo 'select 5;' > q.sql", {"~/.sqliterc": "printf '.print 5\\n' > ~/.sqliterc"}, needs="sqlite3",
        outputs="q.sql",
    ),
    "a target of make": Guarded(
        {"add.py": SUBTRACTS, "Makefile": "NAME = check\n$(NAME): add.py\n\tpython3 -c 'import add; assert add.add(2, 3) == 5'\n"}, "make check", f"{RIGHT} add.py", {"a file": "sleep 0.01; touch -d 2040-01-01 check", "a folder": "mkdir check; touch -d 2040-01-01 check"}, needs="make",
    ),
}  # fmt: skip
PRINTS = f"{SUBTRACTS}print(add(2, 3))\n"
PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 /opt/tools/bin/python -m pytest -q"
PLANTED = {
    "a name that reads as an option": Plant("touch -- '--exclude=*.py' --help.py", command("! grep -r TODO *"), files={"a.py": "x = 1  # TODO\n"}),
    "a link to what the check has open": Plant("ln -s /proc/self/fd/3 out.txt", command('cmp "$CHECK/want" out.txt', files={"want": "a\nb\n"}), files={"in.txt": "b\na\n"}),
    "a link to the check's input": Plant("ln -s /dev/stdin out.txt", command("printf 'a\\nb\\n' | cmp - out.txt"), files={"in.txt": "b\na\n"}),
    "a file that the prompt forbids to change": Plant("echo 'def same(a,b): return True' > util.py", command("python3 -c 'import util,add; assert util.same(add.add(2,3),5)'"), files={"add.py": SUBTRACTS, "util.py": "def same(a,b): return a==b\n"}),
    "data that the work starts from": Plant("echo 0 > data.csv; echo 7 > total.txt", command("python3 -c \"assert sum(map(int,open('data.csv')))+7==int(open('total.txt').read())+0\""), files={"data.csv": "1\n2\n"}),
    "an expectation that the prompt names": Plant("python3 gen.py > expected.txt", command("python3 gen.py > out; cmp out expected.txt"), files={"gen.py": "print(4)\n", "expected.txt": "5\n"}),
    "tests that the prompt names": Plant("echo > tests/test_add.py", command("python3 -m unittest discover -s tests"), files={"add.py": SUBTRACTS, "tests/test_add.py": CASE}),
    "another main file of a folder": Plant("echo '{\"main\": \"f.js\"}' > lib/package.json; echo 'exports.same=()=>{}' > lib/f.js", command("node t.js", contains="PASS"), files={"add.js": "exports.add=(a,b)=>a-b\n", "lib/index.js": "exports.same=require('assert').equal\n", "t.js": "require('./lib').same(require('./add').add(2,3),5);console.log('PASS')\n"}),
    "a header beside the source": Plant("printf '#define CHECK(x) 0\\nint add(int,int);\\n' > harness.h", command("cc -Iown -o /tmp/t t.c add.c && /tmp/t"), files={"add.c": "int add(int a,int b){return a-b;}\n", "own/harness.h": "#include <stdlib.h>\n#define CHECK(x) ((x)?0:(exit(1),1))\nint add(int,int);\n", "t.c": "#include \"harness.h\"\nint main(void){return CHECK(add(2,3)==5);}\n"}),
    "an output that is a link to the expectation": Plant("ln -s want.txt out", command("python3 add.py > out; diff out want.txt"), files={"add.py": PRINTS, "want.txt": "5\n"}),
    "a file of the check that is rewritten while it runs": Plant("cat >> add.py <<'E'\nimport os\nopen(os.environ['CHECK']+'/want.txt','w').write('-1\\n')\nE", command("python3 add.py > out; diff out \"$CHECK/want.txt\"", files={"want.txt": "5\n"}), files={"add.py": PRINTS}),
    "a script that is rewritten while it runs": Plant("cat >> add.py <<'E'\nimport os\nopen(os.environ['CHECK'] + '/verify.sh', 'w').write('echo PASS\\n')\nE", command('bash "$CHECK/verify.sh"', contains="PASS", files={"verify.sh": "x=$(python3 add.py)\n[ \"$x\" = 5 ] && echo PASS\n"}), files={"add.py": PRINTS}),
    "an object file": Plant("sed 's/-/+/' add.c > /tmp/a.c; cc -c -o add.o /tmp/a.c; touch -d 2040-01-01 add.o", command("make prog && ./prog"), files={"add.c": "int add(int a,int b){return a-b;}\n", "main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "prog: main.o add.o\n\tcc -o prog main.o add.o\n"}),
    "a program that a script of the case runs": Plant("echo 'print(\"PASS\")' > ci/helpers.py", command("bash ci/run.sh", contains="PASS"), files={"add.py": SUBTRACTS, "ci/helpers.py": "import sys; sys.path.insert(0,'.')\nfrom add import add\nassert add(2,3)==5\nprint('PASS')\n", "ci/run.sh": "python3 ci/helpers.py\n"}),
    "a module in an earlier folder": Plant("mkdir -p vendor; echo 'def ok(): return True' > vendor/rules.py", command("python3 run.py", contains="PASS"), files={"add.py": SUBTRACTS, "rules.py": "from add import add\ndef ok(): return add(2,3)==5\n", "run.py": "import sys\nsys.path.insert(0, 'vendor')\nimport rules\nprint('PASS' if rules.ok() else 'FAIL')\n"}),
    "an object file of a pattern rule": Plant("sed 's/-/+/' add.c > /tmp/a.c; mkdir -p build; cc -c -o build/add.o /tmp/a.c; touch -d 2040-01-01 build/add.o; touch -d 1970-01-02 add.c", command("make prog && ./prog"), files={"add.c": "int add(int a,int b){return a-b;}\n", "main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "prog: build/main.o build/add.o\n\tcc -o prog build/main.o build/add.o\nbuild/%.o: %.c\n\tmkdir -p build; cc -c -o $@ $<\n"}),
    "a generated file with a date": Plant("echo 5 > out/sum.txt; touch -d 2040-01-01 out/sum.txt", command("make && grep -qx 5 out/sum.txt"), files={"add.py": PRINTS, "out/.keep": "", "Makefile": "all: out/sum.txt\nout/%.txt: add.py\n\tpython3 add.py > $@\n"}),
    "a source that VPATH finds first": Plant("echo 'int main(void){return 0;}' > alt/main.c", command("make prog && ./prog"), files={"alt/.keep": "", "src/add.c": "int add(int a,int b){return a-b;}\n", "src/main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "VPATH = alt:src\nprog: main.o add.o\n\tcc -o prog main.o add.o\n"}),
    "a module with a path": Plant("printf 'import sys, types\\n__path__ = []\\nsys.modules[\"tools.rules\"] = rules = types.ModuleType(\"tools.rules\")\\nrules.ok = lambda: True\\n' > tools.py", command("python3 run.py", contains="PASS"), files={"add.py": SUBTRACTS, "tools/rules.py": "from add import add\ndef ok(): return add(2,3)==5\n", "run.py": "from tools.rules import ok\nprint('PASS' if ok() else 'FAIL')\n"}),
    "a submodule that is ignored": Plant(f"mkdir sub; (cd sub; echo 1 > x; {REPOSITORY}); printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = all\\n' > .gitmodules; {REPOSITORY}; echo 2 > sub/x", command('test -z "$(git status --porcelain --ignore-submodules=none)" && git rev-parse -q HEAD'), files={"a": "1\n"}),
    "unittests that are all skipped": Plant("printf 'import unittest\\ndef add(a, b): raise unittest.SkipTest(1)\\n' > add.py", command("python3 -m unittest", contains="OK"), files={"add.py": SUBTRACTS, "test_add.py": CASE}),
    "pytests that are all skipped": Plant("printf 'import pytest\\ndef add(a, b): pytest.skip(\"x\")\\n' > add.py", command(PYTEST), files={"add.py": SUBTRACTS, "test_add.py": "from add import add\ndef test_add(): assert add(2, 3) == 5\n"}),
    "data beside the code that is named": Plant("echo -1 > numbers.txt", command("python3 -c 'import add; assert add.add(2, 3) == int(open(\"numbers.txt\").read())'"), files={"add.py": SUBTRACTS, "numbers.txt": "5\n"}),
    "a header of the system, in quotes": Plant("echo '#define assert(x)' > assert.h", command("cc -o /tmp/t t.c add.c && /tmp/t"), files={"add.c": "int add(int a,int b){return a-b;}\n", "t.c": '#include "assert.h"\nint add(int,int);\nint main(void){assert(add(2,3)==5);return 0;}\n'}),
    "attributes that are committed": Plant(f"echo '* -whitespace' > .gitattributes; {REPOSITORY}", command("! git show HEAD:notes.txt | grep ' $'"), files={"notes.txt": "a \n"}),
    "data that a command looks at beside the code that is named": Plant("echo 1000 > limits.ini", command('test "$(python3 compute.py 50)" -le "$(cat limits.ini)"'), files={"compute.py": "import sys\nprint(sys.argv[1])\n", "limits.ini": "10\n"}),
    "a module before a package": Plant("echo 'print(\"PASS\")' > verify.py", command("python3 -m verify", contains="PASS"), files={"add.py": SUBTRACTS, "verify/__main__.py": "from add import add\nassert add(2,3)==5\nprint('PASS')\n"}),
    "rates.csv, which measures the work": Plant("cp totals.csv rates.csv", command("cmp totals.csv rates.csv"), files={"totals.csv": "a,9\n", "rates.csv": "a,5\n"}),
    "MAJOR, which measures the work": Plant("cp next.txt MAJOR", python("os.chdir(workspace); return open('next.txt').read() == open('MAJOR').read()"), files={"next.txt": "1\n", "MAJOR": "2\n"}),
    "VERSION, which measures the work": Plant("cp setup.txt VERSION", command('test "$(cat setup.txt)" = "$(cat VERSION)"'), files={"setup.txt": "1\n", "VERSION": "2\n"}),
    "lint.sh, which measures the work": Plant("echo exit 0 > lint.sh", command("bash lint.sh style.c"), files={"lint.sh": "! grep -n ';;' \"$1\"\n", "style.c": "int a;;\n"}),
    "bench.py, which measures the work": Plant("echo 'print(1)' > bench.py", command("python3 bench.py", contains="1"), files={"bench.py": "from fast import f\nassert f(3) == 9\nprint(1)\n", "fast.py": "def f(x): return x\n"}),
    "rules.sql, which measures the work": Plant("echo > rules.sql", command("python3 run.py"), files={"items.sql": "a\n", "rules.sql": "b\n", "run.py": "assert open('rules.sql').read().strip() in open('items.sql').read()\n"}),
}  # fmt: skip
BYTECODE = """python3 - <<'E'
import importlib._bootstrap_external as loader, importlib.util, os
source = 'import unittest\\nclass T(unittest.TestCase):\\n    def test_add(self): pass\\n'
data = loader._code_to_hash_pyc(compile(source, 'test_add.py', 'exec'), bytes(8), False)
path = importlib.util.cache_from_source('tests/test_add.py')
os.makedirs(os.path.dirname(path), exist_ok=True)
open(path, 'wb').write(data)
E"""
# Against files that `tests:` keeps, with these outputs. What each leaves, and where; the work is wrong.
AGAINST_TESTS = {
    "bytecode of the test that is never compared with it": ("**", BYTECODE),
    "a daemon that goes on writing": ("add.py tests/", "(setsid sh -c 'while :; do echo > tests/test_add.py; done' >/dev/null 2>&1 &); sleep 0.1"),
    "names with line breaks": ("src/", "mkdir -p src; touch \"$(printf 'src/a\\ntests/test_add.py')\"; mkdir \"$(printf 'src/x\\n../tests')\""),
    "names that are no UTF-8": ("src/", "mkdir -p src; touch \"$(printf 'src/\\377.py')\"; mkdir \"$(printf 'src/\\355\\240\\200')\""),
    "a folder for the work": ("add.py", "rm add.py; mkdir add.py; echo > add.py/__init__.py"),
    "a file for the folder of the tests": ("tests add.py", "rm -r tests; echo > tests"),
    "a FIFO and a socket": ("add.py src/", "rm add.py; mkfifo add.py; mkdir src; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"src/s\")'"),
    "a sparse file": ("src/", "mkdir src; truncate -s 20G src/big"),
    "6,000 files": ("src/", "mkdir src; cd src; seq 6000 | xargs touch"),
    "a tower of folders": ("src/", "python3 -c 'import os\nfor _ in range(3000): os.mkdir(\"src\"); os.chdir(\"src\")'"),
    "programs of its own": ("add.py bin/", f"mkdir bin; {TRUE} | tee bin/python3 > python3; chmod +x bin/python3 python3; printf 'python3() {{ :; }}\\n' | tee ~/.profile > ~/.bashrc"),
}  # fmt: skip
FROM_GIT = {
    "a replaced commit": Plant(f"{REPOSITORY}; git commit -q --allow-empty -m done; git tag x; git reset -q --hard HEAD~1; git replace HEAD x", command("git log --format=%s -1 | grep -qx done")),
    "a shallow history": Plant(f"{REPOSITORY}; git commit -q --allow-empty -m b; git commit -q --allow-empty -m c; git rev-parse HEAD~1 > .git/shallow", command("test $(git log --format=%s | wc -l) = 2")),
    "a remote that runs a program": Plant(f"{REPOSITORY}; git remote add origin 'ext::sh -c \"touch ran\"'; git config protocol.ext.allow always", command("git fetch -q origin; test -e ran")),
    "an external diff": Plant(f"{REPOSITORY}; git commit -q --allow-empty -m b; git config diff.external 'echo +x = 2; :'", command("git diff HEAD~1 | grep -q '^+x = 2'")),
    "a work tree elsewhere": Plant(f"{REPOSITORY}; mkdir /tmp/w; echo 2 > /tmp/w/a; git config core.worktree /tmp/w; git add a; git commit -qm two", command("git diff --quiet HEAD && grep -qx 2 a")),
}  # fmt: skip
RIGHT_WORK = {
    "a module of a package with the name of an installed one": Plant("echo 'price = 5' > shop/types.py", command("python3 -c 'from shop.types import price; assert price == 5'"), files={"shop/__init__.py": "", "shop/cart.py": "price = 4\n"}),
    "settings of git that are kept": Plant(f"{REPOSITORY}; git config foo.bar yes", command("git config --get-regexp 'foo.*' | grep -q yes"), files={"a": "1\n"}),
    "a pattern that is kept": Plant("echo x > data/a.txt", command("grep -qx x data/a.txt && python3 t.py"), files={"data/a.txt": "y\n", "t.py": "open('data/a.txt')\n", "m.py": ""}),
    "a function that writes to a file of the case": Plant("true", python("pathlib.Path(workspace, 'want.txt').write_text('7'); return True"), files={"add.py": PRINTS, "want.txt": "5\n"}),
    "data that the work starts from": Plant("echo 3 > total.txt", command("python3 -c \"assert sum(map(int,open('data.csv')))==int(open('total.txt').read())\""), files={"data.csv": "1\n2\n"}),
    "an attribute of git": Plant(f"echo 'a export-ignore' > .gitattributes; {REPOSITORY}", command("! git archive HEAD | tar t | grep -qx a"), files={"a": "1\n", "b": "2\n"}),
    "data to change": Plant("sort -u list.txt > x; mv x list.txt", command("sort list.txt | uniq -d | wc -l | grep -qx 0 && test $(wc -l < list.txt) = 2"), files={"list.txt": "1\n1\n2\n"}),
    "a script of the check that is made executable": Plant(f"{RIGHT} add.py", command("chmod +x \"$CHECK/v.sh\"; \"$CHECK/v.sh\"", files={"v.sh": "#!/bin/sh\ntest $(python3 add.py) = 5\n"}), files={"add.py": PRINTS}),
    "fixtures of the student's own tests": Plant("cat > test_add.py <<'E'\nfrom add import add\ndef test_add(two): assert add(two, 3) == 5\nE\nprintf 'import pytest\\n@pytest.fixture\\ndef two(): return 2\\n' > conftest.py", command(PYTEST, contains="1 passed"), files={"add.py": ADDS}),
    "settings of the student's own tests": Plant("mkdir -p src tests; echo 'def f(): return 5' > src/m.py; printf 'import m\\ndef test(): assert m.f()==5\\n' > tests/test_m.py; printf '[tool.pytest.ini_options]\\npythonpath = [\"src\"]\\n' > pyproject.toml", command(PYTEST, contains="1 passed")),
    "hooks that are kept": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo 2 > a; ! git commit -qam b"), files={"a": "1\n"}),
    "hooks in a folder of their own": Plant(f"{REPOSITORY}; mkdir .githooks; printf '#!/bin/sh\\nexit 1\\n' > .githooks/pre-commit; chmod +x .githooks/pre-commit; git config core.hooksPath .githooks", command("echo 2 > a; ! git commit -qam b"), files={"a": "1\n"}),
    "code where only a specification is named": Plant("echo 'def parse(x): return int(x)' > parser.py", command("python3 -c 'import parser as p; assert p.parse(\"5\")==5'"), files={"SPEC.md": "parse gives an int\n", "parser.py": "def parse(x): return x\n"}),
    "a stash": Plant(f"{REPOSITORY}; echo 2 > a; git stash push -qm wip", command("git stash pop -q && grep -qx 2 a"), files={"a": "1\n"}),
    "a page with its assets": Plant("mkdir -p site/css site/img; echo '<link href=css/main.css>' > site/index.html; echo 'a {}' > site/css/main.css", [{"file_exists": ["site/index.html", "site/css/main.css", "site/img/"]}]),
    "a mode that is committed": Plant(f"chmod +x run.sh; {REPOSITORY}", command("git ls-files -s run.sh | grep -q ^100755 && test -z \"$(git status --porcelain)\""), files={"run.sh": "#!/bin/sh\necho 1\n", "add.py": SUBTRACTS}),
    "a script beside its page": Plant("echo '<script src=index.js></script>' > index.html; echo 'x=1' > index.js", command("node --check index.js && grep -q index.js index.html"), files={"index.html": "<p>\n"}),
    "a source beside its header": Plant("echo 'int add(int a,int b){return a+b;}' > util.c", command("cc -o /tmp/t main.c util.c && /tmp/t"), files={"util.h": "int add(int,int);\n", "main.c": "#include \"util.h\"\nint main(void){return add(2,3)!=5;}\n"}),
    "a check that checks out another commit": Plant(f"{REPOSITORY}; {RIGHT} add.py; git commit -qam fixed", command("git stash list; git checkout -q HEAD~1 && ! python3 t.py; git checkout -q main && python3 t.py"), files={"add.py": SUBTRACTS, "t.py": "from add import add\nassert add(2,3)==5\n"}),
    "data that the prompt means by a word": Plant("echo '[{\"x\": 1}]' > fixtures.json", command("python3 -c \"import json; assert len(json.load(open('fixtures.json')))==1\""), files={"fixtures.json": "[]", "test_a.py": "import json\njson.load(open('fixtures.json'))\n"}),
    "a script that package.json names": Plant("sed -i 's/a - b/a + b/' src/add.js; echo 'exports.x=1' > src/more.js", command("npm test", contains="ok"), files={"package.json":'{"name": "a", "version": "1.0.0","scripts":{"start": "node src/server.js", "test": "node test/run.js"}}', "src/add.js": "exports.add = (a, b) => a - b;\n", "src/server.js": "", "test/run.js": "require('assert').equal(require('../src/add').add(2,3),5);console.log('ok')\n"}),
    "a folder that the prompt names": Plant("for f in texts/*; do tr a-z A-Z < $f > x; mv x $f; done", command("! grep -q '[a-z]' texts/*"), files={"texts/a.txt": "a\n", "texts/b.txt": "b\n", "upper.py": "print(1)\n"}),
    "a pattern": Plant("echo '# B' > b.md", command("head -qn1 *.md | grep -c '^# ' | grep -qx 2"), files={"a.md": "# A\n", "b.md": "B\n", "app.py": ""}),
    "a kind of file": Plant("sed -i s/select/SELECT/ q/*.sql", command("! grep -q select q/*.sql"), files={"q/a.sql": "select 1;\n", "q/b.sql": "select 2;\n", "run.py": ""}),
    "a git hook": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\n! git diff --cached | grep -q TODO\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo TODO > b; git add b; ! git commit -qm b && echo fine > b && git add b && git commit -qm b"), files={"a.txt": "1\n"}),
    "a git setting": Plant(f"{REPOSITORY}; git config pull.rebase true", command('test "$(git config --get pull.rebase)" = true'), files={"a.txt": "1\n"}),
    "a git alias": Plant(f"{REPOSITORY}; git config alias.st 'status --short'", command("git st && test -z \"$(git st)\""), files={"a.txt": "1\n"}),
    "what git ignores": Plant(f"echo '*.log' > .gitignore; {REPOSITORY}; echo 1 > b.log", command('git check-ignore -q b.log && test -z "$(git status --porcelain)"'), files={"a.txt": "1\n"}),
    "what git ignores, uncommitted": Plant(f"{REPOSITORY}; echo '*.log' > .gitignore; echo 1 > b.log", command("! git status --porcelain | grep -q log"), files={"a.txt": "1\n"}),
    "an executable script that is put back": Plant("chmod +x go.sh; sed -i 's/a - b/a + b/' add.py", command("./go.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "go.sh": "#!/bin/sh\npython3 add.py\n"}),
    "an executable script of the case": Plant("chmod +x run_it.sh; sed -i 's/a - b/a + b/' add.py; echo '#' >> run_it.sh", command("./run_it.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "run_it.sh": "#!/bin/sh\npython3 add.py\n"}),
    "a script that the check makes executable": Plant("sed -i 's/a - b/a + b/' add.py", command("chmod +x verify.sh && ./verify.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "verify.sh": "#!/bin/sh\npython3 add.py\n"}),
    "a Makefile that builds once": Plant("printf 'out: in.txt\\n\\tcp in.txt out\\n' > Makefile; make", command("make && make | grep -q 'up to date'"), files={"in.txt": "1\n"}),
    "a report that make wants": Plant("echo done > report.txt", command("make check"), files={"Makefile": "check: report.txt\n\tgrep -q done report.txt\nreport.txt:\n\t@echo write it first; exit 1\n"}),
    "a project for npm": Plant('echo \'{"name": "a", "version": "1.0.0", "scripts": {"test": "node t.js"}}\' > package.json; echo "console.log(5)" > t.js', command("npm test", contains="5")),
    "a project for make": Plant("printf 'include more.mk\\n' > Makefile; printf 'all:\\n\\techo 5\\n' > more.mk", command("make", contains="5")),
    "a project for cmake": Plant("printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a NONE)\\nmessage(STATUS five)\\n' > CMakeLists.txt", command("cmake -S . -B build", contains="five")),
    "tests that are asked for, beside those of the case": Plant(f"mkdir -p tests; cat > tests/test_sub.py <<'E'\n{CASE}E", command("python3 -m unittest discover -s tests", regex="Ran 2 tests"), files={"add.py": ADDS, "tests/test_add.py": CASE}),
    "a test of the case to extend": Plant(f"cat > test_add.py <<'E'\n{CASE}    def test_zero(self): self.assertEqual(add(0, 0), 0)\nE", command("python3 -m unittest test_add", regex="Ran 2 tests"), files={"add.py": ADDS, "test_add.py": CASE}),
    "tests that a change of the code must break": Plant(f"cat > test_add.py <<'E'\n{CASE}E", command("python3 -m unittest test_add && sed -i 's/a + b/a * b/' add.py && ! python3 -m unittest test_add"), files={"add.py": ADDS}),
    "testimonials": Plant("echo 'names = [1, 2]' > testimonials.py; echo 3 > .count", command("python3 app.py", contains="5"), files={"testimonials.py": "names = []\n", "app.py": "import testimonials\nprint(len(testimonials.names) + int(open('.count').read()))\n"}),
    "a setting that the program reads": Plant("echo 'port: 8080' > config.yaml", command("python3 app.py", contains="8080"), files={"config.yaml": "port: 80\n", "app.py": "import util\nprint(open('config.yaml').read())\n", "util.py": ""}),
    "data that a test of the case looks at": Plant("echo '{\"retries\": 5}' > settings.json", command("python3 -m unittest test_settings"), files={"settings.json": '{"retries": 3}', "test_settings.py": "import json, unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(json.load(open('settings.json'))['retries'], 5)\n"}),
    "an expected file of the check": Plant("echo 5 > out.txt", command("diff out.txt \"$CHECK/want.txt\"", files={"want.txt": "5\n"}), files={"out.txt": "4\n"}),
}  # fmt: skip


NOT_BUILT = {
    "Makefile": "prog: main.c\n\tgcc9 -o prog main.c\n",
    "main.c": "int main(void) { return 0; }\n",
}
BUILDS = "sed -i s/gcc9/cc/ Makefile"
SUMS = {"add.py": ADDS, "test_add.py": CASE.replace("5", "6")}
# What is delivered in the cases above, where it is not add.py.
OUTPUTS = {
    "a link to what the check has open": "out.txt",
    "a link to the check's input": "out.txt",
    "data that the work starts from": "total.txt",
    "an expectation that the prompt names": "gen.py",
    "another main file of a folder": "add.js",
    "a header beside the source": "add.c",
    "an object file": "add.c",
    "an object file of a pattern rule": "add.c",
    "a source that VPATH finds first": "src/add.c",
    "a submodule that is ignored": "**",
    "a header of the system, in quotes": "add.c",
    "attributes that are committed": ".git notes.txt",
    "data that a command looks at beside the code that is named": "compute.py",
    "a module of a package with the name of an installed one": "shop/",
    "settings of git that are kept": ".git .git/config",
    "a pattern that is kept": "data/*.txt",
    "an attribute of git": ".git .gitattributes",
    "data to change": "list.txt",
    "fixtures of the student's own tests": "test_add.py conftest.py",
    "settings of the student's own tests": "src/ tests/ pyproject.toml",
    "hooks that are kept": ".git .git/hooks",
    "hooks in a folder of their own": ".git .git/config .githooks",
    "code where only a specification is named": "parser.py",
    "a mode that is committed": "**",
    "a stash": ".git a",
    "a page with its assets": "site/",
    "a script beside its page": "index.*",
    "a source beside its header": "util.c",
    "a check that checks out another commit": ".git add.py",
    "data that the prompt means by a word": "fixtures.json",
    "a script that package.json names": "src/",
    "a folder that the prompt names": "texts",
    "a pattern": "*.md",
    "a kind of file": "q/*.sql",
    "a git hook": ".git .git/hooks",
    "a git setting": ".git .git/config",
    "a git alias": ".git .git/config",
    "what git ignores": ".git .gitignore",
    "what git ignores, uncommitted": ".git .gitignore *.log",
    "an executable script that is put back": "add.py go.sh",
    "a Makefile that builds once": "Makefile",
    "a report that make wants": "report.txt",
    "a project for npm": "package.json t.js",
    "a project for make": "Makefile *.mk",
    "a project for cmake": "CMakeLists.txt",
    "tests that are asked for, beside those of the case": "tests/",
    "a test of the case to extend": "test_add.py",
    "tests that a change of the code must break": "test_*.py",
    "testimonials": "testimonials.py .count",
    "a setting that the program reads": "config.yaml",
    "data that a test of the case looks at": "settings.json",
    "an expected file of the check": "out.txt",
    "a name that reads as an option": "*.py",
    "rates.csv, which measures the work": "totals.csv",
    "MAJOR, which measures the work": "next.txt",
    "VERSION, which measures the work": "setup.txt",
    "lint.sh, which measures the work": "style.c",
    "bench.py, which measures the work": "fast.py",
    "rules.sql, which measures the work": "items.sql",
}
# Right work on files that look as if they were not the student's: each is named by what it delivers.
DELIVERED = {
    "Makefile": Plant(BUILDS, command("make && ./prog"), files=NOT_BUILT),
    "Makefile, in the second of two checks": Plant(BUILDS, [*command("make -v"), *command("make && ./prog")], files=NOT_BUILT),
    "Makefile, where a function breaks": Plant(BUILDS, python("subprocess.run(['make'], check=True, cwd=workspace); return True"), files=NOT_BUILT),
    "test_add.py": Plant("sed -i s/6/5/ test_add.py", command("python3 -m unittest"), files=SUMS),
    "test_add.py, which is to go": Plant("rm test_add.py", command("test ! -e test_add.py && python3 -c 'import add'"), files=SUMS),
    "want.txt": Plant("python3 gen.py > want.txt", command("python3 gen.py | diff - want.txt"), files={"gen.py": "print(5)\n", "want.txt": "4\n"}),
    "conftest.py": Plant("printf 'import pytest\\n@pytest.fixture\\ndef two(): return 2\\n' > conftest.py", command(PYTEST), files={"test_a.py": "def test_a(two): assert two == 2\n"}),
    "package.json": Plant("sed -i s/1.0.0/2.0.0/ package.json", command("node -p \"require('./package.json').version\"", contains="2.0.0"), files={"package.json": '{"version": "1.0.0"}', "index.js": ""}),
    "a.ini": Plant("echo 1 > a.ini", command("python3 -c 'assert int(open(\"a.ini\").read()) == 1'"), files={"add.py": ADDS, "a.ini": "0"}),
    "node_modules": Plant("mkdir -p node_modules/five; echo 'module.exports = 5' > node_modules/five/index.js", command("npm test"), files={"package.json": '{"name": "a", "version": "1.0.0", "scripts": {"test": "node t.js"}}', "t.js": "require('assert').equal(require('five'), 5)\n"}),
    ".git .git/hooks": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo 2 > a; ! git commit -qam b"), files={"a": "1\n"}),
    "bump.py": Plant("printf 'import sys\\nn = int(open(sys.argv[1]).read()) + 1\\nopen(sys.argv[1], \"w\").write(str(n))\\n' > bump.py", command('cp "$CHECK/n.txt" . && python3 bump.py n.txt && grep -qx 8 n.txt', files={"n.txt": "7\n"})),
    "app.py count.txt": Plant("printf 'n = int(open(\"count.txt\").read()) + 1\\nopen(\"count.txt\", \"w\").write(str(n))\\nprint(n)\\n' > app.py", command("python3 app.py; python3 app.py | grep -qx 2"), files={"app.py": "", "count.txt": "0"}),
}  # fmt: skip


@pytest.fixture
async def kind(home: Path) -> SandboxBackend:
    return (await choose_sandbox("bubblewrap")).backend


def skip_without(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"):
            pytest.skip(f"{program} is not installed where a sandbox sees it")


def programs_of(plant: Plant) -> list[str]:
    line = " ".join(str(check) for check in plant.checks).replace("'", " ")
    known = ("git", "npm", "node", "cmake", "make", "cc")
    return [program for program in known if program in line.split()]


@pytest.mark.parametrize("name", CASES | SHADOWS)
async def test_right_work_passes_and_wrong_work_fails_whatever_was_planted(
    name: str, kind: SandboxBackend
) -> None:
    case = (CASES | SHADOWS)[name]
    skip_without(case.needs)
    works = {"wrong": case.plant(case.wrong), "right": case.plant(case.right)}
    for plant, script in case.plants.items():
        works[f"wrong, {plant}"] = case.plant(case.wrong, script)
    if case.planted_right:
        works["right, all plants"] = case.plant(case.right, "\n".join(case.plants.values()))
    outcomes = {work: await leave(kind, left) for work, left in works.items()}
    assert {
        work: outcome
        for work, outcome in outcomes.items()
        if outcome.split(":")[0] != ("passed" if work.startswith("right") else "failed")
    } == {}


@pytest.mark.parametrize(
    ("plant", "outputs", "outcome"),
    [
        *(pytest.param(plant, OUTPUTS.get(name, "add.py"), "failed", id=f"plant: {name}") for name, plant in PLANTED.items()),
        *(pytest.param(plant, OUTPUTS.get(name, "add.py"), "passed", id=f"work: {name}") for name, plant in RIGHT_WORK.items()),
        *(pytest.param(plant, name.partition(",")[0], "passed", id=f"delivered: {name}") for name, plant in DELIVERED.items()),
    ],
)  # fmt: skip
async def test_plants_are_told_from_work(
    plant: Plant, outputs: str, outcome: str, kind: SandboxBackend
) -> None:
    skip_without(*programs_of(plant))
    said = await leave(kind, replace(plant, outputs=tuple(outputs.split())))
    assert said.split(":")[0] == outcome, said


@pytest.mark.parametrize("delivered", ["outputs", "everything"])
async def test_nothing_that_is_left_changes_the_tests_of_a_case(
    delivered: str, kind: SandboxBackend
) -> None:
    run = command("python3 -m unittest discover -s tests", regex="Ran 1 test")
    case = Plant("true", run, files=TEST_FILES, tests=("tests/test_add.py",))
    left = {
        name: (replace(case, leave=plant), outputs)
        for name, (outputs, plant) in AGAINST_TESTS.items()
    }
    left |= {
        name: (replace(plant, files={"a": "1\n"}), ".git a") for name, plant in FROM_GIT.items()
    }
    outcomes: dict[str, str] = {}
    for name, (plant, outputs) in left.items():
        patterns = tuple(outputs.split()) if delivered == "outputs" else None
        said = await leave(kind, replace(plant, outputs=patterns))
        if not said.startswith("failed"):
            outcomes[name] = said
    assert outcomes == {}


# What only outputs deliver: hooks and settings of a repository, and settings of a tool that the case brings.
BY_NAME = {
    "settings of git that are kept",
    "hooks that are kept",
    "hooks in a folder of their own",
    "a git hook",
    "a git setting",
    "a git alias",
    "conftest.py",
    "node_modules",
    ".git .git/hooks",
}


@pytest.mark.parametrize("name", sorted({**RIGHT_WORK, **DELIVERED}.keys() - BY_NAME))
async def test_right_work_passes_in_a_case_without_outputs(name: str, kind: SandboxBackend) -> None:
    plant = {**RIGHT_WORK, **DELIVERED}[name]
    skip_without(*programs_of(plant))
    said = await leave(kind, plant)
    assert said.startswith("passed"), said


@pytest.mark.parametrize(
    ("case", "plant"),
    [
        ("make", "GNUmakefile"),
        ("make", "makefile"),
        ("pytest", "conftest.py"),
        ("pytest", "pytest.ini with options"),
        ("npm test", "a module"),
        ("npm test", "a shell"),
        ("prove", "options"),
        ("git status", "assumed unchanged"),
        ("git status", "excluded"),
        ("git status", "a forged index"),
    ],
)
async def test_settings_of_a_tool_that_the_case_brings_are_left_behind_without_outputs(
    case: str, plant: str, kind: SandboxBackend
) -> None:
    guarded = CASES[case]
    skip_without(guarded.needs)
    wrong = replace(guarded.plant(guarded.wrong, guarded.plants[plant]), outputs=None)
    assert (await leave(kind, wrong)).startswith("failed")


@pytest.mark.parametrize("line", ["grep -q ll ~/.bashrc", "PATH=$HOME/.local/bin:$PATH greet", "git config --global user.name", "grep -q ll /home/student/.bashrc"])  # fmt: skip
def test_a_suite_is_warned_of_a_check_that_looks_into_a_home(line: str) -> None:
    case = {"prompt": "Set up my account.", "checks": command(line)}
    (warning,) = Suite.parse([case]).warnings
    assert "the home folder, which is not delivered" in warning
    assert Suite.parse([case | {"checks": command(f"export HOME=$TMPDIR; {line}")}]).warnings == ()


def test_a_suite_is_warned_of_a_file_that_decides_and_that_the_student_can_change() -> None:
    case = {"prompt": "Fix add.py.", "files": SCORE_FILES, "checks": command("python3 score.py")}
    (warning,) = Suite.parse([case]).warnings
    assert "a check uses score.py, which the student can change" in warning
    assert "write `tests: [score.py]` for what decides" in warning
    assert Suite.parse([case | {"outputs": ["add.py"]}]).warnings == ()
    assert Suite.parse([case | {"tests": ["score.py"]}]).warnings == ()


def test_keeps_is_refused_with_the_outputs_that_replace_it() -> None:
    with pytest.raises(UsageError, match="`keeps` is no more") as refused:
        Suite.parse([{"prompt": "Fix it.", "checks": command("make", keeps=["src", "a.py"])}])
    assert 'outputs: ["src", "a.py"]' in refused.value.hint


def test_asserted_is_refused_with_the_lines_that_replace_it() -> None:
    contains = {"contains": {"text": "A1", "asserted": True}}
    with pytest.raises(UsageError, match="contains: `asserted` is no more") as refused:
        Suite.parse([{"prompt": "Which?", "checks": [contains]}])
    assert '{"contains": {"text": "A1"}}' in refused.value.hint
    assert '{"equals": "A1"}' in refused.value.hint
