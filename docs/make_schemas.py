"""Write the JSON Schemas in src/upskill/schemas/ from the code: of suites, settings and trigger queries, for editors.

python docs/make_schemas.py            write them
python docs/make_schemas.py --check    say whether they are up to date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from upskill.checks import CHECKS, SuiteLine
from upskill.plain import as_list, as_mapping
from upskill.settings import OLDER_NAMES, UNUSED, Settings
from upskill.suites.queries import LIST_KEYS, NOTE_KEYS, SHOULD_KEYS, TEXT_KEYS
from upskill.suites.shapes import LISTS, OurCase, OurSuite

FOLDER = Path(__file__).parent.parent / "src" / "upskill" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    return {
        "suite.schema.json": suite(),
        "config.schema.json": settings(),
        "eval_queries.schema.json": queries(),
    }


def suite() -> dict[str, Any]:
    """A list of cases, or a mapping with one."""
    case = _tidy(OurCase.model_json_schema())
    shared: dict[str, Any] = {"type": "array", "items": {"$ref": "#/$defs/check"}}
    case["properties"]["checks"] |= shared
    definitions = case.pop("$defs")
    cases = {"type": "array", "items": {"$ref": "#/$defs/case"}, "minItems": 1}
    others: dict[str, Any] = {name: {} for name in OurSuite.model_fields if name != "cases"}
    others["checks"] = shared | {"description": "Checks that every case has."}
    others["mcp_servers"] = case["properties"]["mcp_servers"] | {
        "description": "MCP servers that every case has."
    }
    others["max_output_tokens"] = {
        "type": "integer",
        "minimum": 1,
        "description": "Where its case does not say.",
    }
    return {
        "$schema": DRAFT,
        "title": "A suite of upskill: evals/suite.yaml",
        "type": ["object", "array"],
        "items": {"$ref": "#/$defs/case"},
        "properties": dict.fromkeys(LISTS, cases) | others,
        "additionalProperties": False,
        "anyOf": [{"type": "array"}, *({"required": [name]} for name in LISTS)],
        "$defs": {"case": case, "check": _check(), **definitions},
    }


def _check() -> dict[str, Any]:
    """One `name: value`, the value being the check's first field or all of them."""
    found: dict[str, Any] = {}
    for name in CHECKS.table:
        kind: type[SuiteLine] = CHECKS.load(name)
        whole = _tidy(kind.model_json_schema())
        first = next(iter(whole["properties"].values()))
        words = " ".join((kind.__doc__ or "").split())
        found[name] = {"description": words, "anyOf": [first, whole | {"description": words}]}
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": found,
    }


def settings() -> dict[str, Any]:
    schema = _tidy(Settings.model_json_schema())
    schema.pop("description", None)
    of_upstream = "Of Hugging Face's upskill; not used here."
    for older, name in OLDER_NAMES.items():
        kind = "integer" if name in ("repeats", "concurrency") else "string"
        schema["properties"][older] = {"type": kind, "description": f"The older name of {name}."}
    for name in UNUSED:
        schema["properties"][name] = {"description": of_upstream}
    return {"$schema": DRAFT, "title": "Settings of upskill: upskill.config.yaml", **schema}


def queries() -> dict[str, Any]:
    text, should = {"type": "string", "minLength": 1}, {"type": "boolean"}
    query: dict[str, Any] = {
        "type": "object",
        "properties": dict.fromkeys(TEXT_KEYS, text)
        | dict.fromkeys(SHOULD_KEYS, should)
        | {key: {} for key in NOTE_KEYS},
        "allOf": [
            {"oneOf": [{"required": [key]} for key in TEXT_KEYS]},
            {"oneOf": [{"required": [key]} for key in SHOULD_KEYS]},
        ],
        "additionalProperties": False,
    }
    listed = {"type": "array", "items": {"$ref": "#/$defs/query"}, "minItems": 1}
    texts = {"type": "array", "items": text}
    return {
        "$schema": DRAFT,
        "title": "What should and should not make a skill fire: evals/eval_queries.json",
        "anyOf": [
            listed,
            {"type": "object", "properties": dict.fromkeys(LIST_KEYS, listed), "minProperties": 1},
            {
                "type": "object",
                "properties": {"should_trigger": texts, "should_not_trigger": texts},
                "required": ["should_trigger"],
            },
        ],
        "$defs": {"query": query},
    }


def _tidy(value: Any) -> Any:
    """Without the titles that only repeat names."""
    if (fields := as_mapping(value)) is not None:
        return {
            key: _tidy(item)
            for key, item in fields.items()
            if key != "title" or not isinstance(item, str)
        }
    items = as_list(value)
    return value if items is None else [_tidy(item) for item in items]


def main() -> None:
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        place = FOLDER / name
        if "--check" not in sys.argv[1:]:
            place.write_text(text, encoding="utf-8")
        elif not place.is_file() or place.read_text(encoding="utf-8") != text:
            sys.exit(
                f"src/upskill/schemas/{name} is out of date: run `python docs/make_schemas.py`"
            )


if __name__ == "__main__":
    main()
