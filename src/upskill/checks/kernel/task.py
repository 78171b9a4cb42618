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
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, cast

Kind = Literal["pointer", "int", "long", "float", "double"]
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int", "int32_t", "unsigned", "unsigned int", "uint32_t", "bool"), "int"),
    **dict.fromkeys(("long", "long int", "long long", "unsigned long", "unsigned long long"), "long"),
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
_TOLERANCES = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}  # relative and absolute
FUNCTIONS = ("inputs", "outputs", "reference")
CONSTANTS = ("SIGNATURE", "SHAPES", "TIMED", "DTYPES", "TOLERANCE", "EXACT", "SCRATCH")
DTYPE = re.compile(r"b?float\d+(_e\dm\d\w*)?|u?int\d+|complex\d+|half|float|double|short|int|long|bool")
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    kind: Kind


@dataclass(frozen=True)
class TaskHeader:
    """What the constants of a task file say."""

    signature: tuple[Argument, ...]
    written: str
    shapes: tuple[Shape, ...]
    timed: Shape | None = None
    dtypes: tuple[str, ...] = ("float16",)
    tolerance: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    exact: bool = True
    scratch: int = 2**26

    def entry(self, dtype: str) -> str:
        return "launch" if len(self.dtypes) == 1 else f"launch_{dtype}"

    def tolerance_of(self, dtype: str) -> tuple[float, float]:
        default = _TOLERANCES.get(dtype, 0.0)
        return self.tolerance.get(dtype, (default, default))

    def words(self, values: Mapping[str, float]) -> list[int]:
        """The arguments of one call, each as 64 bits."""
        return [to_word(argument.kind, values[argument.name]) for argument in self.signature]


def to_word(kind: Kind, value: float) -> int:
    if kind in ("float", "double"):
        return int.from_bytes(struct.pack("<f" if kind == "float" else "<d", value), "little")
    return int(value) & (2**64 - 1)


def read_task(source: str) -> TaskHeader:
    """The header of a task file; ValueError where it says too little."""
    constants = _read_constants(_parse(source))
    if not isinstance(constants.get("SIGNATURE"), str):
        raise ValueError('has no SIGNATURE, such as "const half* x, half* out, int n"')
    timed = constants.get("TIMED")
    exact, scratch = constants.get("EXACT", True), constants.get("SCRATCH", 2**26)
    if not isinstance(exact, bool):
        raise ValueError(f"EXACT is True or False, not {exact!r}")
    if not isinstance(scratch, int) or isinstance(scratch, bool) or scratch < 0:
        raise ValueError(f"SCRATCH is a number of bytes, not {scratch!r}")
    header = TaskHeader(
        signature=read_signature(constants["SIGNATURE"]),
        written=constants["SIGNATURE"],
        shapes=tuple(_shape(shape) for shape in _several("SHAPES", constants.get("SHAPES", ()))),
        timed=_shape(timed) if timed is not None else None,
        dtypes=tuple(_dtype("DTYPES", name) for name in _several("DTYPES", constants.get("DTYPES", ())))
        or ("float16",),
        tolerance=_tolerance(constants.get("TOLERANCE", {})),
        exact=exact,
        scratch=scratch,
    )
    if not header.shapes and header.timed is None:
        raise ValueError("has no SHAPES, so that nothing would be checked")
    return header


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno} " if error.lineno else ""
        raise ValueError(f"{where}is not Python: {error.msg}") from error
    except ValueError as error:  # a null byte, to some versions of Python
        raise ValueError(f"is not Python: {error}") from error
    except (MemoryError, RecursionError) as error:
        raise ValueError("is not Python that can be read: it is too deeply nested") from error


def _read_constants(module: ast.Module) -> dict[str, Any]:
    constants: dict[str, Any] = {}
    functions: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in [target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()]:
                constants[name] = _literal(name, node.value)
    if missing := [name for name in FUNCTIONS if name not in functions]:
        raise ValueError(f"has no function {missing[0]}")
    for name in sorted(constants.keys() - CONSTANTS):
        if near := get_close_matches(name, set(CONSTANTS) - constants.keys(), n=1, cutoff=0.8):
            raise ValueError(f"no constant is called {name}; did you mean {near[0]}?")
    return constants


def _literal(name: str, value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        if name in CONSTANTS:
            raise ValueError(f"{name} is not written out; write it as a literal") from None
        return None


def _several(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is a list, not {value!r}")
    return [*value]  # pyright: ignore[reportUnknownVariableType]


def _dtype(name: str, value: Any) -> str:
    if not isinstance(value, str) or not DTYPE.fullmatch(value):
        raise ValueError(f"{name}: {value!r} is not a dtype; write it like 'float16'")
    return value


def _tolerance(value: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(value, dict):
        raise ValueError(f'TOLERANCE is written by dtype, such as {{"float16": (1e-3, 1e-3)}}, not {value!r}')
    tolerances = cast("dict[Any, Any]", value)
    for dtype, pair in tolerances.items():
        numbers: list[Any] = [*pair] if isinstance(pair, list | tuple) else []  # pyright: ignore[reportUnknownVariableType]
        if len(numbers) != 2 or not all(_is_measure(number) for number in numbers):
            raise ValueError(f"TOLERANCE of {dtype!r} is two numbers, relative and absolute, not {pair!r}")
    return {_dtype("TOLERANCE", dtype): (float(pair[0]), float(pair[1])) for dtype, pair in tolerances.items()}


def _is_measure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _shape(value: Any) -> Shape:
    numbers: list[Any] = list(value) if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownArgumentType]
    if not numbers or not all(type(number) is int and number > 0 for number in numbers):
        raise ValueError(f"{value!r} is not a shape")
    return tuple(numbers)


def read_signature(text: str) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    for part in text.split(","):
        parsed = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", part.replace("__restrict__", " "))
        if parsed is None:
            raise ValueError(f"SIGNATURE: {part.strip()!r} is not a type and a name")
        kind = re.sub(r"\s+", " ", parsed[1].replace("const", "")).strip()
        if "*" in kind:
            arguments.append(Argument(parsed[2], "pointer"))
        elif kind in KINDS:
            arguments.append(Argument(parsed[2], KINDS[kind]))
        elif kind == "cudaStream_t":
            raise ValueError("SIGNATURE: leave the stream out; every launcher has it as its last argument")
        else:
            raise ValueError(f"SIGNATURE: {kind!r} is not a type that can be passed; use a pointer or a number")
        if [argument.name for argument in arguments].count(parsed[2]) > 1:
            raise ValueError(f"SIGNATURE: two arguments are called {parsed[2]!r}")
    return tuple(arguments)
