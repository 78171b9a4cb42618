"""Pictures of a run, as plain SVG: for `upskill export`, the HTML report, the live page and the documentation.

- `lift_forest`: the lift of each model with its interval; `lift_by_group` for several skills or versions
- `pass_rates`: bars of the pass rates without and with the skill
- `pareto`: tokens or cost per task against the pass rate, with the Pareto front
- `front`: versions of a skill by tokens and pass rate
- `shadow_map`: whose requests open which skill
- `svg`: a drawing that grows downwards, elements, marks, scales and texts; `colors`: the colors and the style sheet

Each takes the document that `--json` prints. A page that inlines pictures puts `style()` into its own style sheet once,
and draws with `style=False`.
"""

from __future__ import annotations

from upskill.reports.pictures.colors import custom_properties, style
from upskill.reports.pictures.front import front
from upskill.reports.pictures.lift_forest import lift_by_group, lift_forest
from upskill.reports.pictures.pareto import pareto
from upskill.reports.pictures.pass_rates import pass_rates
from upskill.reports.pictures.shadow_map import shadow_map
from upskill.reports.pictures.svg import PictureOptions

__all__ = [
    "PictureOptions",
    "custom_properties",
    "front",
    "lift_by_group",
    "lift_forest",
    "pareto",
    "pass_rates",
    "shadow_map",
    "style",
]
