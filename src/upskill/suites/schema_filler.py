"""Fills a JSON schema with given words: JSON of the right form that says nothing."""

from __future__ import annotations

from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty

MAX_DEPTH = 12  # of a schema that refers to itself


def fill_schema(schema: object, words: str, depth: int = 0) -> Any:
    """A value of this schema whose texts are all these words.

    Patterns are not followed, and of the values that a schema allows only those are taken that the words name.
    """
    rules = dict_or_empty(schema)
    if depth > MAX_DEPTH:
        return None
    options = [rules["const"]] if "const" in rules else as_list(rules.get("enum"))
    if options:
        return next((option for option in options if str(option) in words), words)
    for word in ("anyOf", "oneOf", "allOf"):
        if parts := as_list(rules.get(word)):
            found = [fill_schema(part, words, depth + 1) for part in (parts if word == "allOf" else parts[:1])]
            mappings = [mapping for value in found if (mapping := as_mapping(value)) is not None]
            return {key: value for mapping in mappings for key, value in mapping.items()} if mappings else found[0]
    kinds = as_list(rules.get("type")) or [rules.get("type")]
    match kinds[0] if kinds[0] is not None else "object" if "properties" in rules else "string":
        case "object":
            fields = dict_or_empty(rules.get("properties"))
            wanted = dict.fromkeys([*fields, *(as_list(rules.get("required")) or [])])
            return {str(name): fill_schema(fields.get(str(name), {}), words, depth + 1) for name in wanted}
        case "array":
            count = rules.get("minItems") if isinstance(rules.get("minItems"), int) else 1
            return [fill_schema(rules.get("items"), words, depth + 1) for _ in range(min(int(count or 1), 100))]
        case "integer" | "number":
            least = rules.get("minimum", rules.get("exclusiveMinimum"))
            return (least + 1 if "exclusiveMinimum" in rules else least) if isinstance(least, int | float) else 0
        case "boolean":
            return True
        case "null":
            return None
        case _:
            most = rules.get("maxLength")
            return words[:most] if isinstance(most, int) else words
