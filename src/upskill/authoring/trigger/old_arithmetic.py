"""What the search of `generate` and the test of a description still need of the arithmetic before `verdicts/interval`.

Nobody builds on this: both are rewritten on `verdicts/interval` later, and then it goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from upskill.verdicts.interval import CaseGroups

MAX_ERROR_RATE = 0.10  # share of the trials that may error before nothing can be decided


def sign_flip_p_value(differences: Sequence[float], cases: Sequence[Hashable]) -> float:
    """Two-sided p-value of "both are alike", flipping the sign of whole cases. A pair got better, worse or neither."""
    sums = CaseGroups.of(cases).sums(differences).astype(np.int64)
    reach = int(np.abs(sums).sum())
    chance = np.zeros(2 * reach + 1)  # of each sum from -reach to reach
    chance[reach] = 1.0
    for step in np.abs(sums[sums != 0]).tolist():
        chance = 0.5 * (np.roll(chance, step) + np.roll(chance, -step))
    far = abs(int(sums.sum()))
    return min(1.0, float(chance[: reach - far + 1].sum() + chance[reach + far :].sum()))
