"""A skill to start from: an example with tests that already run, one file for each in this folder."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from upskill.installation import DISTRIBUTION

DESCRIPTION = (
    "Says how releases are made with kiln: its commands, options, settings and errors."
    " Use when a release is made, tried or taken back, or when kiln fails."
)


SCHEMAS = ".upskill"  # the folder of a project that its editors find the schemas in


def skill_files(name: str, place: str, description: str = "", schemas: str = SCHEMAS) -> dict[str, str]:
    """The files of a new skill, by their paths below its folder; `place` is how a person names the folder.

    `schemas` is the way from its suite to the folder of schemas.
    """
    said = " ".join(description.split()) or DESCRIPTION
    words = {"name": name, "place": place, "description": said, "schemas": schemas}
    return {
        "SKILL.md": _fill("SKILL.md", words),
        "evals/suite.yaml": _fill("suite.yaml", words),
        "evals/eval_queries.json": _fill("eval_queries.json", words),
    }


def settings_file() -> str:
    """An `upskill.config.yaml` in which every setting is explained and none is made."""
    return _fill("upskill.config.yaml", {"schemas": SCHEMAS})


def schema_files() -> dict[str, str]:
    """JSON Schemas of suites, settings and queries, for editors, by their paths in a project."""
    folder = files("upskill").joinpath("schemas")
    return {
        f"{SCHEMAS}/{file.name}": file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
    }


def workflow_file(place: str) -> str:
    """A workflow of GitHub Actions that proves the skill when it changes."""
    return _fill("workflow.yaml", {"place": place, "distribution": DISTRIBUTION})


def _fill(name: str, words: dict[str, str]) -> str:
    return Template(files("upskill.skills.starter").joinpath(name).read_text(encoding="utf-8")).safe_substitute(words)
