"""The schemas that editors use say what the code says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from conftest import REPOSITORY, Upskill
from upskill import Settings, Suite, UsageError
from upskill.checks import CHECKS
from upskill.settings import OLDER_NAMES, UNUSED
from upskill.skills.starter import schema_files
from upskill.suites.queries import Queries

SCHEMAS: dict[str, dict[str, Any]] = {
    name: json.loads(text) for name, text in schema_files().items()
}


def fits(schema: str, value: Any) -> bool:
    return Draft202012Validator(SCHEMAS[schema]).is_valid(value)


def test_the_schemas_are_those_that_the_code_makes() -> None:
    script = [sys.executable, str(REPOSITORY / "docs" / "make_schemas.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    assert set(SCHEMAS) == {"suite.schema.json", "config.schema.json", "eval_queries.schema.json"}
    properties = SCHEMAS["suite.schema.json"]["$defs"]["check"]["properties"]
    assert set(properties) == set(CHECKS.table)
    assert all(said["description"] for said in properties.values())
    assert set(SCHEMAS["config.schema.json"]["properties"]) == {
        *Settings.model_fields,
        *OLDER_NAMES,
        *UNUSED,
    }


def test_every_suite_that_we_ship_or_show_fits_its_schema() -> None:
    suites = sorted(REPOSITORY.glob("examples/**/evals/*.yaml"))
    assert len(suites) > 3
    shown = re.findall(
        r"```yaml\n(.*?)```",
        (REPOSITORY / "docs/how-to/suites.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    texts = [
        *(path.read_text(encoding="utf-8") for path in suites),
        *(text for text in shown if "cases:" in text),
    ]
    for text in texts:
        errors = list(
            Draft202012Validator(SCHEMAS["suite.schema.json"]).iter_errors(yaml.safe_load(text))
        )
        assert errors == [], text[:200]


CASE: dict[str, Any] = {"prompt": "Say hello.", "checks": [{"contains": "hello"}]}
SUITES: list[tuple[object, bool]] = [
    ([CASE], True),
    ({"cases": [CASE], "checks": [{"max_length": 5}], "max_output_tokens": 9, "name": "x"}, True),
    (
        [
            CASE
            | {
                "checks": [
                    {"equals": 42},
                    {"contains": {"text": ["a", 1]}},
                    {"command": {"run": "true", "files": []}},
                ]
            }
        ],
        True,
    ),
    ([CASE | {"checks": [{"json_schema": {"type": "object"}}]}], True),
    ([CASE | {"right": ["a", {"run": "echo a"}], "held_out": True, "metadata": {"a": [1]}}], True),
    ([CASE | {"promt": "x"}], False),
    ([{"checks": [{"contains": "x"}]}], False),
    ([CASE | {"checks": [{"contain": "x"}]}], False),
    ([CASE | {"checks": [{"contains": "x", "regex": "y"}]}], False),
    ([CASE | {"checks": [{"max_length": 0}]}], False),
    ([CASE | {"held_out": "yes"}], False),
    ({"cases": [CASE], "check": []}, False),
    ({"checks": []}, False),
    ("x", False),
]


@pytest.mark.parametrize(("said", "is_right"), SUITES)
def test_the_schema_of_a_suite_and_its_reader_agree(said: object, is_right: bool) -> None:
    assert fits("suite.schema.json", said) is is_right
    if is_right:
        assert Suite.parse(said).cases
    else:
        with pytest.raises(UsageError):
            Suite.parse(said)


def test_the_schemas_of_settings_and_queries_and_their_readers_agree(tmp_path: Path) -> None:
    query = {"query": "Hi", "should_trigger": True}
    for said, is_right in (
        ([query, {"prompt": "Ho", "shouldTrigger": False, "note": "x"}], True),
        ({"queries": [query]}, True),
        ({"should_trigger": ["a"], "should_not_trigger": ["b"]}, True),
        ([query | {"should_triger": True}], False),
        ([{"query": "Hi"}], False),
        ([], False),
        ([query | {"should_trigger": "yes"}], False),
    ):
        assert fits("eval_queries.schema.json", said) is is_right
        if is_right:
            assert Queries.parse(said).all
        else:
            with pytest.raises(UsageError):
                Queries.parse(said)
    page = (REPOSITORY / "docs/how-to/settings.md").read_text(encoding="utf-8")
    (sample,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert fits("config.schema.json", yaml.safe_load(sample))
    assert not fits("config.schema.json", {"concurency": 3})
    place = tmp_path / "config.yaml"
    place.write_text(sample, encoding="utf-8")
    assert Settings.read(place).prices["my-model"].input == 0.5


def test_the_line_that_init_writes_leads_to_the_schema(home: Path, upskill: Upskill) -> None:
    upskill("init", "skills/deep/shop", "--yes")
    file = Path("skills/deep/shop/evals/suite.yaml")
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    schema = json.loads((file.parent / first.partition("=")[2]).read_text(encoding="utf-8"))
    assert Draft202012Validator(schema).is_valid(yaml.safe_load(file.read_text(encoding="utf-8")))
