from __future__ import annotations

from typing import Literal

FONTS = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif'

# Arms have Okabe and Ito's colors, lighter on dark. Failed to passed is purple to green, which anyone can tell apart.
# Shape, outline or a printed value always says the same.
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2128",
    "muted": "#57606a",
    "grid": "#d8dee4",
    "axis": "#8c959f",
    "baseline": "#e69f00",
    "skill": "#0072b2",
    "hurts": "#d55e00",
    "saves": "#009e73",
    "undecided": "#6e7781",
    "heat-0": "#c2a5cf",
    "heat-1": "#e7d4e8",
    "heat-2": "#eeeeee",
    "heat-3": "#d9f0d3",
    "heat-4": "#a6dba0",
    "heat-ink": "#1c2128",
}
DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "muted": "#9da7b1",
    "grid": "#30363d",
    "axis": "#6e7681",
    "baseline": "#e69f00",
    "skill": "#56b4e9",
    "hurts": "#ff7f3f",
    "saves": "#2cc295",
    "undecided": "#9da7b1",
    "heat-0": "#6a4577",
    "heat-1": "#4d3a55",
    "heat-2": "#3d434b",
    "heat-3": "#2f4f36",
    "heat-4": "#2d6a3a",
    "heat-ink": "#ffffff",
}
# class -> what it paints in which color, and the rest of its rule
_RULES: dict[str, tuple[tuple[str, str], ...]] = {
    "paper": (("fill", "paper"),),
    "ink": (("fill", "ink"),),
    "muted": (("fill", "muted"),),
    "grid": (("stroke", "grid"),),
    "axis": (("stroke", "axis"),),
    "front": (("stroke", "ink"),),
    "bar-baseline": (("fill", "paper"), ("stroke", "baseline")),
    "bar-skill": (("fill", "skill"), ("stroke", "skill")),
    "mark-baseline": (("fill", "paper"), ("stroke", "baseline")),
    "mark-skill": (("fill", "skill"), ("stroke", "skill")),
    "helps": (("fill", "skill"), ("stroke", "skill")),
    "hurts": (("fill", "hurts"), ("stroke", "hurts")),
    "saves": (("fill", "saves"), ("stroke", "saves")),
    "undecided": (("fill", "paper"), ("stroke", "undecided")),
    "no-effect": (("fill", "undecided"), ("stroke", "undecided")),
    **{f"heat-{step}": (("fill", f"heat-{step}"),) for step in range(5)},
    "heat-ink": (("fill", "heat-ink"),),
    "halo": (("stroke", "paper"),),
}


def style() -> str:
    """Light, or dark where the reader's system is. A page may set the colors itself, as `--up-ink` and so on."""
    rules = [
        f".up-picture{{font-family:{FONTS};font-variant-numeric:tabular-nums}}",
        ".up-halo{stroke-width:3px;stroke-linejoin:round;paint-order:stroke}",
        f"@media (prefers-color-scheme:dark){{:root{{{custom_properties('dark')}}}}}",
    ]
    for name, paints in _RULES.items():
        plain = ";".join(f"{what}:{LIGHT[color]}" for what, color in paints)  # without var()
        own = ";".join(f"{what}:var(--up-{color},{LIGHT[color]})" for what, color in paints)
        rules.append(f".up-{name}{{{plain};{own}}}")
    return "".join(rules)


def custom_properties(theme: Literal["light", "dark"]) -> str:
    return ";".join(
        f"--up-{name}:{colour}" for name, colour in (DARK if theme == "dark" else LIGHT).items()
    )
