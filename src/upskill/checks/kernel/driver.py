"""The driver of the GPU, by its own interface: loads a cubin and carries out launch plans. It knows no PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

ATTRIBUTES = 200
CLUSTER, COOPERATIVE = 4, 2  # launch attributes


class Missing(Exception):
    """This machine lacks something, whatever the kernel is."""


class KernelFailed(Exception):
    """The kernel cannot be launched, or broke while it ran."""


class _Attribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_uint * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("dimensions", c_uint * 6),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    ]


class Driver:
    """The launches of one GPU, in the context that is current, on one queue."""

    def __init__(self, queue: int = 0) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.queue = queue
        self._module = c_void_p()
        self._functions: dict[str, c_void_p] = {}

    def ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            text = c_char_p()
            self.driver.cuGetErrorString(code, byref(text))
            raise KernelFailed(f"{(text.value or b'unknown error').decode()} ({name}: {code})")

    def attributes(self, index: int = 0) -> dict[int, int]:
        found: dict[int, int] = {}
        value = c_int()
        for which in range(1, ATTRIBUTES):
            if self.driver.cuDeviceGetAttribute(byref(value), which, index) == 0:
                found[which] = value.value
        return found

    def load(self, cubin: bytes) -> None:
        self.ask("cuModuleLoadData", byref(self._module), cubin)

    def _function(self, name: str) -> c_void_p:
        if name not in self._functions:
            found = c_void_p()
            self.ask("cuModuleGetFunction", byref(found), self._module, name.encode())
            self._functions[name] = found
        return self._functions[name]

    def prepare(self, plan: Sequence[Sequence[Any]]) -> list[Callable[[], None]]:
        """A plan as calls that only put their work into the queue, so that timing them times the GPU."""
        return [getattr(self, f"_prepare_{kind}")(*rest) for kind, *rest in plan]

    def _prepare_attribute(self, name: str, which: int, value: int) -> Callable[[], None]:
        self.ask("cuFuncSetAttribute", self._function(name), c_int(which), c_int(value))
        return lambda: None

    def _prepare_memset(self, pointer: int, value: int, size: int) -> Callable[[], None]:
        stream = c_void_p(self.queue)
        words = (c_ulonglong(pointer), ctypes.c_ubyte(value), c_size_t(size), stream)
        return lambda: self.ask("cuMemsetD8Async", *words)

    def _prepare_memcpy(self, to: int, source: int, size: int) -> Callable[[], None]:
        stream = c_void_p(self.queue)
        words = (c_ulonglong(to), c_ulonglong(source), c_size_t(size), stream)
        return lambda: self.ask("cuMemcpyDtoDAsync_v2", *words)

    def _prepare_launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        cooperative: int,
        cluster: Sequence[int],
        arguments: Sequence[str],
    ) -> Callable[[], None]:
        raw = [ctypes.create_string_buffer(bytes.fromhex(word), len(word) // 2) for word in arguments]
        pointers = (c_void_p * max(1, len(raw)))(*(ctypes.addressof(one) for one in raw))
        given: list[_Attribute] = []
        if any(cluster):
            given.append(_Attribute(CLUSTER, 0, (c_uint * 16)(*cluster)))
        if cooperative:
            given.append(_Attribute(COOPERATIVE, 0, (c_uint * 16)(1)))
        attributes = (_Attribute * max(1, len(given)))(*given)
        stream = c_void_p(self.queue)
        config = _Config((c_uint * 6)(*grid, *block), shared, stream, attributes, len(given))
        function, kept = self._function(name), (raw, attributes)

        def launch(_: object = kept) -> None:
            self.ask("cuLaunchKernelEx", byref(config), function, pointers, None)

        return launch

    def run(self, steps: Sequence[Callable[[], None]]) -> None:
        for step in steps:
            step()

    def finish(self) -> None:
        """Wait until everything in the queue has ended."""
        self.ask("cuCtxSynchronize")
