"""The system calls that a student does not get, as a seccomp filter.

It is classic BPF: each instruction has eight bytes, jumps only go forward and count the instructions they skip. It sees
the number of the call, the architecture, and the arguments as pairs of 32-bit halves, low half first.

    wrong architecture (32-bit calls on a 64-bit kernel)     the process is killed
    a number newer than NEWEST, and the x32 calls            ENOSYS, as on an older kernel
    REFUSED                                                  EPERM
    ABSENT, for which programs have another way              ENOSYS
    calls that depend on an argument (see `build_filter`)       EPERM, or what that call says for "not here"
    everything else                                          allowed
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Sequence

from upskill.errors import SandboxError

# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64, and which column of the tables below is theirs.
ARCHITECTURES = {
    "x86_64": (0xC000003E, 0),
    "amd64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
    "arm64": (0xC00000B7, 1),
}
NEWEST = 462  # mseal; later calls are unknown here, so they are absent

# name -> number on x86-64, number on arm64. What needs a capability, such as mounts, the kernel refuses itself.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # looking into and steering other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # namespaces
    "setns": (308, 268),
    "unshare": (272, 97),
    # files by other ways than a path
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # large parts of the kernel that a student has no business with
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
    # the log of the machine
    "syslog": (103, 116),
    "modify_ldt": (154, None),
    "uselib": (134, None),
}
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (
        435,
        435,
    ),  # its flags lie in memory, where a filter cannot look; libraries fall back to clone
    "memfd_create": (319, 279),  # memory that no limit counts
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
CLONE = (56, 220)
SOCKET = (41, 198)
IOCTL = (16, 29)
PRLIMIT64 = (302, 261)
SHMGET = (29, 194)
PERSONALITY = (135, 92)

NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW flag that clone takes
TERMINAL_INPUT = (
    0x5412,
    0x541C,
)  # TIOCSTI and TIOCLINUX: typing into the terminal we were started from
SHARED_SEGMENT = 65536  # a System V segment outlives its process, where no limit counts it
PERSONALITIES = (
    0,
    0x0008,
    0x20000,
    0x20008,
    0x40000,
    0xFFFFFFFF,
)  # 32-bit names, and a fixed layout for debuggers

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
FAMILIES = (UNIX, INET, INET6)  # of sockets that can be made

# Instructions: load a word, compare, return. See linux/filter.h and linux/seccomp.h.
LOAD, EQUAL, GREATER, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]  # code, jump when true, jump when false, operand


def _return(code: int) -> Instruction:
    return (RETURN, 0, 0, code)


def _load(offset: int) -> Instruction:
    return (LOAD, 0, 0, offset)


def _low(argument: int) -> Instruction:
    return _load(ARGUMENTS + 8 * argument)


def _high(argument: int) -> Instruction:
    return _load(ARGUMENTS + 8 * argument + 4)


def _for_call(number: int | None, body: list[Instruction]) -> list[Instruction]:
    """The body, for this call only. A body ends in a return on every way through it."""
    return [] if number is None else [(EQUAL, 0, len(body), number), *body]


def _if_one_of(values: Sequence[int], answer: int, otherwise: int) -> list[Instruction]:
    tests = [(EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [*tests, _return(otherwise), _return(answer)]


def build_filter(machine: str = "") -> list[Instruction]:
    """The filter for this machine."""
    architecture, column = architecture_of(machine or platform.machine())
    refused, absent = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    lines: list[Instruction] = [
        _load(ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        _return(KILL),
        _load(NUMBER),
        (GREATER, 0, 1, NEWEST),
        _return(absent),
    ]
    for table, answer in ((REFUSED, refused), (ABSENT, absent)):
        for numbers in table.values():
            lines += _for_call(numbers[column], [_return(answer)])
    lines += _for_call(
        CLONE[column], [_low(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), _return(refused), _return(ALLOW)]
    )
    # The kernel reads only the low half of an ioctl's number, so the high half must not make a difference.
    lines += _for_call(
        IOCTL[column], [_low(1), *_if_one_of(TERMINAL_INPUT, ERRNO | errno.EPERM, ALLOW)]
    )
    # Limits of the own process only: those of process 1 keep it able to serve.
    lines += _for_call(PRLIMIT64[column], [_low(0), *_if_one_of([0], ALLOW, ERRNO | errno.EPERM)])
    lines += _for_call(
        SHMGET[column],
        [
            _high(1),
            (EQUAL, 1, 0, 0),
            _return(ERRNO | errno.ENOMEM),
            _low(1),
            (GREATER, 0, 1, SHARED_SEGMENT),
            _return(ERRNO | errno.ENOMEM),
            _return(ALLOW),
        ],
    )
    lines += _for_call(
        PERSONALITY[column], [_low(0), *_if_one_of(PERSONALITIES, ALLOW, ERRNO | errno.EPERM)]
    )
    lines += _for_call(SOCKET[column], _socket())
    return [*lines, _return(ALLOW)]


def _socket() -> list[Instruction]:
    # Addresses and routes of the own namespace: protocol 0.
    body = [_low(2), *_if_one_of([0], ALLOW, ERRNO | errno.EPROTONOSUPPORT)]
    lines: list[Instruction] = [_low(0), (EQUAL, 0, len(body), NETLINK), *body]
    return [*lines, _low(0), *_if_one_of(FAMILIES, ALLOW, ERRNO | errno.EAFNOSUPPORT)]


def architecture_of(machine: str) -> tuple[int, int]:
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise SandboxError(f"there is no system-call filter for {machine}", "Use x86-64 or arm64.")
    return architecture


def pack_filter(lines: Iterable[Instruction]) -> bytes:
    """As the kernel and bubblewrap take it: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
