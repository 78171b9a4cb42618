"""The table of real agents: its rows load, and everything that upskill knows of an agent comes from its row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import pytest

from conftest import Upskill
from upskill.agents import AGENTS, ExternalAgent
from upskill.agents.program import ProgramAgent
from upskill.models.addresses import resolve
from upskill.models.command import Command
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec
from upskill.skills.install import TARGETS
from upskill.traces import FORMATS
from upskill.traces.formats import Format
from upskill.traces.sessions import SESSION_AGENTS

SPECS = list(AGENT_SPECS.values())
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


@every_spec
def test_the_code_that_a_row_names_is_there_and_found_under_its_name(spec: AgentSpec) -> None:
    if spec.agent:
        kind = AGENTS.load(spec.name)
        assert issubclass(kind, ProgramAgent)
        assert kind.spec is spec
        assert isinstance(kind(), ExternalAgent)
    if spec.model:
        assert isinstance(resolve_name(spec.model), Command)
        assert (resolve(spec.name).provider, resolve(spec.name).endpoint) == ("command", spec.name)
    if spec.trace_reader:
        assert isinstance(FORMATS.load(spec.trace_format), Format)
    assert bool(spec.session_files) == (SESSION_AGENTS.get(spec.trace_format) is spec)
    assert bool(spec.user_skills) == (TARGETS.get(spec.name) is spec)


@every_spec
def test_a_row_is_complete(spec: AgentSpec) -> None:
    assert all([spec.program, spec.install, spec.log_in]) or not any(
        [spec.program, spec.install, spec.log_in]
    )
    assert bool(spec.program) == bool(spec.agent or spec.model)
    assert bool(spec.trace_format) == bool(spec.trace_reader)
    assert not spec.session_files or (spec.folder and spec.trace_format)
    assert not spec.moved_folder or spec.moved_folder.startswith("$")


def test_no_two_agents_share_a_name() -> None:
    names = [
        name for spec in SPECS for name in {spec.name, spec.trace_format, *spec.aliases} - {""}
    ]
    assert len(names) == len(set(names))


def test_a_variable_moves_the_folder_of_an_agent() -> None:
    moved = {"HOME": "/home/ada", "CODEX_HOME": "/codex", "XDG_DATA_HOME": "/data"}
    here = {"HOME": "/home/ada"}
    folders = {
        name: (AGENT_SPECS[name].folder_in(here), AGENT_SPECS[name].folder_in(moved))
        for name in SESSION_NAMES
    }
    assert folders == {
        "codex": (Path("/home/ada/.codex"), Path("/codex")),
        "opencode": (Path("/home/ada/.local/share/opencode"), Path("/data/opencode")),
        "gemini-cli": (Path("/home/ada/.gemini"), Path("/home/ada/.gemini")),
    }


SESSION_NAMES = ("codex", "opencode", "gemini-cli")


def test_doctor_looks_for_every_program_of_the_table_and_its_companion(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setitem(
        AGENT_SPECS, "zed", replace(AGENT_SPECS["opencode"], name="zed", program="zed")
    )
    (home / "zed").write_text("#!/bin/sh\n", encoding="utf-8")
    (home / "zed").chmod(0o755)
    rows = {row["what"]: row["detail"] for row in upskill("doctor", "--json").json}
    assert (
        rows["agent zed"]
        == f"{home / 'zed'} (to run as a student, it also needs ripgrep: apt install ripgrep)"
    )
    assert {f"agent {spec.name}" for spec in SPECS if spec.program} <= set(rows)
