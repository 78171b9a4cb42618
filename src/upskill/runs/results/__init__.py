"""Results: everything computed from stored trials.

- `evaluation`: Evaluation, a run with its verdicts; which cases failed last time
- `looks`: how often a skill has been looked at on these cases; `left_out`: results that were seen and later disappeared
- `shown`: what may be shown of a run, finished or not
- `comparison`: two stored runs, case by case
- `versions`: the versions of a skill
- `reviews`: what people said about answers
"""
