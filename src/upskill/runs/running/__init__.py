"""Running: runs the missing trials of a plan, and stores every result.

- `evaluate`: runs a plan and returns an Evaluation
- `trial`: one trial and its checks; `events`: progress for the caller
- `gate`: whether an edited skill is as good as it was, and still helps
- `recheck`: which skills of a library are still worth their tokens
- `batch`: replies through a provider's batch API
- `executors`: where trials run
"""
