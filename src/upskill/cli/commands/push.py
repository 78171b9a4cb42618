from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext, suppress

import click

from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.last_verdicts import is_proven, verdicts_on_record
from upskill.cli.options import find_project_store, json_option
from upskill.errors import UsageError
from upskill.reports.view import row_in_words
from upskill.skills import Skill, SkillFile
from upskill.skills.hub import HubRepository
from upskill.skills.packing import pack
from upskill.traces.redaction.redact import HOME, redact

HARMLESS = {HOME, "email"}  # what redaction takes out, and what a skill may well name


@click.command("push", cls=Command)
@click.argument("skill", type=click.Path())
@click.argument("address", metavar="hf:ORG/NAME")
@click.option("--private", is_flag=True, help="If the repository is new, make it private.")
@click.option(
    "--with-evals",
    is_flag=True,
    help="Also push evals/ and the other files that only upskill reads.",
)
@click.option(
    "--unproven", is_flag=True, help="Push even if there is no evidence that the skill helps."
)
@click.option(
    "--with-secrets", is_flag=True, help="Push even if something in it looks like a secret."
)
@click.option("--dry-run", is_flag=True, help="Only show what would change there.")
@json_option
def command(
    skill: str,
    address: str,
    private: bool,
    with_evals: bool,
    unproven: bool,
    with_secrets: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Push SKILL to a repository on the Hugging Face Hub, in one commit. If nothing changed, there is no commit.

    Files that the skill no longer has are removed there. Needs the `hub` extra, and a token: `hf auth login`.

    \b
    upskill push ./skills/my-skill hf:my-org/my-skill
    """
    loaded = Skill.load(skill)
    packed = pack(loaded, with_evals=with_evals)
    repository = HubRepository(address)
    if (secrets := find_secrets(packed.files)) and not with_secrets:
        where = "; ".join(f"{path} ({', '.join(sorted(kinds))})" for path, kinds in secrets.items())
        hint = "Remove it. If it is harmless, use --with-secrets."
        raise UsageError(f"{loaded.name}: possible secret in {where}", hint)
    with find_project_store(None) or nullcontext() as store:
        verdicts = verdicts_on_record(store, loaded)
    if not any(map(is_proven, verdicts)) and not unproven:
        known = "; ".join(map(row_in_words, verdicts)) or "no stored run, no receipt"
        hint = f"`upskill eval {skill} --receipt` measures it. To push it anyway, use --unproven."
        raise UsageError(f"{loaded.name}: no evidence that this skill helps ({known})", hint)
    changes = repository.compare(packed.files)
    for path, change in sorted(changes.items()):
        note(f"{change}: {path}")
    url = repository.url
    if changes and not dry_run:
        url = repository.upload(packed.files, changes, f"Update {loaded.name}", private=private)
    if as_json:
        show_json({"url": url, "changes": changes, "pushed": bool(changes) and not dry_run})
        return
    click.echo(f"{'unchanged' if not changes else 'would push' if dry_run else 'pushed'}: {url}")
    if any(file.executable for file in packed.files):
        note("The Hub does not preserve executable permissions. `upskill pack` does.")


def find_secrets(files: Iterable[SkillFile]) -> dict[str, set[str]]:
    """By path: the kinds of secrets in it."""
    secrets: dict[str, set[str]] = {}
    for file in files:
        data = file.data
        if file.path.endswith(".gz"):
            with suppress(OSError, EOFError):
                data = gzip.decompress(data)
        counts: Counter[str] = Counter()
        redact(data.decode("utf-8", "replace"), counts)
        if kinds := set(counts) - HARMLESS:
            secrets[file.path] = kinds
    return secrets
