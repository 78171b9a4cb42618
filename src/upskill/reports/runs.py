"""What is stored: runs and latest results (`upskill runs`), skills with their last verdicts (`upskill list`), and the
versions of a skill (`upskill versions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import Any, Literal

from upskill.plain import counted, dict_or_empty, listed
from upskill.reports.fields import pick, rows_of
from upskill.reports.numbers import points
from upskill.reports.report import Change, Headline, NextCommand, Note, Report, Row, Table
from upskill.reports.triggered import trigger_metrics
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.shown import limits_of, rank_of, reported_verdicts
from upskill.runs.stores import Candidate, Run, Store
from upskill.skills import Skill
from upskill.verdicts.line import decision_in_words
from upskill.verdicts.verdict import Reason

Metric = Literal["success", "tokens"]
Document = Mapping[str, Any]


@dataclass(frozen=True)
class RunResult:
    """What a run says about a model."""

    run: Run
    verdict: Document  # as in JSON
    is_running: bool = False

    @property
    def model(self) -> str:
        return self.verdict["model"]

    @property
    def when(self) -> str:
        return _when(self.run.created)

    @property
    def is_unfinished(self) -> bool:
        return bool(self.verdict.get("unfinished"))

    @property
    def is_trigger_test(self) -> bool:
        """Its accuracy is no pass rate. What has not finished says so instead."""
        return bool(self.verdict.get("trigger")) and not self.is_unfinished

    @property
    def is_invalid(self) -> bool:
        return self.verdict["reason"] == Reason.ISOLATION

    @property
    def has_numbers(self) -> bool:
        return not (self.is_invalid or self.is_unfinished)

    @property
    def limits(self) -> str:
        """What the verdict is of, unless that is the skill's whole suite with and without the skill."""
        plan = self.run.plan
        limits = [f"on {plan.other_suite}" if plan.other_suite else ""]
        if not self.is_unfinished:
            limits.append(limits_of(self.run, self.verdict["decision"]))
        if plan.suite.part:
            limits.append(plan.suite.part.chosen)
        return ", ".join(filter(None, limits))


def read_rows(store: Store, runs: Iterable[Run], models: Sequence[str] = ()) -> list[RunResult]:
    """A row for each run and model: the verdict as it was reported, or anew where it would differ today."""
    return [
        RunResult(run, verdict, bool(verdict.get("unfinished")) and store.is_claimed(run))
        for run in runs
        for verdict in _verdicts(store, run)
        if not models or verdict["model"] in models
    ]


def _verdicts(store: Store, run: Run) -> list[Document]:
    is_trigger_test = run.purpose == "trigger"  # whose recall no verdict holds
    if not is_trigger_test and (reported := reported_verdicts(store, run)) is not None:
        return reported
    evaluation = evaluation_of(store, run)
    triggered = {each.model: {"trigger": each.to_dict()} for each in trigger_metrics(evaluation)}
    return [verdict.to_dict() | triggered.get(verdict.model, {}) for verdict in evaluation.verdicts]


def latest_rows(rows: Iterable[RunResult], visible_hash: str = "") -> list[RunResult]:
    """Of rows, oldest first, the one that gives each skill and model its verdict, on this version if there is one."""

    def rank(row: RunResult) -> tuple[bool, bool, bool]:
        is_own, is_whole = rank_of(row.run, row.verdict["decision"])
        return is_own, row.run.plan.skill.visible_hash == visible_hash, is_whole

    # The last one counts.
    ranked = {(row.run.skill, row.model): row for row in sorted(rows, key=rank)}
    return [*ranked.values()]


def report_runs(rows: Sequence[RunResult], *, metric: Metric = "success", older: int = 0) -> Report:
    """`older`: how many more runs there are."""
    skills = {row.run.skill for row in rows}
    has_several = len(skills) > 1
    tables = latest_tables(rows, metric) if has_several else run_tables(rows, metric)
    next_command = NextCommand("upskill show RUN", "Read the answers of a run")
    if has_several:
        next_command = NextCommand("upskill runs -s SKILL", "See each run of a skill, with its id")
    more = f"{counted(older, 'older run')} not shown. Use --all to show everything."
    return Report(
        title="Latest results" if has_several else f"Runs of {', '.join(skills)}",
        name="runs",
        data=[
            pick(
                row,
                {"run": "run.id", "created": "run.created", "skill": "run.skill"},
                "model",
                {"purpose": "run.purpose", "other_suite": "run.plan.other_suite"},
                {"trials": "run.trials", "finished": "run.finished"},
                "verdict",
            )
            for row in rows
        ],
        tables=tables,
        notes=[Note(more)] if older else (),
        next=[next_command] if rows else (),
    )


def run_tables(rows: Iterable[RunResult], metric: Metric = "success") -> list[Table]:
    """A line for each run and model."""
    return _tables(rows, {"Run": "run.id", "When": "when", "Model": "model"}, metric)


def latest_tables(rows: Iterable[RunResult], metric: Metric = "success") -> list[Table]:
    """A line for each skill and model, with the row that gives its verdict."""
    latest = sorted(latest_rows(rows), key=lambda row: (row.run.skill, row.model))
    return _tables(latest, {"Skill": "run.skill", "Model": "model"}, metric)


def _tables(rows: Iterable[RunResult], names: Mapping[str, str], metric: Metric) -> list[Table]:
    """Results, then trigger tests."""
    every = [*rows]
    results = [row for row in every if not row.is_trigger_test]
    tests = [row for row in every if row.is_trigger_test]
    numbers = {"Pass rates": _rates, "Lift": _lift}
    if metric == "tokens":
        numbers = {"Tokens per task": _tokens}
    shares = {
        "Recall": "verdict.trigger.recall.value",
        "Accuracy": "verdict.trigger.accuracy.value",
    }
    return [
        Table.of(rows_of(results, {**names, "Result": _result, **numbers})),
        Table.of(rows_of(tests, {**names, **shares, "Covers": "limits"}), "Trigger tests"),
    ]


def _result(row: RunResult) -> Headline:
    if row.is_invalid:
        return Headline("INVALID", "bad", "✗")
    if not row.is_unfinished:
        return Headline.of_decision(row.verdict, row.limits)
    so_far = row.verdict["unfinished"]
    state = "running" if row.is_running else "unfinished"
    words = f"{state}: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}"
    return Headline("; ".join(filter(None, [words, row.limits])), "open")


def _rates(row: RunResult) -> Change | None:
    return Change.of_rates(row.verdict) if row.has_numbers else None


def _tokens(row: RunResult) -> Change | None:
    return Change.of_tokens(row.verdict) if row.has_numbers else None


def _lift(row: RunResult) -> float | None:
    return row.verdict["lift"] if row.has_numbers else None


def _when(created: str) -> str:
    return created[:16].replace("T", " ")


# Skills with their last verdicts, as they were reported
# ------------------------------------------------------------------------------------------------

MAX_RUNS = 50  # of a skill, the latest
MAX_DESCRIPTION = 60  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    skill: Skill
    state: str  # as it was written: draft, unproven
    verdicts: Sequence[Document]  # rows of `skill_verdicts`, and what has changed since


def report_skills(skills: Sequence[ListedSkill]) -> Report:
    names = Counter(each.skill.name for each in skills)
    rows: list[Row] = []
    files: list[Row] = []
    data: list[Document] = []
    for each in skills:
        skill = each.skill
        name = skill.name if names[skill.name] == 1 else f"{skill.name} ({skill.folder})"
        rows += _last_verdicts(each, name)
        paths = [file.path for file in skill.files]
        files += ({"Skill": name, "File": path} for path in paths)
        of_skill = pick(skill, "name", "description", "folder", "tokens", "fingerprint")
        data.append({**of_skill, **pick(each, "state", "verdicts"), "files": paths})
    return Report(
        title="Skills",
        name="list",
        data=data,
        tables=[Table.of(rows), Table.of(files, is_detail=True)],
    )


def _last_verdicts(each: ListedSkill, name: str) -> Iterator[Row]:
    words = "; ".join(filter(None, ["not evaluated yet", each.state]))
    results = [("", Headline(words), None)]
    if each.verdicts:
        results = [
            (row["model"], _last_verdict(row, each.state), row["lift"]) for row in each.verdicts
        ]
    for model, verdict, lift in results:
        yield {
            "Skill": name,
            "Tokens": each.skill.tokens,
            "Model": model,
            "Last verdict": verdict,
            "Lift": lift,
            "Description": shorten(each.skill.description, MAX_DESCRIPTION, placeholder="…"),
        }


def _last_verdict(row: Document, state: str) -> Headline:
    since = [f"its {part}" for part in row["changed"] if part != "skill"]
    changed = f"{listed(since)} changed since" if since else ""
    limits = filter(None, [_limits_in_words(row), changed, state])
    return Headline.of_decision(row, ", ".join(limits))


def row_in_words(row: Document) -> str:
    """A row of `skill_verdicts`: what was last reported of a model."""
    lift = f", {points(row['lift'])}" if row["lift"] is not None else ""
    limits = _limits_in_words(row)
    of = f" ({limits})" if limits else ""
    return f"{row['model']}: {decision_in_words(row)}{lift}{of}"


def _limits_in_words(row: Document) -> str:
    """What the verdict covers, where that is not the skill's whole suite as it is now."""
    suite = f"on {row['other_suite']}" if row["other_suite"] else ""
    return ", ".join(filter(None, [suite, row["of"]]))


def skill_verdicts(store: Store, name: str, visible_hash: str = "") -> list[dict[str, Any]]:
    """For each model the latest verdict on the whole of the skill's own suite, else the latest verdict and its scope.

    `visible_hash`: of the version whose verdicts come before those of others on the same suite.
    """
    runs = [*islice(store.runs(name, newest_first=True, listed=True), MAX_RUNS)]
    stored: list[RunResult] = []
    for run in reversed(runs):
        stored += (RunResult(run, verdict) for verdict in run.plan.analysis.kept.verdicts)
    rows: list[dict[str, Any]] = []
    newest = ""  # the version of the latest verdict without limits
    for row in sorted(latest_rows(stored, visible_hash), key=lambda row: -row.run.number):
        plan = row.run.plan
        of = limits_of(row.run, row.verdict["decision"])
        text = plan.skill.visible_hash
        if not of:
            newest = newest or text
            of = "an older version of the skill" if text not in (visible_hash, newest) else ""
        about = {"run": row.run.id, "of": of, "other_suite": plan.other_suite}
        rows.append(verdict_in_line(row.verdict) | about)
    return rows


def verdict_in_line(verdict: Document) -> dict[str, Any]:
    """With the keys of `--json`."""
    names = ("model", "decision", "about", "reason", "lift", "interval", "level", "pairs")
    row = {name: verdict.get(name) for name in (*names, "other", "caveats")}
    for arm in ("baseline", "skill"):
        row[arm] = dict_or_empty(verdict.get(arm)).get("pass_rate")
    return row


# The versions of a skill, and which of them a search kept
# ------------------------------------------------------------------------------------------------

# For versions stored without a reason.
DECISIONS = {True: "kept", False: "rejected", None: "not decided"}


def report_versions(skill: str, versions: Sequence[Candidate]) -> Report:
    data: list[Document] = []
    for number, version in enumerate(versions, start=1):
        parent = parent_number(versions, version)
        ids = {"id": f"v{number}", "parent": f"v{parent}" if parent else None}
        decision = version.verdict.get("search_decision") or DECISIONS[version.accepted]
        found = pick(
            version,
            *("created", "fingerprint", "accepted", "note"),
            {"baseline": "verdict.baseline.pass_rate", "pass_rate": "verdict.skill.pass_rate"},
            {"run": "verdict.run", "edits": "verdict.proposal.edits"},
        )
        data.append({**ids, "decision": decision, **found, "edits": found["edits"] or []})
    command = NextCommand(f"upskill versions {skill} --diff", "See what the last one changed")
    return Report(
        title=f"Versions of {skill}",
        name=skill,
        data=data,
        tables=[Table.of(map(_version, data))],
        next=[command] if len(data) > 1 else (),
    )


def _version(row: Document) -> Row:
    return {
        "Id": row["id"],
        "Hash": row["fingerprint"][:8],
        "Parent": row["parent"],
        "When": _when(row["created"]),
        "Passes": Change(row["baseline"], row["pass_rate"]),
        "Decision": row["decision"],
        "Why": "" if row["note"] == f"the {row['decision']}" else row["note"],
    }


def parent_number(versions: Sequence[Candidate], version: Candidate) -> int | None:
    numbers = [each.number for each in versions]
    return numbers.index(version.parent) + 1 if version.parent in numbers else None
