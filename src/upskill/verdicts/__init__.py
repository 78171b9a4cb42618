"""A Verdict is arithmetic over outcomes: lift with its interval, tokens, cost, and a decision. Nothing here does I/O.

- `outcome`: Outcome, the part of a trial's result that arithmetic needs
- `arms`: outcomes summed up by arm, and paired between two arms
- `statistics`: intervals and tests; `unseen`: the bound that allows for cases nobody has seen
- `sequential`: a test that may be looked at while a run goes on; `planning`: sample sizes
- `lazy_numpy`: numpy, loaded when it is first used
- `missing`: what errored trials may hide
- `verdict`: Verdict and `compute_verdict`; `to_json`: the one JSON form of it; `advice`: what to do about it
- `diagnosis`: what each case can still show; `choices`: which model is worth its price
- `requirements`: conditions that CI holds a skill to
- `agreement`: how well checks agree with people
- `firing`: how readily a model opens a skill
"""
