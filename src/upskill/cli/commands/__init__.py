"""One thin file per command: options in, one library call, a report out. `COMMANDS` in `upskill.cli` lists them:
`benchmark`, `ci`, `compare`, `completion`, `doctor`, `eval`, `export`, `feedback`, `generate`, `import_`, `init`,
`install`, `list`, `models`, `plan`, `plot`, `recheck`, `report`, `runs`, `show`, `store`, `teach`, `tests`, `trace`,
`trigger`, `validate`, `verify`, `versions`, `view`.
"""
