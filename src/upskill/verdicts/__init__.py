"""A Verdict says what a skill did to one model. Arithmetic only: nothing here does I/O or knows a suite or an agent.

- `outcome`: Outcome, the part of a trial's result that arithmetic needs; it comes without numpy
- `interval`: `paired_lift`, the one interval, and `mean_share` for one arm
- `arms`: outcomes summed up by arm, paired between two arms, and what missing trials can do to a lift
- `verdict`: Verdict, its two readings, reasons and JSON form; `compute`: from outcomes to verdicts; `line`: in words
- `gate`: what `ci` says about an edit; `requirements`: conditions that CI holds a skill to
- `planning`: what a suite can show, and how many cases would do
"""

LEVEL_OF_TASKS = 0.95  # about tasks like these; for an exact student about these cases, too
LEVEL_OF_THESE = 0.99  # about these cases, and about both after each of several rounds
TOLERANCE = 0.20  # a loss, or a lift, that does not matter
MAX_ROUNDS = 12
