"""The client of the Agent Client Protocol, run inside the sandbox beside its agent. Needs nothing but Python.

Its files and terminals are those of the sandbox, so an agent gets nothing through them that it could not reach itself.
Standard input has the order as JSON; what the agent reports is printed, one JSON object per line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

PROTOCOL = 1
AUTH_REQUIRED = -32000
CANCEL_SECONDS = 3.0  # before the end, so that the agent can end its turn
MAX_OUTPUT = 1_000_000  # bytes of a terminal, if the agent names no limit
MAX_FILE = 16_000_000  # bytes of a file that is read


class RequestError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message") or error))
        self.error = error


def as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Terminal:
    def __init__(self, params: dict[str, Any]) -> None:
        # Many agents send a whole line of shell as the command.
        argv = (
            [params["command"], *params["args"]]
            if params.get("args")
            else ["/bin/bash", "-c", params["command"]]
        )
        variables = {item["name"]: item["value"] for item in params.get("env") or ()}
        self.limit = params.get("outputByteLimit") or MAX_OUTPUT
        self.output, self.truncated = b"", False
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=params.get("cwd") or None,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 65536):
            output = self.output + data
            self.truncated = self.truncated or len(output) > self.limit
            self.output = output[-self.limit :]

    def state(self) -> dict[str, Any]:
        code = self.process.poll()
        ended = {"exitStatus": exit_status(code)} if code is not None else {}
        return {
            "output": self.output.decode("utf-8", "replace"),
            "truncated": self.truncated,
            **ended,
        }

    def wait(self) -> dict[str, Any]:
        code = self.process.wait()
        self.reader.join(timeout=1)  # a background process may keep the pipe open
        return exit_status(code)


def exit_status(code: int) -> dict[str, Any]:
    return (
        {"exitCode": code, "signal": None}
        if code >= 0
        else {"exitCode": None, "signal": str(-code)}
    )


class Client:
    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.writing = threading.Lock()
        self.requests = 0
        self.terminals: dict[str, Terminal] = {}
        self.methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "fs/read_text_file": self.read_text_file,
            "fs/write_text_file": self.write_text_file,
            "session/request_permission": self.request_permission,
            "terminal/create": self.create_terminal,
            "terminal/output": lambda params: self.terminals[params["terminalId"]].state(),
            "terminal/wait_for_exit": self.wait_for_exit,
            "terminal/kill": self.kill_terminal,
            "terminal/release": self.release_terminal,
        }

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with self.writing:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self.process.stdin.flush()

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the agent, and serve what it asks for until it has answered."""
        self.requests += 1
        number = self.requests
        self.send({"id": number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = {}
            with suppress(ValueError, RecursionError):
                message = as_dict(json.loads(line))
            if not message:
                os.write(2, line)  # some programs print notes there
            elif "method" in message:
                self.serve(message)
            elif message.get("id") == number:
                if message.get("error"):
                    raise RequestError(as_dict(message["error"]))
                return as_dict(message.get("result"))
        code = self.process.wait()
        raise SystemExit(f"the agent ended with code {code} before it answered {method}")

    def serve(self, message: dict[str, Any]) -> None:
        method, params = message["method"], as_dict(message.get("params"))
        if "id" not in message:
            if method == "session/update":
                report(update=params.get("update"))
        elif method == "terminal/wait_for_exit":  # the agent may ask for other things meanwhile
            threading.Thread(
                target=self.answer, args=(message["id"], method, params), daemon=True
            ).start()
        else:
            self.answer(message["id"], method, params)

    def answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        try:
            handle = self.methods.get(method)
            if handle is None:
                raise RequestError({"code": -32601, "message": f"this client has no {method}"})
            reply = {"result": handle(params)}
        except RequestError as error:
            reply = {"error": error.error}
        except FileNotFoundError as error:
            reply = {"error": {"code": -32002, "message": f"{error.filename}: {error.strerror}"}}
        except Exception as error:  # whatever the agent sent, it is told and goes on
            reply = {"error": {"code": -32603, "message": f"{type(error).__name__}: {error}"}}
        with suppress(OSError):  # it has ended, which the reader notices
            self.send({"id": number, **reply})

    # What the agent may ask for.

    def read_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        path = Path(params["path"])
        if path.exists() and not path.is_file():  # a pipe or /dev/zero would never end
            raise RequestError({"code": -32602, "message": f"{path} is not a file"})
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise RequestError(
                {"code": -32602, "message": f"{path} is larger than {MAX_FILE} bytes"}
            )
        if params.get("line") or params.get("limit") is not None:
            first = max(0, (params.get("line") or 1) - 1)
            limit = params.get("limit")
            data = b"".join(
                data.splitlines(keepends=True)[first : None if limit is None else first + limit]
            )
        return {"content": data.decode("utf-8", "replace")}

    def write_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        path = Path(params["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(params["content"], encoding="utf-8", errors="replace")
        return {}

    def request_permission(self, params: dict[str, Any]) -> dict[str, Any]:
        """Whatever the sandbox allows is allowed."""
        kinds = {
            option.get("kind"): option["optionId"]
            for option in reversed(params.get("options") or [])
        }
        option = kinds.get("allow_once") or kinds.get("allow_always")
        report(permission={"call": params.get("toolCall"), "option": option})
        return {
            "outcome": {"outcome": "selected", "optionId": option}
            if option
            else {"outcome": "cancelled"}
        }

    def create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        number = f"terminal-{len(self.terminals) + 1}"
        self.terminals[number] = Terminal(params)
        return {"terminalId": number}

    def kill_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self.terminals[params["terminalId"]]
        if terminal.process.poll() is None:
            os.killpg(terminal.process.pid, 9)
        return {}

    def release_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        self.kill_terminal(params)
        self.wait_for_exit(params)
        return {}

    def wait_for_exit(self, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self.terminals[params["terminalId"]]
        status = terminal.wait()
        report(terminal=params["terminalId"], output=terminal.state()["output"])
        return status


printing = threading.Lock()


def report(**event: Any) -> None:
    with printing:
        os.write(1, json.dumps(event).encode() + b"\n")


def new_session(
    client: Client, authenticate: list[dict[str, Any]], wanted: list[str], session: dict[str, Any]
) -> str:
    """Log in with the key of the trial, if the agent insists on it."""
    params = {"cwd": str(Path.cwd()), **session}
    try:
        opened = client.call("session/new", params)
    except RequestError as error:
        offered = [str(as_dict(method).get("id")) for method in authenticate]
        method = next((name for name in wanted if name in offered), "")
        if error.error.get("code") != AUTH_REQUIRED or not method:
            raise
        client.call("authenticate", {"methodId": method})
        opened = client.call("session/new", params)
    if not opened.get("sessionId"):
        raise SystemExit("the agent opened a session without a `sessionId`")
    return str(opened["sessionId"])


def main() -> None:
    order = json.load(sys.stdin)
    client = Client(order["command"])
    try:
        capabilities = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
        info = {"name": "upskill", "title": "upskill", "version": order["version"]}
        about = client.call(
            "initialize",
            {"protocolVersion": PROTOCOL, "clientCapabilities": capabilities, "clientInfo": info},
        )
        if about.get("protocolVersion") != PROTOCOL:
            raise SystemExit(
                f"the agent speaks version {about.get('protocolVersion')} of the Agent Client Protocol, and upskill "
                f"speaks version {PROTOCOL}"
            )
        session = new_session(
            client, about.get("authMethods") or [], order["authenticate"], order["session"]
        )
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        timer = threading.Timer(max(0.0, order["seconds"] - CANCEL_SECONDS), client.send, [cancel])
        timer.daemon = True
        timer.start()
        prompt = [{"type": "text", "text": order["prompt"]}]
        ended = client.call("session/prompt", {"sessionId": session, "prompt": prompt})
        report(stop=ended.get("stopReason"))
    except RequestError as error:
        report(error=error.error)
        raise SystemExit(f"the agent answered with an error: {error}") from error
    except OSError as error:
        raise SystemExit(f"the agent has ended, or does not read: {error}") from error
    finally:
        client.process.kill()


if __name__ == "__main__":
    main()
