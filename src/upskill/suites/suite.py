"""A Case is a task with checks on its answer; a Suite is cases with a fixed train / held-out split."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

import yaml

from upskill.agents.mcp import McpServer
from upskill.checks import Evidence, SuiteCheck, read_checks
from upskill.checks.room import ALL, Outputs, settings_of
from upskill.errors import MAX_SHOWN, ErrorCollector, UsageError, did_you_mean
from upskill.inputs import read_input
from upskill.plain import as_list, as_mapping, counted, digest, listed, printable, short
from upskill.skills import Skill
from upskill.suites.files import (
    MAX_SUITE_BYTES,
    FilesOfFolders,
    FilesOfSkill,
    Folder,
    check_sound,
    decode,
)
from upskill.suites.formats import Notes, Source, convert, recognize
from upskill.suites.shapes import (
    LISTS,
    OurCase,
    OurSuite,
    ReadFile,
    Script,
    UpstreamCase,
    check_path,
    fit,
    from_upstream,
    mapping_or_empty,
    text_reader,
)
from upskill.traces import Trace

HELD_OUT_SHARE = 0.4
BLOCK = 5  # cases: two of every five are held out


def split(cases: Iterable[tuple[str, bool | None]]) -> Iterator[bool]:
    """Whether each case, given by its id and the side it names, is held out.

    Of each five cases in file order, a hash of the ids draws two (selection sampling), so a case added at the end moves
    no other. Cases that name their side keep it; later ones make up for the imbalance, by one in every five.
    """
    held_out = placed = quota = left = 0
    for id, chosen in cases:  # noqa: A001
        if left == 0:
            short = round(HELD_OUT_SHARE * (placed + BLOCK)) - held_out
            quota, left = min(max(short, 1), 3), BLOCK
        side = chosen if chosen is not None else hash_to_unit(id) * left < quota
        held_out, placed, quota, left = held_out + side, placed + 1, quota - side, left - 1
        yield side


def hash_to_unit(text: str) -> float:
    """A number from 0 to 1 that depends only on the text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


MAX_ID_WORDS = 40  # characters
# Words that say nothing about a request.
_FILLER = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are as at be by can could do does for from give have how i if in into is it its me my of on or please
        should show so than that the their them then there this to us use using want was we what when where which who
        why will with would write you your
        """,
    )
)


def make_id(text: str, digest: str) -> str:
    """`3f9a-python-function-sorts-list`: the hash stands first, as many prompts begin with the same words."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=\w)['’](?=\w)", "", text.lower()))
    slug = ""
    for word in [word for word in words if word not in _FILLER] or words:
        if len(slug) + len(word) > MAX_ID_WORDS:
            slug = slug or word[:MAX_ID_WORDS]
            break
        slug = f"{slug}-{word}" if slug else word
    return f"{digest[:4]}-{slug}" if slug else digest[:8]


@dataclass(frozen=True, slots=True)
class Part:
    of: int  # cases that the suite has in all
    chosen: str  # the flags that chose, as a person writes them
    by_outcome: bool = False  # they were chosen for how they ended before


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases to select: those that match every condition, and the first few of them."""

    ids: Sequence[str] = ()  # or patterns: `build-*`
    tags: Sequence[str] = ()  # any of them
    failing: Collection[str] | None = None  # the ids of cases that failed before
    limit: int | None = None

    def choose(self, suite: Suite) -> Suite:
        """The cases that fit, with the split that they have in the whole suite; UsageError where none does."""
        for pattern in self.ids:
            if not any(fnmatchcase(case.id, pattern) or case.id == pattern for case in suite.cases):
                ids = [*suite.by_id]
                known = (
                    f"Known: {', '.join(ids[:MAX_SHOWN])}{', …' if len(ids) > MAX_SHOWN else '.'}"
                )
                hint = did_you_mean(
                    pattern, ids, otherwise=f"{known} A pattern such as 'build-*' matches several."
                )
                raise UsageError(f"{suite.source}: no case named {pattern!r}", hint)
        tags = sorted({tag for case in suite.cases for tag in case.tags})
        if unknown := next((tag for tag in self.tags if tag not in tags), None):
            hint = did_you_mean(unknown, tags) if tags else "None of the cases has a tag."
            raise UsageError(f"{suite.source}: no case has the tag {unknown!r}", hint)
        chosen = [case for case in suite.cases if self._fits(case)][: self.limit]
        if not chosen:
            raise UsageError(f"{suite.source}: no case matches {self.words}", "Drop a condition.")
        if len(chosen) == len(suite.cases):
            return suite
        part = Part(len(suite.cases), self.words, by_outcome=self.failing is not None)
        return replace(suite, cases=tuple(chosen), part=part)

    def _fits(self, case: Case) -> bool:
        by_id = not self.ids or any(
            case.id == pattern or fnmatchcase(case.id, pattern) for pattern in self.ids
        )
        by_tag = not self.tags or not set(self.tags).isdisjoint(case.tags)
        return by_id and by_tag and (self.failing is None or case.id in self.failing)

    @property
    def words(self) -> str:
        parts = [f"--case {pattern}" for pattern in self.ids] + [
            f"--tag {tag}" for tag in self.tags
        ]
        parts += ["--failed"] if self.failing is not None else []
        parts += [f"--limit {self.limit}"] if self.limit is not None else []
        return " ".join(parts)


OWN_FIELDS = ("checks", "max_output_tokens", "mcp_servers")  # that a suite of another tool may have
PATHS_IN_SKILL = (
    "evals/suite.yaml",
    "evals/suite.yml",
    "evals/suite.json",
    "evals/evals.json",
    "skill_meta.json",
)


@dataclass(frozen=True)
class Case:
    id: str
    prompt: str
    checks: tuple[SuiteCheck, ...]
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # the student's to change
    tests: Mapping[str, str] = field(default_factory=dict[str, str])  # laid anew for each check
    outputs: tuple[str, ...] | None = None  # paths and patterns; None: the whole workspace
    tags: tuple[str, ...] = ()
    group: str = ""  # cases of one group count as one for tasks like these
    held_out: bool = False
    reference: str = ""  # an answer that passes, to test the checks with
    expected_output: str = ""  # what a good answer is like, in words
    evidence: tuple[str, ...] = ()  # what it was made from, by the ids of the material
    output_file: str = (
        ""  # what an agent that acts leaves there is looked at in place of what it says
    )
    right: tuple[
        str | Script, ...
    ] = ()  # answers that must pass, put differently, or scripts that do what is asked
    wrong: tuple[str | Script, ...] = ()  # plausible answers, or scripts, that must fail
    max_output_tokens: int | None = None  # how long an answer may be; None: as the suite says
    max_words: int | None = (
        None  # how long the prompt asks it to be; an embedded model gets twice that room
    )
    metadata: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # what others say of it; it decides nothing
    gpu: bool = False  # its sandbox shows the GPU
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )

    def __repr__(self) -> str:
        return f"Case({self.id!r}, {short(self.prompt)})"

    def to_dict(self) -> dict[str, Any]:
        """The case as a suite file would say it."""
        written: dict[str, Any] = {
            "id": self.id,
            "prompt": self.prompt,
            "checks": [{named.name: named.config} for named in self.checks],
            "held_out": self.held_out,
        }
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name in written or not value:
                continue
            if isinstance(value, Mapping):
                written[name] = dict(cast("Mapping[str, Any]", value))
            elif isinstance(value, tuple):
                items = cast("tuple[Any, ...]", value)
                written[name] = [
                    {"run": item.run} if isinstance(item, Script) else item for item in items
                ]
            else:
                written[name] = value
        return written

    @cached_property
    def needs_sandbox(self) -> bool:
        return any(named.check.needs_sandbox for named in self.checks)

    @property
    def text(self) -> str:
        """All text of the case, to look up whether it mentions something."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def evidence_of(self, trace: Trace, **more: Any) -> Evidence:
        return Evidence(trace, self.prompt, reference=self.reference, **more)

    @cached_property
    def delivered(self) -> Outputs:
        """Which paths come from the student."""
        named = [path for check in self.checks for path in check.check.paths]
        if self.output_file:
            named.append(self.output_file)
        if self.outputs is not None:
            return Outputs((*self.outputs, *named))
        brought = [*self.files, *self.tests]
        brought += [path for check in self.checks for path in check.check.own_files]
        return Outputs((*self.files, *named, ALL), ("-*", *settings_of(brought)))

    @cached_property
    def kept_files(self) -> dict[str, str]:
        """The files that are the case's own, whatever the student did with them."""
        return {path: text for path, text in self.files.items() if path not in self.delivered}

    @property
    def fingerprint(self) -> str:
        """A hash of what decides an outcome; tags and the split do not."""
        decides: list[Any] = [
            self.prompt,
            dict(self.files),
            [[named.name, named.config] for named in self.checks],
        ]
        if any(named.check.needs_reference for named in self.checks):
            decides.append(self.reference)
        if self.output_file:
            decides.append({"output_file": self.output_file})
        if self.gpu:
            decides.append({"gpu": True})
        if self.tests:
            decides.append({"tests": dict(self.tests)})
        if self.outputs is not None:
            decides.append({"outputs": self.outputs})
        if self.mcp_servers:
            decides.append({"mcp_servers": dict(self.mcp_servers)})
        if not all(named.check.decides for named in self.checks):
            decides.append("beside the outcome")  # they were part of it once
        if revised := {
            named.name: named.check.revision for named in self.checks if named.check.revision
        }:
            decides.append(revised)
        return digest(decides)


Reading = Literal[
    "material", "skill", "task", "memory"
]  # by the writer of a case, together with the task
READ = "read"  # in the metadata of a case that a model wrote
FAILED_BY = (
    "failed_by"  # beside it: the student that failed the case without the skill, and so chose it
)
LOOK_UP = "look_up"  # beside it: words that its writer had read are all that it asks for
_READINGS = {
    "material": "from the task and its material, without the skill",
    "skill": "after reading the skill",
    "task": "from the task and its own memory, without the skill",
    "memory": "after reading a skill that a model wrote from memory",
}


def count_authors(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Who wrote cases, and what they had read, from the metadata of the cases; empty where none says so."""
    counts: dict[tuple[str, str], list[bool]] = {}
    for each in cases:
        counts.setdefault((str(each.get("author") or ""), str(each.get(READ) or "")), []).append(
            bool(each.get(LOOK_UP))
        )
    rows = [
        {"author": author, "read": read, "cases": len(of_author), "look_up": sum(of_author)}
        for (author, read), of_author in counts.items()
    ]
    return rows if any(row["read"] for row in rows) else []


def are_from_memory(cases: Iterable[Mapping[str, Any]]) -> bool:
    """Whether most cases are a model's memory, as their skill is: neither can show that the other is right."""
    from_memory = [each.get(READ) in ("task", "memory") for each in cases]
    return 2 * sum(from_memory) > len(from_memory)


def describe_authors(cases: Iterable[Mapping[str, Any]]) -> str:
    rows = count_authors(cases)
    parts = [
        f"{counted(row['cases'], 'case')} by {row['author'] or 'people'}"
        + (f" {_READINGS[row['read']]}" if row["read"] in _READINGS else "")
        for row in rows
    ]
    look_ups, count = sum(row["look_up"] for row in rows), sum(row["cases"] for row in rows)
    share = (
        f" Look-ups (they only ask for words from the source): {look_ups} of {count}."
        if look_ups
        else ""
    )
    return f"Written: {'; '.join(parts)}.{share}" if parts else ""


@dataclass(frozen=True)
class Suite:
    cases: tuple[Case, ...]
    source: str = ""
    # How long an answer may be, in cases that do not say; one that is cut off there has failed.
    max_output_tokens: int | None = None
    warnings: tuple[str, ...] = ()
    notes: Notes | None = field(
        default=None, compare=False, repr=False
    )  # where it was in the format of another tool
    part: Part | None = None  # the cases were chosen from more

    def __repr__(self) -> str:
        return f"Suite({self.source!r}, {counted(len(self.cases), 'case')})"

    @classmethod
    def load(cls, path: str | Path) -> Suite:
        """From a file, or from a folder in which another tool keeps its cases."""
        if (paths := Folder.of(Path(path))) and recognize(paths):
            return cls.parse(paths, str(path), FilesOfFolders((Path(path).absolute(),)))
        hint = "Pass a YAML, JSON or CSV file, or a folder with cases for `claude plugin eval`, Tessl or Harbor."
        if os.path.isdir(path):  # noqa: PTH112 - any name will do
            raise UsageError(f"{path}: not a folder that test cases can be read from", hint)
        data = read_input(path, most=MAX_SUITE_BYTES, hint=hint)
        folder = Path(path).absolute().parent
        inside = folder.name in ("evals", ".upskill", "tasks")
        return cls.read(
            data, str(path), FilesOfFolders((folder.parent if inside else folder, folder))
        )

    @classmethod
    def of(cls, skill: Skill) -> Suite | None:
        """The suite in a skill's folder; None without one."""

        for path in PATHS_IN_SKILL:
            if (data := skill.read(path)) is None:
                continue
            where = str(skill.folder / path) if skill.folder else path
            decoded = decode(data, where)
            if path == "skill_meta.json":
                meta = mapping_or_empty(decoded)
                tests = meta.get("tests") or meta.get("cases")
                return cls.parse({"tests": tests}, where, FilesOfSkill(skill)) if tests else None
            return cls.parse(decoded, where, FilesOfSkill(skill))
        return None

    @classmethod
    def required(cls, skill: Skill) -> Suite:
        """UsageError if the skill has no test cases."""
        if (suite := cls.of(skill)) is None:
            raise UsageError(
                f"{skill.folder or skill.name}: no test cases", "`upskill tests SKILL` writes some."
            )
        return suite

    @classmethod
    def read(cls, data: bytes, where: str, read_file: ReadFile | None = None) -> Suite:
        return cls.parse(decode(data, where), where, read_file)

    @classmethod
    def parse(cls, data: object, where: str = "suite", read_file: ReadFile | None = None) -> Suite:
        """A suite from plain data, in any of the shapes this module reads."""
        check_sound(data, where)
        notes: Notes | None = None
        if name := recognize(data):
            notes = Notes()
            own = {key: value for key, value in mapping_or_empty(data).items() if key in OWN_FIELDS}
            data = convert(name, Source(data, where, read_file, notes)) | own
        file = _read_file(data, where)
        shared: list[SuiteCheck] = []
        for number, item in enumerate(file.checks):
            location = f"{where}: checks[{number}]"
            shared += read_checks(item, location, text_reader(read_file, location))
        common = _plain_servers(file.mcp_servers)
        warnings: list[str] = list(notes.warnings(where)) if notes else []
        read: list[tuple[Case, bool | None]] = []
        problems, made_ids = ErrorCollector(), dict[str, object]()
        for number, item in enumerate(file.cases, start=1):
            label = str(number)
            if isinstance(id := mapping_or_empty(item).get("id"), str):  # noqa: A001
                label += f" ({short(id)})"
            with problems.collect(label):
                case, side = _read_case(
                    item, f"{where}: case {label}", shared, read_file, warnings, made_ids
                )
                read.append((replace(case, mcp_servers={**common, **case.mcp_servers}), side))
        problems.raise_any()
        if not read:
            raise UsageError(f"{where}: no cases", "Add at least one case.")
        sides = split((case.id, side) for case, side in read)
        cases = tuple(
            replace(case, held_out=side) for (case, _), side in zip(read, sides, strict=True)
        )
        numbers: dict[str, int] = {}
        for number, case in enumerate(cases, start=1):
            if (first := numbers.setdefault(case.id, number)) != number:
                raise UsageError(
                    f"{where}: cases {first} and {number} have the same id {case.id!r}",
                    "Give each case its own id.",
                )
        warnings += _risks(cases)
        return cls(cases, where, file.max_output_tokens, tuple(warnings), notes)

    @cached_property
    def fingerprint(self) -> str:
        return digest([[case.id, case.fingerprint, case.held_out] for case in self.cases])

    @cached_property
    def by_id(self) -> dict[str, Case]:
        return {case.id: case for case in self.cases}

    @property
    def held_out(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.held_out)

    @property
    def train(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if not case.held_out)

    def to_dict(self) -> dict[str, Any]:
        limit = {"max_output_tokens": self.max_output_tokens} if self.max_output_tokens else {}
        return {"cases": [case.to_dict() for case in self.cases], **limit}


# A home that is not delivered: checks have an empty one of their own.
_OF_HOME = re.compile(
    r"(?:^|[\s=\"'(:])~/|\$\{?HOME\b|\bconfig --global\b|/home/student\b", re.MULTILINE
)


def _risks(cases: Iterable[Case]) -> Iterator[str]:
    """What a student could fake, or leave where no check looks: each risk once, with its cases."""
    by_risk: dict[str, list[str]] = {}
    for case in cases:
        for risk in dict.fromkeys(_risks_of(case)):
            by_risk.setdefault(risk, []).append(case.id)
    for risk, ids in by_risk.items():
        more = ", …" if len(ids) > 3 else ""
        yield f"{'case' if len(ids) == 1 else f'{len(ids)} cases'} {', '.join(map(repr, ids[:3]))}{more}: {risk}"


def _risks_of(case: Case) -> Iterator[str]:
    programs = "\n".join(named.check.program for named in case.checks)
    if _OF_HOME.search(programs) and "HOME=" not in programs:
        yield (
            "a check looks into the home folder, which is not delivered; have the work done in the"
            " workspace"
        )
    used = [path for path in case.files if path not in case.tests and _uses(programs, path)]
    if case.outputs is None and used:
        names = ", ".join(used)
        yield (
            f"a check uses {listed(used)}, which the student can change: write `tests: [{names}]`"
            f" for what decides, and `outputs: [{names}]` for what is the student's work"
        )


def _uses(program: str, path: str) -> bool:
    """Whether a program names this file, or could import it."""
    name = PurePosixPath(path)
    words = [re.escape(name.name)]
    if name.suffix in (".py", ".js", ".ts", ".mjs"):
        words.append(rf"{re.escape(name.stem)}(?!\.\w)")
    return re.search(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", program) is not None


def _read_case(
    item: object,
    where: str,
    shared: list[SuiteCheck],
    read_file: ReadFile | None,
    warnings: list[str],
    made_ids: dict[str, object],
) -> tuple[Case, bool | None]:
    fields = as_mapping(item)
    if fields is None:
        raise UsageError(
            f"{where}: expected a case, got {short(item)}", "A case needs a prompt and checks."
        )
    if "input" in fields:
        ours = from_upstream(fit(UpstreamCase, fields, where), where, warnings)
    else:
        ours = fit(OurCase, fields, where)
    read_text = text_reader(read_file, where)
    own: list[SuiteCheck] = []
    problems = ErrorCollector()
    for check in ours.checks:
        with problems.collect():
            own += read_checks(check, where, read_text)
    problems.raise_any()
    checks = (*own, *shared)
    if any(named.check.needs_reference for named in checks) and not ours.reference.strip():
        raise UsageError(
            f"{where}: a check needs a reference, but there is none",
            "Add a `reference:` with an answer to compare against.",
        )
    if not checks:
        raise UsageError(
            f"{where}: no checks", "Say what a right answer contains, for example `contains: text`."
        )
    if not any(named.check.decides for named in checks):
        raise UsageError(
            f"{where}: {checks[0].name} cannot be the only check: only the skill arm can open a skill",
            "Add a check on the answer or the work. To test when a skill is opened, use `upskill trigger`.",
        )
    if not ours.prompt.strip():
        raise UsageError(f"{where}: the prompt is empty")
    tests = _read_tests(ours, where)
    output_file = [ours.output_file] if ours.output_file else []
    for name in [*ours.files, *tests, *(ours.outputs or []), *output_file]:
        check_path(name, where)
    if len({PurePosixPath(name) for name in ours.files}) < len(ours.files):
        raise UsageError(
            f"{where}: two of the `files` are the same file",
            "Write each path in one way, without `./`.",
        )
    id = str(_made_id(ours, made_ids) if ours.id is None else ours.id).strip()  # noqa: A001
    if not id or len(id) > 200 or not id.isprintable():
        raise UsageError(
            f"{where}: {short(id)} is not a valid id", "Use 1 to 200 printable characters."
        )
    values: dict[str, Any] = {
        name: value if (items := as_list(value)) is None else tuple(items) for name, value in ours
    }
    values |= {"id": id, "checks": checks, "held_out": bool(ours.held_out), "tests": tests}
    values["mcp_servers"] = _plain_servers(ours.mcp_servers)
    return Case(**values), ours.held_out


def _read_tests(case: OurCase, where: str) -> dict[str, str]:
    """Tests that students may see are a list: they lie in `files`, too."""
    if isinstance(case.tests, dict):
        return case.tests
    for path in case.tests:
        if path not in case.files:
            raise UsageError(
                f"{where}: tests: {path!r} is not in `files`",
                "List files of the case, or map names to text.",
            )
    return {path: case.files[path] for path in case.tests}


def _plain_servers(servers: Mapping[str, McpServer]) -> dict[str, Mapping[str, Any]]:
    return {name: server.model_dump(exclude_defaults=True) for name, server in servers.items()}


def _made_id(case: OurCase, made_ids: dict[str, object]) -> str:
    """From what is asked, so it stays when checks change. Only a second case that asks the same has them in its id."""
    asked = digest([case.prompt, case.files])
    made = make_id(case.prompt, asked)
    is_other = made_ids.setdefault(made, case.checks) != case.checks
    return make_id(case.prompt, digest([asked, case.checks])) if is_other else made


def _read_file(data: object, where: str) -> OurSuite:
    """The cases with what is said of all of them, whatever their list is called."""
    mapping: dict[str, Any] = (
        {"cases": data} if as_list(data) is not None else mapping_or_empty(data)
    )
    keys = [key for key in LISTS if key in mapping]
    if len(keys) != 1:
        raise UsageError(
            f"{where}: not a suite",
            "A suite is a list of cases, or a mapping with a list under `cases:`. upskill also reads promptfoo,"
            " inspect_ai and skill-creator files, and CSV with `prompt,expected`.",
        )
    cases = mapping.pop(keys[0])
    if as_list(cases) is None:
        raise UsageError(f"{where}: {keys[0]} is not a list of cases")
    return fit(OurSuite, {**mapping, "cases": cases}, where)


_UNSEEN = re.compile(
    "[\x80-\x9f\u2028\u2029\ufeff]"
)  # what YAML takes for text or a line break; escaped in quotes


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and all(line == line.rstrip() for line in text.splitlines())
    style = '"' if _UNSEEN.search(text) else "|" if block else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(suite: Suite) -> str:
    """The suite file, with what was left out or changed at the top."""
    return "".join(f"# {line}\n" for line in _remarks(suite)) + yaml_of(suite.to_dict())


def yaml_of(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _remarks(suite: Suite) -> list[str]:
    notes = suite.notes
    if notes is None:
        return [printable(f"From {suite.source}.")]
    lines = [f"From {suite.source} ({notes.title}): {notes.summary}."]
    for title, items in (("Changed", list(notes.changed())), ("Left out", list(notes.left_out()))):
        lines += [f"{title}:", *(f"  {item}" for item in items)] if items else []
    lines += [f"Fields {notes.metadata}."] if notes.metadata else []
    return [printable(line) for line in lines]


def suite_fingerprint(skill: Skill) -> str | None:
    """Of its own suite; empty if that cannot be read. None without one: an installed copy has none."""
    try:
        suite = Suite.of(skill)
    except UsageError:
        return ""
    return suite.fingerprint if suite else None
