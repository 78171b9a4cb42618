"""Rules of the person: the last word counts, what was dropped is not taught, and no order of commands breaks a rule."""

from __future__ import annotations

from upskill.authoring.evidence.extract import extract
from upskill.authoring.evidence.user_rules import contradicts
from upskill.traces import Step, Trace


def ran(command: str, output: str = "") -> Step:
    return Step("tool", tool="Bash", arguments={"command": command}, output=output, status="ok")


def said(text: str) -> Step:
    return Step("user", text)


DONE = Step("assistant", "Done.")


async def body_of(*steps: Step) -> str:
    return (await extract(Trace((said("Build the docs and ship them."), *steps)))).skill.body


async def test_a_tool_that_the_person_gave_up_appears_in_no_command() -> None:
    for text, rule in {
        "Forget poetry, use uv.": "Use uv, not poetry.",
        "Don't use poetry here, use uv.": "Use uv, not poetry.",
        "Drop poetry. Always use uv for the docs.": "Do not use poetry.",
        "Stop using poetry, it is slow.": "Do not use poetry",
        "Use uv instead of poetry.": "Use uv instead of poetry.",
        "No, use uv, not poetry.": "Use uv, not poetry.",
        "use uv for everything, not pip or poetry": "Use uv for everything, not pip or poetry.",
    }.items():
        body = await body_of(
            ran("poetry install --with docs"),
            ran("poetry run plover docs --out old"),
            DONE,
            said(text),
            ran("uv sync --group docs"),
            ran("uv run plover docs --out site"),
            ran("plover ship site --to harbour"),
        )
        commands, _, rules = body.partition("## Rules")
        assert "poetry" not in commands, text
        assert "uv run plover docs --out site" in commands
        assert rule in rules or "it is" in text, (text, rules)


async def test_what_is_dropped_can_be_a_subcommand_or_a_value_and_the_rest_of_the_tool_stays() -> None:
    body = await body_of(
        ran("oriole bump minor"),
        ran("oriole build --target wasm"),
        DONE,
        said("Stop using oriole bump. Drop the wasm target."),
        ran("oriole pack --level 9"),
        ran("oriole publish --channel beta"),
        ran("oriole sign --key harbour"),
    )
    assert "oriole bump" not in body.partition("## Rules")[0]
    assert "wasm" not in body
    assert "`oriole publish --channel beta`" in body


async def test_a_condition_or_a_later_permission_drops_nothing() -> None:
    body = await body_of(
        ran("heron deploy --to staging"),
        DONE,
        said("Never use heron deploy on Fridays."),
        ran("heron cache --warm"),
        DONE,
        said("Don't use heron cache."),
        ran("heron index --fresh"),
        DONE,
        said("The bug is fixed. Always use heron cache before heron index."),
        ran("heron cache --warm"),
        ran("heron index --fresh"),
    )
    assert "`heron deploy --to staging`" in body
    assert "`heron cache --warm`" in body
    assert "Don't use heron cache" not in body


async def test_of_contradicting_rules_the_later_stands_alone() -> None:
    for first, then in (
        ("Always use 4 workers with heron run.", "Sorry, I was wrong: always use 2 workers with heron run."),
        ("Never use the heron cache.", "Always use the heron cache."),
        ("Always use the heron cache.", "Never use the heron cache."),
        ("Use the south depot, not the north one.", "Use the north depot."),
        ("Always run heron lint before heron run.", "You don't have to run heron lint before heron run."),
        ("Always run heron lint before heron run.", "Scratch that."),
    ):
        body = await body_of(
            ran("heron run --region north"), DONE, said(first), ran("heron cache --depot south"), DONE, said(then),
            ran("heron lint --deep"), ran("heron pack --level 9"),
        )  # fmt: skip
        rules = body.partition("## Rules\n")[2]
        assert first not in rules, (first, then)
        if "always use 2" in then:
            assert rules.strip() == "- Always use 2 workers with heron run."


def test_rules_about_different_things_do_not_contradict() -> None:
    for later, earlier in (
        ("Always run heron lint before heron push.", "Never push without heron check."),
        ("Use ruff for Python.", "Use pytest with xdist for the slow tests."),
        ("Don't use docker here.", "Always use podman."),
        ("I never said to dim the lamp.", "Always dim the lamp before it is lit."),
    ):
        assert not contradicts(later, earlier), (later, earlier)


async def test_the_order_of_commands_follows_the_rules() -> None:
    for rule in (
        "No! Always run dunlin check before dunlin publish.",
        "Never publish without running dunlin check first.",
        "Don't publish before dunlin check.",
        "Run dunlin check first, then publish, always.",
        "Before publishing, always run dunlin check.",
        "Publish only after dunlin check.",
    ):
        body = await body_of(
            ran("dunlin pack --level 9"),
            ran("dunlin publish --channel edge"),
            DONE,
            said(rule),
            ran("dunlin check --deep"),
            ran("dunlin sign --key harbour"),
        )
        order = [line.split("`")[1].split()[1] for line in body.splitlines() if line[:1].isdigit()]
        assert order == ["pack", "check", "publish", "sign"], rule
