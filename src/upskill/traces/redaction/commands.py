"""Commands that print a secret: what they print is one, whatever it looks like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from upskill.plain import as_list
from upskill.traces.redaction.rules import MARK, NAME, is_mixed

MAX_COMMAND = 1000  # letters; what is longer is a script that prints other things too

# How a variable or a file may be called that holds nothing but a secret.
_CALLED = rf"[\w.-]{{0,40}}?(?:{NAME}|pass|pw|_key|_key_base|_pat)"
_FILE = rf"(?:[\w~./-]{{0,200}}?/)?{_CALLED}s?(?:\.(?:txt|key|enc|b64))?(?=[\s\"']|$)"
_SHOW = r"(?:\w+[ :])?(?:get|show|print|find|read|generate|reveal|view|output|create)"
_COMMANDS = (
    # password managers
    r"(?:go)?pass\s+(?:show|otp)\s",
    r"(?:go)?pass\s+[\w@.-]+/[\w@./-]+$",
    r"op\s+(?:read|item\s+get|inject)\s",
    r"lpass\s+show\s",
    r"keepassxc-cli\s+show\s",
    r"secret-tool\s+lookup\s",
    r"keyring\s+get\s",
    r"git\s+credential\s+fill",
    r"docker-credential-\S+\s+get",
    # encrypted files
    r"sops\s+(?:-d|--decrypt|decrypt)\s",
    r"ansible-vault\s+(?:view|decrypt)\s",
    r"gpg2?\s[^\n]{0,80}?(?:-d|--decrypt)\s",
    r"age\s+(?:-d|--decrypt)\s",
    # servers that keep secrets
    r"vault\s+(?:kv\s+get|read|unwrap|print\s+token|token\s+create)\b",
    r"kubectl\s[^\n]{0,100}?\bsecrets?[\s/][^\n]{0,100}?\s(?:-o|--output|--template|base64)\b",
    r"oc\s+whoami\s+(?:-t|--show-token)",
    r"gcloud\s+secrets\s+versions\s+access\s",
    r"aws\s[^\n]{0,80}?(?:get-secret-value|assume-role\S*|export-credentials|get-parameters?\b[^\n]{0,200}--with-decryption)\b",
    r"az\s[^\n]{0,80}?(?:secret\s+show|keys?\s+list|credential\s+show|show-connection-string)\b",
    r"(?:\w+\s+)?(?:auth|tokens?)[ :](?:token|create)\b",
    # any program that is told to show something with the name of a secret
    rf"{_SHOW}[\s-]+(?!secrets?\b)(?:\S{{1,40}}\s+){{0,3}}?[\w./:]{{0,40}}?(?<!\w){_CALLED}(?=[\s\"']|$)",
    r"\w+\s+secrets?[ :](?:get|show|view|reveal)\s+\S",
    rf"(?:jq|yq)\s[^\n]{{0,80}}?\.{_CALLED}(?![\w-])",
    # any program that makes one up
    r"(?:openssl\s+rand|pwgen|wg\s+gen(?:key|psk))\b",
    # files and variables
    rf"(?:cat|head|tail|less|more|bat|type|get-content|base64)\s(?:-\S+\s+|\d+\s+)*[\"']?(?:{_FILE}|\S{{0,80}}/run/secrets/\S)",
    rf"(?:echo|printf|write-output)\s[^\n]{{0,30}}?(?:\$(?:env:|\{{)?|%){_CALLED}\b(?!:?[+?=(])",
    rf"printenv\s+{_CALLED}(?=[\s\"']|$)",
    rf"\$env:{_CALLED}$",
    rf"(?:print|puts|console\.log|-p|os\.)[^\n]{{0,30}}?env(?:iron)?[^\w\n]{{0,3}}(?:get\W{{1,3}})?{_CALLED}\b",
)
_PRINTS = re.compile(rf"(?im)(?<![\w./-])(?:{'|'.join(_COMMANDS)})")
# Their output goes elsewhere: into a file, another command, the clipboard.
_ELSEWHERE = re.compile(r">\s*[^\s&>]|\s(?:login|wc|pbcopy|xclip|wl-copy|sha\d+sum)\b|-stdin\b")
_INSERTED = re.compile(r"\$\([^()]*\)|`[^`]*`")
_PROMPT = re.compile(
    r"[ \t]*(?:[\w.@:~/()\\-]{0,80} ?[$%❯➜]|PS [^>\n]{0,80}>|[A-Z]:\\[^>\n]{0,80}>|>>>|[\w-]+@[^#\n]{1,80}#|\++)[ \t]+"
)
_RECORDED = re.compile(
    r'"(?:command|cmd)"\s*:\s*"(?P<command>(?:[^"\\\n]|\\.){4,1000})"\s*,\s*'
    r'"(?:output|stdout|result)"\s*:\s*"(?P<value>(?:[^"\\\n]|\\.)+)"'
)


def prints_secret(command: str) -> bool:
    if len(command) > MAX_COMMAND or not _PRINTS.search(command):
        return False
    return any(map(_pipeline_prints_secret, re.split(r"&&|\|\||[;\n]", command)))


def _pipeline_prints_secret(pipeline: str) -> bool:
    if "echo" not in pipeline:
        pipeline = _INSERTED.sub("", pipeline)
    return bool(_PRINTS.search(pipeline.strip())) and not _ELSEWHERE.search(pipeline)


def calls_for_secret(arguments: Mapping[str, Any]) -> bool:
    """Whether a tool with these arguments prints a secret: a command, or a file that is one."""
    for name, argument in arguments.items():
        items = as_list(argument) or [argument]
        command = " ".join(item for item in items if isinstance(item, str))
        if prints_secret(f"cat {command}" if "path" in name.lower() else command):
            return True
    return False


def find_printed(text: str) -> Iterator[tuple[int, int]]:
    """Where a text shows a command and the secret that it printed."""
    if not _PRINTS.search(text):
        return
    for match in _RECORDED.finditer(text):
        if prints_secret(match["command"]):
            yield match.span("value")
    printing = (
        ""  # "line": what follows may be the secret; "block": all of it is, up to the next prompt
    )
    end = 0
    for line in text.splitlines(keepends=True):
        start = end
        end += len(line)
        said = line.strip()
        prompt = _PROMPT.match(line)
        if prompt:
            printing = "block" if prints_secret(line[prompt.end() :]) else ""
        elif not said or said.startswith("```"):
            printing = ""
        elif printing == "block" or (printing == "line" and _is_one_secret(said)):
            begin = start + line.index(said)
            if MARK not in line:
                yield begin, begin + len(said)
        else:
            printing = "line" if prints_secret(said) else ""


def _is_one_secret(line: str) -> bool:
    return len(line) >= 6 and " " not in line and is_mixed(line)
