"""A Run is a plan of trials with their results, kept in a store and resumable at any time.

A Trial is one model x one case x one arm x one seed: the only unit of work, and the only thing that costs money.

- `planning`: Plan, Trial, estimates
- `running`: evaluate, trials, executors
- `results`: Evaluation and what else is computed from stored trials
- `replay`: a run graded again from recorded replies
- `stores`: where runs are kept
"""
