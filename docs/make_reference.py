"""Write docs/reference.md from the code: every command's help, every check, agent, provider, endpoint and target.

python docs/make_reference.py            write it
python docs/make_reference.py --check    say whether it is up to date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from upskill.checks import CHECKS, SuiteLine
from upskill.cli import COMMANDS, upskill
from upskill.models.addresses import ALIASES
from upskill.models.addresses import COMMANDS as AGENT_COMMANDS
from upskill.models.embedded.local_models import LOCAL_MODELS
from upskill.models.endpoints import ENDPOINTS
from upskill.settings import Settings
from upskill.skills.install import TARGETS
from upskill.traces import FORMATS

PAGE = Path(__file__).with_name("reference.md")


def lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Generated from the code by `python docs/make_reference.py`; a test keeps it true."
    yield from commands()
    yield from checks()
    yield from models()
    yield from settings()
    yield from targets()
    yield from traces()


def commands() -> Iterator[str]:
    yield "\n## Commands\n"
    yield from _help(upskill, "upskill")
    for name in COMMANDS:
        command = upskill.get_command(click.Context(upskill), name)
        assert command is not None
        yield f"\n### upskill {name}\n"
        yield from _help(command, f"upskill {name}")
        for sub_name, sub in getattr(command, "commands", {}).items():
            yield f"\n### upskill {name} {sub_name}\n"
            yield from _help(sub, f"upskill {name} {sub_name}")


def _help(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
    yield "```text"
    yield command.get_help(context)
    yield "```"


def checks() -> Iterator[str]:
    yield "\n## Checks\n"
    yield "The first field is the short form: `- contains: hello`.\n"
    yield "| check | fields | what it says |"
    yield "|---|---|---|"
    for name in CHECKS.table:
        kind: type[SuiteLine] = CHECKS.load(name)
        fields = ", ".join(f"`{info.alias or field}`" for field, info in kind.model_fields.items())
        yield f"| `{name}` | {fields} | {' '.join((kind.__doc__ or '').split())} |"


def models() -> Iterator[str]:
    yield "\n## Models\n"
    yield "| you write | what answers |"
    yield "|---|---|"
    yield f"| `local` | the embedded model `{next(iter(LOCAL_MODELS))}` |"
    for row in LOCAL_MODELS.values():
        yield f"| `local:{row.name}` | {row.size / 1e6:,.0f} MB to download, {row.license}; {row.advice} |"
    yield "| `local:/path/to/model.gguf` | any other GGUF file |"
    yield "| `anthropic:MODEL` | Anthropic's messages API (`ANTHROPIC_API_KEY`) |"
    for endpoint in ENDPOINTS.values():
        key = ("" if endpoint.key_required else "no key, or ") + f"`{endpoint.key_variables[0]}`"
        place = endpoint.base_url or "the server in `GENERIC_BASE_URL`"
        yield f"| `{endpoint.name}:MODEL` | chat completions at {place} ({key}) |"
    for agent in AGENT_COMMANDS:
        yield f"| `{agent}` | the installed command-line agent, with its own login |"
    yield "| `pydantic-ai:PROVIDER:MODEL` | whatever pydantic-ai reaches, with the extra `providers` |"
    yield "| `scripted:FILE` | answers from a file |"
    yield "| `handoff:DIR` | whoever answers the prompts that are written into this folder |"
    for alias, name in ALIASES.items():
        yield f"| `{alias}` | `{name}` |"
    yield "\nWith `--base-url` the whole name is that server's name for the model."
    yield "The dotted form `provider.model[.effort]` works too."


def settings() -> Iterator[str]:
    yield "\n## Settings\n"
    yield "The first of `$UPSKILL_CONFIG`, `./upskill.config.yaml` and `~/.config/upskill/config.yaml`.\n"
    yield "On the command line: `--set KEY=VALUE`. [A sample](how-to/settings.md) has the usual ones.\n"
    yield "| setting | default | what it is |"
    yield "|---|---|---|"
    for name, value in Settings().model_dump().items():
        said = Settings.model_fields[name].description
        yield f"| `{name}` | {'none' if value is None else f'`{value}`'} | {said} |"


def targets() -> Iterator[str]:
    yield "\n## Where skills are installed\n"
    yield "| `--to` | agent | in a project | with `--global` |"
    yield "|---|---|---|---|"
    for target in TARGETS.values():
        yield f"| `{target.name}` | {target.title} | `{target.project_skills}` | `~/{target.user_skills}` |"


def traces() -> Iterator[str]:
    yield "\n## Trace formats\n"
    yield "A file is recognised by its content; `upskill trace show FILE --format NAME` insists on one of them."
    yield "Where a file has several sessions, `FILE/SESSION` is one of them.\n"
    yield "| name | what is read |"
    yield "|---|---|"
    for name in FORMATS.names():
        if name in FORMATS.table:
            page = inspect.getdoc(import_module(FORMATS.table[name].partition(":")[0])) or ""
            yield f"| `{name}` | {page.partition(chr(10) * 2)[0].replace(chr(10), ' ')} |"


def main() -> None:
    text = "\n".join(lines()) + "\n"
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/reference.md is out of date: run `python docs/make_reference.py`")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
