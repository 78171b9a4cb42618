"""Shell commands in a trace: what a tool call ran, whether it worked, and when two calls ran the same command."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Any, Literal

from upskill.plain import as_list
from upskill.traces import Step

MAX_ERROR_LINE = 500  # characters
Outcome = Literal["ok", "failed", "unknown"]

_SHELL_TOOL = re.compile(r"bash|shell|terminal|exec|run_|command|console|^sh$", re.I)
_EDITOR_COMMANDS = ("create", "view", "str_replace", "insert", "undo_edit")
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|\bcommand not found\b|\bNo such file or directory\b"
    r"|^(?:\S+: )*(?:error|fatal)\b[:\[](?! \(none)"
    r"|^\S*(?:Error|Exception):(?! \(none)|^npm (?:ERR!|error)|\bELIFECYCLE\b"
    r"|^(?:FAILED|FAIL)\b|\b[1-9]\d* (?:failed|failing|errors?)\b|^error\b(?!: \(none)|\bpanicked at\b"
    r"|^Build failed|^CMake Error|\berrors occurred\b"
    r"|^\S+: (?:bad address|can't connect|server returned error)\b|\bConnection refused\b|\bCould not resolve host\b"
    r"|^\s*HTTP/[\d.]+ [45]\d\d\b|\bHTTP Status [45]\d\d\b|^Expecting value: line \d"
    r"|^exit(?:ed with)? (?:code|status):? [1-9]|\bpermission denied\b"
    r"|^\W*(?:exit|rc|ret|status)(?: code| status)?\W{1,3}[1-9]\d*$",
    re.I | re.M,
)
# What programs write into the turns of a person.
_WRITTEN_BY_PROGRAMS = re.compile(
    r"^\s*(?:<(?!user_query)[a-z][\w-]*[ >]|Caveat:|This session is being continued|\[Request interrupted[^\]]*\]\s*$"
    r"|\[Image|API Error|# AGENTS\.md|OBSERVATION|Observation:|Base directory for this skill|\[?System)",
)
# What agents write for a call that was refused, or that goes on in the background.
_SAYS_NOTHING = re.compile(
    r"doesn't want to proceed|tool use was rejected|requires approval|haven't granted|Request interrupted"
    r"|rejected by user|user denied|execution denied|was blocked|<tool_use_error>"
    r"|running in (?:the )?background|Process running with session ID",
    re.I,
)
_EXIT_LINE = re.compile(
    r"^\W*(?:(?:Error: )?Exit code:? \d+|exit status \d+|Process exited with code \d+|ELIFECYCLE.*|Signal: .*"
    r"|Error: \(none\)|Background PIDs: .*|Process Group PGID: .*|Command: .*|Directory: .*)\W*$",
    re.I,
)
_ERROR = re.compile(
    r"^E   |\berror\b|\bfatal\b|exception\b|Error\b|\bpanicked at\b|timed out|^npm ERR!|unknown (?:option|flag)",
    re.I,
)
_WRONG = re.compile(
    rf"{_ERROR.pattern}|\bfail(?:ed|ure)?\b|not found|\b(?:reserved|denied|invalid|cannot)\b", re.I
)
# The exit code of such a line is 0 whatever its commands do.
_ALWAYS_ENDS_WELL = re.compile(r"(?:\|\||;)\s*(?:true|:)\s*$|\|\|\s*(?:echo|printf)\b[^|&;]*$")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_PREPARES = frozenset(("cd", "set", "export", "source", ".", "true", "sleep"))
_LOOKS = frozenset(
    (
        "ls",
        "cat",
        "pwd",
        "head",
        "tail",
        "grep",
        "rg",
        "find",
        "wc",
        "which",
        "echo",
        "tree",
        "stat",
    )
)
_LISTS = frozenset(("ls", "tree", "find", "fd", "pwd", "dir"))
_FIND_ACTS = ("-exec", "-delete", "-ok", "-fprint", " -x ", " -X ")
# Tools of agents by their letters: `TodoWrite`, `update_plan`, `list_directory`.
TODO_TOOLS = (
    *(
        "todowrite",
        "todoread",
        "todo",
        "todolist",
        "settodolist",
        "updatetodolist",
        "managetodolist",
        "writetodos",
    ),
    *("updatetodos", "updateplan", "taskcreate", "taskupdate", "tasklist", "taskget"),
)
PATHS = ("file_path", "filePath", "path", "filename", "target_file", "absolute_path")
LISTING_TOOLS = (
    "ls",
    "listdir",
    "listdirectory",
    "listfiles",
    "listfolder",
    "glob",
    "findfiles",
    "filesearch",
)
# Words that are followed by a program with its own first word: `uv run tern push`, `python -m pip list`.
_LAUNCHERS = frozenset(("run", "exec", "-m", "npx", "bunx", "pnpx", "uvx", "dlx"))


def shell_command(step: Step) -> str:
    """The shell line that a tool call runs; empty when it runs none."""
    if step.kind != "tool":
        return ""
    arguments = step.arguments
    names = ("command", "cmd", "commands", "script", "CommandLine")
    value: Any = next((arguments[name] for name in names if arguments.get(name)), "")
    if not value and _SHELL_TOOL.search(step.tool):
        value = arguments.get("input") or arguments.get("code")
    if isinstance(value, str) and value in _EDITOR_COMMANDS and "path" in arguments:
        return ""
    if (items := as_list(value)) is not None:
        parts = [str(item) for item in items]
        return _script_of(parts) or shlex.join(parts)
    if not isinstance(value, str):
        return ""
    try:
        return _script_of(shlex.split(value)) or value.strip()
    except ValueError:  # a quote that is never closed
        return value.strip()


def _script_of(command: list[str]) -> str:
    if len(command) == 3 and PurePosixPath(command[0]).name in (
        "bash",
        "sh",
        "zsh",
        "dash",
        "fish",
        "env",
    ):
        return command[2].strip() if re.fullmatch(r"-[a-z]*c", command[1]) else ""
    return ""


def command_key(line: str) -> str:
    """Equal for runs of the same command: its programs, each with its first word that is no option, as a rule its
    subcommand.
    """
    try:
        commands = _simple_commands(line)
    except ValueError:  # a quote that is never closed, or a script with more than commands in it
        return line
    keys: list[str] = []
    for program, *arguments in commands:
        if program in _PREPARES:
            continue
        key = [PurePosixPath(program).name]
        missing = 1 + (key[0] in _LAUNCHERS)  # words
        for argument in arguments:
            if argument == "-m" or re.fullmatch(r"[A-Za-z][\w:.-]*", argument):
                key.append(argument)
                missing = (
                    2 if argument in _LAUNCHERS else 1 if argument == "compose" else missing - 1
                )
            if not missing:
                break
        keys.append(" ".join(key))
    return " ; ".join(keys) or line


def split_commands(line: str) -> list[str]:
    """The commands of a line, one by one; the line itself where it is more than commands."""
    try:
        commands = _simple_commands(line)
    except ValueError:
        return [line]
    return (
        [line]
        if len(commands) == 1
        else [shlex.join(words) for words in commands if words[0] not in _PREPARES]
    )


def only_looks(line: str, programs: frozenset[str] = _LOOKS) -> bool:
    try:
        commands = _simple_commands(line)
    except ValueError:
        return False
    return ">" not in line and all(command[0] in _PREPARES | programs for command in commands)


def is_said(step: Step) -> bool:
    """Whether the person said it, and no program wrote it into the person's turn."""
    return step.kind == "user" and not step.agent and not _WRITTEN_BY_PROGRAMS.match(step.text)


def noise_of(step: Step) -> str:
    """What a step is that tells a teacher nothing of the task; empty for all others."""
    if step.kind == "system":
        return "set-up step"
    tool = re.sub(r"[^a-z]", "", step.tool.lower().rpartition("__")[2])
    if step.kind == "tool" and tool in TODO_TOOLS:
        return "todo list"
    command = shell_command(step)
    lists = (
        only_looks(command, _LISTS) and not any(word in command for word in _FIND_ACTS)
        if command
        else False
    )
    return "file listing" if (lists or tool in LISTING_TOOLS) and not step_failed(step) else ""


def _simple_commands(line: str) -> list[list[str]]:
    """The words of each command, without variables before it and without what its output is piped into."""
    if "<<" in line:
        raise ValueError("a here-document")
    lexer = shlex.shlex(
        line.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars="&|;<>"
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    piped = False
    for word in lexer:
        if re.fullmatch(r"[&|;]+", word):
            piped = word in ("|", "|&")
            commands.append([])
        elif not piped and (commands[-1] or not (_VARIABLE.match(word) or word == "sudo")):
            commands[-1].append(word)
    return [command for command in commands if command]


def outcome_of(step: Step) -> Outcome:
    """What a tool call says about its command. A pipe or a `||` can hide a failure."""
    if _SAYS_NOTHING.search(step.output[:400]):
        return "unknown"
    if step_failed(step):
        return "failed"
    command = shell_command(step)
    hides = re.search(r"[|;]", command) is not None and _FAILED.search(step.output[-20_000:])
    return "unknown" if hides or _ALWAYS_ENDS_WELL.search(command) else "ok"


def step_failed(step: Step) -> bool:
    """Whether a call failed, by its status or, where that is unknown, by its output."""
    if step.status == "unknown":
        return bool(_FAILED.search(step.output[-20_000:]))
    return step.status == "error"


def output_lines(output: str) -> list[str]:
    """Without empty lines and the lines that agents wrap around an output."""
    lines = [
        line.strip().removeprefix("Output: ").strip()[:MAX_ERROR_LINE]
        for line in output.splitlines()
    ]
    return [line for line in lines if line and not _EXIT_LINE.match(line)]


def excerpt(output: str, count: int) -> list[str]:
    """The last lines; if none of them says what went wrong, as at the end of a help text, the first that do."""
    lines = output_lines(output)
    wrong = [line for line in lines if _WRONG.search(line)]
    return lines[-count:] if not wrong or wrong[-1] in lines[-count:] else wrong[:count]


def error_line(output: str) -> str:
    lines = output_lines(output)
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return next(
            (
                line
                for line in reversed(lines)
                if re.match(r"[\w.]+(?:Error|Exception|Exit)\b", line)
            ),
            lines[-1],
        )
    return next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "")
