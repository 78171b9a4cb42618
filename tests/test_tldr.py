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
    assert (page.name, page.heading, page.links) == (
        "tern",
        "Deploy services. Attracts gulls",
        ["https://example.org/tern"],
    )
    dropped: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    made = cases.make_cases(page, cases.Documentation(DOCUMENTATION, facts), dropped)
    deploy, listed, log, undo = made
    assert deploy.prompt == (
        "Tool: tern (Deploy services. Attracts gulls). Task: Deploy without questions. "
        "Use exactly: `path/to/app`. Answer with the one command line and nothing else."
    )
    assert deploy.check == {
        "command": ["tern deploy --force path/to/app"],
        "aliases": [["--force", "-f"]],
    }
    assert listed.check == {
        "command": ["tern list --env=production"],
        "aliases": [["--env", "-e"]],
    }
    assert log.check["command"] == ["tern log --follow service1 service2"]
    assert undo.check["command"][0].split()[2] in ("fast", "slow")
    assert undo.check["command"][0].split()[3].removeprefix("-n=").isdigit()
    assert {reason.removeprefix("example: ") for reason, count in dropped.items() if count} == {
        "case",
        "option or subcommand that the documentation lacks",
        "shell syntax",
        "open placeholder",
        "help or version",
        "bare command",
    }
    assert cases.make_cases(page, cases.Documentation("", facts), Counter()) == made


def test_addresses_of_one_project_are_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "bench" / "tldr"))
    from packages import find_place  # noqa: PLC0415

    place = "github.com/gull/tern"
    for url in (
        "https://github.com/gull/tern#usage",
        "git@github.com:Gull/tern.git",
        "https://gull.github.io/tern/cli",
        "gull/tern",
    ):
        assert find_place(url) == place
    assert find_place("https://docs.tern.dev/cli") == find_place("https://tern.dev") == "tern.dev"
    assert find_place("https://a.readthedocs.io/x") != find_place("https://b.readthedocs.io/x")
    assert find_place("https://manned.org/tern") == ""
