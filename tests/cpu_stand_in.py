"""A CPU stand-in for the GPU: the same runner and referee, with arrays of NumPy and kernels compiled for the CPU.

It carries out recorded launch plans one thread at a time, so it knows no shared memory and no shuffles; times are those
of a clock. `STAND_IN_KERNELS` names a library with the kernels of the file under test (`compile_for_cpu`). The server
and all that it forks hold `STAND_IN_HELD` open, a named pipe: it ends when the last of them has. `STAND_IN_LOG` is a
file for what a device does.

    python cpu_stand_in.py SOCKET          forks runners and referees, as `fork_server` does
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upskill.checks.kernel import fork_server, runner
from upskill.checks.kernel.device import Device, KernelFailed, Missing

PRELUDE = """
#include <cmath>
#include <cstdint>
#include <cstdio>
#define __global__ extern "C++" __attribute__((visibility("default")))
#define __device__
#define __restrict__
typedef int cudaError_t;
typedef void* cudaEvent_t;
const cudaError_t cudaSuccess = 0;
struct Index { unsigned x, y, z; };
extern "C" { Index threadIdx, blockIdx, blockDim, gridDim; }
"""
# What an H100 says of itself: multiprocessors, warp, threads, shared memory, registers, capability.
KNOWN = {
    16: 132,
    10: 32,
    1: 1024,
    39: 2048,
    106: 32,
    8: 49152,
    97: 232448,
    81: 233472,
    12: 65536,
    82: 65536,
    75: 9,
    76: 0,
}


def compile_for_cpu(source: str, place: Path) -> Path:
    """The kernels of a file as a library for this machine. Its launcher, which comes last, is left out."""
    device_half = re.sub(r'#include\s*[<"]cuda[^\n]*', "", source).partition(
        'extern "C" void launch'
    )[0]
    (place / "kernels.cpp").write_text(PRELUDE + device_half, encoding="utf-8")
    library = place / "kernels.so"
    subprocess.run(
        ["g++", "-O1", "-shared", "-fPIC", "-o", library, place / "kernels.cpp"], check=True
    )
    return library


class CpuStandIn(Device):
    def __init__(self) -> None:
        self.xp = np
        self.library = (
            ctypes.CDLL(os.environ["STAND_IN_KERNELS"])
            if "STAND_IN_KERNELS" in os.environ
            else None
        )
        if Path(os.environ.get("STAND_IN_GONE", "/nowhere")).exists():
            raise Missing("the stand-in is told to be no GPU")
        _note("made")

    @property
    def out_of_memory(self) -> type[Exception]:
        return MemoryError

    @property
    def name(self) -> str:
        return "CPU stand-in"

    def check_runs(self, arch: str) -> None:
        if arch != "sm_90a":
            raise Missing(f"the stand-in is no {arch}")

    def attributes(self, index: int = 0) -> dict[int, int]:
        return KNOWN

    def dtype(self, name: str) -> Any:
        return np.dtype(name)

    def name_of(self, dtype: Any) -> str:
        return np.dtype(dtype).name

    def itemsize(self, dtype: Any) -> int:
        return np.dtype(dtype).itemsize

    def generator(self, seed: int) -> Any:
        return np.random.default_rng(seed)

    def is_array(self, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def layout(self, array: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        return array.dtype, array.shape, tuple(stride // array.itemsize for stride in array.strides)

    def pattern(self, size: int, seed: int) -> Any:
        return self.generator(seed).integers(0, 256, size, dtype=np.uint8)

    def address(self, buffer: Any) -> int:
        return int(buffer.ctypes.data)

    def view(self, buffer: Any, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
        steps = [stride * np.dtype(dtype).itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(buffer.view(dtype), shape, steps)

    def assign(self, target: Any, value: Any) -> None:
        target[...] = value

    def fill(self, buffer: Any, byte: int) -> None:
        if "STAND_IN_FULL" in os.environ:
            raise MemoryError("tried to allocate 16 GiB")
        buffer.fill(byte)

    def same(self, one: Any, other: Any) -> bool:
        return bool(np.array_equal(one, other))

    def to_bytes(self, buffer: Any) -> Iterator[Any]:
        yield buffer.tobytes()

    def from_bytes(self, size: int, fill: Callable[[memoryview, int], None]) -> Any:
        data = np.empty(size, np.uint8)
        fill(data.data, 0)
        return data

    def shaped(self, raw: Any, dtype: Any, shape: Sequence[int]) -> Any:
        return raw.view(dtype).reshape(shape)

    def precise(self, array: Any) -> Any:
        return np.asarray(array, np.float64)

    def load(self, cubin: bytes) -> None:
        assert cubin.startswith(b"\x7fELF")

    def prepare(self, plan: Sequence[Sequence[Any]]) -> list[Callable[[], None]]:
        return [lambda step=step: self._carry_out(*step) for step in plan]

    def _carry_out(self, kind: str, *rest: Any) -> None:
        if kind == "memset":
            ctypes.memset(rest[0], rest[1], rest[2])
        elif kind == "memcpy":
            ctypes.memmove(rest[0], rest[1], rest[2])
        elif kind == "launch":
            self._launch(*rest)

    def _launch(
        self, name: str, grid: Any, block: Any, shared: int, _: int, cluster: Any, arguments: Any
    ) -> None:
        assert self.library is not None
        if shared > 49152:
            raise KernelFailed("invalid argument (shared memory)")
        function = getattr(self.library, name)
        words = [
            ctypes.c_uint64(int.from_bytes(bytes.fromhex(word), "little")) for word in arguments
        ]
        place = {
            one: (ctypes.c_uint * 3).in_dll(self.library, one) for one in ("blockIdx", "threadIdx")
        }
        (ctypes.c_uint * 3).in_dll(self.library, "gridDim")[:] = grid
        (ctypes.c_uint * 3).in_dll(self.library, "blockDim")[:] = block
        for number in range(grid[0] * grid[1] * grid[2]):
            place["blockIdx"][:] = _at(number, grid)
            for thread in range(block[0] * block[1] * block[2]):
                place["threadIdx"][:] = _at(thread, block)
                function(*words)

    def finish(self) -> None:
        pass

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def seconds(self, work: Callable[[], object]) -> float:
        _note("timed")
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    def copy_bandwidth(self) -> float:
        return 1e9


def _note(what: str) -> None:
    if "STAND_IN_LOG" in os.environ:
        with Path(os.environ["STAND_IN_LOG"]).open("a", encoding="utf-8") as log:
            log.write(f"{what}\n")


def _at(number: int, sizes: Sequence[int]) -> list[int]:
    return [number % sizes[0], number // sizes[0] % sizes[1], number // sizes[0] // sizes[1]]


if __name__ == "__main__":
    if "STAND_IN_HELD" in os.environ:
        os.write(os.open(os.environ["STAND_IN_HELD"], os.O_WRONLY), b"server\n")
    if "STAND_IN_PARTS" in os.environ:  # as if every output were a large one
        runner.MAX_STORED, runner.PARTS, runner.PART_BYTES = 0, 4, 64
    fork_server.main(CpuStandIn, ("numpy",))
