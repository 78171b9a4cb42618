"""Pictures: every value in them is the document's, every text can be read, and no name of others spoils them."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

from browser import Browser
from conftest import REPOSITORY, Upskill, write_script, write_skill
from upskill.reports import svg
from upskill.reports.numbers import percent
from upskill.verdicts.line import signed_points

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "\u202eevil\u202c",
    '"><script>alert(1)</script>&amp;',
    "a\x00b\x1b[31m\ud800\ufffe\n\tc",
    "x" * 300,
    "模型" * 40,
    "provider:a-model-with-a-name-as-long-as-they-are-2026-11-16",
    "",
]


def arm(passed: int, failed: int, *, tokens: int = 100) -> dict[str, Any]:
    scored = passed + failed
    return {
        "passed": passed,
        "failed": failed,
        "pass_rate": passed / scored if scored else None,
        "input_tokens": tokens * scored,
        "output_tokens": 0,
    }


def made_up(models: int, names: list[str] | None = None) -> dict[str, Any]:
    """A document with every decision, and among many models one without a scored trial."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for number in range(models):
        name = names[number] if names else f"provider:model-{number}"
        before, after = draw.randint(0, 30), draw.randint(5, 48)
        lift = (after - before) / 48
        row = {
            "model": name,
            "baseline": arm(before, 48 - before, tokens=draw.randint(20, 200)),
            "skill": arm(after, 48 - after, tokens=draw.randint(300, 2000)),
            "lift": lift,
            "interval": [max(-1, lift - 0.15), min(1, lift + 0.13)],
            "decision": ("helps", "hurts", "no effect", "saves", "undecided")[number % 5],
            "about": "tasks",
            "reason": None,
        }
        if number == 5:
            row |= {"lift": None, "interval": None, "baseline": arm(0, 0), "skill": arm(0, 0)}
        rows.append(row)
    return {"run": "r", "skill": {"name": "kernel-builder"}, "models": rows}


@cache
def crowds() -> dict[str, str]:
    """Pictures of few and many models, with names of every sort, wide and narrow."""
    found: dict[str, str] = {}
    for models, names in ((1, None), (7, HOSTILE), (30, None)):
        document = made_up(models, names)
        for name, draw in svg.PICTURES.items():
            found[f"{name}, {models} models"] = draw(document).svg()
        found[f"narrow, {models} models"] = svg.tokens(document, svg.NARROW).svg()
    return found


def words_of(picture: str) -> str:
    texts = ET.fromstring(picture).iter(f"{SVG}text")
    return "\n".join(
        "".join([each.text or "", *(child.tail or "" for child in each)]) for each in texts
    )


def test_a_real_browser_finds_no_text_that_is_cut_off_or_small(browser: Browser) -> None:
    script = """() => {
        const [x, y, width, height] = document.querySelector("svg").getAttribute("viewBox").split(" ").map(Number);
        return [...document.querySelectorAll("text")].filter((each) => {
            const box = each.getBBox();
            return box.x < x || box.y < y || box.x + box.width > x + width + 1 || box.y + box.height > y + height + 1
              || parseFloat(getComputedStyle(each).fontSize) < 13;
        }).map((each) => each.textContent) }"""

    def measure(page: Any) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, picture in crowds().items():
            page.set_content(picture)
            found[name] = page.evaluate(script)
        return found

    found = browser.run(measure, "about:blank", scripts=False)
    assert {name: cut for name, cut in found.items() if cut} == {}


def test_names_of_others_are_text_and_nothing_else() -> None:
    tags = {"svg", "title", "style", "rect", "line", "text", "circle"}
    for name, picture in crowds().items():
        assert {each.tag.removeprefix(SVG) for each in ET.fromstring(picture).iter()} <= tags, name
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff\ufffe]", picture), (
            name
        )
    assert "\\x202eevil\\x202c" in crowds()["lift, 7 models"]
    assert "&lt;script&gt;" in crowds()["tokens, 7 models"]


def test_every_value_is_printed_as_the_document_has_it() -> None:
    document = made_up(9)
    lift, rates, tokens = (words_of(draw(document).svg()) for draw in svg.PICTURES.values())
    for row in document["models"]:
        if row["lift"] is None:
            continue
        low, high = map(signed_points, row["interval"])
        assert f"{row['decision']}: {signed_points(row['lift'])} ({low} to {high})" in lift
        for each in (row["baseline"], row["skill"]):
            assert f"{percent(each['pass_rate'])} ({each['passed']}/48)" in rates
            assert f"{percent(each['pass_rate'])} at {each['input_tokens'] / 48:,.0f}" in tokens
    assert ": –" in lift
    assert rates.count("–") == 3


def test_a_front_and_a_map_of_shadows_have_their_numbers() -> None:
    front = json.loads((REPOSITORY / "docs" / "pictures" / "front.json").read_text())
    for version in front["front"]:
        value = f"{percent(version['pass_rate']['value'])} at {version['tokens']:,}"
        assert value in words_of(svg.front(front))
    skills: list[dict[str, Any]] = [
        {"name": "a", "requests": 5, "opened": {"a": 0.25, "b": 0.5}},
        {"name": "b", "requests": 0, "opened": {}},
    ]
    document: dict[str, Any] = {
        "student": "s",
        "skills": skills,
        "conflicts": [{"skill": "a", "others": ["b"]}],
    }
    words = words_of(svg.shadow_map(document)).split("\n")
    assert [word for word in words if word.isdigit()] == ["1", "2", "25", "50", "25"]
    assert "b takes requests of a." in svg.shadow_map(document)


def test_a_file_has_the_picture_that_its_name_asks_for_and_a_folder_has_all(
    upskill: Upskill, home: Path
) -> None:
    model = write_script(home / "model.json")
    assert upskill("eval", write_skill(home / "greeter", cases=4), "-m", model).code == 0
    for name, title in {
        "lift.svg": "Lift of greeter",
        "pass-rates.svg": "Pass rates of greeter",
        "tokens.svg": "Tokens and pass rate of greeter",
        "-": "Lift of greeter",
    }.items():
        done = upskill("export", "last", "--format", "svg", "-o", name)
        assert done.code == 0, done.err
        assert title in (done.out if name == "-" else (home / name).read_text())
    assert upskill("export", "last", "--format", "svg", "-o", "pictures").code == 0
    found = {file.stem for file in (home / "pictures").glob("*.svg")}
    assert found == svg.PICTURES.keys()
    done = upskill("export", "last", "--format", "svg", "-o", "lift.png")
    assert (done.code, "ends in .svg" in done.err) == (2, True)
