"""The verbs that agents call over MCP: validate, eval, show and report. Stored runs are resources.

Nothing is printed: the SDK owns standard output. What goes wrong is a tool error in the words of the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import ContentBlock, Resource, ResourceLink, TextContent, ToolAnnotations
from pydantic import Field

from upskill.cli.commands.eval import load
from upskill.cli.commands.report import render_page as render_html
from upskill.cli.commands.show import ShowOptions, render_page
from upskill.cli.commands.validate import Checks, check_all, describe
from upskill.cli.console import as_text, check_writable, write_file
from upskill.cli.eval_options import EvalOptions
from upskill.cli.options import NothingStored, open_existing_store, open_run
from upskill.errors import UpskillError, UsageError
from upskill.models.addresses import resolve
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.options import options_of
from upskill.plain import counted
from upskill.reports import json, markdown
from upskill.runs.planning.estimate import estimate
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.results.evaluation import Evaluation, evaluation_of
from upskill.runs.running.evaluate import evaluate
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store
from upskill.version import __version__

MAX_LISTED = 50  # runs
READS = ToolAnnotations(read_only_hint=True)
HELP = {name: option.help for name, option, _, _ in options_of(EvalOptions)}
INSTRUCTIONS = """\
upskill measures whether an Agent Skill helps a model, by running its test cases with and without the skill.
Order: validate, eval, show with failed=true, edit the skill, eval again. `helps` means that the whole interval of the
lift is above zero. `undecided` usually means that more cases are needed. Do not run again until it helps: every look
widens the interval. eval stores each trial. If it is canceled, make the same call again to continue."""


class _Server(MCPServer[Any]):
    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> Any:
        """Refuse arguments that a tool does not have; the SDK would drop them."""
        for tool in await self.list_tools():
            known = tool.input_schema["properties"]
            if tool.name == name and (
                unknown := next((each for each in arguments if each not in known), None)
            ):
                raise ToolError(f"{name} has no argument {unknown!r}. It has {', '.join(known)}.")
        return await super().call_tool(name, arguments, context)

    async def list_resources(self) -> list[Resource]:
        try:
            with open_existing_store(None) as store:
                return [
                    Resource(**_link(run))
                    for run in islice(store.runs(newest_first=True), MAX_LISTED)
                ]
        except NothingStored:
            return []


ONE_EVAL = (
    asyncio.Lock()
)  # one that was cancelled has to let go of its run before the next call continues it
server = _Server("upskill", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
RunName = Annotated[
    str,
    Field(description="A run: its id, the start of one, `last`, or `last~1` for the one before."),
]


def serve() -> None:
    server.run()


@server.tool(annotations=READS, structured_output=False)
def validate(
    path: Annotated[str, Field(description="A skill, or a folder of skills.")],
    strict_suite: Annotated[
        bool,
        Field(description="Also treat a case that another uninformed answer passes as an error."),
    ] = False,
) -> str:
    """Check skills against the Agent Skills specification, and their test cases for ones that prove nothing."""
    with _in_words(ToolError):
        checked = check_all([_inside(path)], Checks(strict_suite=strict_suite))
        return "\n".join(line for each in checked for line in describe(each))


@server.tool(
    name="eval", annotations=ToolAnnotations(open_world_hint=True), structured_output=False
)
async def evaluate_skill(
    context: Context,
    skill: Annotated[str, Field(description="The skill's folder.")],
    students: Annotated[
        tuple[str, ...], Field(description="The models to test. Default: local, which is free.")
    ] = (),
    agent: Annotated[str, Field(description=HELP["agent"])] = "chat",
    cases: Annotated[
        tuple[str, ...],
        Field(description="Only these cases, by id or pattern. There is no verdict then."),
    ] = (),
    repeats: Annotated[int | None, Field(description=HELP["repeats"], ge=1)] = None,
    until_decided: Annotated[bool, Field(description=HELP["until_decided"])] = False,
    against: Annotated[str | None, Field(description=HELP["against"])] = None,
    max_cost: Annotated[
        float | None, Field(description="The most to spend, in dollars.", ge=0)
    ] = None,
) -> list[ContentBlock]:
    """Run models on a skill's test cases with and without the skill, and say whether it helps.

    This can take minutes. Each trial is stored: after a cancellation, the same call continues where it stopped.
    """
    with _in_words(ToolError):
        for student in students:
            address = resolve(student)
            if address.provider in ("scripted", "handoff") or address.model.endswith(".gguf"):
                _inside(address.model)
        options = EvalOptions(
            skill=_inside(skill),
            students=students,
            agent=agent,
            cases=cases,
            repeats=repeats,
            until_decided=until_decided,
            against=_inside(against) if against else None,
            max_cost=max_cost,
            quiet=True,
        )
        options.check()
        loaded, plan = load(options)
        plan = plan or options.make_plan(loaded, None)
        async with ONE_EVAL:
            with options.open_store(loaded.name) as store:
                evaluation = await _evaluate(options, plan, store, context)
        text = markdown.render(evaluation)
        if evaluation.halted:
            text += f"\nStopped: {evaluation.halted}. To continue, make the same call with a higher max_cost.\n"
        if evaluation.has_failed:
            raise ToolError(f"{evaluation.why_failed}\n\n{text}")
    return [TextContent(text=text), ResourceLink(**_link(evaluation.run))]


async def _evaluate(options: EvalOptions, plan: Plan, store: Store, context: Context) -> Evaluation:
    """Report progress while it runs. If the client cancels, finished trials stay stored and models are closed."""
    updates: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
    model_context = options.model_context()
    models = Models(
        model_context, replies=store, cache=options.cache_mode, ledger=Ledger(options.ceilings)
    )
    done = 0

    def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
        nonlocal done
        expected = estimate(plan, missing, model_context.prices)
        if options.max_cost is not None:
            expected.check_prices()
        elif expected.cost_usd[1] > options.settings.confirm_above:
            raise UsageError(
                f"this may be expensive: {expected.words}", "Ask the user, then pass max_cost."
            )
        done = len(plan) - len(missing)
        updates.put_nowait((done, f"run {run.id}: {done} of {counted(len(plan), 'trial')} stored"))

    def finished(_: Result) -> None:
        nonlocal done
        done += 1
        updates.put_nowait((done, f"{done} of {counted(len(plan), 'trial')}"))

    run_options = options.run_options(plan, options.open_executor())
    events = Events(started=started, result=finished)
    # A task of its own, because anyio would cancel each await of the clean-up again.
    task = asyncio.create_task(
        evaluate(plan, store=store, models=models, options=run_options, events=events)
    )
    task.add_done_callback(lambda _: updates.put_nowait(None))
    try:
        while update := await updates.get():
            await context.report_progress(update[0], len(plan), update[1])
        return await task
    finally:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])


@server.tool(annotations=READS, structured_output=False)
def show(
    run: RunName = "last",
    case: Annotated[
        str | None, Field(description="Only this case: both arms side by side.")
    ] = None,
    student: Annotated[str | None, Field(description="Only this student.")] = None,
    failed: Annotated[
        bool, Field(description="Only trials with the skill that failed or errored.")
    ] = False,
    page: Annotated[
        int | None, Field(description="Trials come in pages of 40; the first is 1.", ge=1)
    ] = None,
) -> str:
    """Show a run: a summary, and its trials with prompt, answer and what the checks found."""
    with _in_words(ToolError), open_run(None, run) as (store, stored):
        options = ShowOptions(run=run, case=case, model=student, failed=failed, page=page)
        parts, notes = render_page(store, stored, options)
        return as_text(*parts) + "\n".join(notes)


@server.tool(structured_output=False)
def report(
    run: RunName = "last",
    html: Annotated[
        str | None, Field(description="Also write the run as one HTML page to this file.")
    ] = None,
) -> str:
    """Summarize a run in Markdown: verdict, interval, tokens and advice for each model."""
    with _in_words(ToolError):
        if html:
            check_writable(_inside(html))
        with open_run(None, run) as (store, stored):
            text = markdown.render(evaluation_of(store, stored))
            page = render_html(store, stored) if html else ""
        if html:
            write_file(html, page)
            text += f"\nWrote {html}. It contains full prompts and answers.\n"
        return text


@server.resource("upskill://runs/{run}", name="run", mime_type="text/markdown")
def run_resource(run: str) -> str:
    """The summary of a run."""
    with _in_words(ResourceError), open_run(None, run) as (store, stored):
        return markdown.render(evaluation_of(store, stored))


@server.resource("upskill://runs/{run}/json", name="run-json", mime_type="application/json")
def json_resource(run: str) -> str:
    """A run as one JSON document, as `upskill eval --json` prints it."""
    with _in_words(ResourceError), open_run(None, run) as (store, stored):
        return json.render(evaluation_of(store, stored))


def _link(run: Run) -> dict[str, Any]:
    about = f"{run.plan.skill.name} on {', '.join(run.models)}"
    return {
        "uri": f"upskill://runs/{quote(run.id)}",
        "name": run.id,
        "title": about,
        "mime_type": "text/markdown",
    }


def _inside(path: str) -> str:
    folder = Path.cwd()
    if not (folder / path).resolve().is_relative_to(folder):
        raise UsageError(
            f"{path}: outside {folder}", "`upskill mcp FOLDER` only uses paths inside its folder."
        )
    return path


@contextmanager
def _in_words(kind: type[Exception]) -> Generator[None]:
    try:
        yield
    except UpskillError as error:
        raise kind("\n".join(filter(None, (error.message, error.hint)))) from error
