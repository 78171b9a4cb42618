from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option
from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file
from upskill.plain import counted
from upskill.skills import SkillFile, load_skills
from upskill.skills.archives import zip_files
from upskill.skills.packing import pack, plugin_files

MAX_SHOWN = 5


@click.command("pack", cls=Command)
@click.argument("skills", nargs=-1, required=True, type=click.Path(), metavar="SKILL...")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(),
    default=".",
    help="The folder to write to (default: .), or the file, if only one is written.",
)
@click.option(
    "--plugin",
    metavar="NAME",
    help="One plugin NAME.zip with all SKILLs, for every agent with plugins.",
)
@click.option(
    "--with-evals",
    is_flag=True,
    help="Also pack evals/ and the other files that only upskill reads.",
)
@click.option("--force", is_flag=True, help="Overwrite files that upskill did not write.")
@json_option
def command(
    skills: tuple[str, ...],
    folder: str,
    plugin: str | None,
    with_evals: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Pack each SKILL as NAME.skill, a zip that has the same bytes on every machine. A folder of skills counts as all
    of them.

    Tests stay out. The receipt and the card stay in.

    \b
    upskill pack skills/my-skill           my-skill.skill
    upskill pack skills --plugin my-tools  my-tools.zip
    """
    packed = [pack(skill, with_evals=with_evals) for skill in load_skills(skills)]
    names = Counter(one.skill.name for one in packed)
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise UsageError(f"two skills are named {twice!r}", "Pack them one by one.")
    if plugin:
        files = [SkillFile(f"{plugin}.zip", zip_files(plugin_files(packed, plugin)))]
    else:
        files = [
            SkillFile(f"{one.skill.name}.skill", zip_files(one.below(one.skill.name)))
            for one in packed
        ]
    target = Path(folder)
    is_file = target.suffix in (".skill", ".zip") and not target.is_dir()
    if is_file and len(files) > 1:
        raise UsageError(
            f"{folder}: -o must be a folder here",
            "Leave out the file extension, or pack a single skill.",
        )
    paths = [target if is_file else target / file.path for file in files]
    for path in paths:
        check_ours(path, force=force)
    for file, path in zip(files, paths, strict=True):
        with whole_file(path) as stream:
            stream.write(file.data)
    written = [str(path) for path in paths]
    left_out = {one.skill.name: list(one.left_out) for one in packed if one.left_out}
    if as_json:
        show_json({"written": written, "left_out": left_out})
        return
    for path in written:
        click.echo(path)
    if names := list(dict.fromkeys(path for left in left_out.values() for path in left)):
        more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
        skills_named = "" if len(packed) == 1 else f" of {counted(len(left_out), 'skill')}"
        note(
            f"Left out{skills_named}: {', '.join(names[:MAX_SHOWN])}{more}. Use --with-evals to pack them too."
        )
