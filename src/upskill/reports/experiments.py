"""What the experiments found: `distill`, `tests --score`, `matrix` and `challenge`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from upskill.authoring.saving.provenance import own_suite
from upskill.authoring.writing.suite_writer import CHALLENGES
from upskill.plain import counted, listed
from upskill.reports.fields import pick, rows_of, to_plain
from upskill.reports.numbers import format_cell, percent
from upskill.reports.report import (
    Headline,
    Measure,
    NextCommand,
    Note,
    Report,
    Row,
    Section,
    Table,
    Tone,
)

if TYPE_CHECKING:
    from upskill.experiments.counterexamples import Challenged
    from upskill.experiments.distill import Decision, Distilled
    from upskill.experiments.matrix import Matrix
    from upskill.experiments.mutation import Rule, Score
    from upskill.experiments.shadowing import Conflict

AGAIN = "Run the same command with a higher ceiling to continue."


def _note_effort(halted: str, trials: int) -> Iterator[Note]:
    if halted:
        yield Note(f"Stopped early: {halted}. {AGAIN}", "caveat")
    yield Note(f"It took {counted(trials, 'trial')}.", "detail")


# `distill`: versions by tokens and pass rate, and what each block is worth
# ------------------------------------------------------------------------------------------------

FATES = {"harmful": "does better without", "dropped": "dropped"}
# Of a block that was not tried.
NOT_MEASURED: Mapping[str, Any] = {"model": "", "value": None, "interval": (), "cases": ()}


def report_distilled(distilled: Distilled, difference: str) -> Report:
    whole, held_out, ablation = distilled.whole, distilled.held_out, distilled.ablation
    conclusion = _conclude_distilled(distilled)
    before, after = distilled.tokens
    front = [
        pick(point, {"version": "name"}, "model", "tokens", {"pass_rate": "rate"}, "change")
        for point in distilled.front
    ]
    data: dict[str, Any] = {
        "skill": whole.name,
        "decision": distilled.decision,
        "conclusion": conclusion,
        "tokens": {"before": before, "after": after},
        "tolerance": ablation.tolerance,
        "front": front,
        "blocks": to_plain(distilled.blocks),
        "held_out": held_out and pick(held_out, {"run": "run.id", "models": "verdicts"}),
        "trials": distilled.engine.trials,
        "halted": distilled.halted or None,
        "body": distilled.skill.body,
    }
    versions = {
        "Version": "name",
        "Model": "model",
        "Tokens": "tokens",
        "Pass rate (95% interval)": "rate",
        "Change": "change",
    }
    note = ""
    if ablation.reference and any(point.change for point in distilled.front):
        note = "Change is against the skill without the lines that hurt."
    blocks = (
        {"What goes": each.block.title, "Tokens": each.block.tokens, "Why": FATES[each.fate]}
        for each in distilled.blocks
        if each.fate in FATES
    )
    command = f"upskill show {whole.folder or whole.name} --worth"
    return Report(
        title=f"What {whole.name} is made of",
        name=whole.name,
        data=data,
        headlines=[
            Headline(conclusion, "good" if distilled.decision == "distilled" else "neutral")
        ],
        tables=[
            Table.of(rows_of(distilled.front, versions), note=note),
            Table.of(blocks),
            Table.of(_worth(data["blocks"]), is_detail=True),
        ],
        notes=[*_notes_on_distilled(distilled), *_note_effort("", distilled.engine.trials)],
        next=[NextCommand(command, "See what each line is worth")]
        if any(each.worth for each in distilled.blocks)
        else (),
        sections=[Section(title="Changes", text=difference)] if difference else (),
    )


def report_worth(skill: str, created: str, blocks: list[dict[str, Any]]) -> Report:
    """Of blocks as `BlockWorth.to_dict` has them (`upskill show SKILL --worth`)."""
    return Report(
        title=f"What {skill} is made of",
        data={"skill": skill, "created": created, "blocks": blocks},
        tables=[Table.of(_worth(blocks))],
    )


def _conclude_distilled(distilled: Distilled) -> str:
    before, after = distilled.tokens
    ablation = distilled.ablation
    shorter = f"{before:,} → {after:,} tokens ({after / max(1, before):.0%})"
    tolerance = f"{100 * ablation.tolerance:g} points"
    fresh = ablation.fresh_rounds(distilled.within or ablation.dropped)
    rounds = counted(fresh, "fresh repeat")
    if distilled.decision == "unchanged" and ablation.has_nothing_to_lose:
        return "Nothing was dropped: hardly any train case passes with the skill, so no line can be seen to matter."
    if distilled.decision == "distilled" and not after:
        return f"The train cases need no line of it: without any, they lose at most {tolerance} ({rounds})."
    conclusions: dict[Decision, str] = {
        "distilled": f"{shorter}. It is not worse by more than {tolerance} on the train cases ({rounds}).",
        "best guess": f"{shorter} seems to be as good, but {rounds} do not show that it loses at most {tolerance}."
        " Allow more --repeats or a larger --tolerance.",
        "worse on held-out cases": f"{shorter}. The shorter version is as good on the train cases, but worse on the"
        " held-out cases, which need other lines. Use --all-cases to keep those lines.",
        "over the tolerance": f"{shorter}. Within that budget, it may lose more than {tolerance} (see Change).",
        "not decided": f"Not decided: {distilled.halted}. {AGAIN}",
        "unchanged": "Nothing can go: the train cases need every block, or it is not clear which they don't"
        f" ({before:,} tokens).",
    }
    return conclusions[distilled.decision]


def _worth(blocks: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for block in blocks:
        fate = "hurts" if block["fate"] == "harmful" else block["fate"]
        if block["beside"]:
            fate += f", with {counted(block['beside'], 'other block')}"
        for each in block["worth"] or [NOT_MEASURED]:
            yield {
                "Block": block["path"] if block["kind"] == "file" else block["text"],
                "Tokens": block["tokens"],
                "Student": each["model"],
                "Worth in points (95% interval)": Measure(each["value"], *each["interval"]),
                "Needed by": ", ".join(each["cases"]),
                "": fate,
            }


def _notes_on_distilled(distilled: Distilled) -> Iterator[Note]:
    if held_out := distilled.held_out:
        cases = counted(len(held_out.plan.suite.cases), "held-out case")
        for verdict in held_out.verdicts:
            if verdict.lift is not None:
                words = f"{verdict.model} on {cases}, compared once with the whole skill"
                change = format_cell(Measure.of_lift(verdict), "points")
                yield Note(f"{words}: {change} points.", "caveat")
    ablation = distilled.ablation
    failing = [case for case in ablation.cases if ablation.fails(case)]
    if failing and not distilled.halted:
        why = "Fail with the whole skill, so lines that only they need can go"
        yield Note(f"{why}: {', '.join(failing)}", "caveat")
    fates = {each.fate for each in distilled.blocks}
    if ablation.accepted and not distilled.within and "dropped" in fates:
        why = "No train case was seen to need what was dropped."
        yield Note(f"{why} If some of it matters to you, add a case that needs it.", "caveat")


# `tests --score`: the rules that no case would miss, and the cases that test nothing
# ------------------------------------------------------------------------------------------------

NO_RULES = "Nothing in the skill counts as a rule: it has no number, flag or name in code."
FINDINGS = ("unnoticed", "undecided", "unnoticed, not counted")  # of rules, in this order


def report_score(score: Score) -> Report:
    skill = score.skill
    conclusion = _conclude_score(score)
    tables = [Table.of(_rules(score)), Table.of(_useless_cases(score))]
    if not score.models:
        untested = [rule for rule in score.rules if rule.is_untestable]
        tables = [Table.of(rows_of(untested, {"No case mentions": "block.title"}))]
    names = ("models", "share", "gutted_noticed", "rules", "idle_cases", "failing_cases", "trials")
    words = ["upskill", "tests", str(skill.folder or skill.name), "--score"]
    for model in score.models:
        words += ["-m", model]
    command = shlex.join(words)
    next_commands: list[NextCommand] = []
    if score.uncovered and not own_suite(skill):
        reason = "Have a test writer cover these rules"
        next_commands.append(NextCommand(f"{command} --fix MODEL", reason))
    if not score.models:
        reason = "See whether a case fails when a rule is removed"
        next_commands.append(NextCommand(f"{command} -m MODEL", reason))
    return Report(
        title=f"What the cases of {skill.name} would notice",
        name=skill.name,
        data={"skill": skill.name, "conclusion": conclusion, **pick(score, *names, "halted")},
        headlines=[Headline(conclusion, "bad" if score.uncovered else "good")],
        tables=tables,
        notes=[*_notes_on_score(score), *_note_effort(score.halted, score.trials)],
        next=next_commands,
    )


def _conclude_score(score: Score) -> str:
    rules, share = score.counted_rules, score.share
    of = counted(len(rules), "rule")
    if share is None:
        named = sum(not each.is_untestable for each in rules)
        return f"The cases mention {named} of {of}." if rules else NO_RULES
    if score.gutted_noticed is False and not share.value:
        who = listed(score.models)
        return f"The suite would not notice if the whole skill were gone: {who} passes as often without it."
    noticed = sum(each.status == "noticed" for each in rules)
    up_to = f" to {percent(share.high)}" if share.high > share.low else ""
    return f"The suite would notice a change to {noticed} of {of} ({percent(share.low)}{up_to})."


def _rules(score: Score) -> list[Row]:
    rows: list[Row] = []
    for rule in score.rules:
        finding = rule.status if rule.counts else f"{rule.status}, not counted"
        if finding in FINDINGS:
            mentions = _mentions(rule, score)
            rows.append({"Finding": finding, "Rule": rule.block.title, "Mentioned by": mentions})
    return sorted(rows, key=lambda row: FINDINGS.index(row["Finding"]))


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


def _useless_cases(score: Score) -> Iterator[Row]:
    findings = {
        "passes without the skill, so tests nothing of it": score.idle_cases,
        "fails too often with the skill to notice anything": score.failing_cases,
    }
    for finding, cases in findings.items():
        for case in cases:
            yield {"Case": case, "Finding": finding}


def _notes_on_score(score: Score) -> Iterator[Note]:
    by_opposite = sum(each.noticed_by == "opposite" for each in score.rules)
    if by_opposite:
        why = "the student knows them or the skill says them twice"
        yield Note(f"Noticed only when reversed, because {why}: {counted(by_opposite, 'rule')}.")
    vague = sum(not each.counts for each in score.rules)
    if vague:
        why = "they have no number, flag or name in code"
        yield Note(f"Not counted, because {why}: {counted(vague, 'block')}.")


# `matrix`: whose requests each skill gets, and what to do about it
# ------------------------------------------------------------------------------------------------

MIN_SHARE = 0.05  # of a skill's requests: what the table names
SELDOM = 0.5  # of its requests: a skill opened less when it is alone needs another description


def report_matrix(matrices: Sequence[Matrix]) -> Report:
    headlines: list[Headline] = []
    tables: list[Table] = []
    caveats: list[str] = []
    for matrix in matrices:
        student = f"{matrix.student}: " if len(matrices) > 1 else ""
        tone: Tone = "neutral" if matrix.halted else "bad" if matrix.conflicts else "good"
        headlines.append(Headline(student + _conclude_matrix(matrix), tone))
        for line in dict.fromkeys(_describe(matrix, each) for each in matrix.conflicts):
            headlines.append(Headline(student + line, "bad"))
        pairs = counted(len(matrix.requests) * (len(matrix.skills) - 1), "pair")
        tried = counted(len(matrix.shadowing.catalogs), "set")
        trials = counted(matrix.shadowing.trials, "trial")
        note = f"It took {trials} with {tried} of installed skills. {pairs} in all."
        tables.append(Table.of(_requests(matrix), matrix.student if student else "", note=note))
        caveats += (f"{student}{line}" for line in _caveats(matrix))
    return Report(
        title="Who gets whose requests",
        name="matrix",
        data={"students": to_plain(matrices)},
        headlines=headlines,
        tables=tables,
        notes=[Note(line, "caveat") for line in (*caveats, *matrices[0].notes)],
    )


def _conclude_matrix(matrix: Matrix) -> str:
    if matrix.halted:
        return f"Not finished: {matrix.halted}. {AGAIN}"
    losing = {each.skill for each in matrix.conflicts}
    if not losing:
        return "No skill is shown to take another's requests."
    verb = "loses" if len(losing) == 1 else "lose"
    return f"{len(losing)} of {counted(len(matrix.requests), 'skill')} {verb} requests when all are installed."


def _describe(matrix: Matrix, conflict: Conflict) -> str:
    """A conflict in a sentence or two, with the advice."""
    of = counted(len(matrix.requests[conflict.skill]), "request")
    others = ", ".join(sorted(conflict.others)) if len(conflict.others) < 4 else "the other skills"
    change = ""
    if conflict.change:
        change = f": {format_cell(Measure.of(conflict.change), 'points')} points of activation"
    loses = f"{conflict.skill} loses {len(conflict.queries)} of its {of} beside {others}{change}"
    return f"{loses}. {matrix.advice(conflict).words}"


def _caveats(matrix: Matrix) -> Iterator[str]:
    for each in matrix.shadowing.conflicts:
        if not each.shown and not matrix.halted:
            test = "found no loss" if each.cleared else "did not confirm it"
            others = ", ".join(sorted(each.others))
            yield f"{each.skill} seemed to lose requests beside {others}, but the test {test}."
    alone = {name: matrix.shadowing.alone(name) for name in matrix.requests}
    seldom = [name for name, rate in alone.items() if rate is not None and rate < SELDOM]
    if seldom:
        names = ", ".join(seldom)
        yield f"Seldom activated even alone on the requests in doubt: {names}. `upskill trigger --improve` may help."
    if matrix.catalog and (cut := matrix.cut):
        yield f"The catalog of {matrix.catalog} cuts or leaves out: {', '.join(cut)}."


def _requests(matrix: Matrix) -> Iterator[Row]:
    accused = {(each.skill, *each.others) for each in matrix.conflicts}
    for name, queries in matrix.requests.items():
        shares = matrix.shadowing.shares(name)
        instead = {
            other or "nothing": share
            for other, share in sorted(shares.items(), key=lambda each: -each[1])
            if other != name and (share >= MIN_SHARE or (name, other) in accused)
        }
        for other, share in (instead or {"": None}).items():
            yield {
                "Whose requests": name,
                "Requests": len(queries),
                "Reach it": shares.get(name),
                "Alone": matrix.shadowing.alone(name),
                "Opened instead": other,
                "Share": share,
            }


# `challenge`: counterexamples to a skill
# ------------------------------------------------------------------------------------------------

MAX_TEXT = 200  # characters of a prompt


def report_challenge(found: Challenged) -> Report:
    skill, cases = found.skill.name, found.counterexamples
    tried = counted(len(found.proposals), "proposal")
    conclusion = f"None of {tried} is shown to mislead the student."
    if cases:
        verbs = ("passes", "fails") if len(cases) == 1 else ("pass", "fail")
        conclusion = f"{len(cases)} of {tried} {verbs[0]} without the skill and {verbs[1]} with it."
    if undecided := sum(each.status == "undecided" for each in found.proposals):
        conclusion += f" Undecided: {undecided}."
    return Report(
        title=f"Where {skill} misleads",
        name=skill,
        data={
            "skill": skill,
            "conclusion": conclusion,
            "counterexamples": [case.id for case in cases],
            **pick(found, "proposals", "trials", "halted"),
        },
        headlines=[Headline(conclusion, "bad" if cases else "neutral")],
        tables=[Table.of(_proposals(found))],
        notes=[*_counterexamples(found), *_note_effort(found.halted, found.trials)],
    )


def _proposals(found: Challenged) -> Iterator[Row]:
    for each in found.proposals:
        if each.status != "harmless":
            for model, (without, with_skill) in each.rates.items():
                yield {
                    "Case": each.case.id,
                    "Model": model,
                    "Without": without,
                    "With": with_skill,
                    "Rounds": each.rounds,
                    "Result": each.status,
                }


def _counterexamples(found: Challenged) -> Iterator[Note]:
    for case in found.counterexamples:
        texts = {
            case.id: case.prompt,
            "right": case.reference,
            "the skill says": str(case.metadata.get(CHALLENGES) or ""),
        }
        first, *others = [
            f"{name}: {shorten(text, MAX_TEXT, placeholder='…')}"
            for name, text in texts.items()
            if text
        ]
        yield Note(first, "caveat", others)
