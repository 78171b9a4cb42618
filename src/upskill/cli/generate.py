"""`upskill generate`: from a task, examples, documents, traces or an older skill to a proven one."""

from __future__ import annotations

from typing import Any

import click

from upskill.cli.generating import run_generate
from upskill.cli.options import with_options
from upskill.cli.wish import MAKING, SOURCES, GenerateOptions


@click.command("generate")
@click.argument("task", required=False, default="")
@with_options(SOURCES)
@click.option(
    "-m", "--model", metavar="MODEL", help="The teacher. `extract` compiles a trace by rules, without a model."
)
@click.option("--handoff", metavar="DIR", help="Write the teacher's prompts to files that you or any agent answer.")
@with_options(MAKING)
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
    run_generate(GenerateOptions(**given))
