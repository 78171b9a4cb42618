"""Running: what is missing of a plan is run, and every result is stored.

- `evaluate`: runs a plan and returns an Evaluation
- `trial`: one trial; `grading`: its checks; `events`: progress for the caller
- `left`: the trials that are left to run; `spending`: what an interrupted command has spent
- `batch`: replies through a provider's batch API
- `executors`: where trials run
"""
