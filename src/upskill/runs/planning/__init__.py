"""Planning: which trials a run has and what they will cost, before it starts.

- `plan`: Plan, Trial, Result; `make_plan` makes a plan from `PlanOptions`
- `stored_plan`: StoredPlan, what a store keeps of a plan
- `options`: options of all verbs that call models
- `draws`: how often a student answers each case, and at which temperature
- `forecast`: what a suite can decide about a skill
- `estimate`: what trials will cost
"""
