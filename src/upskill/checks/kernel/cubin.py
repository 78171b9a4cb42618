"""Reads which kernels a cubin has and what each of them takes.

A cubin is an ELF file that ptxas wrote. Its symbols name the kernels; its `.nv.info` sections hold their registers,
stack and parameters as a list of attributes. PTX and messages can hold whatever a student wrote; these sections cannot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import cast

_HEADER = struct.Struct(
    "<40xQ10xHHH"
)  # where the sections are; size and number of their headers, the one with names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION = 2  # type of a symbol
_ENTRY = 0x10  # in `other` of a symbol: a kernel, and not a device function
_REGISTERS, _FRAME, _PARAMETER = 0x2F, 0x11, 0x17  # attributes
RESERVED_SHARED = 1024  # bytes of every block that belong to CUDA, from sm_90 on
_SIZED = 4  # format of an attribute that is followed by bytes; all others are four bytes long


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A `__global__` function, by its name in the cubin. Sizes are in bytes; `shared` is what it declares itself."""

    name: str
    parameters: tuple[int, ...]
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0


def read_cubin(cubin: bytes) -> list[CompiledKernel]:
    """The kernels without their spills, which only ptxas knows. ValueError for anything but a cubin."""
    try:
        return _read(cubin)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"it is not a readable cubin: {error}") from error


def _read(cubin: bytes) -> list[CompiledKernel]:
    start, size, count, names_at = cast("tuple[int, int, int, int]", _HEADER.unpack_from(cubin))
    if cubin[:4] != b"\x7fELF" or size != _SECTION.size:
        raise ValueError("it is not a cubin")
    headers: list[tuple[int, ...]] = [
        _SECTION.unpack_from(cubin, start + size * number) for number in range(count)
    ]
    names = [_string(cubin, headers[names_at][4], header[0]) for header in headers]
    by_name = dict(zip(names, headers, strict=True))
    symbols_at = by_name[".symtab"]
    strings = headers[symbols_at[6]][4]
    common = list(_attributes(cubin, by_name[".nv.info"])) if ".nv.info" in by_name else []
    reserved = RESERVED_SHARED if ".nv.shared.reserved.0" in by_name else 0
    kernels: list[CompiledKernel] = []
    for number in range(symbols_at[5] // _SYMBOL.size):
        name_at, info, other, *_ = _SYMBOL.unpack_from(cubin, symbols_at[4] + _SYMBOL.size * number)
        if info & 0xF != _FUNCTION or not other & _ENTRY:
            continue
        name = _string(cubin, strings, name_at)
        own = [
            struct.unpack(
                "<IHHI", value
            )  # of which the second is the position, the last has the size
            for kind, value in _attributes(cubin, by_name[f".nv.info.{name}"])
            if kind == _PARAMETER
        ]
        of_kernel = {
            kind: struct.unpack("<II", value)[1]
            for kind, value in common
            if kind in (_REGISTERS, _FRAME) and value[:4] == number.to_bytes(4, "little")
        }
        shared = by_name.get(f".nv.shared.{name}")
        kernels.append(
            CompiledKernel(
                name,
                tuple(packed >> 18 for *_, packed in sorted(own, key=itemgetter(1))),
                registers=of_kernel[_REGISTERS],
                stack=of_kernel[_FRAME],
                shared=shared[5] - reserved if shared else 0,
            )
        )
    return kernels


def _attributes(cubin: bytes, header: tuple[int, ...]) -> Iterator[tuple[int, bytes]]:
    at, end = header[4], header[4] + header[5]
    while at < end:
        kind, attribute, size = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if kind == _SIZED:
            yield attribute, cubin[at : at + size]
            at += size


def _string(data: bytes, table: int, at: int) -> str:
    return data[table + at : data.index(b"\0", table + at)].decode()
