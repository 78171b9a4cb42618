"""What `upskill tests --score` found: the rules that no case would miss, and the cases that test nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from upskill.authoring.saving.provenance import own_suite
from upskill.experiments.mutation import Rule, Score
from upskill.plain import counted, listed
from upskill.reports.json import pick
from upskill.reports.numbers import percent
from upskill.reports.report import (
    Cell,
    Headline,
    NextCommand,
    Note,
    Report,
    Table,
    note_effort,
)

NO_RULES = "Nothing in the skill counts as a rule: it has no number, flag or name in code."
IDLE = "passes without the skill, so tests nothing of it"
FAILING = "fails too often with the skill to notice anything"


def report_score(score: Score) -> Report:
    conclusion = _conclude(score)
    tables = [Table.of(_untested(score))]
    if score.models:
        tables = [Table.of(_rules(score)), Table.of(_cases(score))]
    names = ("models", "share", "gutted_noticed", "rules", "idle_cases", "failing_cases", "trials")
    return Report(
        title=f"What the cases of {score.skill.name} would notice",
        name=score.skill.name,
        data={
            "skill": score.skill.name,
            "conclusion": conclusion,
            **pick(score, *names, "halted"),
        },
        headlines=[Headline(conclusion, "bad" if score.uncovered else "good")],
        tables=tables,
        notes=[*_notes(score), *note_effort(score.halted, score.trials)],
        next=[*_next(score)],
    )


def _conclude(score: Score) -> str:
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


def _untested(score: Score) -> Iterator[Mapping[str, Cell]]:
    for rule in score.rules:
        if rule.is_untestable:
            yield {"No case mentions": rule.block.title}


def _rules(score: Score) -> Iterator[Mapping[str, Cell]]:
    for finding in ("unnoticed", "undecided", "unnoticed, not counted"):
        for rule in score.rules:
            if finding == (rule.status if rule.counts else f"{rule.status}, not counted"):
                title, mentions = rule.block.title, _mentions(rule, score)
                yield {"Finding": finding, "Rule": title, "Mentioned by": mentions}


def _cases(score: Score) -> Iterator[Mapping[str, Cell]]:
    for case in score.idle_cases:
        yield {"Case": case, "Finding": IDLE}
    for case in score.failing_cases:
        yield {"Case": case, "Finding": FAILING}


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
    by_opposite = sum(each.noticed_by == "opposite" for each in score.rules)
    if by_opposite:
        why = "the student knows them or the skill says them twice"
        yield Note(f"Noticed only when reversed, because {why}: {counted(by_opposite, 'rule')}.")
    vague = sum(not each.counts for each in score.rules)
    if vague:
        why = "they have no number, flag or name in code"
        yield Note(f"Not counted, because {why}: {counted(vague, 'block')}.")


def _next(score: Score) -> Iterator[NextCommand]:
    words = ["upskill", "tests", str(score.skill.folder or score.skill.name), "--score"]
    for model in score.models:
        words += ["-m", model]
    command = shlex.join(words)
    if score.uncovered and not own_suite(score.skill):
        yield NextCommand(f"{command} --fix MODEL", "Have a test writer cover these rules")
    if not score.models:
        yield NextCommand(f"{command} -m MODEL", "See whether a case fails when a rule is removed")
