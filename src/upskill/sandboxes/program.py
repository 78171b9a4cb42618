"""A program of ours in the namespaces of a bubblewrap sandbox: for code that comes with a suite and is not a student's.

It has what a student has, no network, no home folder and a read-only system, but no supervisor: it is spoken to through
descriptors that it inherits, and ends with whoever started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from upskill.errors import SandboxError
from upskill.sandboxes import Limits, MiB
from upskill.sandboxes.bubblewrap_arguments import (
    ETC_FILES,
    mount_arguments,
    namespace_arguments,
    system_call_filter,
)
from upskill.sandboxes.users import unused_user

ROOM = Limits(disk=4096 * MiB)


def start_program(
    argv: Sequence[str],
    *,
    printed: IO[bytes],
    descriptors: Iterable[int],
    environment: Mapping[str, str],
    mounts: Iterable[Path],
    gpu: bool = False,
) -> subprocess.Popen[bytes]:
    """Start it with these descriptors and variables; `mounts` are shown read-only at their own place. What it prints
    goes into a file."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError("bwrap is not installed")
    user = unused_user()
    shown, become_user = mount_arguments({str(path): path for path in mounts}, user)
    arguments = namespace_arguments(ROOM, gpu=gpu)
    with ExitStack() as closing:
        passed = list(descriptors)

        def data(content: bytes) -> str:
            """A descriptor from which bubblewrap reads this."""
            reader, writer = os.pipe()
            closing.callback(os.close, reader)
            os.write(writer, content)  # small enough to fit
            os.close(writer)
            passed.append(reader)
            return str(reader)

        for path, text in ETC_FILES.items():
            arguments += ["--perms", "0444", "--file", data(text.encode()), path]
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        arguments += [
            *shown,
            *("--remount-ro", "/dev", "--remount-ro", "/", "--cap-drop", "ALL"),
            *("--seccomp", data(system_call_filter()), "--chdir", "/", *argv),
        ]
        alone = None if become_user else user
        return subprocess.Popen(
            [*become_user, bwrap, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            env={},
            cwd="/",
            pass_fds=passed,
            user=alone,
            group=alone,
            extra_groups=None if alone is None else [],
            start_new_session=True,
        )
