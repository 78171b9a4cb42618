"""A Run is a plan of trials with their results, kept in a store and resumable at any time.

- `planning`: Plan, Trial, estimates
- `running`: evaluate, trials, executors
- `results`: Evaluation and whatever else is computed from stored trials
- `replay`: a run graded again from recorded replies
- `stores`: where runs are kept
"""
