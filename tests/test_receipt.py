"""Receipts: what a run proved is kept with the skill, and anyone can compute it again."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, write_script, write_skill
from upskill import Skill, UsageError
from upskill.plain import as_mapping
from upskill.runs.replay import receipt as receipts
from upskill.runs.replay.receipt import RECEIPT, REPLIES, verify

EXAMPLES = Path(__file__).parent.parent / "examples"
MUTATIONS = 200


@pytest.fixture
def proven(upskill: Upskill, home: Path) -> Path:
    """A skill with a receipt."""
    folder = home / "tern-deploy"
    shutil.copytree(EXAMPLES / "tern-deploy", folder)
    shutil.copy(EXAMPLES / "scripted.yaml", home / "scripted.yaml")
    done = upskill("eval", folder, "-m", "scripted:scripted.yaml", "--receipt")
    assert done.code == 0, done.err
    wrote = (
        "Wrote tern-deploy/evals/receipt.json and tern-deploy/evals/replies.jsonl.gz; commit both."
    )
    assert f"{wrote} `upskill verify tern-deploy` checks them without a model." in " ".join(
        done.err.split()
    )
    return folder


def test_a_receipt_holds_on_a_machine_without_the_model(upskill: Upskill, proven: Path) -> None:
    (proven.parent / "scripted.yaml").unlink()
    done = upskill("verify", proven)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "tern-deploy: holds. helps on tasks like these: +70 points (+39 to +88), 20 cases "
        "(scripted:scripted.yaml, 20 cases from evals/suite.yaml)\n"
        "  Claimed by the author: answers from scripted:scripted.yaml,"
        f" {json.loads((proven / RECEIPT).read_text())['date']}, all cases fresh, free\n"
    )


def test_after_an_edit_a_receipt_says_that_it_is_about_these_cases(
    upskill: Upskill, proven: Path
) -> None:
    (proven / "SKILL.md").write_text((proven / "SKILL.md").read_text() + "\nMore.\n")
    assert upskill("eval", proven, "-m", "scripted:scripted.yaml", "--receipt").code == 0
    done = upskill("verify", proven, "--badge")
    assert done.out.startswith("tern-deploy: holds. helps on these 20 cases: +70 points"), done.out
    assert "20 cases seen before" in done.out
    assert "helps on these cases +70 points" in (proven / "evals/badge.svg").read_text()
    shutil.rmtree("runs")
    assert re.search(r"helps on these cases +\+70", upskill("list", ".").out)


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("tern-deploy", "local"),
        ("house-commit-messages", "local"),
        ("dprint-cli", "local:qwen2.5-coder-1.5b"),
        ("midpoint-grouper-groups", "local:qwen2.5-coder-1.5b"),
    ],
)
def test_the_receipts_of_examples_hold_without_a_key_or_a_model(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, student: str
) -> None:
    monkeypatch.setenv("UPSKILL_CACHE", str(home / "no-weights"))
    done = upskill("verify", EXAMPLES / name, "--json")
    assert (done.code, done.err) == (0, "")
    claimed = done.json[0]["claimed"]
    assert (claimed["models"], claimed["cost_usd"]) == ([student], 0.0)


def test_a_receipt_changes_no_result_and_is_the_same_again(upskill: Upskill, proven: Path) -> None:
    before = {path: path.read_bytes() for path in (proven / "evals").iterdir()}
    again = upskill("eval", proven, "-m", "scripted:scripted.yaml", "--receipt")
    assert "nothing left to run" in again.err
    assert {path: path.read_bytes() for path in (proven / "evals").iterdir()} == before


def test_a_changed_check_is_named_with_what_it_makes_of_the_answers(
    upskill: Upskill, proven: Path
) -> None:
    suite = proven / "evals/suite.yaml"
    suite.write_text(suite.read_text().replace("nest-name", "nest-size"))
    done = upskill("verify", proven, "--json")
    assert done.code == 1
    changes = done.json[0]["changes"]
    assert "suite: evals/suite.yaml has changed" in changes
    assert "suite: case 'service-key' has changed" in changes
    assert "scripted:scripted.yaml, skill: 14 of 20 passed, now 13 of 20" in changes


def test_a_forged_verdict_is_found_though_its_digest_fits(proven: Path) -> None:
    path = proven / RECEIPT
    content = json.loads(path.read_text())
    content["verdicts"][0] |= {"lift": 0.9, "decision": "saves"}
    content["verdicts"][0]["skill"]["passed"] = 18
    _rewrite(proven, content)
    assert _changes(proven) == [
        "scripted:scripted.yaml, skill: 18 of 24 passed, now 14 of 20",
        "scripted:scripted.yaml: decision was saves, now helps; lift was 0.9, now 0.7",
    ]


def _rewrite(folder: Path, content: dict[str, Any]) -> None:
    """As a forger would, with a digest that fits."""
    content["digest"] = receipts._digest(content)  # pyright: ignore[reportPrivateUsage]
    (folder / RECEIPT).write_bytes(receipts._render(content))  # pyright: ignore[reportPrivateUsage]


CLAIMED = (
    "date",
    "upskill",
    "seen",
    "cost_usd",
    "settings/tolerance",
    "settings/in_rounds",
    "settings/sandbox",
    "models/0/identity",
)


def _leaves(content: Any, path: str = "") -> Iterator[str]:
    mapping = as_mapping(content)
    keys: list[Any] = list(range(len(content))) if mapping is None else list(mapping)
    for key in keys:
        here = f"{path}/{key}".lstrip("/")
        yield from (
            _leaves(content[key], here)
            if isinstance(content[key], dict | list) and content[key]
            else [here]
        )


def test_whatever_follows_from_the_answers_cannot_be_forged_with_a_digest_that_fits(
    proven: Path,
) -> None:
    whole = json.loads((proven / RECEIPT).read_text())
    ends = (
        "cost_usd",
        "caveats",
        "add",
        "break_even",
        "baseline",
        "skill",
        "ratio",
        "digest",
    )
    unproven: list[str] = []
    for path in [
        each
        for each in _leaves(whole)
        if not each.startswith((*CLAIMED, "suite/cases", "skill/files"))
    ]:
        content = json.loads(json.dumps(whole))
        *parents, last = path.split("/")
        place: Any = content
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        key: Any = int(last) if isinstance(place, list) else last
        place[key] = place[key] + 1 if isinstance(place[key], int | float) else "forged"
        _rewrite(proven, content)
        if not _changes(proven):
            unproven.append(path)
    assert [path for path in unproven if path.split("/")[-1] not in ends] == []


def test_a_tampered_byte_anywhere_is_found_and_named(proven: Path) -> None:
    chance = random.Random(31)
    files = {
        name: (proven / name).read_bytes()
        for name in ("SKILL.md", "evals/suite.yaml", RECEIPT, REPLIES)
    }
    for number in range(MUTATIONS):
        name, data = list(files.items())[number % len(files)]
        at = chance.randrange(len(data))
        cut = {
            0: data[at + 1 :],
            1: data[at:],
            2: bytes([data[at] ^ 1 << chance.randrange(7)]) + data[at + 1 :],
        }
        changed = data[:at] + (b" " if number % 3 == 1 else b"") + cut[number % 3]
        (proven / name).write_bytes(changed)
        changes = _changes(proven)
        assert any(name in change for change in changes), (name, at, changes)
        (proven / name).write_bytes(data)
    assert _changes(proven) == []


def _changes(folder: Path) -> list[str]:
    try:
        return asyncio.run(verify(Skill.load(folder))).changes
    except UsageError as error:
        return [error.message]


@pytest.mark.parametrize("name", [REPLIES, "SKILL.md.bak", "references/more.md"])
def test_missing_and_added_files_are_named(proven: Path, name: str) -> None:
    path = proven / name
    if path.exists():
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text("more")
    assert any(name in change for change in _changes(proven))


def test_no_receipt_is_written_for_part_of_a_suite(upskill: Upskill, proven: Path) -> None:
    (proven / RECEIPT).unlink()
    done = upskill("eval", proven, "-m", "scripted:scripted.yaml", "--limit", 3, "--receipt")
    assert done.code == 2
    assert "a receipt must cover a whole suite" in done.err
    missing = upskill("verify", proven)
    assert missing.code == 2
    assert "tern-deploy: no receipt (evals/receipt.json)" in missing.err


def test_the_receipts_beside_a_skill_without_one_are_checked_too(
    upskill: Upskill, proven: Path
) -> None:
    write_skill(proven.parent / "aardvark")
    done = upskill("verify", proven.parent)
    assert done.code == 1
    assert "aardvark: no receipt (evals/receipt.json)" in done.out
    assert "tern-deploy: holds." in done.out
    rows = {row["skill"]: row["holds"] for row in upskill("verify", proven.parent, "--json").json}
    assert rows == {"aardvark": False, "tern-deploy": True}
    shutil.rmtree(proven.parent / "aardvark" / "evals")
    done = upskill("verify", proven.parent)
    assert (done.code, "aardvark" in done.out) == (0, False)
    assert f"Skipped, because it has no test cases: {proven.parent / 'aardvark'}" in " ".join(
        done.err.split()
    )


def test_a_folder_with_one_skill_is_a_folder_of_skills(upskill: Upskill, home: Path) -> None:
    write_skill(home / "skills" / "greeter")
    assert (upskill("verify", "skills").code, upskill("verify", "skills/greeter").code) == (1, 2)


def test_badge_and_card_are_made_from_a_receipt_that_holds(upskill: Upskill, proven: Path) -> None:
    done = upskill("verify", proven, "--badge", "--card")
    assert done.code == 0, done.err
    badge, card = (proven / "evals/badge.svg").read_text(), (proven / "skill-card.md").read_text()
    assert "helps +70 points" in badge
    assert "| scripted:scripted.yaml | 0% (0/20) | 70% (14/20) | +70 (+39 to +88) | helps |" in card
    assert upskill("verify", proven).out == done.out, (
        "they are no part of the skill that was proven"
    )
    owned = card.replace(
        "## Owner\n\n_To be filled in by the owner._", "## Owner\n\nThe harbor team"
    )
    (proven / "skill-card.md").write_text(owned)
    assert upskill("verify", proven, "--card").code == 0
    assert (proven / "skill-card.md").read_text() == owned, "what its owner wrote stays"
    (proven / "evals/badge.svg").unlink()
    (proven / "SKILL.md").write_text((proven / "SKILL.md").read_text() + "\nMore.\n")
    assert upskill("verify", proven, "--badge").code == 1
    assert not (proven / "evals/badge.svg").exists()


def test_answers_that_are_left_out_are_missed(upskill: Upskill, proven: Path) -> None:
    path, content = proven / REPLIES, json.loads((proven / RECEIPT).read_text())
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    kept = [line for line in lines if line.get("trial", {}).get("case") != "deploy-billing"]
    kept[-1]["end"]["trials"] = sum("trial" in line for line in kept)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in kept).encode()))
    content["replies"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    _rewrite(proven, content)
    assert "evals/replies.jsonl.gz: the answers from 2 trials are missing" in _changes(proven)


def _settle(folder: Path, content: dict[str, Any]) -> None:
    """A forger lets `verify` compute the verdicts that its settings give."""
    _rewrite(folder, content | {"verdicts": []})
    verdicts = asyncio.run(verify(Skill.load(folder))).verdicts
    _rewrite(folder, content | {"verdicts": [verdict.to_dict() for verdict in verdicts]})


@pytest.fixture
def weak(upskill: Upskill, home: Path) -> Path:
    """A skill that helps on one case of four, with a receipt that says `undecided`."""
    folder = home / "codes"
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: codes\ndescription: Codes.\n---\n\nThe code of door 0 is K0.\n"
    )
    cases = [
        {
            "id": f"door-{n}",
            "prompt": f"What is the code of door {n}?",
            "checks": [{"contains": f"K{n}"}],
        }
        for n in range(4)
    ]
    (folder / "evals/suite.yaml").write_text(json.dumps({"cases": cases}))
    model = write_script(
        home / "student.json", [{"when": "door 0", "system": "K0", "answer": "K0"}, {"answer": "?"}]
    )
    assert upskill("eval", folder, "-m", model, "--receipt").code == 0
    return folder


def test_the_tolerance_of_a_receipt_is_named(upskill: Upskill, weak: Path) -> None:
    content = json.loads((weak / RECEIPT).read_text())
    content["settings"]["tolerance"] = 0.9
    _settle(weak, content)
    assert "with a tolerance of 90 points" in upskill("verify", weak).out
    shutil.rmtree("runs")
    assert "with a tolerance of 90 points" in " ".join(upskill("list", ".").out.split())


def test_a_suite_that_is_not_the_skills_own_is_named(upskill: Upskill, weak: Path) -> None:
    cases = json.loads((weak / "evals/suite.yaml").read_text())["cases"]
    other = weak / "evals" / "other.yaml"
    other.write_text(json.dumps({"cases": cases[:2]}))
    assert upskill("eval", weak, "-t", other, "-m", "scripted:student.json", "--receipt").code == 0
    assert (
        "2 cases from evals/other.yaml, not the skill's own suite)" in upskill("verify", weak).out
    )


def test_a_verdict_without_a_decision_is_found_and_not_listed(upskill: Upskill, weak: Path) -> None:
    content = json.loads((weak / RECEIPT).read_text())
    del content["verdicts"][0]["decision"]
    _rewrite(weak, content)
    assert _changes(weak) == ["evals/receipt.json: edited (a verdict without decision)"]
    shutil.rmtree("runs")
    assert "not evaluated yet" in upskill("list", ".").out


def test_a_badge_or_card_that_says_something_else_is_named(upskill: Upskill, proven: Path) -> None:
    assert "does not say" not in upskill("verify", proven, "--badge", "--card").out
    for name, flag in (("evals/badge.svg", "--badge"), ("skill-card.md", "--card")):
        path = proven / name
        path.write_text(path.read_text().replace("+70 ", "+99 "))
        said = f"  {name} does not match this receipt. To write it again, use {flag}.\n"
        assert said in upskill("verify", proven).out
        assert upskill("verify", proven, "--json").json[0]["differ"] == [name]
        assert said not in upskill("verify", proven, flag).out
