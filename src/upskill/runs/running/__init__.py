"""Running: what is missing of a plan is run, and every result is stored.

- `evaluate`: runs a plan and returns an Evaluation
- `trial`: one trial and its checks; `events`: progress for the caller
- `gate`: whether an edited skill is as good as it was, and still helps
- `recheck`: which skills of a library are still worth their tokens
- `batch`: replies through a provider's batch API
- `executors`: where trials run
"""
