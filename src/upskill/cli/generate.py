"""`upskill generate`: from a task, examples, documents, traces or an older skill to a proven one."""

from __future__ import annotations

from typing import Any

import click

from upskill.cli.around import json_option, quiet_option
from upskill.cli.generating import Wish, carry_out


@click.command("generate")
@click.argument("task", required=False, default="")
@click.option("-e", "--example", "examples", multiple=True, metavar="'IN -> OUT'", help="An example; repeatable.")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="FILE#NAME",
    help="An MCP tool schema, or all in FILE; mcp:COMMAND or a URL asks a running server; repeatable.",
)
@click.option(
    "-f",
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="A trace, a document, a skill's folder to improve, or claude-code:last, codex:last, …; repeatable. doc:PATH, "
    "trace:PATH and skill:PATH say which.",
)
@click.option(
    "-m", "--model", metavar="MODEL", help="The teacher. `extract` compiles a trace by rules, without a model."
)
@click.option("--test-gen-model", metavar="MODEL", help="Writes the test cases (default: the teacher).")
@click.option("--handoff", metavar="DIR", help="Write the teacher's prompts to files that you or any agent answer.")
@click.option("-o", "--output", metavar="DIR", help="The skill's folder, named like the skill (default ./skills/NAME).")
@click.option("--force", is_flag=True, help="Replace the output folder, whatever is in it.")
@click.option("--tokens", type=click.IntRange(50), default=800, show_default=True, help="How long the skill should be.")
@click.option("-t", "--tests", metavar="FILE", help="Your own suite, instead of a generated one.")
@click.option(
    "--cases", type=click.IntRange(3, 60), default=20, show_default=True, metavar="N", help="How many to generate."
)
@click.option("--no-eval", is_flag=True, help="Write the skill and its tests, and run nothing.")
@click.option("--eval-model", metavar="MODEL", help="The student (default: settings, or local).")
@click.option("--eval-base-url", metavar="URL", help="An OpenAI-compatible server; the student is its name for it.")
@click.option("--judge-model", metavar="MODEL", help="The model that grades cases with `judge` checks.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="How often each case is run.")
@click.option(
    "--attempts", type=click.IntRange(0), metavar="N", help="How often to try for a better one (default: settings, 3)."
)
@click.option(
    "--candidates", type=click.IntRange(1, 10), default=1, show_default=True, metavar="N", help="How many first drafts."
)
@click.option("--target", type=click.FloatRange(0, 100), default=100, metavar="PERCENT", help="Stop at this pass rate.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="Stop before this much is spent.")
@click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="Stop at this many tokens.")
@click.option("--max-calls", type=click.IntRange(0), metavar="N", help="Stop at this many calls.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before spending more than the settings' confirm_above.")
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Calls at a time (default 8).")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For one call.")
@click.option("--offline", is_flag=True, help="Download nothing.")
@click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs).")
@click.option("--log-runs/--no-log-runs", default=True, help="Keep runs in the store (default) or forget them.")
@json_option
@quiet_option
def command(**given: Any) -> None:
    """Write a skill for TASK, with tests, and improve it until the student passes them or no edit helps.

    The student is run on train cases; an edit is kept only if a paired test says that it helps. The number at the end
    is from held-out cases that nobody looked at before. After Ctrl-C the same command goes on where it stopped.

    \b
    upskill generate "write changelog entries the way we do" -e "fixed login -> Fixed: login (#12)" -m sonnet
    upskill generate "deploy with tern" --from claude-code:last -m opus --eval-model haiku
    upskill generate --from session.jsonl -m extract               no model writes anything, no key
    upskill generate "make it shorter" --from ./skills/tern -m sonnet
    """
    carry_out(Wish(**given))
