"""One thin file per command: options in, one verb of the library, a report out. `COMMANDS` in `upskill.cli` lists them:
`benchmark`, `compare`, `completion`, `diff`, `doctor`, `eval`, `export`, `feedback`, `generate`, `history`,
`import_`, `init`, `install`, `list`, `models`, `plan`, `plot`, `report`, `runs`, `sandbox`, `show`, `store`, `teach`,
`tests`, `trace`, `trigger`, `validate`, `view`.
"""
