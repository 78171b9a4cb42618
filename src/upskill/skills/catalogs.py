"""What of each skill's description a model sees in an agent's catalog, where many skills share a small space."""

from __future__ import annotations

from collections.abc import Sequence

from upskill.skills.agent_specs import Catalog


def shown_descriptions(
    catalog: Catalog, skills: Sequence[tuple[str, str]], context: int | None = None
) -> list[str | None]:
    """For each (name, description): what the catalog shows of the description; None if it leaves the skill out.

    Skills are in the agent's order: by name, or for Claude Code by how much they are used.
    """
    most = catalog.max_description
    texts = [
        text if len(text) <= most or not most else f"{text[: most - 3]}..." for _, text in skills
    ]
    lines = [
        catalog.line.format(name=name, description=text)
        for (name, _), text in zip(skills, texts, strict=True)
    ]
    bare_lines = [catalog.line.format(name=name, description="") for name, _ in skills]
    budget = catalog.budget(context)
    if not budget or sum(map(catalog.cost, lines)) <= budget:
        return [*texts]
    costs = [catalog.cost(line) for line in (lines if catalog.overflow == "drop" else bare_lines)]
    left = budget - sum(costs)
    if left < 0:  # not even the names fit, or the agent never shows less than all of a line
        shown: list[str | None] = []
        for text, cost in zip(texts, costs, strict=True):
            budget -= cost
            fits = budget >= 0 or catalog.overflow == "names"
            shown.append((text if catalog.overflow == "drop" else "") if fits else None)
            budget += (
                cost if not fits and catalog.overflow == "shorten" else 0
            )  # a shorter one may still fit
        return shown
    if catalog.overflow == "names":
        shown = []
        for line, text, cost in zip(lines, texts, costs, strict=True):
            left -= catalog.cost(line) - cost
            shown.append(text if left >= 0 else "")
        return shown
    return [*_share_out(catalog, texts, bare_lines, left)]


def _share_out(catalog: Catalog, texts: list[str], bare_lines: list[str], left: int) -> list[str]:
    """One letter for each description in turn, as long as there is room."""
    lengths, paid = [0] * len(texts), [0] * len(texts)
    sizes = [len(line.encode()) for line in bare_lines]
    waiting = range(len(texts))
    while waiting:
        grown: list[int] = []
        for index in waiting:
            if lengths[index] == len(texts[index]):
                continue
            size = sizes[index] + len(texts[index][lengths[index]].encode())
            cost = catalog.cost_of(size) - catalog.cost_of(len(bare_lines[index].encode()))
            if cost - paid[index] <= left:
                left -= cost - paid[index]
                sizes[index], paid[index], lengths[index] = size, cost, lengths[index] + 1
                grown.append(index)
        waiting = grown
    return [text[:length] for text, length in zip(texts, lengths, strict=True)]
