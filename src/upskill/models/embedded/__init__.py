"""Models that run in a process of their own on this machine, with weights that upskill fetches.

- `local`: the model `local` and `local:NAME`; `server`: its process
- `local_models`: the table of local models, a row each; `weights`: downloads and verifies them
"""
