"""The benchmark bench/tldr: how an example of a page becomes a case, and why others are dropped."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY

PAGE = """# tern

> Deploy services. Attracts gulls.
> More information: <https://example.org/tern>.

- [D]eploy without questions:

`sudo tern deploy {{[-f|--force]}} {{path/to/app}}`

- List the services of an environment:

`tern list --env {{production}}`

- Follow the log of some services:

`tern log --follow {{service1 service2 ...}}`

- Undo a number of steps in the chosen way:

`tern undo {{fast|slow}} -n{{number}}`

- Say it with an option that nobody knows:

`tern say --secret {{word}}`

- Deploy and read the log:

`tern deploy {{app}} && tern log`

- Run anything:

`tern run {{command}}`

- Display help:

`tern --help`

- Start:

`tern`
"""
DOCUMENTATION = """usage: tern [options] (deploy | list | log | undo)
  -f, --force       ask nothing
  -e, --env NAME    which environment
  --follow          wait for more
  -n COUNT          how many steps
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(REPOSITORY / "bench" / "tldr"))
    import cases  # noqa: PLC0415 - of the benchmark
    import pages  # noqa: PLC0415

    yield pages, cases
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent.name == "tldr":
            del sys.modules[name]


def test_examples_of_a_page_become_cases_or_are_dropped_for_a_reason(bench: Any) -> None:
    pages, cases = bench
    page = pages.parse_page("pages/common/tern.md", PAGE)
    assert (page.name, page.heading) == ("tern", "Deploy services. Attracts gulls")
    dropped: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    made = cases.make_cases(page, cases.Documentation(DOCUMENTATION, facts), dropped)
    assert [case["id"] for case in made] == ["tern-1", "tern-2", "tern-3", "tern-4"]
    checks = [case["checks"][0]["command_line"] for case in made]
    deploy, listed, log, undo = checks
    assert made[0]["prompt"] == (
        "Tool: tern (Deploy services. Attracts gulls). Task: Deploy without questions. "
        "Use exactly: `path/to/app`. Answer with the one command line and nothing else."
    )
    assert deploy == {
        "command": ["tern deploy --force path/to/app"],
        "aliases": [["--force", "-f"]],
    }
    assert listed == {
        "command": ["tern list --env=production"],
        "aliases": [["--env", "-e"]],
    }
    assert log["command"] == ["tern log --follow service1 service2"]
    assert undo["command"][0].split()[2] in ("fast", "slow")
    assert undo["command"][0].split()[3].removeprefix("-n=").isdigit()
    assert {reason.removeprefix("example: ") for reason, count in dropped.items() if count} == {
        "case",
        "option or subcommand that the documentation lacks",
        "shell syntax",
        "open placeholder",
        "help or version",
        "bare command",
    }
    assert cases.make_cases(page, cases.Documentation("", facts), Counter()) == made
