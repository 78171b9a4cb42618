"""Models that run in a process of their own on this machine, with weights that upskill fetches.

- `local`: the model `local` and `local:NAME`, a server for each core; `capacity`: how many servers there is room for
- `server`: the program of a server; `process`: starts and stops it; `client`: talks to it
- `states`: how prompts are read, so that an answer depends on its request alone; `repetition`: when to stop one
- `identity`: which weights a name stands for
- `local_models`: the table of local models, a row each; `speed`: how fast they are here
- `weights`: downloads and removes them; `weight_files`: where they lie, and whether they are intact
- `hub`: the Hugging Face hub; `packages`: weights in the parts of packages; `installers`: pip, uv and npm
"""
