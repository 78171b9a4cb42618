"""One thin file per command: options in, one library call, a report out. `COMMANDS` in `upskill.cli` lists them:
`benchmark`, `challenge`, `ci`, `compare`, `completion`, `distill`, `doctor`, `eval`, `export`, `generate`,
`import_`, `init`, `install`, `list`, `matrix`, `models`, `pack`, `plan`, `plot`, `report`, `runs`, `show`,
`store`, `teach`, `tests`, `trace`, `trigger`, `validate`, `verify`, `versions`, `view`.
"""
