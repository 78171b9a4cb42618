"""A Verdict is arithmetic over outcomes: lift with its interval, tokens, cost, and a decision. Nothing here does I/O.

- `outcome`: Outcome, the part of a trial's result that arithmetic needs; it comes without numpy
- `statistics`: intervals and tests, and one that may be looked at during a run; `planning`: sample sizes
- `these_cases`: the lift on exactly these cases, where the repeats are the sample
- `arms`: outcomes summed up by arm, paired between two arms, and what missing trials may hide
- `verdict`: Verdict, its options and its JSON form; `compute`: from outcomes to a verdict; `advice`: it in words
- `several_models`: which decisions stand where several models were tried
- `library`: which decisions stand for many skills and models
- `diagnosis`: what each case can still show; `choices`: which model is worth its price
- `requirements`: conditions that CI holds a skill to
- `trigger_metrics`: how readily a model activates a skill
"""
