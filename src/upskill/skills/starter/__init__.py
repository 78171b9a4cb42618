"""A skill to start from: an example with tests that already run, one file for each in this folder."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from upskill.installation import requirement_elsewhere

EXAMPLE = "kiln"  # the tool that it is about, which does not exist
TO_DO = "      # TODO: this path exists only on your machine. Use a URL, or a path in this repository.\n"
DESCRIPTION = (
    "Explains how to make releases with kiln: its commands, options, settings and errors."
    " Use when making, testing or rolling back a release, or when kiln fails."
)


def skill_files(name: str, path: str, description: str = "") -> dict[str, str]:
    """Files by path below the skill's folder, which people call `path`."""
    description = " ".join(description.split()) or DESCRIPTION
    names = {
        "SKILL.md": "SKILL.md",
        "evals/suite.yaml": "suite.yaml",
        "evals/eval_queries.json": "eval_queries.json",
    }
    filled = {
        file: _fill(template, name=name, place=path, description=description)
        for file, template in names.items()
    }
    return filled | {f"evals/schemas/{schema}": text for schema, text in schema_files().items()}


def schema_files() -> dict[str, str]:
    """JSON Schemas of suites, settings and queries, for editors, by their names."""
    schemas = sorted(files("upskill").joinpath("schemas").iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text(encoding="utf-8") for file in schemas}


def workflow_file(path: str) -> str:
    requirement, is_found_there = requirement_elsewhere("local")
    return _fill(
        "workflow.yaml", place=path, requirement=requirement, to_do="" if is_found_there else TO_DO
    )


def _fill(template: str, **values: str) -> str:
    text = files("upskill.skills.starter").joinpath(template).read_text(encoding="utf-8")
    return Template(text).safe_substitute(values)
