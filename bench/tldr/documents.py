"""The documentation of a tool (rule 3 in README.md): what --help prints in a sandbox, man pages, README."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from upskill.sandboxes import Limits, Sandbox, SandboxBackend, Setup

PIP = f"{sys.executable} -m pip --quiet"
WHEELS = "--only-binary :all:"  # building from source runs code of the package
FETCH = {
    "pip": f"{PIP} download --no-deps {WHEELS} {{package}}=={{version}}"
    f" && {sys.executable} -m zipfile -e *.whl .",
    "npm": "npm pack --ignore-scripts {package}@{version} && tar -xzf *.tgz",
    "apt": "apt-get download {package}={version} && dpkg-deb -x *.deb .",
}
INSTALL = {  # with what the package depends on
    "pip": f"{PIP} install --no-compile {WHEELS} --target . {{package}}=={{version}}",
    "npm": "npm install --ignore-scripts --no-audit --prefix . {package}@{version}",
}
PROGRAMS = {"pip": "bin", "npm": "node_modules/.bin", "apt": "usr/bin"}
Row = dict[str, str]  # of tools.csv
MIN_CHARACTERS, MAX_CHARACTERS = 300, 40_000
MAX_HELPS = 40
LIMITS = Limits(wall=30.0, cpu=30.0, memory=2 << 30, address_space=None)
COMMANDS = re.compile(r"^(?=.*\bcommands?\b).*:?\s*$", re.IGNORECASE)
COMMAND = re.compile(r"^\s{1,8}([a-z][\w-]*)(?:[ ,|(<\[].*)?$")
HELP = re.compile(r"usage|options|commands", re.IGNORECASE)
PYTHON = (
    "env PYTHONPATH=/tool COLUMNS=100 python3 "  # scripts of wheels name one that the sandbox lacks
)
MAN = "MANWIDTH=100 man --no-hyphenation --no-justification --local-file"


def call(command: str, folder: Path) -> str:
    """What a line of shell prints; empty if it fails. One that hangs ends the build, which continues when run again."""
    done = subprocess.run(
        ["bash", "-c", command],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=900,
    )
    return "" if done.returncode else done.stdout


def unpack(row: Row, commands: dict[str, str], folder: Path) -> Path:
    """The folder with the files of a tool's package. Nothing of it runs."""
    own = folder / row["name"]
    if not own.exists():
        own.mkdir(parents=True)
        call(commands[row["source"]].format(**row), own)
    return own


def list_commands(text: str) -> Iterator[str]:
    """The subcommands that a help text lists below a heading such as "Commands:"."""
    listing = False
    for line in text.split("\n"):
        if line and not line[0].isspace():
            listing = COMMANDS.match(line) is not None
        elif listing and (command := COMMAND.match(line)):
            yield command[1]


async def read_helps(sandbox: Sandbox, program: str, name: str) -> dict[str, str]:
    """What --help prints for the program and for its subcommands, two levels deep."""
    helps: dict[str, str] = {}
    waiting = [""]
    while waiting and len(helps) < MAX_HELPS:
        words = waiting.pop(0)
        done = await sandbox.run(f"{program}{words} --help", LIMITS)
        text = (done.output.strip() or done.error.strip()).replace("/tool/bin/", "")
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        if not HELP.search(text) or "Traceback" in text or text in helps.values():
            continue
        helps[f"{name}{words}"] = text
        if words.count(" ") < 2:
            commands = dict.fromkeys(list_commands(text))
            waiting += [f"{words} {each}" for each in commands if each != "help"]
    return helps


async def read_manual(sandbox: Sandbox, folder: Path, name: str) -> str:
    texts: list[str] = []
    for page in sorted(folder.rglob(f"man[18]/{name}*")):
        if re.fullmatch(rf"{re.escape(name)}(-.*)?", page.name.split(".")[0]):
            done = await sandbox.run(f"{MAN} /package/{page.relative_to(folder)} | col -bx", LIMITS)
            texts.append(done.output.strip())
    return "\n\n".join(texts)


def read_readme(folder: Path) -> str:
    for metadata in folder.glob("*.dist-info/METADATA"):
        return metadata.read_text("utf-8", "replace").partition("\n\n")[2]
    files = [*folder.glob("package/README*"), *folder.glob("usr/share/doc/*/README*")]
    for file in sorted(files):
        if "ebian" not in file.name and file.is_file():
            return call(f"zcat --force {file.name}", file.parent)
    return ""


async def gather(row: Row, backend: SandboxBackend, folder: Path) -> str:
    """All of it, help and manual first, up to a length; empty if there is too little."""
    name, source = row["name"], row["source"]
    package = unpack(row, FETCH, folder / "packages")
    installed = package if source == "apt" else unpack(row, INSTALL, folder / "installed")
    program = f"{PROGRAMS[source]}/{name}"
    is_script = call(f"head -c 2 {program}", installed) == "#!"
    command = f"{PYTHON if source == 'pip' and is_script else ''}/tool/{program}"
    mounts = {"/tool": installed, "/package": package}
    async with await backend.open(Setup(readonly_mounts=mounts)) as sandbox:
        parts = await read_helps(sandbox, command, name)
        parts["The manual"] = await read_manual(sandbox, package, name)
    readme = re.sub(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->", "", read_readme(package), flags=re.DOTALL)
    parts["README"] = readme.strip()
    text = "\n\n".join(f"# {title}\n\n{part}" for title, part in parts.items() if part)
    return text[:MAX_CHARACTERS] if len(text) >= MIN_CHARACTERS else ""
