"""A skill to start from: an example with tests that already run, one file for each in this folder."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from upskill.installation import DISTRIBUTION

EXAMPLE = "kiln"  # the tool that it is about, which does not exist
DESCRIPTION = (
    "Says how releases are made with kiln: its commands, options, settings and errors."
    " Use when a release is made, tried or taken back, or when kiln fails."
)


SCHEMAS = ".upskill"  # the folder of a project that its editors find the schemas in


def skill_files(name: str, path: str, description: str = "", schemas: str = SCHEMAS) -> dict[str, str]:
    """Files by path below the skill's folder, which people call `path`; `schemas` leads from the suite to schemas."""
    description = " ".join(description.split()) or DESCRIPTION
    names = {"SKILL.md": "SKILL.md", "evals/suite.yaml": "suite.yaml", "evals/eval_queries.json": "eval_queries.json"}
    return {
        file: _fill(template, name=name, place=path, description=description, schemas=schemas)
        for file, template in names.items()
    }


def settings_file() -> str:
    return _fill("upskill.config.yaml", schemas=SCHEMAS)


def schema_files() -> dict[str, str]:
    """JSON Schemas of suites, settings and queries, for editors, by their paths in a project."""
    schemas = sorted(files("upskill").joinpath("schemas").iterdir(), key=lambda file: file.name)
    return {f"{SCHEMAS}/{file.name}": file.read_text(encoding="utf-8") for file in schemas}


def workflow_file(path: str) -> str:
    return _fill("workflow.yaml", place=path, distribution=DISTRIBUTION)


def _fill(template: str, **values: str) -> str:
    text = files("upskill.skills.starter").joinpath(template).read_text(encoding="utf-8")
    return Template(text).safe_substitute(values)
