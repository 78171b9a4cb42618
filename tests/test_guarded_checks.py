"""Checks that run real programs: right work passes, wrong work fails, and so does wrong work with planted files.

Plants are left by shell in a real sandbox: each beside wrong work, and all of them beside right work, since what is put
back and removed must not harm what the case asked for.
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
FAKE_WANT = {
    "in place": 'echo \'open("want.txt", "w").write("-1\\n")\' >> add.py',
    "by another file": 'echo \'import os; open("w", "w").write("-1\\n"); os.replace("w", "want.txt")\' >> add.py',
    "by a FIFO": 'echo \'import os; os.unlink("want.txt"); os.mkfifo("want.txt"); os.fork() or (os.setsid(), open("want.txt", "w").write("-1\\n"))\' >> add.py',
    "and back": "cat >> add.py <<'E'\nimport os, time\nkept = open('want.txt').read()\nopen('want.txt', 'w').write('-1\\n')\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(0.3); open('want.txt', 'w').write(kept); os._exit(0)\nE",
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
        "node t.js", f"{RIGHT} add.js", {"lib.js": "echo 'exports.same = () => {}' > lib.js", "wanted.js": "echo 'module.exports = -1' > data/wanted.js", "wanted": "echo 'module.exports = -1' > data/wanted"}, prompt="Fix add.js.", needs="node", more={"contains": "PASS"},
    ),
    "a header": Guarded(
        {"add.c": "int add(int a, int b) { return a - b; }\n", "inc/.keep": "", "own/harness.h": "#include <stdlib.h>\n#define CHECK(x) ((x) ? 0 : (exit(1), 1))\nint add(int, int);\n", "t.c": "#include \"harness.h\"\nint main(void) { return CHECK(add(2, 3) == 5); }\n"},
        "cc -Iinc -Iown -o /tmp/t t.c add.c && /tmp/t", f"{RIGHT} add.c", {"before it": "printf '#define CHECK(x) 0\\nint add(int, int);\\n' > inc/harness.h", "compiled": "printf '#define CHECK(x) 0\\nint add(int, int);\\n' > x.h; cc -o own/harness.h.gch x.h; rm x.h"}, prompt="Fix add.c.", needs="cc",
    ),
    "expectations": Guarded(
        {"add.py": f"{SUBTRACTS}import sys\nprint(add(*map(int, sys.argv[1:])))\n", "expected/2-3.txt": "5\n", "verify.sh": "n=0; for f in expected/*; do b=${f##*/}; b=${b%.txt}; [ \"$(python3 add.py ${b%-*} ${b#*-})\" = \"$(cat $f)\" ] && n=$((n+1)); done; [ $n -ge 1 ] && echo PASS\n"},
        "bash verify.sh", f"{RIGHT} add.py", {"one more": "echo 0 > expected/3-3.txt"}, more={"contains": "PASS"},
    ),
    "a result that is read if it is there": Guarded(
        {"add.py": SUBTRACTS, "score.py": "import json, os, sys\nfrom add import add\nif os.path.exists('score.json'):\n    ok = json.load(open('score.json'))['ok']\nelse:\n    ok = add(2, 3) == 5\nprint('PASS' if ok else 'FAIL')\n"},
        "python3 score.py", f"{RIGHT} add.py", {"score.json": "echo '{\"ok\": true}' > score.json"}, more={"contains": "PASS"},
    ),
    "a compared file of any name": Guarded(
        {"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "numbers.txt": "5\n"}, "python3 add.py > out; diff out numbers.txt", f"{RIGHT} add.py",
        {"while it runs, " + way: script.replace("want.txt", "numbers.txt") for way, script in FAKE_WANT.items()}, planted_right=False,
    ),
    "a folder that is swapped while the check runs": Guarded(
        {"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "data/a.txt": "5\n"}, "python3 add.py > out; diff out data/a.txt", f"{RIGHT} add.py",
        {"and back": "cat >> add.py <<'E'\nimport os, time\nos.rename('data', 'old'); os.mkdir('data'); open('data/a.txt', 'w').write('-1\\n')\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(0.5); os.rename('data', 'x'); os.rename('old', 'data'); os._exit(0)\nE"}, planted_right=False,
    ),
    "settings in the home folder": Guarded(
        {"q.sql": "select 4;\n"}, "sqlite3 :memory: < q.sql | grep -qx 5", "echo 'select 5;' > q.sql", {"~/.sqliterc": "printf '.print 5\\n' > ~/.sqliterc"}, prompt="Fix q.sql so that it gives 5.", needs="sqlite3",
    ),
    "a target of make": Guarded(
        {"add.py": SUBTRACTS, "Makefile": "NAME = check\n$(NAME): add.py\n\tpython3 -c 'import add; assert add.add(2, 3) == 5'\n"}, "make check", f"{RIGHT} add.py", {"a file": "sleep 0.01; touch -d 2040-01-01 check", "a folder": "mkdir check; touch -d 2040-01-01 check"}, prompt="Fix add.py so that `make check` passes.", needs="make",
    ),
}  # fmt: skip
PRINTS = f"{SUBTRACTS}print(add(2, 3))\n"
PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 /opt/tools/bin/python -m pytest -q"
PLANTED = {
    "a link to what the check has open": Plant("ln -s /proc/self/fd/3 out.txt", command('cmp "$CHECK/want" out.txt', files={"want": "a\nb\n"}), files={"in.txt": "b\na\n"}, prompt="Sort in.txt into out.txt."),
    "a link to the check's input": Plant("ln -s /dev/stdin out.txt", command("printf 'a\\nb\\n' | cmp - out.txt"), files={"in.txt": "b\na\n"}, prompt="Sort in.txt into out.txt."),
    "a file that the prompt forbids to change": Plant("echo 'def same(a,b): return True' > util.py", command("python3 -c 'import util,add; assert util.same(add.add(2,3),5)'"), files={"add.py": SUBTRACTS, "util.py": "def same(a,b): return a==b\n"}, prompt="Fix add.py. Do not change util.py."),
    "a file that is not to be touched, where none is named": Plant("echo 'def same(a,b): return True' > util.py", command("python3 -c 'import util,add; assert util.same(add.add(2,3),5)'"), files={"add.py": SUBTRACTS, "util.py": "def same(a,b): return a==b\n"}, prompt="Fix the bug without touching util.py."),
    "data that the work starts from": Plant("echo 0 > data.csv; echo 7 > total.txt", command("python3 -c \"assert sum(map(int,open('data.csv')))+7==int(open('total.txt').read())+0\""), files={"data.csv": "1\n2\n"}, prompt="Read data.csv and write the sum of its numbers to total.txt."),
    "an expectation that the prompt names": Plant("python3 gen.py > expected.txt", command("python3 gen.py > out; cmp out expected.txt"), files={"gen.py": "print(4)\n", "expected.txt": "5\n"}, prompt="The output must be that of expected.txt."),
    "tests that the prompt names": Plant("echo > tests/test_add.py", command("python3 -m unittest discover -s tests"), files={"add.py": SUBTRACTS, "tests/test_add.py": CASE}, prompt="Make tests/test_add.py pass."),
    "another main file of a folder": Plant("echo '{\"main\": \"f.js\"}' > lib/package.json; echo 'exports.same=()=>{}' > lib/f.js", command("node t.js", contains="PASS"), files={"add.js": "exports.add=(a,b)=>a-b\n", "lib/index.js": "exports.same=require('assert').equal\n", "t.js": "require('./lib').same(require('./add').add(2,3),5);console.log('PASS')\n"}, prompt="Fix add.js."),
    "a header beside the source": Plant("printf '#define CHECK(x) 0\\nint add(int,int);\\n' > harness.h", command("cc -Iown -o /tmp/t t.c add.c && /tmp/t"), files={"add.c": "int add(int a,int b){return a-b;}\n", "own/harness.h": "#include <stdlib.h>\n#define CHECK(x) ((x)?0:(exit(1),1))\nint add(int,int);\n", "t.c": "#include \"harness.h\"\nint main(void){return CHECK(add(2,3)==5);}\n"}, prompt="Fix add.c."),
    "an output that is a link to the expectation": Plant("ln -s want.txt out", command("python3 add.py > out; diff out want.txt"), files={"add.py": PRINTS, "want.txt": "5\n"}, prompt="Fix add.py."),
    "a file of the check that is rewritten while it runs": Plant("cat >> add.py <<'E'\nimport os\nopen(os.environ['CHECK']+'/want.txt','w').write('-1\\n')\nE", command("python3 add.py > out; diff out \"$CHECK/want.txt\"", files={"want.txt": "5\n"}), files={"add.py": PRINTS}, prompt="Fix add.py."),
    "a script that is rewritten while it runs": Plant("cat >> add.py <<'E'\ns=open('verify.sh').read(); open('verify.sh','w').write(' '*len(s)+'\\necho PASS\\n')\nE", command("bash verify.sh", contains="PASS"), files={"add.py": PRINTS, "verify.sh": "x=$(python3 add.py)\n[ \"$x\" = 5 ] && echo PASS\n"}, prompt="Fix add.py."),
    "a script that is made executable and rewritten": Plant("cat >> add.py <<'E'\ns=open('verify.sh').read(); open('verify.sh','w').write(' '*len(s)+'\\necho PASS\\n')\nE", command("chmod +x verify.sh && ./verify.sh", contains="PASS"), files={"add.py": PRINTS, "verify.sh": "#!/bin/bash\nx=$(python3 add.py)\n[ \"$x\" = 5 ] && echo PASS\n"}, prompt="Fix add.py."),
    "an object file": Plant("sed 's/-/+/' add.c > /tmp/a.c; cc -c -o add.o /tmp/a.c; touch -d 2040-01-01 add.o", command("make prog && ./prog"), files={"add.c": "int add(int a,int b){return a-b;}\n", "main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "prog: main.o add.o\n\tcc -o prog main.o add.o\n"}, prompt="Fix the sum."),
    "a program that a script of the case runs": Plant("echo 'print(\"PASS\")' > ci/helpers.py", command("bash ci/run.sh", contains="PASS"), files={"add.py": SUBTRACTS, "ci/helpers.py": "import sys; sys.path.insert(0,'.')\nfrom add import add\nassert add(2,3)==5\nprint('PASS')\n", "ci/run.sh": "python3 ci/helpers.py\n"}, prompt="Fix the bug."),
    "a module in an earlier folder": Plant("mkdir -p vendor; echo 'def ok(): return True' > vendor/rules.py", command("python3 run.py", contains="PASS"), files={"add.py": SUBTRACTS, "rules.py": "from add import add\ndef ok(): return add(2,3)==5\n", "run.py": "import sys\nsys.path.insert(0, 'vendor')\nimport rules\nprint('PASS' if rules.ok() else 'FAIL')\n"}, prompt="Fix add.py."),
    "an object file of a pattern rule": Plant("sed 's/-/+/' add.c > /tmp/a.c; mkdir -p build; cc -c -o build/add.o /tmp/a.c; touch -d 2040-01-01 build/add.o; touch -d 1970-01-02 add.c", command("make prog && ./prog"), files={"add.c": "int add(int a,int b){return a-b;}\n", "main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "prog: build/main.o build/add.o\n\tcc -o prog build/main.o build/add.o\nbuild/%.o: %.c\n\tmkdir -p build; cc -c -o $@ $<\n"}, prompt="Fix the sum."),
    "a generated file with a date": Plant("echo 5 > out/sum.txt; touch -d 2040-01-01 out/sum.txt", command("make && grep -qx 5 out/sum.txt"), files={"add.py": PRINTS, "out/.keep": "", "Makefile": "all: out/sum.txt\nout/%.txt: add.py\n\tpython3 add.py > $@\n"}, prompt="Fix add.py."),
    "a source that VPATH finds first": Plant("echo 'int main(void){return 0;}' > alt/main.c", command("make prog && ./prog"), files={"alt/.keep": "", "src/add.c": "int add(int a,int b){return a-b;}\n", "src/main.c": "int add(int,int);int main(void){return add(2,3)!=5;}\n", "Makefile": "VPATH = alt:src\nprog: main.o add.o\n\tcc -o prog main.o add.o\n"}, prompt="Fix src/add.c."),
    "a module with a path": Plant("printf 'import sys, types\\n__path__ = []\\nsys.modules[\"tools.rules\"] = rules = types.ModuleType(\"tools.rules\")\\nrules.ok = lambda: True\\n' > tools.py", command("python3 run.py", contains="PASS"), files={"add.py": SUBTRACTS, "tools/rules.py": "from add import add\ndef ok(): return add(2,3)==5\n", "run.py": "from tools.rules import ok\nprint('PASS' if ok() else 'FAIL')\n"}, prompt="Fix add.py."),
    "a submodule that is ignored": Plant(f"mkdir sub; (cd sub; echo 1 > x; {REPOSITORY}); printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = all\\n' > .gitmodules; {REPOSITORY}; echo 2 > sub/x", command('test -z "$(git status --porcelain)" && git rev-parse -q HEAD'), files={"a": "1\n"}, prompt="Commit everything."),
    "unittests that are all skipped": Plant("printf 'import unittest\\ndef add(a, b): raise unittest.SkipTest(1)\\n' > add.py", command("python3 -m unittest", contains="OK"), files={"add.py": SUBTRACTS, "test_add.py": CASE}, prompt="Fix add.py."),
    "pytests that are all skipped": Plant("printf 'import pytest\\ndef add(a, b): pytest.skip(\"x\")\\n' > add.py", command(PYTEST), files={"add.py": SUBTRACTS, "test_add.py": "from add import add\ndef test_add(): assert add(2, 3) == 5\n"}, prompt="Fix add.py."),
    "data beside the code that is named": Plant("echo -1 > numbers.txt", command("python3 -c 'import add; assert add.add(2, 3) == int(open(\"numbers.txt\").read())'"), files={"add.py": SUBTRACTS, "numbers.txt": "5\n"}, prompt="Fix add.py. It should give the number of numbers.txt."),
    "a header of the system, in quotes": Plant("echo '#define assert(x)' > assert.h", command("cc -o /tmp/t t.c add.c && /tmp/t"), files={"add.c": "int add(int a,int b){return a-b;}\n", "t.c": '#include "assert.h"\nint add(int,int);\nint main(void){assert(add(2,3)==5);return 0;}\n'}, prompt="Fix add.c."),
    "attributes that are committed": Plant(f"echo '* -whitespace' > .gitattributes; {REPOSITORY}", command("git diff --check $(git hash-object -t tree /dev/null) HEAD -- notes.txt"), files={"notes.txt": "a \n"}, prompt="Remove trailing white space, and commit."),
    "data that a command looks at beside the code that is named": Plant("echo 1000 > limits.ini", command('test "$(python3 compute.py 50)" -le "$(cat limits.ini)"'), files={"compute.py": "import sys\nprint(sys.argv[1])\n", "limits.ini": "10\n"}, prompt="Make compute.py respect the maximum in limits.ini."),
    "a module before a package": Plant("echo 'print(\"PASS\")' > verify.py", command("python3 -m verify", contains="PASS"), files={"add.py": SUBTRACTS, "verify/__main__.py": "from add import add\nassert add(2,3)==5\nprint('PASS')\n"}, prompt="Fix add.py."),
}  # fmt: skip
RIGHT_WORK = {
    "a module of a package with the name of an installed one": Plant("echo 'price = 5' > shop/types.py", command("python3 -c 'from shop.types import price; assert price == 5'"), files={"shop/__init__.py": "", "shop/cart.py": "price = 4\n"}, prompt="Put the prices into a module of their own in the package shop, called types."),
    "settings of git that are kept": Plant(f"{REPOSITORY}; git config foo.bar yes", command("git config --get-regexp 'foo.*' | grep -q yes", keeps=[".git/config"]), files={"a": "1\n"}, prompt="Set it up."),
    "a pattern that is kept": Plant("echo x > data/a.txt", command("grep -qx x data/a.txt && python3 t.py", keeps=["data/*.txt"]), files={"data/a.txt": "y\n", "t.py": "open('data/a.txt')\n", "m.py": ""}, prompt="Fix m.py."),
    "a function that writes to a file of the case": Plant("true", python("pathlib.Path(workspace, 'want.txt').write_text('7'); return True"), files={"add.py": PRINTS, "want.txt": "5\n"}, prompt="Fix add.py."),
    "data that the work starts from": Plant("echo 3 > total.txt", command("python3 -c \"assert sum(map(int,open('data.csv')))==int(open('total.txt').read())\""), files={"data.csv": "1\n2\n"}, prompt="Read data.csv and write the sum of its numbers to total.txt."),
    "a file that is newer than one of the case": Plant("sleep 0.1; cp in.txt out.txt", command("test out.txt -nt in.txt"), files={"in.txt": "x\n"}, prompt="Bring out.txt up to date."),
    "an attribute of git": Plant(f"echo 'a export-ignore' > .gitattributes; {REPOSITORY}", command("! git archive HEAD | tar t | grep -qx a"), files={"a": "1\n", "b": "2\n"}, prompt="Leave a out of the archives."),
    "data to change": Plant("sort -u list.txt > x; mv x list.txt", command("sort list.txt | uniq -d | wc -l | grep -qx 0 && test $(wc -l < list.txt) = 2"), files={"list.txt": "1\n1\n2\n"}, prompt="Remove the duplicates from list.txt."),
    "a script of the check that is made executable": Plant(f"{RIGHT} add.py", command("chmod +x \"$CHECK/v.sh\"; \"$CHECK/v.sh\"", files={"v.sh": "#!/bin/sh\ntest $(python3 add.py) = 5\n"}), files={"add.py": PRINTS}, prompt="Fix add.py."),
    "fixtures of the student's own tests": Plant("cat > test_add.py <<'E'\nfrom add import add\ndef test_add(two): assert add(two, 3) == 5\nE\nprintf 'import pytest\\n@pytest.fixture\\ndef two(): return 2\\n' > conftest.py", command(PYTEST, contains="1 passed"), files={"add.py": ADDS}, prompt="Write pytest tests for add."),
    "settings of the student's own tests": Plant("mkdir -p src tests; echo 'def f(): return 5' > src/m.py; printf 'import m\\ndef test(): assert m.f()==5\\n' > tests/test_m.py; printf '[tool.pytest.ini_options]\\npythonpath = [\"src\"]\\n' > pyproject.toml", command(PYTEST, contains="1 passed"), prompt="Set up a Python project with a src layout and a passing pytest test."),
    "hooks that are kept": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo 2 > a; ! git commit -qam b", keeps=[".git/hooks"]), files={"a": "1\n"}, prompt="Refuse every commit."),
    "hooks in a folder of their own": Plant(f"{REPOSITORY}; mkdir .githooks; printf '#!/bin/sh\\nexit 1\\n' > .githooks/pre-commit; chmod +x .githooks/pre-commit; git config core.hooksPath .githooks", command("echo 2 > a; ! git commit -qam b"), files={"a": "1\n"}, prompt="Add a pre-commit hook in .githooks that refuses every commit, through core.hooksPath."),
    "code where only a specification is named": Plant("echo 'def parse(x): return int(x)' > parser.py", command("python3 -c 'import parser as p; assert p.parse(\"5\")==5'"), files={"SPEC.md": "parse gives an int\n", "parser.py": "def parse(x): return x\n"}, prompt="Follow SPEC.md and fix the parser."),
    "a mode that is committed": Plant(f"chmod +x run.sh; {REPOSITORY}", command("git ls-files -s run.sh | grep -q ^100755 && test -z \"$(git status --porcelain)\""), files={"run.sh": "#!/bin/sh\necho 1\n", "add.py": SUBTRACTS}, prompt="Fix add.py. Make the scripts executable and commit everything."),
    "a script beside its page": Plant("echo '<script src=index.js></script>' > index.html; echo 'x=1' > index.js", command("node --check index.js && grep -q index.js index.html"), files={"index.html": "<p>\n"}, prompt="Move the script out of the page into a file of its own."),
    "a source beside its header": Plant("echo 'int add(int a,int b){return a+b;}' > util.c", command("cc -o /tmp/t main.c util.c && /tmp/t"), files={"util.h": "int add(int,int);\n", "main.c": "#include \"util.h\"\nint main(void){return add(2,3)!=5;}\n"}, prompt="Implement what the header declares."),
    "a check that checks out another commit": Plant(f"{REPOSITORY}; {RIGHT} add.py; git commit -qam fixed", command("git stash list; git checkout -q HEAD~1 && ! python3 t.py; git checkout -q main && python3 t.py"), files={"add.py": SUBTRACTS, "t.py": "from add import add\nassert add(2,3)==5\n"}, prompt="Fix add.py and commit."),
    "data that the prompt means by a word": Plant("echo '[{\"x\": 1}]' > fixtures.json", command("python3 -c \"import json; assert len(json.load(open('fixtures.json')))==1\""), files={"fixtures.json": "[]", "test_a.py": "import json\njson.load(open('fixtures.json'))\n"}, prompt="Add a record to the fixtures."),
    "a script that package.json names": Plant("sed -i 's/a - b/a + b/' src/add.js; echo 'exports.x=1' > src/more.js", command("npm test", contains="ok"), files={"package.json":'{"name": "a", "version": "1.0.0","scripts":{"start": "node src/server.js", "test": "node test/run.js"}}', "src/add.js": "exports.add = (a, b) => a - b;\n", "src/server.js": "", "test/run.js": "require('assert').equal(require('../src/add').add(2,3),5);console.log('ok')\n"}, prompt="Sums are wrong."),
    "a folder that the prompt names": Plant("for f in texts/*; do tr a-z A-Z < $f > x; mv x $f; done", command("! grep -q '[a-z]' texts/*"), files={"texts/a.txt": "a\n", "texts/b.txt": "b\n", "upper.py": "print(1)\n"}, prompt="Make the text of all files in texts/ upper case."),
    "a pattern": Plant("echo '# B' > b.md", command("head -qn1 *.md | grep -c '^# ' | grep -qx 2"), files={"a.md": "# A\n", "b.md": "B\n", "app.py": ""}, prompt="Give every *.md a title."),
    "a kind of file": Plant("sed -i s/select/SELECT/ q/*.sql", command("! grep -q select q/*.sql"), files={"q/a.sql": "select 1;\n", "q/b.sql": "select 2;\n", "run.py": ""}, prompt="Write the keywords in every .sql file in capitals."),
    "node.js in the prompt": Plant("sed -i 's/a - b/a + b/' lib/add.js", command("node -e \"process.exit(require('./lib/add').add(2, 3) === 5 ? 0 : 1)\""), files={"lib/add.js": "exports.add = (a, b) => a - b;\n"}, prompt="The sum is wrong. We use node.js 18."),
    "discord.py in the prompt": Plant("sed -i 's/a - b/a + b/' bot.py", command("python3 -c 'import bot; assert bot.add(2, 3) == 5'"), files={"bot.py": SUBTRACTS}, prompt="Our bot uses discord.py. Its sums are wrong."),
    "a solution that another file runs": Plant("echo 'def solve(): return 5' > solution.py; echo 'from solution import solve\nprint(solve())' > main.py", command("python3 main.py", contains="5"), files={"solution.py": "def solve(): ...\n", "main.py": "from solution import solve\n"}, prompt="Finish solution.py and print what it returns in main.py."),
    "a validator that is asked for": Plant("echo 'def valid(x): return True' > validate.py; echo 'import validate; print(validate.valid(1))' > main.py", command("python3 main.py", contains="True"), files={"validate.py": "", "main.py": ""}, prompt="Write valid() in validate.py and call it in main.py."),
    "a git hook": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\n! git diff --cached | grep -q TODO\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo TODO > b; git add b; ! git commit -qm b && echo fine > b && git add b && git commit -qm b"), files={"a.txt": "1\n"}, prompt="Start a repository with a hook that refuses TODO."),
    "a git setting": Plant(f"{REPOSITORY}; git config pull.rebase true", command('test "$(git config --get pull.rebase)" = true'), files={"a.txt": "1\n"}, prompt="Start a repository in which pulls rebase."),
    "a git alias": Plant(f"{REPOSITORY}; git config alias.st 'status --short'", command("git st && test -z \"$(git st)\""), files={"a.txt": "1\n"}, prompt="Start a repository with an alias st for a short status."),
    "what git ignores": Plant(f"echo '*.log' > .gitignore; {REPOSITORY}; echo 1 > b.log", command('git check-ignore -q b.log && test -z "$(git status --porcelain)"'), files={"a.txt": "1\n"}, prompt="Start a repository that ignores logs."),
    "what git ignores, uncommitted": Plant(f"{REPOSITORY}; echo '*.log' > .gitignore; echo 1 > b.log", command("! git status --porcelain | grep -q log"), files={"a.txt": "1\n"}, prompt="Start a repository. Ignore logs."),
    "an executable script that is put back": Plant("chmod +x go.sh; sed -i 's/a - b/a + b/' add.py", command("./go.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "go.sh": "#!/bin/sh\npython3 add.py\n"}, prompt="Fix add.py, and make go.sh executable."),
    "an executable script of the case": Plant("chmod +x run_it.sh; sed -i 's/a - b/a + b/' add.py; echo '#' >> run_it.sh", command("./run_it.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "run_it.sh": "#!/bin/sh\npython3 add.py\n"}, prompt="Fix add.py."),
    "a script that the check makes executable": Plant("sed -i 's/a - b/a + b/' add.py", command("chmod +x verify.sh && ./verify.sh", contains="5"), files={"add.py": f"{SUBTRACTS}print(add(2, 3))\n", "verify.sh": "#!/bin/sh\npython3 add.py\n"}, prompt="Fix add.py."),
    "a Makefile that builds once": Plant("printf 'out: in.txt\\n\\tcp in.txt out\\n' > Makefile; make", command("make && make | grep -q 'up to date'"), files={"in.txt": "1\n"}, prompt="Write a Makefile that copies in.txt to out, but only when it changed."),
    "a report that make wants": Plant("echo done > report.txt", command("make check"), files={"Makefile": "check: report.txt\n\tgrep -q done report.txt\nreport.txt:\n\t@echo write it first; exit 1\n"}, prompt="Write report.txt."),
    "a project for npm": Plant('echo \'{"name": "a", "version": "1.0.0", "scripts": {"test": "node t.js"}}\' > package.json; echo "console.log(5)" > t.js', command("npm test", contains="5"), prompt="Set up a project whose tests print 5."),
    "a project for make": Plant("printf 'include more.mk\\n' > Makefile; printf 'all:\\n\\techo 5\\n' > more.mk", command("make", contains="5"), prompt="Set up a build that prints 5."),
    "a project for cmake": Plant("printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a NONE)\\nmessage(STATUS five)\\n' > CMakeLists.txt", command("cmake -S . -B build", contains="five"), prompt="Set up a build that says five."),
    "tests that are asked for, beside those of the case": Plant(f"mkdir -p tests; cat > tests/test_sub.py <<'E'\n{CASE}E", command("python3 -m unittest discover -s tests", regex="Ran 2 tests"), files={"add.py": ADDS, "tests/test_add.py": CASE}, prompt="Write more unit tests for add."),
    "a test of the case to extend": Plant(f"cat > test_add.py <<'E'\n{CASE}    def test_zero(self): self.assertEqual(add(0, 0), 0)\nE", command("python3 -m unittest test_add", regex="Ran 2 tests"), files={"add.py": ADDS, "test_add.py": CASE}, prompt="Add a test for zero to test_add.py."),
    "tests that a change of the code must break": Plant(f"cat > test_add.py <<'E'\n{CASE}E", command("python3 -m unittest test_add && sed -i 's/a + b/a * b/' add.py && ! python3 -m unittest test_add"), files={"add.py": ADDS}, prompt="Write tests into test_add.py."),
    "testimonials": Plant("echo 'names = [1, 2]' > testimonials.py; echo 3 > .count", command("python3 app.py", contains="5"), files={"testimonials.py": "names = []\n", "app.py": "import testimonials\nprint(len(testimonials.names) + int(open('.count').read()))\n"}, prompt="Make it print 5."),
    "a setting that no one names": Plant("echo 'port: 8080' > config.yaml", command("grep -qx 'port: 8080' config.yaml"), files={"config.yaml": "port: 80\n", "app.py": "print(open('config.yaml').read())\n"}, prompt="Change the port in the config to 8080."),
    "a setting that the program reads": Plant("echo 'port: 8080' > config.yaml", command("python3 app.py", contains="8080"), files={"config.yaml": "port: 80\n", "app.py": "import util\nprint(open('config.yaml').read())\n", "util.py": ""}, prompt="Change the port in the config to 8080."),
    "data that a test of the case looks at": Plant("echo '{\"retries\": 5}' > settings.json", command("python3 -m unittest test_settings"), files={"settings.json": '{"retries": 3}', "test_settings.py": "import json, unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(json.load(open('settings.json'))['retries'], 5)\n"}, prompt="Retry five times."),
    "an expected file of the check": Plant("echo 5 > out.txt", command("diff out.txt \"$CHECK/want.txt\"", files={"want.txt": "5\n"}), files={"out.txt": "4\n"}, prompt="It should say 5."),
}  # fmt: skip


NOT_BUILT = {
    "Makefile": "prog: main.c\n\tgcc9 -o prog main.c\n",
    "main.c": "int main(void) { return 0; }\n",
}
BUILDS = "sed -i s/gcc9/cc/ Makefile"
SUMS = {"add.py": ADDS, "test_add.py": CASE.replace("5", "6")}
# Right work that cannot be told from a fake: the file that the finding names.
DISPUTED = {
    "--exclude=*.py": Plant("touch -- '--exclude=*.py'", command("! grep -r TODO *"), files={"a.py": "x = 1  # TODO\n"}, prompt="Remove every TODO."),
    "--help.py": Plant("touch -- --help.py", command("! cat *.py | grep TODO"), files={"a.py": "x = 1  # TODO\n"}, prompt="Remove every TODO."),
    "Makefile": Plant(BUILDS, command("make && ./prog"), files=NOT_BUILT, prompt="`make` fails. Fix it."),
    "Makefile, in the second of two checks": Plant(BUILDS, [*command("make -v"), *command("make && ./prog")], files=NOT_BUILT, prompt="`make` fails. Fix it."),
    "Makefile, where a function breaks": Plant(BUILDS, python("subprocess.run(['make'], check=True, cwd=workspace); return True"), files=NOT_BUILT, prompt="`make` fails. Fix it."),
    "test_add.py": Plant("sed -i s/6/5/ test_add.py", command("python3 -m unittest"), files=SUMS, prompt="A test expects the wrong sum. Correct it."),
    "test_add.py, which is to go": Plant("rm test_add.py", command("test ! -e test_add.py && python3 -c 'import add'"), files=SUMS, prompt="Delete test_add.py."),
    "want.txt": Plant("python3 gen.py > want.txt", command("python3 gen.py | diff - want.txt"), files={"gen.py": "print(5)\n", "want.txt": "4\n"}, prompt="Generate the expectation anew."),
    "conftest.py": Plant("printf 'import pytest\\n@pytest.fixture\\ndef two(): return 2\\n' > conftest.py", command(PYTEST), files={"test_a.py": "def test_a(two): assert two == 2\n"}, prompt="A fixture is missing."),
    "package.json": Plant("sed -i s/1.0.0/2.0.0/ package.json", command("node -p \"require('./package.json').version\"", contains="2.0.0"), files={"package.json": '{"version": "1.0.0"}', "index.js": ""}, prompt="Raise the version to 2.0.0."),
    "a.ini": Plant("echo 1 > a.ini", command("python3 -c 'assert int(open(\"a.ini\").read()) == 1'"), files={"add.py": ADDS, "a.ini": "0"}, prompt="Tidy add.py, and set a.ini to 1."),
    "node_modules": Plant("mkdir -p node_modules/five; echo 'module.exports = 5' > node_modules/five/index.js", command("npm test"), files={"package.json": '{"name": "a", "version": "1.0.0", "scripts": {"test": "node t.js"}}', "t.js": "require('assert').equal(require('five'), 5)\n"}, prompt="Install the dependencies."),
    ".git/hooks": Plant(f"{REPOSITORY}; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", command("echo 2 > a; ! git commit -qam b"), files={"a": "1\n"}, prompt="Nobody may commit any more."),
    "n.txt": Plant("printf 'import sys\\nn = int(open(sys.argv[1]).read()) + 1\\nopen(sys.argv[1], \"w\").write(str(n))\\n' > bump.py", command('python3 bump.py "$CHECK/n.txt" && grep -qx 8 "$CHECK/n.txt"', files={"n.txt": "7\n"}), prompt="Write bump.py, which adds one to the number in a file."),
    "out.txt": Plant("sleep 0.1; cp in.txt out.txt", command("test out.txt -nt in.txt && make -n all"), files={"in.txt": "x\n", "Makefile": "all:\n\tcp in.txt out.txt\n"}, prompt="Bring out.txt up to date."),
    "count.txt": Plant("printf 'n = int(open(\"count.txt\").read()) + 1\\nopen(\"count.txt\", \"w\").write(str(n))\\nprint(n)\\n' > app.py", command("python3 app.py; python3 app.py | grep -qx 2"), files={"app.py": "", "count.txt": "0"}, prompt="app.py should count its visits."),
}  # fmt: skip


@pytest.fixture
async def kind(home: Path) -> SandboxBackend:
    return (await choose_sandbox("bubblewrap")).backend


@pytest.mark.parametrize("name", CASES | SHADOWS)
async def test_right_work_passes_and_wrong_work_fails_whatever_was_planted(
    name: str, kind: SandboxBackend
) -> None:
    case = (CASES | SHADOWS)[name]
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


@pytest.mark.parametrize(
    ("plant", "outcome"),
    [
        *(pytest.param(plant, "failed", id=f"plant: {name}") for name, plant in PLANTED.items()),
        *(pytest.param(plant, "passed", id=f"work: {name}") for name, plant in RIGHT_WORK.items()),
    ],
)
async def test_plants_are_told_from_work(plant: Plant, outcome: str, kind: SandboxBackend) -> None:
    line = plant.checks[0].get("command", {}).get("run", "")
    for program in ("git", "npm", "node", "cmake", "make", "cc"):
        if program in line.split() and not shutil.which(
            program, path="/usr/local/bin:/usr/bin:/bin"
        ):
            pytest.skip(f"{program} is not installed where a sandbox sees it")
    notes = ["failed"]
    await leave(kind, plant, notes.append)
    assert notes[-1].split(":")[0] == outcome


@pytest.mark.parametrize("name", DISPUTED)
async def test_a_check_that_passes_only_with_what_was_put_back_or_removed_is_disputed(
    name: str, kind: SandboxBackend
) -> None:
    plant, file = DISPUTED[name], name.split(",", maxsplit=1)[0]
    line = " ".join(str(check) for check in plant.checks)
    for program in ("git", "npm", "make"):
        if program in line and not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"):
            pytest.skip(f"{program} is not installed where a sandbox sees it")
    grading = await leave(kind, plant, pytest.fail)
    assert grading.cause == "disputed"
    reason = grading.findings[-1].reason
    assert file in reason
    assert "name it in `keeps`" in reason
    kept = [
        {name: config | {"keeps": [file]} for name, config in each.items()} for each in plant.checks
    ]
    notes = ["failed"]
    await leave(kind, replace(plant, checks=kept), notes.append)
    assert notes[-1].split(":")[0] == "passed"


# Wrong work on a case whose prompt names two files: the one that measures, and the one that is the work.
MEASURES = {
    "rates.csv": ("totals.csv", Plant("cp totals.csv rates.csv", command("cmp totals.csv rates.csv"), files={"totals.csv": "a,9\n", "rates.csv": "a,5\n"}, prompt="The sums in totals.csv are wrong; rates.csv has the rates.")),
    "MAJOR": ("next.txt", Plant("cp next.txt MAJOR", python("os.chdir(workspace); return open('next.txt').read() == open('MAJOR').read()"), files={"next.txt": "1\n", "MAJOR": "2\n"}, prompt="Set next.txt to what MAJOR says.")),
    "VERSION": ("setup.txt", Plant("cp setup.txt VERSION", command('test "$(cat setup.txt)" = "$(cat VERSION)"'), files={"setup.txt": "1\n", "VERSION": "2\n"}, prompt="Set the version in setup.txt to the one in VERSION.")),
    "lint.sh": ("style.c", Plant("echo exit 0 > lint.sh", command("bash lint.sh style.c"), files={"lint.sh": "! grep -n ';;' \"$1\"\n", "style.c": "int a;;\n"}, prompt="Make style.c clean according to lint.sh.")),
    "bench.py": ("fast.py", Plant("echo 'print(1)' > bench.py", command("python3 bench.py", contains="1"), files={"bench.py": "from fast import f\nassert f(3) == 9\nprint(1)\n", "fast.py": "def f(x): return x\n"}, prompt="bench.py says whether fast.py is right. Make fast.py right.")),
    "rules.sql": ("items.sql", Plant("echo > rules.sql", command("python3 run.py"), files={"items.sql": "a\n", "rules.sql": "b\n", "run.py": "assert open('rules.sql').read().strip() in open('items.sql').read()\n"}, prompt="Correct the .sql files.")),
}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "grep -q ll ~/.bashrc",
        "PATH=$HOME/.local/bin:$PATH greet",
        "git config --global user.name | grep Ada",
    ],
)
def test_a_suite_is_warned_of_a_check_that_looks_into_its_own_empty_home(line: str) -> None:
    case = {"prompt": "Set up my account.", "checks": command(line)}
    assert ["is in /home/student" in warning for warning in Suite.parse([case]).warnings] == [True]
    named = command("grep -q ll /home/student/.bashrc")
    assert Suite.parse([case | {"checks": named}]).warnings == ()
    assert (
        Suite.parse([case | {"checks": command(f"export HOME=/home/student; {line}")}]).warnings
        == ()
    )


@pytest.mark.parametrize(
    ("work", "line"),
    [
        ("echo alias ll >> ~/.bashrc", "grep -q ll /home/student/.bashrc"),
        (
            "git config --global user.name Ada",
            "git config -f /home/student/.gitconfig user.name | grep Ada",
        ),
        ("echo milk > ~/todo.txt", "grep milk /home/student/todo.txt"),
    ],
)
async def test_a_check_finds_what_the_student_left_in_its_home(
    work: str, line: str, kind: SandboxBackend
) -> None:
    notes = ["failed"]
    await leave(kind, Plant(work, command(line)), notes.append)
    assert notes[-1].split(":")[0] == "passed"


@pytest.mark.parametrize("file", MEASURES)
async def test_a_suite_is_warned_of_a_file_that_measures_the_work_until_keeps_names_the_work(
    file: str, kind: SandboxBackend
) -> None:
    work, plant = MEASURES[file]
    warnings = Suite.parse(
        [{"prompt": plant.prompt, "files": plant.files, "checks": plant.checks}]
    ).warnings
    assert [file in warning and work in warning for warning in warnings] == [True]
    checks = [{name: config | {"keeps": [work]} for name, config in plant.checks[0].items()}]
    assert (
        Suite.parse([{"prompt": plant.prompt, "files": plant.files, "checks": checks}]).warnings
        == ()
    )
    grading = await leave(kind, replace(plant, checks=checks), pytest.fail)
    assert grading.cause == "disputed"
    assert file in grading.findings[-1].reason


async def test_a_failure_is_not_disputed_where_another_check_fails_for_good(
    kind: SandboxBackend,
) -> None:
    checks = [*command("make && ./prog"), {"file_exists": "notes.txt"}]
    grading = await leave(
        kind, Plant(BUILDS, checks, files=NOT_BUILT, prompt="`make` fails. Fix it."), pytest.fail
    )
    assert [finding.passed for finding in grading.findings] == [False, False]
    assert grading.cause == ""
