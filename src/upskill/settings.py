"""Settings are what a person wrote into `upskill.config.yaml`: defaults for what is not said on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input_text
from upskill.plain import as_mapping, read_yaml, short, yaml_words

FILE = "upskill.config.yaml"
OLDER_NAMES = {
    "skill_generation_model": "teacher",
    "model": "teacher",
    "eval_model": "student",
    "test_gen_model": "test_writer",
    "judge_model": "judge",
    "runs_dir": "store",
}


class Price(BaseModel):
    """US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0, description="Read from a cache.")
    written: float | None = Field(default=None, ge=0, description="Written into one.")


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True, allow_inf_nan=False)

    teacher: str | None = Field(default=None, description="The model that writes skills in `generate` and `teach`.")
    student: str | None = Field(default=None, description="The model that is tested; without one, `local`.")
    test_writer: str | None = Field(default=None, description="Writes test cases; without one, the teacher does.")
    judge: str | None = Field(default=None, description="Grades cases with `judge` checks.")
    skills_dir: str = Field(default="./skills", description="Where `generate` saves skills, and `list` looks for them.")
    store: str = Field(default="./runs", description="Where runs are kept: a folder, or a postgresql:// URL.")
    log_runs: bool = Field(default=True, description="Keep runs in the store; false: forget them.")
    cache: bool = Field(default=True, description="Store replies, and answer repeated requests from stored ones.")
    offline: bool = Field(default=False, description="Download nothing.")
    max_refine_attempts: int = Field(default=3, ge=0, description="How often the teacher may improve a skill.")
    concurrency: int = Field(default=8, ge=1, description="Requests at a time for each model.")
    timeout: float = Field(default=300, gt=0, description="Seconds for one request.")
    servers: int = Field(
        default=0, ge=0, description="Servers of each embedded model; 0: one per core, as far as memory allows."
    )
    confirm_above: float = Field(default=1.0, ge=0, description="US dollars that are spent without asking.")
    max_tokens: int | None = Field(default=None, ge=0, description="Stop at this many tokens.")
    max_calls: int | None = Field(default=None, ge=0, description="Stop at this many calls.")
    prices: dict[str, Price] = Field(
        default_factory=dict[str, Price], description="Of models whose price is unknown, or different for you."
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Longest answer; one that is cut off has failed. Without this limit or one in the suite it is "
        "4096, and for embedded models what the case needs, at least 256.",
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Of students (default: 0 without repeats, 0.7 with repeats)."
    )
    margin: float = Field(default=5.0, ge=0, le=100, description="A lift of fewer points counts as no effect.")
    scope: Literal["cases", "suite"] = Field(
        default="cases", description="What --until-decided decides about: tasks like these cases, or this exact suite."
    )
    target_pass_rate: float | None = Field(
        default=None, ge=0, le=100, description="Name the cheapest model and arm with this pass rate, in percent."
    )
    making_cost: float | None = Field(
        default=None, ge=0, description="US dollars the skill cost to make (default: as in its skill_meta.json)."
    )
    strict_suite: bool = Field(
        default=False, description="Refuse a suite with a case that a know-nothing answer passes."
    )
    gpu: bool = Field(
        default=False,
        description="Show the NVIDIA GPU in the sandbox, as `gpu: true` of a case does; trials take turns.",
    )
    max_turns: int | None = Field(
        default=None, ge=1, description="Most turns of an agent (default 20; a teacher 60; in `trigger` 3)."
    )
    trial_tokens: int | None = Field(default=None, ge=1, description="Most tokens of an agent in one trial.")
    trial_timeout: float | None = Field(
        default=None, gt=0, description="Most seconds of an agent in one trial (default 600; a teacher 1800)."
    )
    ray_address: str = Field(
        default="", description="Ray cluster to join; without one, RAY_ADDRESS, or one that is started here."
    )
    trial_cpus: float | None = Field(default=None, ge=0, description="With Ray: CPUs that a trial needs (default 1).")
    trial_gpus: float | None = Field(default=None, ge=0, description="With Ray: GPUs that a trial needs.")
    trial_memory: float | None = Field(default=None, ge=0, description="With Ray: megabytes that a trial needs.")
    source: str = ""  # the file these came from

    @model_validator(mode="before")
    @classmethod
    def _accept_older_names(cls, fields: Any) -> Any:
        if (settings := as_mapping(fields)) is None:
            return fields
        for older, name in OLDER_NAMES.items():
            if older in settings:
                settings.setdefault(name, settings.pop(older))
        return settings

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ, here: str | Path = ".") -> Settings:
        """The first of $UPSKILL_CONFIG, ./upskill.config.yaml and ~/.config/upskill/config.yaml; else the defaults.

        $UPSKILL_STORE goes before the `store` of any of them: that is where a URL with a password belongs.
        """
        usual = Path(environment.get("HOME", "~")).expanduser() / ".config"
        folders = (environment.get("XDG_CONFIG_HOME") or usual, usual)
        paths = (Path(here) / FILE, *(Path(folder) / "upskill" / "config.yaml" for folder in folders))
        named = environment.get("UPSKILL_CONFIG")
        path = Path(named) if named else next(filter(_is_file, paths), None)
        # The defaults: nobody has to build a validator for them.
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
            raise UsageError(f"{path}: is not a list of `setting: value` lines")
        return cls._validate(fields, str(path), f"{path}: ")

    def changed(self, assignments: Iterable[str]) -> Settings:
        """With these settings in place of its own, as `--set KEY=VALUE` gives them."""
        fields = self.model_dump(exclude_unset=True, exclude={"source"})
        for text in assignments:
            key, _, value = text.partition("=")
            if not value.strip():
                raise UsageError(f"--set {text}: has no value", f"For example --set {key.strip() or 'margin'}=3.")
            try:
                fields[OLDER_NAMES.get(key.strip(), key.strip())] = read_yaml(value)
            except yaml.YAMLError as error:
                raise UsageError(f"--set {text}: {yaml_words(error)}") from error
        return self._validate(fields, self.source, "--set: ")

    @classmethod
    def _validate(cls, fields: Mapping[str, Any], source: str, origin: str) -> Settings:
        if "source" in fields:  # a field of ours, not a setting
            raise UsageError(f"{origin}no setting is called 'source'")
        try:
            return cls.model_validate({**fields, "source": source})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                known = [name for name in cls.model_fields if name != "source"]
                raise UsageError(f"{origin}no setting is called {key!r}", did_you_mean(key, known)) from error
            value = "" if key == "store" else f", not {short(first['input'])}"  # which may hold a password
            raise UsageError(f"{origin}{key}: {first['msg']}{value}") from error


class Config(Settings):
    """The settings, under the names that upstream's users know."""

    @property
    def skill_generation_model(self) -> str | None:
        return self.teacher

    @property
    def eval_model(self) -> str | None:
        return self.student

    @property
    def test_gen_model(self) -> str | None:
        return self.test_writer

    @property
    def runs_dir(self) -> str:
        return self.store


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder above it is closed to us: no settings of ours
        return False
