"""The documentation of a tool (rule 3 in README.md): what --help prints in a sandbox, man pages, README."""

from __future__ import annotations

import asyncio
import gzip
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from packages import PIP, WHEELS, Row, call, fetch

from upskill.sandboxes import Limits, Sandbox, SandboxBackend, Setup

MIN_CHARACTERS, MAX_CHARACTERS = 300, 40_000
MAX_HELPS = 40
LIMITS = Limits(wall=30.0, cpu=30.0, memory=2 << 30, address_space=None)
COMMANDS = re.compile(r"^(?=.*\bcommands?\b).*:?\s*$", re.IGNORECASE)
COMMAND = re.compile(r"^\s{1,8}([a-z][\w-]*)(?:[ ,|(<\[].*)?$")


def install(row: Row, folder: Path) -> list[str]:
    """Adds what a Python or Node package depends on. Returns how its program is called in the sandbox."""
    package = shlex.quote(
        f"{row['package']}{'==' if row['source'] == 'pip' else '@'}{row['version']}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    if row["source"] == "pip":
        call(f"{PIP} install --no-compile {WHEELS} --target . {package}", folder)
        program = folder / "bin" / row["name"]
        is_script = program.exists() and program.read_bytes()[:2] == b"#!"
        python = ["env", "PYTHONPATH=/tool", "COLUMNS=100", "python3"] if is_script else []
        return [*python, f"/tool/bin/{row['name']}"]
    if row["source"] == "npm":
        call(f"npm install --ignore-scripts --no-audit --prefix . {package}", folder)
        return [f"/tool/node_modules/.bin/{row['name']}"]
    return [f"/tool/usr/bin/{row['name']}"]


def list_commands(text: str) -> Iterator[str]:
    """The subcommands that a help text lists below a heading such as "Commands:"."""
    listing = False
    for line in text.split("\n"):
        if line and not line[0].isspace():
            listing = COMMANDS.match(line) is not None
        elif listing and (command := COMMAND.match(line)):
            yield command[1]


async def read_helps(sandbox: Sandbox, program: list[str], name: str) -> dict[str, str]:
    """What --help prints for the program and for its subcommands, two levels deep."""
    helps: dict[str, str] = {}
    waiting = [""]
    while waiting and len(helps) < MAX_HELPS:
        words = waiting.pop(0)
        done = await sandbox.run(shlex.join([*program, *words.split(), "--help"]), LIMITS)
        text = (done.output.strip() or done.error.strip()).replace("/tool/bin/", "")
        is_help = (
            re.search(r"usage|options|commands", text, re.IGNORECASE) and "Traceback" not in text
        )
        if not is_help or text in helps.values():
            continue
        helps[f"{name} {words}".strip()] = re.sub(r"\x1b\[[\d;]*m", "", text)
        if words.count(" ") < 1:
            waiting += [
                f"{words} {each}".strip()
                for each in dict.fromkeys(list_commands(text))
                if each != "help"
            ]
    return helps


async def read_manual(sandbox: Sandbox, folder: Path, name: str) -> str:
    pages = [path for section in "18" for path in folder.rglob(f"man{section}/{name}*.{section}*")]
    texts: list[str] = []
    for page in sorted(pages):
        if re.fullmatch(rf"{re.escape(name)}(-.*)?", page.name.split(".")[0]):
            man = "MANWIDTH=100 man --no-hyphenation --no-justification --local-file"
            command = f"{man} /tool/{page.relative_to(folder)} | col -bx"
            texts.append((await sandbox.run(command, LIMITS)).output.strip())
    return "\n\n".join(texts)


def read_readme(folder: Path) -> str:
    for metadata in folder.glob("*.dist-info/METADATA"):
        return metadata.read_text("utf-8", "replace").partition("\n\n")[2]
    files = [*folder.glob("package/README*"), *folder.glob("usr/share/doc/*/README*")]
    for file in sorted(files):
        if "ebian" not in file.name and file.is_file():
            data = file.read_bytes()
            return (gzip.decompress(data) if file.suffix == ".gz" else data).decode(
                "utf-8", "replace"
            )
    return ""


async def gather(row: Row, backend: SandboxBackend, folder: Path) -> str:
    """All of it, help and manual first, up to a length; empty if there is too little."""
    own = find_package(row, folder)
    installed = own if row["source"] == "apt" else folder / "installed" / row["name"]
    program = await asyncio.to_thread(install, row, installed)
    async with await backend.open(Setup(readonly_mounts={"/tool": installed})) as sandbox:
        parts = await read_helps(sandbox, program, row["name"])
    async with await backend.open(Setup(readonly_mounts={"/tool": own})) as sandbox:
        parts["The manual"] = await read_manual(sandbox, own, row["name"])
    readme = re.sub(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->", "", read_readme(own), flags=re.DOTALL)
    parts["README"] = readme.strip()
    text = "\n\n".join(f"# {title}\n\n{part}" for title, part in parts.items() if part)
    return text[:MAX_CHARACTERS] if len(text) >= MIN_CHARACTERS else ""


def find_package(row: Row, folder: Path) -> Path:
    own = folder / "packages" / row["name"] / row["source"] / row["package"].replace("/", "+")
    return fetch(row["source"], row["package"], row["version"], own)


async def gather_all(rows: list[Row], backend: SandboxBackend, folder: Path) -> dict[str, str]:
    """The documentation of these tools. What is there is kept."""
    texts: dict[str, str] = {}
    gate = asyncio.Semaphore(4)

    async def gather_one(row: Row) -> None:
        stored = folder / "documentation" / f"{row['name']}.md"
        if not stored.exists():
            async with gate:
                text = await gather(row, backend, folder)
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_text(text)
        texts[row["name"]] = stored.read_text()

    await asyncio.gather(*map(gather_one, rows))
    return texts
