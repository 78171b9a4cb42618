"""A verified receipt as a badge for a README, and as a skill card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from upskill.plain import counted, dict_or_empty
from upskill.reports.numbers import dollars, format_cell, points
from upskill.reports.report import Change, Measure, Rate
from upskill.runs.replay.receipt import Claims
from upskill.skills import Skill
from upskill.verdicts.line import decision_in_words
from upskill.verdicts.verdict import Verdict

COLORS = {"helps": "#1a7f37", "saves": "#1a7f37", "hurts": "#cf222e"}
GRAY = "#59636e"
LETTER = 6.6  # pixels, of the badge's 11-pixel font, generously
TO_FILL_IN = "_To be filled in by the owner._"


def badge(verdicts: Sequence[Verdict]) -> str:
    """An SVG with the decision and the lift of the first model; of several, the least favorable decision."""
    worst = next((each for each in verdicts if not each.is_beneficial), verdicts[0])
    found = worst.to_dict()
    label, value = "upskill", decision_in_words(found)
    if worst.lift is not None:
        value = f"{value} {points(worst.lift)}"
    left, right = (round(LETTER * len(text)) + 12 for text in (label, value))
    title = escape(f"{worst.model}: {format_cell(Change.of_rates(found))}")
    texts = "".join(
        f'<text x="{x}" y="14" text-anchor="middle">{escape(text)}</text>'
        for x, text in ((left / 2, label), (left + right / 2, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="up-picture" width="{left + right}" height="20" role="img">'
        f"<title>{title}</title>"
        f'<rect width="{left}" height="20" fill="#24292f"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{COLORS.get(worst.decision, GRAY)}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )


def claims_in_words(claims: Claims) -> str:
    seen = f"{counted(claims.seen, 'case')} seen before" if claims.seen else "all cases fresh"
    cost = "cost unknown" if claims.cost_usd is None else dollars(claims.cost_usd)
    return f"answers from {', '.join(claims.models)}, {claims.date}, {seen}, {cost}"


def card(
    skill: Skill, receipt: Mapping[str, Any], verdicts: Sequence[Verdict], old: str = ""
) -> str:
    """NVIDIA's skill card, filled from the skill and its receipt. The owner fills in the rest, which is kept."""
    fields = {**dict_or_empty(skill.frontmatter.get("metadata")), **skill.frontmatter}
    evaluation = [
        f"{len(receipt['suite']['cases'])} cases, with and without the skill.",
        "",
        "| Model | Without | With | Lift | Decision |",
        "| --- | --- | --- | --- | --- |",
    ]
    for verdict in verdicts:
        found = verdict.to_dict()
        rates = [format_cell(Rate.of_arm(found[arm])) for arm in ("baseline", "skill")]
        lift = format_cell(Measure.of_lift(verdict), "points")
        cells = [verdict.model, *rates, lift, decision_in_words(found)]
        evaluation.append(f"| {' | '.join(cells)} |")
    evaluation += [
        "",
        "`upskill verify` recomputes these numbers from the recorded answers.",
        f"Claimed by the author: {claims_in_words(Claims.of(receipt))}.",
    ]
    sections = {
        "Description": skill.description,
        "Owner": str(fields.get("author") or fields.get("owner") or TO_FILL_IN),
        "License/Terms of Use": str(fields.get("license") or TO_FILL_IN),
        "Use Case": TO_FILL_IN,
        "Deployment Geography for Use": TO_FILL_IN,
        "Known Risks and Mitigations": TO_FILL_IN,
        "References": TO_FILL_IN,
        "Skill Output": TO_FILL_IN,
        "Skill Version": f"{fields.get('version') or 'unnumbered'} (content {skill.visible_hash})",
        "Evaluation": "\n".join(evaluation),
        "Ethical Considerations": TO_FILL_IN,
    }
    for part in old.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        if title not in ("Skill Version", "Evaluation"):
            sections[title] = text.strip()
    written = "\n".join(f"## {title}\n\n{text}\n" for title, text in sections.items())
    return f"# {skill.name}\n\n{written}"
