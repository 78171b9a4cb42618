"""Pictures of a run, as plain SVG: for `upskill plot`, the HTML report, the live page and the documentation.

- `lift_forest`: the lift of each model with its interval; `lift_by_group` for several skills or versions
- `pass_rates`: bars of the pass rates without and with the skill
- `pareto`: tokens or cost per task against the pass rate, with the Pareto front
- `front`: versions of a skill by tokens and pass rate
- `shadow_map`: whose requests open which skill
- `heat_map`: every case with every model and arm
- `svg`: a drawing that grows downwards, elements, marks, scales and texts; `themes`: the colors and the style sheet
- `png`: a picture as PNG, with the extra of that name

Each takes the document that `--json` prints; the heat map also takes cells (`cells_of`). A page that inlines pictures
puts `style()` into its own style sheet once, and draws with `style=False`.
"""

from __future__ import annotations

from upskill.reports.pictures.front import front
from upskill.reports.pictures.heat_map import Cells, cells_of, heat_map
from upskill.reports.pictures.lift_forest import lift_by_group, lift_forest
from upskill.reports.pictures.pareto import Unit, pareto
from upskill.reports.pictures.pass_rates import pass_rates
from upskill.reports.pictures.shadow_map import shadow_map
from upskill.reports.pictures.svg import PictureOptions
from upskill.reports.pictures.themes import Theme, custom_properties, style

__all__ = [
    "Cells",
    "PictureOptions",
    "Theme",
    "Unit",
    "cells_of",
    "custom_properties",
    "front",
    "heat_map",
    "lift_by_group",
    "lift_forest",
    "pareto",
    "pass_rates",
    "shadow_map",
    "style",
]
