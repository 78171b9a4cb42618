"""The files that a teacher writes beside a skill's body: scripts are run and references read before they are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from upskill.authoring.material.material import Material
from upskill.authoring.writing.grounding import evidence_text, uncovered
from upskill.authoring.writing.structured import InvalidAnswer
from upskill.errors import UsageError
from upskill.skills import Skill, estimate_tokens

SCRIPTS, REFERENCES = "scripts/", "references/"
FILE_TOKENS = 2_000  # of all files together, on top of the body's
FILE_TOLERANCE = 1.5  # times the tokens that files may have
SECONDS = 20.0  # for a script to print its help
MENTIONED = re.compile(r"(?<![\w/.-])(?:scripts|references)/[\w./-]*\w")

Problem = tuple[str, str]  # the file, and what is wrong with it


async def file_problems(skill: Skill, material: Material, tokens: int) -> list[Problem]:
    """What is wrong with the files of a draft. A script has to print its help in a sandbox, and exit with 0."""
    files = [path for path in skill.resources if path.startswith((SCRIPTS, REFERENCES))]
    if not files and not MENTIONED.search(skill.body):
        return []
    known = evidence_text(material.ids, material)
    problems = list(_form_problems(skill, known, tokens))
    for path in files:  # a reference may only say what the material says, where there is any
        if path.startswith(REFERENCES) and material.pieces and (missing := uncovered(_text(skill, path), known)):
            problems.append((path, f"it says {', '.join(map(repr, missing[:5]))}, and nothing in the material does"))
    scripts = [path for path in files if path.startswith(SCRIPTS)]
    return problems + await _run_scripts(skill, scripts) if scripts else problems


def without_files(skill: Skill, paths: set[str]) -> Skill:
    """The skill without these files, and without the lines of its body that send a reader there."""
    lines = [line for line in skill.body.splitlines() if not paths & set(MENTIONED.findall(line))]
    if not any(line.strip() for line in lines):
        raise InvalidAnswer(f"{', '.join(sorted(paths))} cannot be used, and the blocks say nothing else")
    for path in paths:
        skill = skill.without_file(path)
    return skill.with_body("\n".join(lines))


def _form_problems(skill: Skill, known: str, tokens: int) -> Iterator[Problem]:
    named = set(MENTIONED.findall(skill.body))
    files = {path for path in skill.resources if path.startswith((SCRIPTS, REFERENCES))}
    # What the material names is a file of the user's own.
    for path in sorted(path for path in named - files if path not in known):
        yield path, "a block names it, and there is no such file"
    for path in sorted(files - named):
        yield path, "no block says when to read or run it"
    size = sum(estimate_tokens(_text(skill, path)) for path in files)
    if size > FILE_TOLERANCE * tokens:
        yield (
            max(files, key=lambda path: len(_text(skill, path))),
            f"the files have {size} tokens, {tokens} are allowed",
        )


async def _run_scripts(skill: Skill, scripts: list[str]) -> list[Problem]:
    from upskill.sandboxes import Limits, Setup, choose_sandbox  # noqa: PLC0415 - only where something is run

    try:
        sandbox = (await choose_sandbox()).backend
    except UsageError:
        return [(path, "no sandbox works here, so it could not be tried") for path in scripts]
    files = {path: skill.read(path) or b"" for path in skill.resources}
    problems: list[Problem] = []
    async with await sandbox.open(Setup(files=files, runnable=frozenset(scripts))) as opened:
        for path in scripts:
            if not files[path].startswith(b"#!"):
                problems.append((path, "its first line is not #! and an interpreter"))
                continue
            done = await opened.run([f"./{path}", "--help"], Limits(wall=SECONDS, cpu=SECONDS))
            output = (done.output + done.error).strip()
            if done.code or done.killed_why:
                why = done.killed_why or f"exit code {done.code}"
                problems.append((path, f"`{path} --help` fails in a sandbox ({why}): {output[-300:]}"))
            elif not output:
                problems.append((path, f"`{path} --help` prints nothing"))
    return problems


def _text(skill: Skill, path: str) -> str:
    return (skill.read(path) or b"").decode("utf-8", errors="replace")
