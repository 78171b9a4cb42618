"""Experiments ask what carries the lift of a skill, or takes it away. Each is a plan over the engine that runs trials.

- `engine`: opens store and models, and runs one version of a skill; what the others share
- `ablation`: which blocks carry nothing or do harm, by taking groups of them out; no I/O, so it can be simulated
- `distill`: the shortest skill that is not worse, from such a search
- `mutation`: would the suite notice if a rule were lost or wrong?
- `shadowing`: which skills take the requests of others; no I/O either
- `matrix`: a folder of skills, searched for that
- `counterexamples`: requests where following the skill leads astray
"""
