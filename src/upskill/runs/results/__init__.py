"""Results: everything that is computed from stored trials.

- `evaluation`: Evaluation, a run with its verdicts; `stored`: the Evaluation of a stored run
- `looks`: how often a skill has been looked at on these cases
- `comparison`: two stored runs, case by case; `failing`: which cases failed last time
- `feedback`: what people say of answers; `snapshots`: warns when a provider changed its model
"""
