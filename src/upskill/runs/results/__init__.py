"""Results: everything computed from stored trials.

- `evaluation`: Evaluation, a run with its verdicts; which cases failed last time
- `shown`: what may be shown of a run, finished or not; `caveats`: what a reader of its verdict should know
- `diagnosis`: what each case can still show; `choices`: which model is worth its price
- `comparison`: two stored runs, case by case
- `versions`: the versions of a skill
- `reviews`: what people said about answers
"""
