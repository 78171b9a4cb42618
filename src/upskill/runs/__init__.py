"""A Run is a plan of trials with their results, kept in a store and resumable at any time.

A Trial is one model x one case x one arm x one seed: the only unit of work, and the only thing that costs money.

- `plan`: Plan, Trial, Result; `make_plan` makes a plan from what a person says (`PlanOptions`)
- `begun_keys`: the keys of trials, of which all but the seed is hashed once
- `output_limit`: how long the answer of an embedded model may be where nobody says
- `left`: TrialsLeft, the trials of a plan that are left to run, without a list of them
- `evaluate`: runs what is missing of a plan (`RunOptions`) and returns an Evaluation
- `trial`: `run_trial` runs one trial; `run_job` runs many in another process
- `grading`: the checks of a trial, and who is to blame when one breaks
- `evaluation`: Evaluation, a run with everything that can be computed from its stored results
- `stored`: the Evaluation of a stored run
- `snapshots`: what to warn of where a provider changed its model within a run
- `looks`: Looks, how often a skill has been looked at on these cases
- `preregistration`: Registration, a plan that was written down before anything was run
- `comparison`: Comparison, two stored runs set side by side, case by case
- `feedback`: what people say of answers, as a file and in the store, and how well checks agree with it
- `failing`: which cases failed with the skill when they were last run
- `estimate`: what trials will cost, before they do
- `spending`: what a command that was killed has spent, which counts for the one that goes on
- `sample_size`: how many cases and runs it takes to see a lift
- `events`: what a caller is told while a verb works
- `options`: options that every verb which calls models shares
- `batch`: fetches the replies of a plan through a provider's batch API, at half the price
- `replies`: a file of the replies of a run, for other machines; `replay`: a plan that is played from one
- `executors`: where trials run
- `stores`: where runs are kept
"""
