"""Every command and file that Hugging Face's upskill published, as it is written there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from pathlib import Path

import pytest

from conftest import Done, Upskill, serving
from loopback import Call, Loopback
from teaching import draft, fact, insert, student_rules, teacher_rules
from upskill import Config, Settings, Skill, Suite
from upskill.authoring.saving.provenance import Provenance
from upskill.cli.help import UNKNOWN_FLAGS

HERE = "http://localhost:8080/v1"  # in the article; the test's server listens elsewhere
GLM = "unsloth/GLM-4.7-Flash-GGUF:Q4_0"
HAIKU, SONNET, OPUS = "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"
KIMI = "moonshotai/Kimi-K2-Thinking"
# What upskill.config.yaml of its second version may hold.
SECOND_SETTINGS = """\
auto_eval: true
executor: jobs
num_runs: 2
max_parallel: 5
jobs_secrets: HF_TOKEN,ANTHROPIC_API_KEY
jobs_image: ghcr.io/astral-sh/uv:python3.13-bookworm
fastagent_config: ./fastagent.config.yaml
cli_providers:
  claude-code: {timeout: 600}
"""
# Without it, the student is the embedded model, whose weights would have to be downloaded.
SETTINGS = "eval_model: haiku\nmax_refine_attempts: 1\n"
CASES = [
    {
        "input": "Create a build.toml for a CUDA kernel targeting H100",
        "expected": {"contains": "9.0"},
    },
    {
        "input": "Write a basic CUDA kernel template with proper includes",
        "expected": {"contains": "cuda_runtime.h"},
    },
]
METADATA = {
    "version": "1.0",
    "generated_by": "sonnet",
    "generated_at": "2026-01-22T13:10:30.193750Z",
    "source_task": "build optimized CUDA kernels",
    "test_pass_rate": 1.0,
    "license": None,
    "compatibility": None,
}
RULES = [
    *teacher_rules(draft([1, 2]), [insert(fact(4))]),
    {"when": "H100", "system": "# Building", "answer": 'capabilities = ["9.0"]'},
    {"when": "template", "system": "# Building", "answer": "#include <cuda_runtime.h>"},
    *student_rules(),
]


def answer(call: Call) -> str:
    """A teacher who knows a ship, and students who know what the skill says."""
    for rule in RULES:
        if rule.get("system", "") in call.system and rule.get("when", "") in call.prompt:
            return str(rule.get("answer") or rule["answers"][0])
    raise AssertionError(call)


def write_published_skill(folder: Path, meta: object) -> None:
    """A skill as Hugging Face's upskill writes one."""
    folder.mkdir(parents=True)
    head = (
        f"---\nname: {folder.name}\ndescription: Build optimized CUDA kernels for PyTorch.\n---\n\n"
    )
    body = "# Building CUDA kernels\n\nAn H100 has the compute capability 9.0.\n"
    (folder / "SKILL.md").write_text(head + body, encoding="utf-8")
    (folder / "skill_meta.json").write_text(json.dumps(meta), encoding="utf-8")


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Loopback]:
    """One server for all providers, in a folder with what the commands name."""
    (home / "trace.md").write_text("# Session\n\nThe port of the ship is Lisbon.\n", "utf-8")
    (home / "trace.json").write_text('[{"role": "user", "content": "Which port?"}]', "utf-8")
    (home / "tests.json").write_text(json.dumps(CASES), "utf-8")
    tool = {"name": "sail", "description": "Sails.", "inputSchema": {"type": "object"}}
    (home / "tools.json").write_text(json.dumps({"tools": [tool]}), "utf-8")
    write_published_skill(home / "skills/my-skill", {"metadata": METADATA, "tests": CASES})
    write_published_skill(home / "skills/kernel-builder-cuda-kernels", {"cases": CASES})
    (home / "upskill.config.yaml").write_text(SETTINGS, "utf-8")
    with serving(answer) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.root)
        monkeypatch.setenv("HF_BASE_URL", server.url)
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        for key in ("ANTHROPIC_API_KEY", "HF_TOKEN"):
            monkeypatch.setenv(key, "sk-planted")
        yield server


def type_in(upskill: Upskill, server: Loopback, line: str) -> Done:
    program, *words = shlex.split(line)
    assert program == "upskill"
    return upskill(*(server.url if word == HERE else word for word in words))


CUDA = "./skills/kernel-builder-cuda-kernels/"
# The models that are asked.
ARTICLE = {
    'upskill generate "write nvidia kernels" --from ./trace.md': {SONNET, HAIKU},
    "upskill eval ./skills/my-skill/ --model haiku --model sonnet": {HAIKU, SONNET},
    f'upskill generate "parse YAML" --model opus --eval-model "{GLM}" --eval-base-url {HERE}': {
        OPUS,
        GLM,
    },
    'upskill generate "build optimized CUDA kernels for PyTorch using HuggingFace kernel-builder"': {
        SONNET,
        HAIKU,
    },
    f'upskill generate "add more error handling and edge cases" --from {CUDA}': {SONNET, HAIKU},
    f'upskill eval ./skills/my-skill/ --model "{GLM}" --base-url {HERE}': {GLM},
    f"upskill eval {CUDA} --model haiku --m kimi --runs 5": {HAIKU, KIMI},
}
# Every option of upstream's, and the rest of its README.
README = {
    'upskill generate "write good git commit messages" --model sonnet --eval-model haiku': {
        SONNET,
        HAIKU,
    },
    'upskill generate "add examples" --from ./skills/my-skill/ -m opus': {OPUS, HAIKU},
    'upskill generate "document the pattern" --from ./trace.json': {SONNET, HAIKU},
    'upskill generate "parse YAML" --no-eval': {SONNET},
    "upskill generate sail -e 'hoist -> hoisted' -e 'reef -> reefed' --tool tools.json#sail"
    " -m opus --test-gen-model sonnet -o ./skills/sailing --runs-dir ./my-runs --log-runs": {
        OPUS,
        SONNET,
        HAIKU,
    },
    "upskill generate sail -f trace.md --no-log-runs": {SONNET, HAIKU},
    "upskill eval ./skills/my-skill/": {HAIKU},
    "upskill eval ./skills/my-skill/ -v -m haiku --no-baseline": {HAIKU},
    "upskill eval ./skills/my-skill/ --tests ./tests.json -m anthropic.claude-sonnet-4-20250514": {
        "claude-sonnet-4-20250514"
    },
    "upskill eval ./skills/my-skill/ -m generic.llama3.2:latest --runs-dir ./my-runs": {
        "llama3.2:latest"
    },
    "upskill eval ./skills/my-skill/ --test-gen-model opus --no-log-runs": {HAIKU},
    "upskill benchmark ./skills/my-skill/ -m haiku -m kimi -t tests.json -o ./results -v": {
        HAIKU,
        KIMI,
    },
}


@pytest.mark.parametrize("line", [*ARTICLE, *README])
def test_published_commands_run_as_written(upskill: Upskill, server: Loopback, line: str) -> None:
    done = type_in(upskill, server, line)
    assert done.code == 0, done.err
    assert set(server.calls) == (ARTICLE | README)[line]


LISTS = {
    "upskill list": "my-skill",
    "upskill list -d ./skills/ -v": "skill_meta.json",
    "upskill runs": "my-skill",
    "upskill runs --skill my-skill": "my-skill",
    "upskill runs -s my-skill -m haiku -m sonnet --metric success": "haiku",
    "upskill runs --model haiku --metric tokens": "haiku",
    "upskill runs -d ./runs --csv ./results.csv": "results.csv",
    "upskill plot": "my-skill",
    "upskill plot -s my-skill -m haiku --metric success --csv ./results.csv": "results.csv",
}


def test_runs_and_skills_are_listed_as_published(upskill: Upskill, server: Loopback) -> None:
    assert type_in(upskill, server, "upskill eval ./skills/my-skill -m haiku -m sonnet").code == 0
    for line, shown in LISTS.items():
        done = type_in(upskill, server, line)
        assert done.code == 0, (line, done.err)
        assert shown in done.out + done.err, line
    assert Path("results.csv").read_text("utf-8").count("haiku") == 1


def test_benchmark_runs_each_case_three_times(upskill: Upskill, server: Loopback) -> None:
    assert type_in(upskill, server, "upskill benchmark ./skills/my-skill -m haiku").code == 0
    assert server.calls == {HAIKU: 2 * 3 * len(CASES) + 2}  # two find out whether it has a cache


def test_a_key_of_anthropic_means_sonnet_and_is_said_with_the_estimate(
    upskill: Upskill, server: Loopback
) -> None:
    command = 'upskill generate "write nvidia kernels" --from ./trace.md --no-eval'
    limited = type_in(upskill, server, f"{command} --max-cost 0.000001")
    assert limited.code == 3
    assert "upskill: the limit of $1e-06 was reached" in limited.err
    done = type_in(upskill, server, command)
    told = "No teacher given: using sonnet, as ANTHROPIC_API_KEY is set. Choose another with -m."
    assert f"{told}\nEstimate: " in done.err


def test_without_a_teacher_the_whole_handoff_command_is_printed(
    upskill: Upskill, home: Path
) -> None:
    (home / "trace.md").write_text("# Session\n\nThe port of the ship is Lisbon.\n", "utf-8")
    done = upskill("generate", "write nvidia kernels", "--from", "./trace.md")
    assert done.code == 2
    command = "upskill generate 'write nvidia kernels' --from ./trace.md --handoff handoff"
    assert f"`{command}`" in done.err
    assert upskill(*shlex.split(command)[1:]).code == 0
    assert list((home / "handoff").iterdir())


def test_a_skill_of_upstream_is_improved_without_consent_and_kept(
    upskill: Upskill, server: Loopback, home: Path
) -> None:
    before = (home / "skills/my-skill/SKILL.md").read_text("utf-8")
    line = 'upskill generate "add more error handling and edge cases" --from ./skills/my-skill/'
    done = type_in(upskill, server, line)
    assert done.code == 0, done.err
    assert fact(4) in (home / "skills/my-skill/SKILL.md").read_text("utf-8")
    (kept,) = (home / "skills/.previous/my-skill").iterdir()
    assert (kept / "SKILL.md").read_text("utf-8") == before
    assert f"The previous version is in skills/.previous/my-skill/{kept.name}." in done.err
    again = Skill.load("skills/my-skill")
    assert Suite.required(again).source.endswith("evals.json")
    assert Provenance.of(again).tests == []


def test_the_second_configuration_file_is_read_or_named_in_one_line(
    upskill: Upskill, server: Loopback, home: Path
) -> None:
    file = home / "upskill.config.yaml"
    file.write_text(SETTINGS + SECOND_SETTINGS, "utf-8")
    done = type_in(upskill, server, "upskill eval ./skills/my-skill")
    assert done.code == 0
    (told,) = [line for line in done.err.splitlines() if "not used here" in line]
    unused = "executor, fastagent_config, jobs_image, jobs_secrets"
    assert told == f"upskill.config.yaml: not used here: auto_eval, cli_providers, {unused}."
    assert server.calls == {HAIKU: 2 * 2 * len(CASES) + 2}
    assert (Config.load().repeats, Config.load().concurrency) == (2, 5)
    file.write_text(f"{SETTINGS}executor: local\nnum_runs: null\nmax_parallel: null\n", "utf-8")
    assert (Settings.load().unused, Settings.load().concurrency) == ((), 8)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("eval ./skills/my-skill --executor jobs", "there is no --executor jobs. "),
        ("eval ./skills/my-skill --max-parallel 4", "there is no --max-parallel. `--concurrency` "),
        (
            "eval ./skills/my-skill --artifact-repo=me/runs",
            "there is no --artifact-repo. `--store` ",
        ),
        *(
            (f"eval ./skills/my-skill -m haiku {flag} x", f"there is no {flag}. ")
            for flag in UNKNOWN_FLAGS
        ),
        ("eval ./skills/my-skill -m cli.copilot", "'cli.copilot': no such command-line agent. "),
        ("generate sail -m cli.kiro", "'cli.kiro': no such command-line agent. "),
        ("delete my-skill", "there is no `delete`. "),
    ],
)
def test_unreleased_words_are_answered_in_one_line(
    upskill: Upskill, server: Loopback, words: str, told: str
) -> None:
    done = upskill(*words.split())
    assert (done.code, done.out, server.calls) == (2, "", {})
    assert done.err.startswith(f"upskill: {told}")
    assert done.err.count("\n") == 1
