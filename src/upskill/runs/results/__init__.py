"""Results: everything that is computed from stored trials.

- `evaluation`: Evaluation, a run with its verdicts; which cases failed last time
- `looks`: how often a skill has been looked at on these cases
- `comparison`: two stored runs, case by case
- `feedback`: what people say of answers
"""
