"""Help pages, the start page, hints and completion: what a person sees who does not know the options yet."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from conftest import Upskill, write_script, write_skill
from upskill import __file__ as package
from upskill.cli import COMMANDS, HIDDEN, upskill
from upskill.cli.help import COMMON, GROUPS, fitting_hint

BIN = Path(sys.executable).with_name("upskill")


def every_command() -> Iterator[tuple[str, click.Command]]:
    yield "", upskill
    for name in (*COMMANDS, *HIDDEN):
        command = upskill.get_command(click.Context(upskill), name)
        assert command is not None
        yield name, command
        for sub_name, sub in getattr(command, "commands", {}).items():
            yield f"{name} {sub_name}", sub


def options_of(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def page_of(name: str, command: click.Command, width: int = 80) -> str:
    context = click.Context(
        command, info_name=f"upskill {name}", terminal_width=width, help_option_names=["--help"]
    )
    return command.get_help(context)


def test_without_a_command_a_short_page_says_how_to_start(upskill: Upskill) -> None:
    done = upskill()
    assert (done.code, done.err) == (0, "")
    named = re.findall(r"^  upskill (\w+)", done.out, re.MULTILINE)
    assert {"init", "eval", "show", "doctor"} <= set(named) <= set(COMMANDS)
    assert len(done.out.splitlines()) < 15


def test_no_line_of_a_help_page_is_too_wide_and_none_shows_how_click_names_types() -> None:
    pages = {name: page_of(name, command) for name, command in every_command()}
    assert not [line for page in pages.values() for line in page.splitlines() if len(line) > 80]
    for name, page in pages.items():
        assert not re.search(r"INTEGER|FLOAT|TEXT RANGE|x>=|<=x|1000000", page), name


def test_a_page_gives_the_default_of_its_own_command_and_offers_no_agent_that_it_refuses() -> None:
    pages = {name: " ".join(page_of(name, command).split()) for name, command in every_command()}
    repeats = re.compile(r"--repeats N [^[]*\[default: (\d+)\]")
    defaults = {
        name: repeats.findall(page) for name, page in pages.items() if "--repeats N" in page
    }
    as_it_takes: dict[str, list[str]] = {
        name: [] for name in ("distill", "tests", "challenge", "matrix")
    }
    ours = {"ci": ["12"], **as_it_takes}
    assert defaults == {name: ours.get(name, ["3"]) for name in defaults}
    assert "chat (" in pages["eval"]
    assert "chat" not in pages["trigger"]


def test_examples_stand_above_the_explanation_and_common_options_above_the_others() -> None:
    pages = {name: page_of(name, command) for name, command in every_command()}
    evaluate = pages["eval"]
    places = [
        evaluate.index(words)
        for words in (
            "compare the two",
            "upskill eval ./skills/my-skill",
            "Both arms",
            "Most used:",
            "Statistics:",
        )
    ]
    assert places == sorted(places)
    for name, flags in COMMON.items():
        page = pages[name]
        first = page[page.index("Most used:") : page.index("\n\n", page.index("Most used:"))]
        assert re.findall(r"^  (?:-\w, )?(--[\w-]+)", first, re.MULTILINE) == list(flags), name
        assert "Other options:" not in page, name  # a new option has to be put into a group


def test_every_option_is_on_the_page_once_and_every_row_of_the_groups_is_an_option() -> None:
    known: set[str] = set()
    for name, command in every_command():
        page = re.split(r"^(?:Options|Most used):$", page_of(name, command), flags=re.MULTILINE)[-1]
        for option in options_of(command):
            known |= set(option.opts)
            flag = max(option.opts, key=len)
            assert len(re.findall(rf"^  (?:--?[\w-]+, )*{flag}\b(?!-)", page, re.MULTILINE)) == 1, (
                name,
                flag,
            )
    rows = [flag for flags in GROUPS.values() for flag in flags if flag != "--help"]
    assert len(rows) == len(set(rows))
    assert set(rows) <= known


def test_a_letter_means_the_same_in_every_command() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for _, command in every_command():
        for option in options_of(command):
            long = max(option.opts, key=len)
            for flag in option.opts:
                if re.fullmatch(r"-\w", flag):
                    meanings[flag].add(long)
    assert meanings.pop("-m") == {"--student", "--teacher"}  # the command's main model
    assert {flag: long for flag, long in meanings.items() if len(long) > 1} == {}


def test_eval_has_at_most_37_options() -> None:
    command = dict(every_command())["eval"]
    assert len(re.findall(r"(?m)^  -", page_of("eval", command))) <= 37


@pytest.mark.parametrize(
    ("command", "given", "meant"),
    [
        (
            "eval",
            ["--model", "a", "--runs=2", "--runs-dir", "b"],
            {"students": ("a",), "repeats": 2, "store": "b"},
        ),
        ("generate", ["--model=a", "--eval-model", "b"], {"teacher": "a", "student": "b"}),
        (
            "generate",
            ["--test-gen-model", "a", "--eval-base-url=b"],
            {"test_writer": "a", "base_url": "b"},
        ),
        ("runs", ["--model", "a", "--dir", "b"], {"models": ("a",), "store": "b"}),
    ],
)
def test_flags_of_upstream_are_still_accepted(
    command: str, given: list[str], meant: dict[str, object]
) -> None:
    chosen = upskill.get_command(click.Context(upskill), command)
    assert chosen is not None
    arguments = ["skill", *given] if command == "eval" else given
    params = chosen.make_context(command, arguments).params
    assert {name: params[name] for name in meant} == meant


def test_a_hint_names_only_options_that_the_command_has(upskill: Upskill, home: Path) -> None:
    assert fitting_hint("Choose another with --to.", {"--to"}) == "Choose another with --to."
    assert fitting_hint("Choose another with --to. Or wait.", {"--from"}) == "Or wait."
    named = "Run `upskill eval --redraw`, or wait."
    assert fitting_hint(named, set()) == named
    (home / "file").write_text("not a folder", encoding="utf-8")
    folder = write_skill(home / "greeter")
    told = upskill("eval", folder, "-m", write_script(home / "student.yaml"), "-d", home / "file")
    assert "--store" in told.err


def hints() -> Iterator[tuple[str, str]]:
    """Every hint in the code, with where it stands."""
    for file in sorted(Path(package).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("Error")
                and len(node.args) > 1
            ):
                words = [
                    part.value for part in ast.walk(node.args[1]) if isinstance(part, ast.Constant)
                ]
                yield (
                    f"{file.name}:{node.lineno}",
                    "".join(word for word in words if isinstance(word, str)),
                )


def test_every_option_that_a_hint_names_exists() -> None:
    known = {
        flag
        for _, command in every_command()
        for each in command.params
        for flag in (*each.opts, *each.secondary_opts)
    }
    assert len(named := list(hints())) > 100
    assert {where: hint for where, hint in named if fitting_hint(hint, known) != hint} == {}


# Completion.


ASK = """
PATH={bin}:$PATH
eval "$(upskill completion bash)"
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()
    _upskill_completion upskill
    echo "${{COMPREPLY[*]}}"
done
echo "$COMP_WORDBREAKS"
"""


def test_bash_completes_commands_models_agents_runs_and_cases(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter", cases=3)
    assert upskill("eval", folder, "-m", write_script(home / "student.yaml")).code == 0
    [run] = [each["run"] for each in upskill("runs", "--json").json]
    expected = {
        "upskill ev": ["eval"],
        "upskill eval --until-d": ["--until-decided"],
        "upskill eval x -m sonn": ["sonnet"],
        "upskill eval x -m local:smollm2-1": ["local:smollm2-135m", "local:smollm2-1.7b"],
        "upskill install x --to claude": ["claude-code"],
        "upskill show ": ["last", run],
        "upskill show last --case ": ["greet-1", "greet-2", "greet-3"],
        "upskill show nothing --case ": [],
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK.format(bin=BIN.parent)],
        input="".join(f"{line}\n" for line in expected),
        capture_output=True,
        text=True,
        check=True,
    )
    *offered, breaks = done.stdout.split("\n")[: len(expected) + 1]
    assert dict(zip(expected, map(str.split, offered), strict=True)) == expected
    assert ":" not in breaks  # or bash would take what stands before a colon for a word of its own


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_for_both_names_of_the_command(
    upskill: Upskill, shell: str
) -> None:
    done = upskill("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_UPSKILL_COMPLETE={shell}_complete" in done.out
    assert "skill-lift" in done.out


def test_a_group_without_a_command_shows_its_help(upskill: Upskill) -> None:
    done = upskill("trace")
    assert (done.code, done.err, done.out.startswith("Usage: upskill trace")) == (0, "", True)
