"""Runs one launch for a tool that watches every access to memory (compute-sanitizer). It knows no PyTorch."""

from __future__ import annotations

import ctypes
import mmap
import sys
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from typing import Any

from upskill.checks.kernel.device import Driver, KernelFailed
from upskill.checks.kernel.runner import Channel


def allocate(driver: Driver, size: int) -> int:
    pointer = c_ulonglong()
    driver.ask("cuMemAlloc_v2", byref(pointer), c_size_t(size))
    return pointer.value


def main() -> None:
    channel, store = Channel(int(sys.argv[1])), int(sys.argv[2])
    driver, device, context = Driver(), c_int(), c_void_p()
    driver.ask("cuInit", 0)
    driver.ask("cuDeviceGet", byref(device), 0)
    driver.ask("cuDevicePrimaryCtxRetain", byref(context), device)
    driver.ask("cuCtxSetCurrent", context)
    request: dict[str, Any] = (
        channel.receive()
    )  # comes late: it is started ahead, as it takes a while
    words: list[int] = list(request["words"])
    with mmap.mmap(store, 0, prot=mmap.PROT_READ) as stored:
        for buffer in request["buffers"]:
            words[buffer["word"]] = pointer = allocate(driver, buffer["bytes"])
            if buffer["at"] is not None:
                data = stored[buffer["at"] : buffer["at"] + buffer["bytes"]]
                driver.ask(
                    "cuMemcpyHtoD_v2",
                    c_ulonglong(pointer),
                    ctypes.c_char_p(data),
                    c_size_t(len(data)),
                )
    scratch = allocate(driver, request["scratch"])
    calls = [{"entry": request["entry"], "words": words}]
    channel.say({"calls": calls, "attributes": driver.attributes(), "scratch": scratch})
    try:
        (plan,) = channel.receive()["plans"]
        driver.load(bytes.fromhex(request["cubin"]))
        driver.run(driver.prepare(plan))
        driver.finish()
    except KernelFailed as error:
        channel.say({"failed": str(error)})
    else:
        channel.say({"done": {}})


if __name__ == "__main__":
    main()
