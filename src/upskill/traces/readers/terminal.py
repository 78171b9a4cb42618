"""A terminal: what `script` records, escape codes and all, or what was copied from a window with its prompts."""

from __future__ import annotations

import re

from upskill.traces.formats import Format, Sample, TraceBuilder, read_text
from upskill.traces.values import continue_command, status_of, typed_status

_HEADER = re.compile(r"Script started on (.*)")
_FOOTER = re.compile(r"\s*Script done on ")
_COMMAND = re.compile(r'COMMAND="(.*?)"(?: |\])')
_CODE = re.compile(r'COMMAND_EXIT_CODE="(\d+)"')
# ada@host:~/src$, [ada@host src]#, (venv) ada@host ~ %, host:~ ada$, bash-5.1$, PS C:\src>
_NAMED = re.compile(
    r"^(?:\([\w.-]+\) )*(?:"
    r"\[?[\w.-]+@[\w.-]+(?::| )[^$#%>\]\n]*\]?\s?[$#%>❯]"
    r"|[\w.-]+:[^\s$#%]+ [\w.-]+[$#%]"
    r"|(?:ba|da|k|z|c|tc)?sh-[\d.]+[$#]"
    r"|PS [A-Z]:\\[^>\n]*>"
    r")(?: (.*)|$)"
)
_PLAIN = re.compile(r"^(?:\$|❯|%) (.+)$")
_SCREEN = re.compile(r"\x1b\[\?1049h.*?(?:\x1b\[\?1049l|\Z)", re.S)  # of an editor or a pager
_CODES = re.compile(
    r"\x1b\[([\d;?]*)([A-Za-z@])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[()][A-Z0-9]|\x1b.|[\b\r]|[^\x1b\b\r]+",
    re.S,
)
MAX_LINE = 50_000  # characters that are played, of a line with escape codes


def detects(sample: Sample) -> bool:
    if b"\0" in sample.data.rstrip(b"\0") or sample.text.lstrip()[:1] in ("{", "["):
        return sample.text.startswith("[") and _has_prompt(sample)
    return _HEADER.match(sample.text) is not None or _has_prompt(sample)


def _has_prompt(sample: Sample) -> bool:
    """Whether it begins with a prompt and a command; text around commands makes it a document."""
    lines = [render(line) for line in sample.text[:20_000].splitlines()[:20]]
    first = next((line for line in lines if line.strip()), "")
    prompt = _NAMED.match(first)
    return prompt is not None and bool((prompt[1] or "").strip())


def read(builder: TraceBuilder) -> None:
    command = ""
    output: list[str] = []
    text, screens = _SCREEN.subn("", read_text(builder.path))
    builder.leave_out("screen of an editor or a pager", screens)
    lines = text.split("\n")
    if header := _HEADER.match(lines[0].rstrip("\r")):
        builder.started = header[1].partition(" [")[0]
        begun = _COMMAND.search(header[1])
        command = begun[1] if begun else ""
        lines.pop(0)
    recorded = header is not None
    for raw in lines:
        if recorded and _FOOTER.match(raw):
            _add(builder, command, output, raw)
            command = ""
            continue
        line = render(raw)
        if prompt := _NAMED.match(line) or _PLAIN.match(line):
            _add(builder, command, output)
            command = (prompt[1] or "").strip()
        elif not output and (longer := continue_command(command, line)):
            command = longer
        else:
            output.append(line)
    _add(builder, command, output)


def _add(builder: TraceBuilder, command: str, output: list[str], footer: str = "") -> None:
    """Add a command with what it printed, which is cleared."""
    if command:
        code = _CODE.search(footer)
        text = "\n".join(output).strip("\n")
        status = typed_status(command, text) if code is None else status_of(int(code[1]))
        builder.add_done("shell", {"command": command}, text, status)
    else:
        builder.leave_out("line outside of a command", sum(bool(line.strip()) for line in output))
    output.clear()


def render(line: str) -> str:
    """What a line looked like once all of it was printed: typing mistakes are gone, and so are colors."""
    if not re.search(r"[\x1b\b\r]", line):
        return line
    line = line[-MAX_LINE:]  # a progress bar can go on for long
    screen: list[str] = []
    at = 0
    for match in _CODES.finditer(line.rstrip("\r")):
        piece, number, code = match[0], match[1], match[2]
        count = min(int(number), 1000) if code and number.isdecimal() else 1
        if piece == "\b" or code == "D":
            at = max(0, at - count)
        elif piece == "\r":
            at = 0
        elif code == "C":
            at += count
        elif code == "K":
            _erase(screen, at, number)
        elif code == "P":
            del screen[at : at + count]
        elif code == "@":
            screen[at:at] = [" "] * count
        elif not piece.startswith("\x1b"):
            text = [letter for letter in piece if letter >= " " or letter == "\t"]
            screen += [" "] * (at - len(screen))
            screen[at : at + len(text)] = text
            at += len(text)
    return "".join(screen).rstrip()


def _erase(screen: list[str], at: int, what: str) -> None:
    if what in ("", "0"):
        del screen[at:]
    elif what == "2":
        screen.clear()
    else:
        screen[: at + 1] = [" "] * min(at + 1, len(screen))


FORMAT = Format("terminal", "terminal transcript", read, detects)
