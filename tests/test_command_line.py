"""Command lines that mean the same pass `command_line`, and every other one fails."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator

import pytest

from conftest import read_check
from upskill import Evidence, Trace, UsageError
from upskill.traces import Step

SUITE_LINE = {
    "command": "tern deploy api --env=prod -f -v",
    "aliases": [["-f", "--force"], ["-e", "--env"]],
}
RIGHT = [
    "tern deploy api --env=prod -f -v",
    "tern deploy -fv api -e prod",
    "tern --force deploy -veprod api",
    "tern deploy --env 'prod' \"api\" -vf",
    "tern deploy -vf -e=prod -- api",
    "`tern deploy api --env=prod -f -v`.",
    "$ tern deploy api --env=prod -f -v",
    "- **tern deploy api --env=prod -f -v**",
    "tern deploy api \\\n  --env=prod -f -v",
    "This deploys the API:\ntern deploy api --env=prod -f -v",
    "Here it is:\n```bash\n# to production\ntern deploy api --env=prod -f -v  # no questions\n```\nDone.",
]
WRONG = [
    "",
    "tern deploy api --env=prod -f -v -v",
    "tern deploy api --env=PROD -f -v",
    "tern deploy api --env -f -v prod",
    "tern deploy api prod --env -f -v",
    "tern api deploy --env=prod -f -v",
    "tern deploy api -fv -e",
    "tern deploy api --env=prod -- -f -v",
    "tern deploy api --env=prod -f -v | tee log",
    "tern deploy api --env=prod -f -v && tern logs",
    "tern deploy api --env=prod -f -v\ntern logs",
    "```\ntern login\ntern deploy api --env=prod -f -v\n```",
    "tern deploy api --env=prod -f -v > log",
    "tern deploy $(tern names) --env=prod -f -v",
    "Run tern deploy api --env=prod -f -v",
    "tern deploy 'api --env=prod -f -v",
]


async def passes(config: object, answer: str) -> bool:
    check = read_check({"command_line": config}, "suite.yaml").check
    return (await check.run(Evidence(Trace((Step("assistant", answer),))))).passed


@pytest.mark.parametrize("answer", RIGHT)
async def test_a_command_may_be_written_in_any_usual_way(answer: str) -> None:
    assert await passes(SUITE_LINE, answer)


@pytest.mark.parametrize("answer", WRONG)
async def test_another_command_or_more_than_one_fails(answer: str) -> None:
    assert not await passes(SUITE_LINE, answer)


@pytest.mark.parametrize(
    ("line", "right", "wrong"),
    [
        ("tern build .", "tern build .", "tern build"),
        ("go build -out=bin x", "go build -out bin x", "go build -o=ut=bin x"),
        ("tern run -- ls -l -a", "tern run -- ls -l -a", "tern run ls -l -a"),
        ("tern add -t=a -t=b", "tern add -ta -t b", "tern add -t=b -t=a"),
        ("tern grep 'a|b #1' -", "tern grep a\\|b\\ \\#1 -", "tern grep a|b #1 -"),
        ("tern say 'it'\\''s' $HOME", 'tern say "it\'s" $HOME', "tern say its $HOME"),
    ],
)
async def test_names_values_and_quotes_are_read_as_a_program_reads_them(
    line: str, right: str, wrong: str
) -> None:
    assert await passes(line, right)
    assert not await passes(line, wrong)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("tern logs | tail", "'tern logs | tail' is not one plain command"),
        ("tern logs > file", "'tern logs > file' is not one plain command"),
        ("tern a\ntern b", "'tern a\\ntern b' is not one plain command"),
        ("tern $(tern names)", "'tern $(tern names)' is not one plain command"),
        ("tern say 'open", '"tern say \'open" is not one plain command'),
        ("# a comment", "'# a comment' is no command"),
        (
            {"command": "tern", "aliases": [["-f", "force"]]},
            "'force' in aliases is no option",
        ),
        (
            {"command": "tern", "aliases": [["-f", "--force"], ["-f", "--file"]]},
            "'-f' is in aliases twice",
        ),
    ],
)
def test_a_suite_names_plain_commands_and_options_only(config: object, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read_check({"command_line": config}, "suite.yaml")
    assert message in error.value.message


WORDS = [
    "api",
    "web",
    "a b",
    "x=1",
    "it's",
    "src/*.py",
    "7",
    "#tag",
    "mail",
    "http://tern.dev/?a=1&b=2",
]


def mutations(
    words: list[str], flags: list[str], values: list[tuple[str, str]], rng: random.Random
) -> Iterator[str]:
    """Command lines that are wrong by one thing, written in any usual way."""

    def write(words: list[str], flags: list[str], values: list[tuple[str, str]]) -> str:
        options = [[flag] for flag in flags]
        for name, value in values:
            options.append([f"{name}={value}"] if rng.random() < 0.5 else [name, value])
        rng.shuffle(options)
        return shlex.join(words + [word for option in options for word in option])

    number = rng.randrange(len(flags))
    others = flags[:number] + flags[number + 1 :]
    unused = next(flag for flag in ("--dry-run", "-q", "--wide") if flag not in flags)
    (first, first_value), (second, second_value), *more = values
    yield write(words, others, values)  # an option dropped
    yield write(words, flags, values[1:])
    yield write(words, [*others, unused], values)  # a wrong option
    yield write(words, flags, [("--other", first_value), *values[1:]])
    yield write(words, [*flags, unused], values)  # a flag added
    yield write(words, [*flags, first], values[1:])  # a value dropped
    yield write([words[0], *words[2:]], flags, values)  # a subcommand dropped
    yield write(words[:-1], flags, values)
    yield write(words, flags, [(first, second_value), (second, first_value), *more])  # swapped
    yield write([*words[:-2], words[-1], words[-2]], flags, values)


async def test_no_mutation_of_a_command_is_accepted() -> None:
    rng = random.Random(47)
    accepted: list[str] = []
    tried = 0
    for _ in range(80):
        words = ["tern", "deploy", *rng.sample(WORDS, 2)]
        flags = rng.sample(["-f", "-v", "--dry-run", "--force-all", "-q", "--wide"], 2)
        names = rng.sample(["--env", "-o", "--since", "-n"], 3)
        values = list(zip(names, rng.sample(WORDS, 3), strict=True))
        line = shlex.join([*words, *flags, *(f"{name}={value}" for name, value in values)])
        assert await passes(line, line)
        for answer in mutations(words, flags, values, rng):
            tried += 1
            if await passes(line, answer):
                accepted.append(f"{line}  <-  {answer}")
    assert tried >= 600
    assert accepted == []
