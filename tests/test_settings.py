"""Settings are found in their order, and whatever is wrong with them is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Upskill
from upskill import Config, Settings, UsageError


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_first_place_that_has_settings_wins(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "home")}
    here = tmp_path / "here"
    assert Settings.load(environment, here) == Settings()
    assert Settings().source == ""
    home = written(tmp_path / "home/.config/upskill/config.yaml", "student: from-home")
    assert Settings.load(environment, here).student == "from-home"
    assert Settings.load(environment, here).source == str(home)
    xdg = {**environment, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert Settings.load(xdg, here).student == "from-home"
    written(tmp_path / "xdg/upskill/config.yaml", "student: from-xdg")
    assert Settings.load(xdg, here).student == "from-xdg"
    written(here / "upskill.config.yaml", "student: from-here")
    assert Settings.load(environment, here).student == "from-here"
    named = written(tmp_path / "named.yaml", "student: from-named")
    assert (
        Settings.load({**environment, "UPSKILL_CONFIG": str(named)}, here).student == "from-named"
    )


def test_files_are_not_mixed(tmp_path: Path) -> None:
    written(tmp_path / "home/.config/upskill/config.yaml", "store: elsewhere")
    written(tmp_path / "upskill.config.yaml", "student: x")
    assert Settings.load({"HOME": str(tmp_path / "home")}, tmp_path).store == "./runs"


def test_a_named_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: No such file or directory") as error:
        Settings.load({"UPSKILL_CONFIG": str(tmp_path / "none.yaml")}, tmp_path)
    assert error.value.hint == "Check UPSKILL_CONFIG."


def test_every_setting_of_upstream_is_read_and_the_defaults_are_its_own(tmp_path: Path) -> None:
    assert (Settings().skills_dir, Settings().store) == ("./skills", "./runs")
    text = """
skill_generation_model: sonnet
eval_model: haiku
test_gen_model: opus
skills_dir: ./my-skills
runs_dir: /elsewhere/runs
max_refine_attempts: 5
timeout: 60
prices:
  my-model: {input: 1, output: 2.5, cached: 0, written: 1.25}
"""
    settings = Settings.read(written(tmp_path / "config.yaml", text))
    assert (settings.teacher, settings.student, settings.test_writer) == ("sonnet", "haiku", "opus")
    assert (settings.skills_dir, settings.store) == ("./my-skills", "/elsewhere/runs")
    assert (settings.max_refine_attempts, settings.timeout) == (5, 60.0)
    price = settings.prices["my-model"]
    assert (price.input, price.output, price.cached, price.written) == (1.0, 2.5, 0.0, 1.25)


def test_the_teachers_old_name_is_read_and_its_new_name_goes_first(tmp_path: Path) -> None:
    file = written(tmp_path / "config.yaml", "model: sonnet\n")
    assert Settings.read(file).teacher == "sonnet"
    written(file, "model: sonnet\nskill_generation_model: opus\n")
    assert Settings.read(file).teacher == "opus"
    config = Config.model_validate({"eval_model": "haiku", "runs_dir": "kept"})
    assert (config.eval_model, config.student, config.runs_dir, config.skill_generation_model) == (
        *("haiku", "haiku", "kept"),
        None,
    )
    assert config.test_gen_model is None


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "\ufeffstudent: null\n"])
def test_a_file_that_says_nothing_is_the_defaults(tmp_path: Path, text: str) -> None:
    file = written(tmp_path / "config.yaml", text)
    assert Settings.read(file).model_dump() == Settings().model_dump()
    assert Settings.read(file).source == str(file)


WRONG = {
    "studnt: x": ("no setting named 'studnt'", "Did you mean 'student'?"),
    "zzz: x": ("no setting named 'zzz'", "Known: cache, concurrency, "),
    "1: x": ("no setting named '1'", ""),
    "student: 4": ("student: Input should be a valid string, not 4", ""),
    "max_refine_attempts: many": (
        "max_refine_attempts: Input should be a valid integer, not 'many'",
        "",
    ),
    "max_refine_attempts: -1": (
        "max_refine_attempts: Input should be greater than or equal to 0, not -1",
        "",
    ),
    "concurrency: 0": ("concurrency: Input should be greater than or equal to 1, not 0", ""),
    "timeout: '60'": ("timeout: Input should be a valid number, not '60'", ""),
    "timeout: .inf": ("line 1: not valid YAML: .inf is not a finite number", ""),
    "prices: {m: {input: 1}}": ("prices.m.output: Field required", ""),
    "prices: {m: {input: -1, output: 1}}": (
        "prices.m.input: Input should be greater than or equal to 0, not -1",
        "",
    ),
    "prices: {m: {input: 1, output: 1, cache: 1}}": ("no setting named 'prices.m.cache'", ""),
    "- a": (": must consist of `setting: value` lines", ""),
    "a: b: c": ("line 1: not valid YAML: mapping values are not allowed here", ""),
    "student: a\nstudent: b": ("line 2: not valid YAML: 'student' appears twice", ""),
    "prices: &p {m: *p}": (
        "not valid YAML: nested more than 100 levels deep, or refers to itself",
        "",
    ),
    "student: !!python/object/apply:os.getcwd []": (
        "not valid YAML: could not determine a constructor",
        "",
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_a_usage_error_with_the_file_and_the_key(
    tmp_path: Path, text: str
) -> None:
    message, hint = WRONG[text]
    file = written(tmp_path / "config.yaml", text)
    with pytest.raises(UsageError) as error:
        Settings.read(file)
    assert error.value.message.startswith(f"{file}: ")
    assert message in error.value.message
    assert error.value.hint.startswith(hint)


def test_a_file_that_is_not_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(b"student: caf\xe9")
    with pytest.raises(UsageError, match=": not UTF-8 text"):
        Settings.read(file)
    with pytest.raises(UsageError, match=": a folder, not a file"):
        Settings.read(tmp_path)


def test_commands_read_the_settings_of_the_folder_they_are_in(home: Path, upskill: Upskill) -> None:
    written(home / "upskill.config.yaml", "skills_dir: mine\n")
    (home / "mine").mkdir()
    assert upskill("list").code == 0
    written(home / "upskill.config.yaml", "skill_dir: mine\n")
    done = upskill("list")
    assert (done.code, done.out) == (2, "")
    said = "upskill: upskill.config.yaml: no setting named 'skill_dir'\n  Did you mean 'skills_dir'"
    assert done.err.startswith(said)


def test_the_place_of_runs_has_one_name_an_older_one_and_a_variable(tmp_path: Path) -> None:
    file = written(tmp_path / "upskill.config.yaml", "runs_dir: older\n")
    assert Settings.load({}, tmp_path).store == "older"
    written(file, "runs_dir: older\nstore: newer\n")
    assert Settings.load({}, tmp_path).store == "newer"
    assert (
        Settings.load({"UPSKILL_STORE": "postgresql://host/runs"}, tmp_path).store
        == "postgresql://host/runs"
    )
    assert Settings.load({"UPSKILL_STORE": ""}, tmp_path).store == "newer"
    written(file, "store: [postgresql://me:secret@host]\n")
    with pytest.raises(UsageError, match="store: Input should be a valid string") as error:
        Settings.load({}, tmp_path)
    assert "secret" not in str(error.value)


def test_settings_are_changed_by_assignments(tmp_path: Path) -> None:
    written(tmp_path / "upskill.config.yaml", "tolerance: 3\nstudent: haiku\n")
    settings = Settings.load({}, tmp_path).changed(
        [
            "tolerance=2",
            "gpu=true",
            "trial_cpus = 0.5",
            "ray_address=ray://head:10001",
            "eval_model=local",
        ]
    )
    assert (settings.tolerance, settings.gpu, settings.trial_cpus) == (2.0, True, 0.5)
    assert (settings.ray_address, settings.student) == ("ray://head:10001", "local")
    assert settings.changed(["prices={m: {input: 1, output: 2}}"]).prices["m"].output == 2.0


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("tolerence=3", "--set: no setting named 'tolerence'", "Did you mean 'tolerance'?"),
        ("tolerance", "--set tolerance: the value is missing", "For example: --set tolerance=500"),
        ("tolerance=x", "--set: tolerance: Input should be a valid number, not 'x'", ""),
        ("tolerance=[", "--set tolerance=[: line 1: not valid YAML: ", ""),
        (
            "tolerance=.inf",
            "--set tolerance=.inf: line 1: not valid YAML: .inf is not a finite number",
            "",
        ),
    ],
)
def test_a_wrong_assignment_is_a_usage_error(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        Settings().changed([text])
    assert error.value.message.startswith(message)
    assert error.value.hint == hint
