"""A kernel task: a Python file beside the suite that says what a kernel computes, on which inputs, and how exactly.

    SIGNATURE = "const half* x, half* out, int rows, int cols"   # of the launcher, without the stream
    SHAPES = [(1, 1), (37, 1023)]                                # that are checked
    TIMED = (8192, 4096)                                         # that is timed, and checked
    DTYPES = ["float16"]                                         # one: `launch`; several: `launch_float16`, …
    TOLERANCE = {"float16": (1e-3, 1e-3)}                        # by dtype of an output: relative, absolute
    EXACT = True                                                 # repeated runs agree bit for bit
    SCRATCH = 67108864                                           # bytes of memory for the launcher

    def inputs(shape, dtype, generator) -> tensors and numbers by name
    def outputs(shape, dtype) -> (shape, dtype) by name
    def reference(**inputs) -> a tensor, or tensors by name
    def eager(**inputs)                    what PyTorch is timed with; `reference` where there is none
    def bytes_moved(shape, dtype) -> int   the least that has to go through the device's memory
    def accept(outputs, **inputs) -> str   what is wrong with outputs, in place of comparing them with the reference

Its constants are literals: they are read without running the file. The file itself is run only beside the GPU.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Kind = Literal["pointer", "int", "long", "float", "double"]
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int", "int32_t", "unsigned", "unsigned int", "uint32_t", "bool"), "int"),
    **dict.fromkeys(
        ("long", "long int", "long long", "unsigned long", "unsigned long long"), "long"
    ),
    **dict.fromkeys(("int64_t", "uint64_t", "size_t"), "long"),
    "float": "float",
    "double": "double",
}
C_TYPES: dict[Kind, str] = {
    "pointer": "void *",
    "int": "int",
    "long": "long long",
    "float": "float",
    "double": "double",
}
_TOLERANCES = {
    "float16": 1e-3,
    "bfloat16": 1e-2,
    "float32": 1e-5,
    "float64": 1e-12,
}  # relative and absolute
FUNCTIONS = ("inputs", "outputs", "reference")
DTYPE = r"^(b?float\d+(_e\dm\d\w*)?|u?int\d+|complex\d+|half|float|double|short|int|long|bool)$"


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    kind: Kind


def read_signature(text: str) -> tuple[Argument, ...]:
    arguments: dict[str, Argument] = {}
    for part in text.split(","):
        parsed = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", part.replace("__restrict__", " "))
        if parsed is None:
            raise ValueError(f"{part.strip()!r} must be a type and a name")
        name, c_type = parsed[2], re.sub(r"\s+", " ", parsed[1].replace("const", "")).strip()
        if c_type == "cudaStream_t":
            raise ValueError("leave the stream out; every launcher has it as its last argument")
        if "*" not in c_type and c_type not in KINDS:
            raise ValueError(
                f"{c_type!r} is not a type that can be passed; use a pointer or a number"
            )
        if name in arguments:
            raise ValueError(f"two arguments are named {name!r}")
        arguments[name] = Argument(name, "pointer" if "*" in c_type else KINDS[c_type])
    return tuple(arguments.values())


def _check_signature(text: str) -> str:
    read_signature(text)
    return text


Shape = tuple[int, ...]
_Size = Annotated[int, Field(strict=True, gt=0)]
_Shape = Annotated[
    tuple[_Size, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: (value,) if isinstance(value, int) else value),
]
_Dtype = Annotated[str, Field(pattern=DTYPE)]
_Measure = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class TaskHeader(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=str.upper)

    signature: Annotated[str, AfterValidator(_check_signature)]
    shapes: tuple[_Shape, ...] = ()
    timed: _Shape | None = None
    dtypes: tuple[_Dtype, ...] = Field(default=("float16",), min_length=1)
    tolerance: dict[_Dtype, tuple[_Measure, _Measure]] = {}
    exact: bool = Field(default=True, strict=True)
    scratch: int = Field(default=2**26, strict=True, ge=0)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        return read_signature(self.signature)

    def entry(self, dtype: str) -> str:
        return "launch" if len(self.dtypes) == 1 else f"launch_{dtype}"

    def tolerance_of(self, dtype: str) -> tuple[float, float]:
        default = _TOLERANCES.get(dtype, 0.0)
        return self.tolerance.get(dtype, (default, default))

    def to_words(self, values: Mapping[str, float]) -> list[int]:
        """The arguments of one call, each as 64 bits."""
        return [_to_word(argument.kind, values[argument.name]) for argument in self.arguments]


def _to_word(kind: Kind, value: float) -> int:
    if kind in ("float", "double"):
        return int.from_bytes(struct.pack("<f" if kind == "float" else "<d", value), "little")
    return int(value) & (2**64 - 1)


def read_task(source: str) -> TaskHeader:
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        line = f"line {error.lineno} " if error.lineno else ""
        raise ValueError(f"{line}is not valid Python: {error.msg}") from error
    except (ValueError, MemoryError, RecursionError) as error:  # a null byte; nested too deeply
        raise ValueError(f"is not valid Python: {error}") from error
    try:
        header = TaskHeader.model_validate(_read_constants(module))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        name = ".".join(map(str, wrong["loc"]))
        if wrong["type"] == "missing":
            raise ValueError(f"has no {name}") from error
        if wrong["type"] == "value_error":
            raise ValueError(f"{name}: {wrong['msg'].removeprefix('Value error, ')}") from error
        raise ValueError(f"{name}: {wrong['msg']}, not {wrong['input']!r}") from error
    if not header.shapes and header.timed is None:
        raise ValueError("has no SHAPES, so nothing would be checked")
    return header


def _read_constants(module: ast.Module) -> dict[str, Any]:
    known = {name.upper() for name in TaskHeader.model_fields}
    constants: dict[str, Any] = {}
    functions: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in [
                target.id
                for target in targets
                if isinstance(target, ast.Name) and target.id.isupper()
            ]:
                try:
                    constants[name] = ast.literal_eval(node.value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    if name in known:
                        raise ValueError(f"{name} must be a literal") from None
                    constants[name] = None
    if missing := [name for name in FUNCTIONS if name not in functions]:
        raise ValueError(f"has no function {missing[0]}")
    for name in sorted(constants.keys() - known):
        if near := get_close_matches(name, known - constants.keys(), n=1, cutoff=0.8):
            raise ValueError(f"unknown constant {name}; did you mean {near[0]}?")
    return constants
