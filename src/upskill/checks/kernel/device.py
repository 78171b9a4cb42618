"""The GPU: `Driver` loads a cubin and runs launch plans by the CUDA driver; `Device` adds arrays and timing by PyTorch.

Runner and referee use only methods of `Device`, so that tests can replace it. Only their processes import PyTorch.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingModuleSource=false

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from functools import cached_property
from typing import Any

FLUSH_BYTES = 2**28  # several times the L2 cache
SLEEP_CYCLES = 2_000_000  # long enough for Python to put a whole round into the queue
COPY_BYTES = 2**30
STAGED_BYTES = 2**28
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
        attributes: dict[int, int] = {}
        value = c_int()
        for which in range(1, ATTRIBUTES):
            if self.driver.cuDeviceGetAttribute(byref(value), which, index) == 0:
                attributes[which] = value.value
        return attributes

    def load(self, cubin: bytes) -> None:
        self.ask("cuModuleLoadData", byref(self._module), cubin)

    def _function(self, name: str) -> c_void_p:
        if name not in self._functions:
            function = c_void_p()
            self.ask("cuModuleGetFunction", byref(function), self._module, name.encode())
            self._functions[name] = function
        return self._functions[name]

    def prepare(self, plan: Sequence[Sequence[Any]]) -> list[Callable[[], None]]:
        """A plan as calls that only put their work into the queue, so that timing them times the GPU."""
        return [getattr(self, f"_prepare_{kind}")(*arguments) for kind, *arguments in plan]

    def _prepare_attribute(self, name: str, which: int, value: int) -> Callable[[], None]:
        self.ask("cuFuncSetAttribute", self._function(name), c_int(which), c_int(value))
        return lambda: None

    def _prepare_memset(self, pointer: int, value: int, size: int) -> Callable[[], None]:
        stream = c_void_p(self.queue)
        arguments = (c_ulonglong(pointer), ctypes.c_ubyte(value), c_size_t(size), stream)
        return lambda: self.ask("cuMemsetD8Async", *arguments)

    def _prepare_memcpy(self, to: int, source: int, size: int) -> Callable[[], None]:
        stream = c_void_p(self.queue)
        arguments = (c_ulonglong(to), c_ulonglong(source), c_size_t(size), stream)
        return lambda: self.ask("cuMemcpyDtoDAsync_v2", *arguments)

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
        raw = [
            ctypes.create_string_buffer(bytes.fromhex(word), len(word) // 2) for word in arguments
        ]
        pointers = (c_void_p * max(1, len(raw)))(*(ctypes.addressof(buffer) for buffer in raw))
        options: list[_Attribute] = []
        if any(cluster):
            options.append(_Attribute(CLUSTER, 0, (c_uint * 16)(*cluster)))
        if cooperative:
            options.append(_Attribute(COOPERATIVE, 0, (c_uint * 16)(1)))
        attributes = (_Attribute * max(1, len(options)))(*options)
        stream = c_void_p(self.queue)
        config = _Config((c_uint * 6)(*grid, *block), shared, stream, attributes, len(options))
        function, keep_alive = self._function(name), (raw, attributes)

        def launch(_: object = keep_alive) -> None:
            self.ask("cuLaunchKernelEx", byref(config), function, pointers, None)

        return launch

    def run(self, steps: Sequence[Callable[[], None]]) -> None:
        for step in steps:
            step()

    def finish(self) -> None:
        self.ask("cuCtxSynchronize")


class Device(Driver):
    """One NVIDIA GPU. Buffers are one-dimensional arrays of bytes."""

    def __init__(self) -> None:
        try:
            import torch  # noqa: PLC0415
        except ImportError as error:
            raise Missing(
                f"PyTorch is not installed in upskill's environment ({error}); install torch"
            ) from error
        self.xp: Any = torch
        if not torch.cuda.is_available():
            raise Missing(
                "PyTorch finds no CUDA GPU; check nvidia-smi, and install a PyTorch built for CUDA"
            )
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        torch.zeros(
            1, device=self.torch_device
        )  # makes the context that the driver calls below use
        self._stream: Any = torch.cuda.Stream()
        torch.cuda.set_stream(self._stream)
        super().__init__(self._stream.cuda_stream)
        self._flush: Any = None

    @property
    def out_of_memory(self) -> type[Exception]:
        return self.xp.OutOfMemoryError

    @property
    def name(self) -> str:
        return str(self.xp.cuda.get_device_name(self.torch_device))

    def check_runs(self, arch: str) -> None:
        """Whether code for this architecture runs on it; Missing says why it does not."""
        major, minor = self.xp.cuda.get_device_capability(self.torch_device)
        match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
        here = f"{self.name} has compute capability {major}.{minor}"
        if (
            match is None
            or int(match[1]) != major
            or int(match[2]) > minor
            or (match[3] and int(match[2]) != minor)
        ):
            raise Missing(
                f"the kernel is for {arch}, and {here}; run it on a GPU of that kind, or set another `arch`"
            )

    def dtype(self, name: str) -> Any:
        return getattr(self.xp, name)

    def name_of(self, dtype: Any) -> str:
        return str(dtype).removeprefix("torch.")

    def itemsize(self, dtype: Any) -> int:
        return int(self.xp.empty(0, dtype=dtype).element_size())

    def generator(self, seed: int) -> Any:
        return self.xp.Generator(self.torch_device).manual_seed(seed)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.xp.Tensor)

    def layout(self, array: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        return array.dtype, tuple(array.shape), tuple(array.stride())

    def pattern(self, size: int, seed: int) -> Any:
        """Bytes that nobody can foresee, the same for the same seed."""
        generator = self.generator(seed)
        return self.xp.randint(
            0, 256, (size,), generator=generator, dtype=self.xp.uint8, device=self.torch_device
        )

    def address(self, buffer: Any) -> int:
        return int(buffer.data_ptr())

    def view(self, buffer: Any, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
        return self.xp.as_strided(buffer.view(dtype), tuple(shape), tuple(strides))

    def assign(self, target: Any, value: Any) -> None:
        target.copy_(value)

    def fill(self, buffer: Any, byte: int) -> None:
        buffer.fill_(byte)

    def same(self, one: Any, other: Any) -> bool:
        return bool(self.xp.equal(one, other))

    def to_bytes(self, buffer: Any) -> Iterator[Any]:
        """Its bytes in pieces, each valid until the next."""
        for piece in buffer.split(STAGED_BYTES):
            yield self._staged[: len(piece)].copy_(piece).numpy().data

    def from_bytes(self, size: int, fill: Callable[[memoryview, int], None]) -> Any:
        """As many bytes as this writes, piece by piece, into the memory that it is given."""
        made = self.xp.empty(size, dtype=self.xp.uint8, device=self.torch_device)
        for at in range(0, size, STAGED_BYTES):
            staged = self._staged[: min(STAGED_BYTES, size - at)]
            fill(memoryview(staged.numpy()), at)
            made[at : at + len(staged)].copy_(staged)
        return made

    @cached_property
    def _staged(self) -> Any:  # page-locked memory is ten times as fast to copy
        return self.xp.empty(STAGED_BYTES, dtype=self.xp.uint8, pin_memory=True)

    def shaped(self, raw: Any, dtype: Any, shape: Sequence[int]) -> Any:
        return raw.view(dtype).reshape(tuple(shape))

    def precise(self, array: Any) -> Any:
        """As double precision; by way of float32, as there is no direct way from the 8-bit types."""
        small = array.dtype.is_floating_point and array.dtype.itemsize < 4
        return (array.float() if small else array).double()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.xp.compile(function, dynamic=False)

    def seconds(self, work: Callable[[], object]) -> float:
        """How long the GPU takes for this, by events, with nothing of it in the L2 cache."""
        if self._flush is None:
            self._flush = self.xp.empty(FLUSH_BYTES, dtype=self.xp.uint8, device=self.torch_device)
        began, ended = (self.xp.cuda.Event(enable_timing=True) for _ in range(2))
        self.driver.cuCtxResetPersistingL2Cache()  # lines that a launch before had asked to be kept
        self._flush.zero_()
        self.xp.cuda._sleep(SLEEP_CYCLES)
        began.record()
        work()
        ended.record()
        self.finish()
        return float(began.elapsed_time(ended)) / 1000

    def copy_bandwidth(self) -> float:
        """Bytes per second that a large copy reads and writes."""
        source = self.xp.empty(COPY_BYTES, dtype=self.xp.uint8, device=self.torch_device).fill_(1)
        target = self.xp.empty_like(source)
        times = sorted(self.seconds(lambda: target.copy_(source)) for _ in range(7))
        return 2 * COPY_BYTES / times[len(times) // 2]
