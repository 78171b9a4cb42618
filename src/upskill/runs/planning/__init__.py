"""Planning: which trials a run has and what they will cost, before it starts.

- `plan`: Plan, Trial, Result; `make_plan` makes a plan from `PlanOptions`
- `stored_plan`: StoredPlan, what a store keeps of a plan
- `options`: options of all verbs that call models
- `estimate`: what trials will cost; `sample_size`: how many cases and runs it takes to see a lift
"""
