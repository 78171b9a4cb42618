"""What `upskill tests --score` found: the rules that no case would miss, and the cases that test nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from upskill.authoring.saving.provenance import own_suite
from upskill.experiments.mutation import Rule, Score
from upskill.plain import counted, listed
from upskill.reports.numbers import percent
from upskill.reports.report import Cell, Column, Headline, NextCommand, Note, Report, Table

NO_RULES = "Nothing in the skill counts as a rule: it has no number, flag or name in code."
IDLE = "passes without the skill, so tests nothing of it"
FAILING = "fails too often with the skill to notice anything"


def report_score(score: Score) -> Report:
    return Report(
        title=f"What the cases of {score.skill.name} would notice",
        name=score.skill.name,
        data=_to_json(score),
        headlines=(Headline(conclusion(score), tone="bad" if score.uncovered else "good"),),
        tables=tuple(_tables(score)),
        notes=tuple(_notes(score)),
        next=tuple(_next(score)),
    )


def conclusion(score: Score) -> str:
    rules, share = score.counted_rules, score.share
    if share is None:
        named = sum(not each.is_untestable for each in rules)
        return f"The cases mention {named} of {counted(len(rules), 'rule')}." if rules else NO_RULES
    who = listed(score.models)
    if score.gutted_noticed is False and not share.value:
        return f"The suite would not notice if the whole skill were gone: {who} passes as often without it."
    noticed = sum(each.status == "noticed" for each in rules)
    up_to = f" to {percent(share.high)}" if share.high > share.low else ""
    of = f"{noticed} of {counted(len(rules), 'rule')}"
    return f"The suite would notice a change to {of} ({percent(share.low)}{up_to})."


def _tables(score: Score) -> Iterator[Table]:
    if not score.models:
        untested = [(each.block.title,) for each in score.rules if each.is_untestable]
        yield Table(columns=(Column("No case mentions"),), rows=tuple(untested))
        return
    rules: list[tuple[Cell, ...]] = []
    for finding, found in _rules(score):
        rules += ((finding, rule.block.title, _mentions(rule, score)) for rule in found)
    if rules:
        columns = (Column("Finding"), Column("Rule"), Column("Mentioned by"))
        yield Table(columns=columns, rows=tuple(rules))
    cases = [(case, IDLE) for case in score.idle_cases]
    cases += ((case, FAILING) for case in score.failing_cases)
    if cases:
        yield Table(columns=(Column("Case", "code"), Column("Finding")), rows=tuple(cases))


def _rules(score: Score) -> Iterator[tuple[str, list[Rule]]]:
    for status in ("unnoticed", "undecided"):
        yield status, [each for each in score.counted_rules if each.status == status]
    vague = [each for each in score.rules if not each.counts and each.status == "unnoticed"]
    yield "unnoticed, not counted", vague


def _mentions(rule: Rule, score: Score) -> str:
    """The cases that mention it."""
    if not rule.terms:
        return ""
    if not rule.shared_by:
        return "no case"
    able = [case for case in rule.shared_by if case not in score.failing_cases]
    if able:
        return listed(able[:3])
    return f"only cases that fail anyway: {listed(rule.shared_by[:3])}"


def _notes(score: Score) -> Iterator[Note]:
    if score.halted:
        words = f"Stopped early: {score.halted}. Run the same command with a higher ceiling to continue."
        yield Note(words, kind="caveat")
    by_opposite = sum(each.noticed_by == "opposite" for each in score.rules)
    if by_opposite:
        why = "the student knows them or the skill says them twice"
        yield Note(f"Noticed only when reversed, because {why}: {counted(by_opposite, 'rule')}.")
    vague = sum(not each.counts for each in score.rules)
    if vague:
        why = "they have no number, flag or name in code"
        yield Note(f"Not counted, because {why}: {counted(vague, 'block')}.")
    if score.models:
        yield Note(f"It took {counted(score.trials, 'trial')}.", kind="detail")


def _next(score: Score) -> Iterator[NextCommand]:
    words = ["upskill", "tests", str(score.skill.folder or score.skill.name), "--score"]
    for model in score.models:
        words += ["-m", model]
    command = shlex.join(words)
    if score.uncovered and not own_suite(score.skill):
        yield NextCommand(f"{command} --fix MODEL", "Have a test writer cover these rules")
    if not score.models:
        yield NextCommand(f"{command} -m MODEL", "See whether a case fails when a rule is removed")


def _to_json(score: Score) -> dict[str, Any]:
    return {
        "skill": score.skill.name,
        "conclusion": conclusion(score),
        "models": score.models,
        "share": score.share.to_dict() if score.share else None,
        "gutted_noticed": score.gutted_noticed,
        "rules": [each.to_dict() for each in score.rules],
        "idle_cases": score.idle_cases,
        "failing_cases": score.failing_cases,
        "trials": score.trials,
        "halted": score.halted,
    }
