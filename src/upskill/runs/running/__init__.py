"""Running: runs the missing trials of a plan, and stores every result.

- `evaluate`: runs a plan and returns an Evaluation
- `trial`: one trial and its checks; `events`: progress for the caller
- `past_draws`: what a store already has for a plan; `probe`: finds servers that answer from a cache
- `gate`: whether an edit made a skill's cases worse, and whether a skill helps at all
- `batch`: replies through a provider's batch API
- `executors`: where trials run
"""
