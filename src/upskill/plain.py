"""Plain data: the dicts, lists and scalars that come out of JSON and YAML files, and hashes of them."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import yaml

from upskill.errors import UsageError
from upskill.inputs import read_input_text

DEEPEST = 100  # lists and objects within each other
MAX_DIGITS = 300  # of a number; a float holds no more
MAX_JSON_VALUES = 5_000_000
MAX_NODES = 1_000_000  # values in one document, with aliases expanded


def as_mapping(value: object) -> dict[str, Any] | None:
    """With text keys; None if it is not a mapping."""
    if not isinstance(value, dict):
        return None
    return {str(key): item for key, item in cast("dict[Any, Any]", value).items()}


def as_list(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def dict_or_empty(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    return as_list(value) or []


def read_json(path: Path) -> dict[str, Any]:
    try:
        return dict_or_empty(load_json(read_input_text(path)))
    except (UsageError, ValueError):
        return {}


def _digits(number: str) -> int:
    if len(number) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(number)


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def json_decoder(
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs, parse_int=_digits, parse_constant=refuse_constant
    )


JSON = json_decoder()


def load_json(text: str | bytes, decoder: json.JSONDecoder = JSON) -> Any:
    """JSON of others. ValueError, whatever is wrong with it: also for what is too deep or too large to go on with."""
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    # Signs are counted, because values would already fill memory.
    if sum(map(text.count, ",[{")) > MAX_JSON_VALUES:
        raise ValueError(f"it may have more than {MAX_JSON_VALUES:,} values")
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if is_deep(value):
        raise ValueError("nested too deeply")
    return value


def is_deep(value: object) -> bool:
    """Whether nesting is so deep that some code that handles it would not return."""
    level = [value]
    for _ in range(DEEPEST):
        lists = (item for each in level for item in list_or_empty(each))
        level = [*lists, *(item for each in level for item in dict_or_empty(each).values())]
        if not level:
            return False
    return True


def fields_of(value: object) -> dict[str, Any]:
    """A dataclass as a dict: for `json.dumps(..., default=fields_of)`, far cheaper than `asdict`."""
    names: dict[str, Any] | None = getattr(value, "__dataclass_fields__", None)
    if names is None:
        raise TypeError(f"{type(value).__name__} is not plain data")
    return {name: getattr(value, name) for name in names}


def compact(value: object) -> str:
    """Plain data, and dataclasses of it, as JSON without spaces: a trial writes kilobytes of it."""
    from pydantic_core import to_json  # noqa: PLC0415 - fast, and not needed to read a skill

    try:
        return to_json(value).decode()
    except ValueError:  # half of a surrogate pair, which models do write
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=fields_of)


def _fields_or_text(value: object) -> object:
    return fields_of(value) if hasattr(value, "__dataclass_fields__") else str(value)


def canonical(value: object) -> str:
    """Plain data as JSON: equal data gives equal text, whatever the order of keys."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_fields_or_text
    )


def digest(value: object) -> str:
    return digest_text(canonical(value))


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class JsonMember:
    key: str  # empty in a list
    start: int  # of the key
    value: int  # where its value starts
    end: int  # where its value ends


def json_members(text: str, at: int = 0) -> tuple[int, list[JsonMember]]:
    """Where the inside of the object or list at this place begins, and its members. The text is JSON."""
    decode = json.JSONDecoder().raw_decode
    position = first = _after_space(text, at) + 1
    members: list[JsonMember] = []
    while text[position := _after_space(text, position)] not in "]}":
        start = value = _after_space(text, position + (text[position] == ","))
        key = ""
        if text[first - 1] == "{":
            key, end = decode(text, start)
            value = _after_space(text, _after_space(text, end) + 1)
        _, position = decode(text, value)
        members.append(JsonMember(key, start, value, position))
    return first, members


def _after_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def short(value: object, most: int = 60) -> str:
    """The value as a message can show it."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def quoted(text: str) -> str:
    """The text in quotes, with control characters escaped and every backslash as it was written."""
    return repr(text).replace("\\\\", "\\")


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def normal_form(text: str) -> str:
    """NFKC, of long words in pieces: for a million accents on one letter it would take minutes."""
    pieces = re.findall(r"\s+|\S{1,200}", text)
    return "".join(unicodedata.normalize("NFKC", piece) for piece in pieces)


def counted(number: int, noun: str) -> str:
    """1 pair, 2 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """a, a and b, or a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


_JSON_PROBLEMS = {
    "Expecting value": "a value is missing",
    "Extra data": "there is more text after the value",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Expecting ',' delimiter": "a comma is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Illegal trailing comma before end of object": "there is an extra comma",
    "Illegal trailing comma before end of array": "there is an extra comma",
    "Unterminated string starting at": "a string has no closing quote",
    "Invalid control character at": "a string contains a line break or another control character",
    "Invalid \\escape": "a backslash does not start a valid escape",
}


def describe_json_error(error: Exception) -> str:
    """What is wrong with a text that is not JSON, for people."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    if not error.doc.strip():
        return "it is empty"
    begins = error.pos == len(error.doc) - len(error.doc.lstrip())
    if begins and error.msg == "Expecting value":
        return f"it begins with {quoted(error.doc.strip().splitlines()[0][:20])}"
    problem = _JSON_PROBLEMS.get(error.msg.removesuffix(": "), error.msg)
    return f"{problem} (line {error.lineno}, column {error.colno})"


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with all of these properties and no others: the form that every provider takes."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


# YAML


def refused_yaml(problem: str, mark: yaml.Mark | None = None) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def yaml_words(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f"line {mark.line + 1}: " if mark else ""
    problem = (
        getattr(error, "problem", None)
        or getattr(error, "reason", None)
        or str(error).splitlines()[0]
    )
    return f"{line}not valid YAML: {problem}"


def bound_yaml(root: yaml.Node, *, deepest: int, most: int, unique: bool = False) -> None:
    """Refuse what is small on disk but endless in memory: aliases of aliases, and circular ones."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, level: int) -> int:
        if not isinstance(node, yaml.CollectionNode):
            return 1
        if level > deepest:
            raise refused_yaml(
                f"nested more than {deepest} levels deep, or refers to itself", node.start_mark
            )
        if id(node) not in sizes:
            if unique and isinstance(node, yaml.MappingNode):
                _refuse_twins(node)
            parts = (
                chain.from_iterable(node.value)
                if isinstance(node, yaml.MappingNode)
                else node.value
            )
            sizes[id(node)] = 1 + sum(size(part, level + 1) for part in parts)
        if sizes[id(node)] > most:
            raise refused_yaml(f"expands to more than {most:,} values", node.start_mark)
        return sizes[id(node)]

    size(root, 0)


def _refuse_twins(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise refused_yaml("a key is not plain text", key.start_mark)
        if key.value in seen:
            raise refused_yaml(f"{key.value!r} appears twice", key.start_mark)
        seen.add(key.value)


def _read_as_text(
    node: yaml.Node,
    fields: frozenset[str],
    seen: set[int],
    *,
    is_text: bool | None = False,
    inside: bool = False,
) -> None:
    """Keeps the values of these fields as text, as written: `42`, `3.10`, `yes`; also in a list.

    `vars.*` means everything in the mapping `vars`; `value?` means `value`, unless JSON would write it the same way.
    """
    if isinstance(node, yaml.ScalarNode) and node.tag in _WRITTEN_AS_TEXT:
        if is_text or (is_text is None and not _AS_IN_JSON.fullmatch(node.value)):
            node.tag = "tag:yaml.org,2002:str"
    elif isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _read_as_text(part, fields, seen, is_text=is_text, inside=inside)
    elif isinstance(node, yaml.MappingNode) and id(node) not in seen:
        seen.add(id(node))
        for key, value in node.value:
            named = inside or key.value in fields or (is_text and key.value == "text")
            named = None if not named and f"{key.value}?" in fields else named
            if key.value != "json_schema":  # has fields with these names too
                _read_as_text(value, fields, seen, is_text=named, inside=f"{key.value}.*" in fields)


_AS_IN_JSON = re.compile(r"true|false|-?(?:0|[1-9]\d*)(?:\.\d*[1-9])?")
_WRITTEN_AS_TEXT = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool"))


class _PlainLoader(yaml.SafeLoader):
    """Reads what JSON could also express: unique text keys, finite numbers, and dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the class it extends
        first: [(tag, pattern) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    text_fields: frozenset[str] = frozenset()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def get_single_node(self) -> yaml.Node | None:
        node = _compose_fast(self._text)
        if node is None:
            refuse_depth(self._text)
            node = super().get_single_node()
        if node is not None:
            bound_yaml(node, deepest=DEEPEST, most=MAX_NODES, unique=True)
            if self.text_fields:
                _read_as_text(node, self.text_fields, set())
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        number = self.construct_yaml_float(node)
        if not math.isfinite(number):
            raise refused_yaml(f"{node.value} is not a finite number", node.start_mark)
        return number

    def construct_refused(self, node: yaml.Node) -> Any:
        raise refused_yaml(f"unknown tag {node.tag.rpartition(':')[2]!r}", node.start_mark)


_RESOLVERS = {"yaml_implicit_resolvers": _PlainLoader.yaml_implicit_resolvers}
_FAST_LOADER: Any = (
    type("_FastLoader", (yaml.CSafeLoader,), _RESOLVERS) if yaml.__with_libyaml__ else None
)


def _compose_fast(text: str) -> yaml.Node | None:
    """With libyaml, ten times as fast. None if it is missing or refuses; then PyYAML's parser takes over."""
    if _FAST_LOADER is None:
        return None
    try:
        refuse_depth(text, _FAST_LOADER)
        return yaml.compose(text, _FAST_LOADER)
    except _TooDeep:
        raise
    except (yaml.YAMLError, ValueError):
        return None


class _TooDeep(yaml.MarkedYAMLError):
    pass


def refuse_depth(text: str, loader: Any = yaml.SafeLoader) -> None:
    """Fails early: parsers take seconds for thousands of open brackets, and libyaml crashes on them."""
    depth = 0
    for event in cast("Iterator[Any]", yaml.parse(text, loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > DEEPEST:
            raise _TooDeep(
                problem=f"nested more than {DEEPEST} levels deep", problem_mark=event.start_mark
            )


_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_finite)
for _tag in ("binary", "timestamp", "omap", "pairs", "set"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _PlainLoader.construct_refused)


def read_yaml(text: str, *, text_fields: frozenset[str] = frozenset()) -> object:
    """Plain data, or a YAMLError that says what is wrong. A number or a boolean in a text field is text."""
    loader = None
    try:
        loader = _PlainLoader(text)
        loader.text_fields = text_fields
        return loader.get_single_data()
    except RecursionError as error:
        raise refused_yaml("nested too deeply") from error
    except ValueError as error:  # an escape that is no character, a number of five thousand digits
        raise refused_yaml(str(error)) from error
    finally:
        if loader is not None:
            loader.dispose()
