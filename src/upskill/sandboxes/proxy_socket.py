"""The one way out of a sandbox with a network namespace: a socket that listens inside and is served outside."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

from upskill.errors import SandboxError

# Runs in a process of its own, as only a process with one thread can change its user namespace.
LISTEN = """
import ctypes, fcntl, os, socket, sys
first, port, back, user = map(int, sys.argv[1:])
call = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
net = os.open(f"/proc/{first}/ns/net", os.O_RDONLY)
owner = fcntl.ioctl(net, 0xB701)  # NS_GET_USERNS: the user namespace that the network belongs to
for namespace in (owner, net):
    if call.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
listener = socket.create_server(("127.0.0.1", port), backlog=128)
socket.send_fds(socket.socket(fileno=back), [b"."], [listener.fileno()])
"""


async def open_proxy_socket(process: int, port: int, user: int | None) -> socket.socket:
    """A socket that listens on the loopback of the network namespace of this process."""
    here, there = socket.socketpair()
    with here, there:
        arguments = map(str, (process, port, there.fileno(), os.geteuid() if user is None else user))
        helper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", LISTEN, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[there.fileno()],
            env={},
            cwd="/",
        )
        _, stderr = await helper.communicate()
        if helper.returncode:
            problem = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(f"no socket for the proxy could be opened in the sandbox: {problem}")
        _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
    return socket.socket(fileno=descriptors[0])
