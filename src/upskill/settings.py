"""Settings come from `upskill.config.yaml`: defaults for what the command line leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input_text
from upskill.plain import as_mapping, read_yaml, short, yaml_words

FILE = "upskill.config.yaml"
DEFAULT_STORE = "./runs"
OLDER_NAMES = {
    "skill_generation_model": "teacher",
    "model": "teacher",
    "eval_model": "student",
    "test_gen_model": "test_writer",
    "runs_dir": "store",
    "num_runs": "repeats",
    "max_parallel": "concurrency",
}
# Settings of Hugging Face's upskill that mean nothing here.
UNUSED = (
    "auto_eval",
    "cli_providers",
    "executor",
    "fastagent_config",
    "jobs_image",
    "jobs_secrets",
)


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0, description="Read from a cache.")
    written: float | None = Field(default=None, ge=0, description="Written to a cache.")


def _setting(default: Any, description: str, **limits: Any) -> Any:
    return Field(default=default, description=description, **limits)


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True, allow_inf_nan=False)

    teacher: str | None = _setting(None, "The model that writes skills in `generate` and `teach`.")
    student: str | None = _setting(None, "The model that is tested; without one, `local`.")
    test_writer: str | None = _setting(None, "Writes test cases; without one, the teacher does.")
    judge: str | None = _setting(None, "Grades cases with `judge` checks.")
    skills_dir: str = _setting(
        "./skills", "Where `generate` saves skills, and `list` looks for them."
    )
    store: str = _setting(DEFAULT_STORE, "Where runs are kept: a folder, or a postgresql:// URL.")
    log_runs: bool = _setting(True, "Keep runs in the store; false discards them.")
    cache: bool = _setting(True, "Store replies, and answer repeated requests from stored ones.")
    offline: bool = _setting(False, "Download nothing.")
    max_refine_attempts: int = _setting(1, "How many times the teacher may improve a skill.", ge=0)
    repeats: int | None = _setting(
        None, "How many times `eval` runs each case (default: 1, in `benchmark` 3).", ge=1
    )
    concurrency: int = _setting(8, "Requests at a time per model.", ge=1)
    timeout: float = _setting(300, "Seconds per request.", gt=0)
    servers: int = _setting(
        0, "Servers per embedded model; 0: one per core, if memory allows.", ge=0
    )
    confirm_above: float = _setting(1.0, "US dollars that upskill spends without asking.", ge=0)
    max_tokens: int | None = _setting(None, "Stop at this many tokens.", ge=0)
    max_calls: int | None = _setting(None, "Stop at this many calls.", ge=0)
    prices: dict[str, Price] = Field(
        default_factory=dict[str, Price],
        description="Prices of models whose price is unknown, or different for you.",
    )
    max_output_tokens: int | None = _setting(
        None,
        "Most tokens per answer; an answer that is cut off fails. If neither this nor the suite sets a limit, it is "
        "4096, or for embedded models whatever the case needs, but at least 256.",
        ge=1,
    )
    temperature: float | None = _setting(
        None, "For students (default: 0.7, or 0 for those that answer each case once).", ge=0, le=2
    )
    tolerance: float = _setting(
        20.0,
        "Points of the pass rate that do not matter: for `saves`, `no effect` and the marks of `ci`.",
        gt=0,
        le=100,
    )
    target_pass_rate: float | None = _setting(
        None,
        "Name the cheapest model that passes at least this percentage of trials.",
        ge=0,
        le=100,
    )
    making_cost: float | None = _setting(
        None, "US dollars it cost to make the skill (default: from skill_meta.json).", ge=0
    )
    strict_suite: bool = _setting(
        False, "Refuse a suite with a case that an uninformed answer passes."
    )
    gpu: bool = _setting(
        False, "Give sandboxes the NVIDIA GPU, like `gpu: true` in a case; trials take turns."
    )
    mcp_hosts: list[str] = _setting(
        [], "Hosts that a suite's MCP servers may reach, such as `api.example.com`."
    )
    max_turns: int | None = _setting(
        None, "Turns per agent trial (default: 20; for a teacher 60, in `trigger` 3).", ge=1
    )
    trial_tokens: int | None = _setting(None, "Tokens per agent trial.", ge=1)
    trial_timeout: float | None = _setting(
        None, "Seconds per agent trial (default: 600; for a teacher 1800).", gt=0
    )
    ray_address: str = _setting(
        "", "Ray cluster to join (default: RAY_ADDRESS, or a new one on this machine)."
    )
    trial_cpus: float | None = _setting(None, "With Ray: CPUs per trial (default 1).", ge=0)
    trial_gpus: float | None = _setting(None, "With Ray: GPUs per trial.", ge=0)
    trial_memory: float | None = _setting(None, "With Ray: megabytes of memory per trial.", ge=0)
    _source: str = ""
    _unused: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _accept_older_names(cls, fields: Any) -> Any:
        if (settings := as_mapping(fields)) is None:
            return fields
        for older, name in OLDER_NAMES.items():
            value = settings.pop(older, None)
            if value is not None:
                settings.setdefault(name, value)
        return settings

    @property
    def source(self) -> str:
        """The file these came from; empty without one."""
        return self._source

    @property
    def unused(self) -> tuple[str, ...]:
        """The keys of that file that upskill has no use for."""
        return self._unused

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ, here: str | Path = ".") -> Settings:
        """The first of $UPSKILL_CONFIG, ./upskill.config.yaml and ~/.config/upskill/config.yaml; else the defaults.

        $UPSKILL_STORE overrides the `store` of any of them: put a URL with a password there.
        """
        usual = Path(environment.get("HOME", "~")).expanduser() / ".config"
        folders = (environment.get("XDG_CONFIG_HOME") or usual, usual)
        paths = (
            Path(here) / FILE,
            *(Path(folder) / "upskill" / "config.yaml" for folder in folders),
        )
        named = environment.get("UPSKILL_CONFIG")
        path = (
            Path(named) if named else next(filter(os.path.isfile, paths), None)
        )  # which never raises
        # The defaults need no validator.
        settings = cls.model_construct() if path is None else cls.read(path)
        location = environment.get("UPSKILL_STORE")
        return settings.model_copy(update={"store": location}) if location else settings

    @classmethod
    def read(cls, path: Path) -> Settings:
        try:
            content = read_yaml(read_input_text(path, hint="Check UPSKILL_CONFIG."))
        except yaml.YAMLError as error:
            raise UsageError(f"{path}: {yaml_words(error)}") from error
        fields = as_mapping({} if content is None else content)
        if fields is None:
            raise UsageError(f"{path}: must consist of `setting: value` lines")
        unused = [key for key in UNUSED if fields.pop(key, None) not in (None, "local")]
        settings = cls._validate(fields, f"{path}: ")
        settings._source = str(path)
        settings._unused = tuple(unused)
        return settings

    def changed(self, assignments: Iterable[str]) -> Settings:
        """From `--set KEY=VALUE`."""
        fields = self.model_dump(exclude_unset=True)
        for text in assignments:
            key, _, value = text.partition("=")
            if not value.strip():
                raise UsageError(
                    f"--set {text}: the value is missing",
                    f"For example: --set {key.strip() or 'max_calls'}=500",
                )
            try:
                fields[OLDER_NAMES.get(key.strip(), key.strip())] = read_yaml(value)
            except yaml.YAMLError as error:
                raise UsageError(f"--set {text}: {yaml_words(error)}") from error
        return self._validate(fields, "--set: ")

    @classmethod
    def _validate(cls, fields: Mapping[str, Any], origin: str) -> Settings:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise UsageError(
                    f"{origin}no setting named {key!r}", did_you_mean(key, cls.model_fields)
                ) from error
            value = (
                "" if key == "store" else f", not {short(first['input'])}"
            )  # which may hold a password
            raise UsageError(f"{origin}{key}: {first['msg']}{value}") from error


class Config(Settings):
    """Settings under upstream's names."""

    def __getattr__(self, name: str) -> Any:
        if name not in OLDER_NAMES:
            raise AttributeError(f"no setting named {name!r}")
        return getattr(self, OLDER_NAMES[name])
