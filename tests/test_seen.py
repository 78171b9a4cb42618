"""The record of seen cases: what a case was first shown with, wherever the skill goes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Upskill, write_script
from upskill import Skill, Suite, open_store
from upskill.authoring.saving.output import edited_by_hand, record_version
from upskill.runs.results.shown import mark_shown
from upskill.skills import SkillFile
from upskill.skills.changes import changed_skills
from upskill.skills.seen import (
    add_seen,
    fresh_cases,
    load_seen,
    mark_seen,
    merge_seen,
    read_seen,
    without_seen,
)

SUITE = "cases:\n- {id: a, prompt: A, checks: [contains: a]}\n- {id: b, prompt: B, checks: [contains: b]}\n"
BODY = "# Letters\n\nSay the letter.\n"


def write_skill(folder: Path, body: str = BODY, suite: str = SUITE) -> Skill:
    (folder / "evals").mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {folder.name}\ndescription: Says letters.\n---\n"
    (folder / "SKILL.md").write_text(head + body, encoding="utf-8")
    (folder / "evals" / "suite.yaml").write_text(suite, encoding="utf-8")
    return Skill.load(folder)


def fresh(folder: Path) -> set[str]:
    skill = Skill.load(folder)
    suite = Suite.required(skill)
    return {*fresh_cases(load_seen(skill, suite, None), skill.text_hash, suite.by_id)}


def mark(folder: Path, *cases: str, text_hash: str | None = None) -> str:
    skill = Skill.load(folder)
    shown = skill.text_hash if text_hash is None else text_hash
    return mark_seen(skill, Suite.required(skill), cases, shown, None)


def edit(folder: Path, body: str) -> None:
    write_skill(folder, body, (folder / "evals" / "suite.yaml").read_text(encoding="utf-8"))


def test_a_case_is_fresh_until_another_text_follows_the_one_it_was_shown_with(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "letters"
    write_skill(folder)
    assert fresh(folder) == {"a", "b"}
    assert mark(folder, "a", "b") == ""
    assert fresh(folder) == {"a", "b"}, "its own results do not use a case up"
    edit(folder, BODY.replace("\n\n", "\n\n\n   ").replace(" the ", "\nthe  "))
    assert fresh(folder) == {"a", "b"}, "white space is no other text"
    edit(folder, BODY + "Be brief.\n")
    assert fresh(folder) == set()
    mark(folder, "a", "b")
    edit(folder, BODY)
    assert fresh(folder) == {"a", "b"}, "the first text is what it was"
    write_skill(
        folder, BODY + "Be brief.\n", f"{SUITE}- {{id: c, prompt: C, checks: [contains: c]}}\n"
    )
    assert fresh(folder) == {"c"}


def test_after_a_baseline_alone_a_case_is_fresh_for_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    write_skill(folder)
    mark(folder, "a", text_hash="")
    mark(folder, "a", "b")
    assert fresh(folder) == {"b"}


def test_the_record_goes_along_with_a_copy_a_rename_and_a_clone(tmp_path: Path) -> None:
    folder = tmp_path / "one" / "letters"
    write_skill(folder)
    mark(folder, "a")
    shutil.copytree(folder, tmp_path / "copy" / "letters")
    folder.rename(renamed := tmp_path / "one" / "alphabet")
    write_skill(renamed)
    for each in (tmp_path / "copy" / "letters", renamed):
        assert fresh(each) == {"a", "b"}
        edit(each, BODY + "Be brief.\n")
        assert fresh(each) == {"b"}
    git(tmp_path / "one", "init", "-qb", "main")
    commit(tmp_path / "one")
    git(tmp_path, "clone", "-q", "one", "clone")
    assert fresh(tmp_path / "clone" / "alphabet") == {"b"}


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, "-C", folder, *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "m")


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_of_two_branches_that_are_merged_either_line_will_do(tmp_path: Path, side: str) -> None:
    folder = tmp_path / "letters"
    write_skill(folder)
    git(tmp_path, "init", "-qb", "main")
    commit(tmp_path)
    for branch, cases in (("one", ("a",)), ("two", ("a", "b"))):
        git(tmp_path, "switch", "-q", "-c", branch, "main")
        edit(folder, f"{BODY}As in branch {branch}.\n")
        mark(folder, *cases)
        commit(tmp_path)
    git(tmp_path, "merge", "-q", "-X", side, "one")
    edit(folder, f"{BODY}As in both.\n")
    assert "a" not in fresh(folder)


def test_a_suite_elsewhere_has_its_record_in_the_store(tmp_path: Path) -> None:
    folder, file = tmp_path / "letters", tmp_path / "suites" / "mine.yaml"
    skill = write_skill(folder)
    file.parent.mkdir()
    file.write_text(SUITE, encoding="utf-8")
    suite = Suite.load(file)
    with open_store(tmp_path / "runs") as store:
        assert mark_seen(skill, suite, ["a"], "first", store) == ""
        mark_seen(skill, suite, ["a", "b"], "second", store)
        assert load_seen(skill, suite, store) == {"a": "first", "b": "second"}
        assert load_seen(skill.with_name("other"), suite, store) == {}
        moved = file.rename(tmp_path / "mine.yaml")
        assert load_seen(skill, Suite.load(moved), store) == {"a": "first", "b": "second"}
    assert not (folder / "skill_meta.json").exists()


def test_the_rest_of_the_metadata_stays_byte_for_byte() -> None:
    for text in (
        '{"a": [1, {"seen": "}"}],\n\t"tests": []   \n}\n',
        '\ufeff{\r\n  "metadata": {"v": 1.0}\r\n}',
        '{"é": "ü\\u1234"}',
    ):
        data = text.encode()
        first = add_seen(data, {"b": "1", "a": "2"})
        both = add_seen(first, {"b": "9", "c": "3"})
        assert read_seen(both) == {"a": "2", "b": "1", "c": "3"}
        assert add_seen(both, {"b": "9"}) == both
        assert both.decode().count("\n") == data.decode().count("\n") + 5
        assert without_seen(SkillFile("skill_meta.json", both)) == SkillFile(
            "skill_meta.json", data
        )
    assert without_seen(SkillFile("skill_meta.json", add_seen(b"", {"a": ""}))) is None
    assert merge_seen({"a": "1"}, {"a": "2", "b": "3"}) == {"a": "1", "b": "3"}


def test_the_record_is_no_change_of_the_skill(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    record_version(write_skill(folder)).save(folder, overwrite=True)
    git(tmp_path, "init", "-qb", "main")
    commit(tmp_path)
    before = Skill.load(folder)
    mark(folder, "a")
    after = Skill.load(folder)
    hashes = ("fingerprint", "visible_hash", "text_hash")
    assert all(getattr(before, name) == getattr(after, name) for name in hashes)
    assert not edited_by_hand(after)
    with changed_skills([tmp_path]) as (_, changes):
        assert [change.kind for change in changes] == ["unchanged"]


@pytest.mark.parametrize("why", ["broken", "folder", "read-only"])
def test_where_nothing_can_be_written_there_is_one_caveat(tmp_path: Path, why: str) -> None:
    folder = tmp_path / "letters"
    write_skill(folder)
    skill = Skill.load(folder)
    if why == "broken":
        (folder / "skill_meta.json").write_text("{", encoding="utf-8")
    elif why == "folder":
        (folder / "skill_meta.json").mkdir()
    elif os.geteuid() == 0:
        pytest.skip("nothing is read-only for root")
    else:
        folder.chmod(0o555)
    caveat = mark_seen(skill, Suite.required(skill), ["a"], "text", None)
    folder.chmod(0o755)
    assert "skill_meta.json cannot be written" in caveat
    assert caveat.startswith("A later version of the skill will take the cases shown here")


def test_eval_and_show_write_it_and_a_rerun_writes_nothing(upskill: Upskill, home: Path) -> None:
    folder = home / "letters"
    first = write_skill(folder).text_hash
    student = write_script(
        home / "student.yaml", [{"system": "Letters", "answer": "a"}, {"answer": "-"}]
    )
    assert upskill("eval", folder, "-m", student, "--case", "a").code == 0
    meta = folder / "skill_meta.json"
    assert json.loads(meta.read_text(encoding="utf-8")) == {"seen": {"a": first}}
    assert upskill("eval", folder, "-m", student).code == 0
    written = meta.read_text(encoding="utf-8")
    assert json.loads(written) == {"seen": {"a": first, "b": first}}
    edit(folder, BODY + "Be brief.\n")
    assert upskill("eval", folder, "-m", student).code == 0
    assert meta.read_text(encoding="utf-8") == written
    second = Skill.load(folder).text_hash
    for reading in (
        ("show", "last"),
        ("report", "last", "-o", "page.html"),
        ("export", "last", "--format", "csv", "-o", "trials.csv"),
    ):
        meta.unlink()
        assert upskill(*reading).code == 0
        assert json.loads(meta.read_text(encoding="utf-8")) == {"seen": {"a": second, "b": second}}


def test_of_a_run_whose_skill_is_gone_the_store_has_the_record(
    upskill: Upskill, home: Path
) -> None:
    folder = home / "letters"
    text_hash = write_skill(folder).text_hash
    student = write_script(home / "student.yaml", [{"answer": "a"}])
    assert upskill("eval", folder, "-m", student).code == 0
    shutil.rmtree(folder)
    with open_store(home / "runs") as store:
        run = store.run("last")
        assert mark_shown(store, run) == ""
        skill = run.plan.skill.to_skill()
        assert load_seen(skill, run.plan.suite, store) == {"a": text_hash, "b": text_hash}


def test_a_run_that_is_cut_short_has_shown_what_it_has(upskill: Upskill, home: Path) -> None:
    folder = home / "letters"
    text_hash = write_skill(folder).text_hash
    spent = [{"answer": "a", "usage": {"input": 10, "output": 5, "cost": 1.0}}]
    student = write_script(home / "student.yaml", spent)
    upskill("eval", folder, "-m", student, "--max-cost", 0.5, "--concurrency", 1, "-y")
    with open_store(home / "runs") as store:
        (case,) = store.scored_cases(store.run("last"))  # which one is a matter of the order drawn
    record = json.loads((folder / "skill_meta.json").read_text(encoding="utf-8"))
    assert record == {"seen": {case: text_hash}}
