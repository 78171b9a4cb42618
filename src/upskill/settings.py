"""Settings are what a person wrote into `upskill.config.yaml`: defaults for what is not said on the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input_text
from upskill.plain import as_mapping, read_yaml, short, yaml_words

FILE = "upskill.config.yaml"
OLDER_NAMES = {"model": "skill_generation_model", "runs_dir": "store"}  # of settings, in older files


class Price(BaseModel):
    """US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0, description="Read from a cache.")
    written: float | None = Field(default=None, ge=0, description="Written into one.")


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    skill_generation_model: str | None = Field(default=None, description="The teacher of `generate` and `teach`.")
    eval_model: str | None = Field(default=None, description="The student; without one, the embedded model `local`.")
    test_gen_model: str | None = Field(default=None, description="Writes test cases; without one, the teacher does.")
    judge_model: str | None = Field(default=None, description="Grades what no program can: `judge` checks.")
    skills_dir: str = Field(default="./skills", description="Where `generate` saves skills, and `list` looks for them.")
    store: str = Field(default="./runs", description="Where runs are kept: a folder, or a postgresql:// URL.")
    max_refine_attempts: int = Field(default=3, ge=0, description="How often the teacher may improve a skill.")
    concurrency: int = Field(default=8, ge=1, description="Requests at a time.")
    timeout: float = Field(default=300, gt=0, description="Seconds for one request.")
    confirm_above: float = Field(default=1.0, ge=0, description="US dollars that are spent without asking.")
    prices: dict[str, Price] = Field(
        default_factory=dict[str, Price], description="Of models whose price is not known, or is another for you."
    )
    source: str = ""  # the file these came from

    @property
    def runs_dir(self) -> str:
        """The store, under its older name."""
        return self.store

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ, here: str | Path = ".") -> Settings:
        """The first of $UPSKILL_CONFIG, ./upskill.config.yaml and ~/.config/upskill/config.yaml; else the defaults.

        $UPSKILL_STORE goes before the `store` of any of them: that is where a URL with a password belongs.
        """
        settings = cls._find(environment, here)
        location = environment.get("UPSKILL_STORE")
        return settings.model_copy(update={"store": location}) if location else settings

    @classmethod
    def _find(cls, environment: Mapping[str, str], here: str | Path) -> Settings:
        named = environment.get("UPSKILL_CONFIG")
        if named:
            return cls.read(Path(named))
        usual = Path(environment.get("HOME", "~")).expanduser() / ".config"
        folders = (environment.get("XDG_CONFIG_HOME") or usual, usual)
        for path in (Path(here) / FILE, *(Path(folder) / "upskill" / "config.yaml" for folder in folders)):
            if _is_file(path):
                return cls.read(path)
        return cls.model_construct()  # the defaults: nobody has to build a validator for them

    @classmethod
    def read(cls, path: Path) -> Settings:
        try:
            document = read_yaml(read_input_text(path, hint="Check UPSKILL_CONFIG."))
        except yaml.YAMLError as error:
            raise UsageError(f"{path}: {yaml_words(error)}") from error
        fields = as_mapping(document if document is not None else {})
        if fields is None:
            raise UsageError(f"{path}: is not a list of `setting: value` lines")
        if "source" in fields:  # a field of ours, not a setting
            raise UsageError(f"{path}: no setting is called 'source'")
        for older, name in OLDER_NAMES.items():
            if older in fields:
                fields.setdefault(name, fields.pop(older))
        try:
            return cls.model_validate({**fields, "source": str(path)})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                known = [*(name for name in cls.model_fields if name != "source"), "runs_dir"]
                raise UsageError(f"{path}: no setting is called {key!r}", did_you_mean(key, known)) from error
            value = "" if key == "store" else f", not {short(first['input'])}"  # which may hold a password
            raise UsageError(f"{path}: {key}: {first['msg']}{value}") from error


class Config(Settings):
    """The settings, under the name that upstream's users know."""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder above it is closed to us: no settings of ours
        return False
