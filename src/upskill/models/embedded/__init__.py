"""Models that run in a process of their own on this machine, with weights that upskill fetches.

- `local`: the model `local` and `local:NAME`, a server for each core, and how prompts are read
- `server`: the program of a server; `client`: starts it and talks to it
- `capacity`: how many servers this machine has room for, and how fast they are
- `local_models`: the table of local models, a row each
- `weights`: downloads and removes weights; `weight_files`: where they are, and whether they are intact
"""
