"""Which teachers work on this machine. There is no default one: a small model writes nothing of use.

`check_start` is what comes before anything is read or run.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from upskill.authoring.material.material import ToolSchema, read_source, read_tools
from upskill.authoring.options import GenerateOptions
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.addresses import ALIASES, resolve
from upskill.models.endpoints import ENDPOINTS, Endpoint, is_loopback
from upskill.models.keys import find_keys
from upskill.models.pool import Models
from upskill.plain import as_mapping, dict_or_empty, list_or_empty
from upskill.runs.planning.options import choose_students
from upskill.skills import Skill
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.traces import Trace

PROBE_SECONDS = 0.5  # for a server on this machine to say which models it has
KEYS = {"anthropic": ("ANTHROPIC_API_KEY",)} | {
    name: row.key_variables for name, row in ENDPOINTS.items() if row.key_required
}

EXTRACT = "extract"  # quotes traces, without a model
Choice = tuple[str, str]  # what to type, and why it works
HANDOFF: Choice = ("--handoff DIR", "writes the prompts to files that you or any agent answer")
HANDOFF_MODEL: Choice = ("-m handoff:DIR", HANDOFF[1])  # where there is no such flag


class NoTeacher(UsageError):
    """Nobody was named to write the skill, or its tests. The hint lists what works here.

    `own_ways` are those that need neither a model nor a key.
    """

    def __init__(
        self, keys: Mapping[str, str], own_ways: Iterable[Choice] = (HANDOFF,), *, role: str = "teacher"
    ) -> None:
        choices = [*own_ways, *_agents(), *_keys(keys), *_servers(keys)]
        width = max(len(typed) for typed, _ in choices)
        lines = "".join(f"\n    {typed:<{width}}  {why}" for typed, why in choices)
        super().__init__(f"no {role} was named, so nothing was run", f"What works here:{lines}{_missing(choices)}")
        self.choices = choices


def choose_teacher(options: GenerateOptions, keys: Mapping[str, str]) -> Address:
    if options.handoff:
        if options.teacher:
            raise UsageError("--handoff and --teacher contradict each other")
        return resolve(f"handoff:{options.handoff}")
    if options.teacher == EXTRACT:
        return Address(EXTRACT, EXTRACT, "")
    return resolve(options.teacher or options.settings.teacher or "", keys=keys)


def choose_student(options: GenerateOptions, keys: Mapping[str, str], tell: Callable[[str], None]) -> Address:
    named = (options.student,) if options.student else ()
    (name,) = choose_students(named, options.settings, tell, "--student")
    return resolve(name, options.base_url, keys)


def choose_attempts(
    options: GenerateOptions, student: Address | None, older: Skill | None, tell: Callable[[str], None]
) -> int:
    """How often to try for a better skill. A new one is fitted to the embedded model only if that is asked for."""
    if options.teacher == EXTRACT:
        return 0
    if student and student.provider == "local" and not options.attempts_are_chosen and not older:
        tell(f"{student.name} is a small embedded model, so the skill is not refined against it; --attempts N does.")
        return 0
    return options.max_attempts


async def check_start(options: GenerateOptions, models: Models | None) -> list[ToolSchema]:
    """The tools that were given, each server asked once; NoTeacher or UsageError before anything is run."""
    if options.no_eval and (options.student or options.base_url):
        raise UsageError(
            "--no-eval and --student contradict each other: without an evaluation there is no student",
            "Leave one of them out.",
        )
    if not (options.teacher or options.handoff or options.settings.teacher):
        keys = models.context.keys if models else find_keys()
        raise await asyncio.to_thread(NoTeacher, keys, [*_extract(options), HANDOFF])
    return [tool for name in options.tools for tool in await asyncio.to_thread(read_tools, name)]


def _extract(options: GenerateOptions) -> Iterator[Choice]:
    """Quoting traces makes a new page, and changes no older skill."""
    found = [read_source(source) for source in options.sources]
    if not options.can_extract or any(isinstance(source, Skill) for source in found):
        return
    if any(isinstance(source, Trace) for source in found):
        yield "-m extract", "quotes the trace, without a model"
    else:
        yield "-m extract --from TRACE", "quotes an agent's session (`upskill trace list` names those here)"


def _agents() -> Iterator[Choice]:
    for spec in AGENT_SPECS.values():
        if spec.model and shutil.which(spec.program):
            yield f"-m {spec.name}", f"`{spec.program}` is installed"


def _keys(keys: Mapping[str, str]) -> Iterator[Choice]:
    for provider, variables in KEYS.items():
        if name := next((name for name in variables if keys.get(name)), ""):
            alias = next((alias for alias, full in ALIASES.items() if full.startswith(f"{provider}:")), "")
            yield f"-m {alias or f'{provider}:MODEL'}", f"{name} is set"


def _servers(keys: Mapping[str, str]) -> Iterator[Choice]:
    """The servers of the usual kinds that answer on this machine; no other machine is asked."""
    places: list[tuple[Endpoint, str]] = []
    for row in ENDPOINTS.values():
        url = next((keys[name] for name in row.url_variables if keys.get(name)), row.base_url)
        if not row.key_required and is_loopback(url):
            places.append((row, url))
    with ThreadPoolExecutor(len(places) or 1) as threads:
        for (row, url), models in zip(places, threads.map(_models_at, (url for _, url in places)), strict=True):
            if models is not None:
                yield f"-m {row.name}:{models[0] if models else 'MODEL'}", f"answers at {url}"


def _models_at(url: str) -> list[str] | None:
    """The models of the server at this address; None where no such server answers."""
    place = urlsplit(url)
    try:
        with closing(HTTPConnection(place.hostname or "", place.port or 80, timeout=PROBE_SECONDS)) as connection:
            connection.request("GET", f"{place.path.rstrip('/')}/models")
            answer = as_mapping(json.loads(connection.getresponse().read(1_000_000)))
    except (OSError, HTTPException, ValueError):
        return None
    if answer is None or "data" not in answer:  # something else listens there
        return None
    names = (dict_or_empty(item).get("id") for item in list_or_empty(answer["data"]))
    return [name for name in names if isinstance(name, str)]


def _missing(choices: list[Choice]) -> str:
    """What would work too, once it is there."""
    typed = [words for words, _ in choices]
    missing: list[str] = []
    specs = [spec for spec in AGENT_SPECS.values() if spec.model]
    if not any(f"-m {spec.name}" in typed for spec in specs):
        missing.append(f"an agent on the PATH ({', '.join(spec.program for spec in specs)})")
    if not any(why.endswith(" is set") for _, why in choices):
        missing.append("a key (ANTHROPIC_API_KEY, OPENAI_API_KEY, HF_TOKEN, …)")
    if not any(why.startswith("answers at ") for _, why in choices):
        missing.append(
            f"a server on this machine ({', '.join(name for name, row in ENDPOINTS.items() if row.prices == 'free')})"
        )
    return f"\n  Not here: {'; '.join(missing)}." if missing else ""
