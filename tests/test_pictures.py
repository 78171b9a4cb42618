"""Pictures: every value in them is the document's, every text can be read, and no name of others spoils them."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from conftest import Upskill, write_script, write_skill
from upskill.reports import pictures
from upskill.reports.numbers import percent
from upskill.reports.pictures import PictureOptions, style
from upskill.reports.pictures.colors import DARK, LIGHT
from upskill.reports.pictures.svg import clean, shorten, text_width
from upskill.verdicts.line import signed_points

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "\u202eevil\u202c",
    '"><script>alert(1)</script>&amp;',
    "a\x00b\x1b[31m\ud800\ufffe\n\tc",
    "x" * 300,
    "模型" * 40,
    "Z" + "\u0301\u0302\u0303\u0304" * 10,
    "﷽" * 8,
    "עברית-מודל",
    "👩‍👩‍👧‍👦" * 20,
    "provider:a-model-with-a-name-as-long-as-they-are-2026-11-16",
    "",
]
Box = tuple[float, float, float, float]


def arm(
    passed: int, failed: int, missing: int = 0, *, tokens: int = 100, cost: float | None = None
) -> dict[str, Any]:
    scored = passed + failed
    return {
        "passed": passed,
        "failed": failed,
        "missing": missing,
        "pass_rate": passed / scored if scored else None,
        "input_tokens": tokens * scored,
        "output_tokens": 0,
        "cost_usd": cost,
    }


def model(
    name: str, baseline: dict[str, Any], skill: dict[str, Any], **given: Any
) -> dict[str, Any]:
    usual = {
        "pairs": 48,
        "lift": 0.5,
        "interval": [0.3, 0.7],
        "level": 0.95,
        "decision": "helps",
        "about": "tasks",
        "reason": None,
        "caveats": [],
    }
    return {"model": name, "baseline": baseline, "skill": skill, **usual, **given}


def made_up(
    models: int, *, names: list[str] | None = None, priced: bool = True, seed: int = 0
) -> dict[str, Any]:
    """A document with every decision, and among many models one without a scored trial and one without a price."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(models):
        name = (names or [])[number] if number < len(names or []) else f"provider:model-{number}"
        before, after = draw.randint(0, 30), draw.randint(5, 48)
        lift = (after - before) / 48
        low, high = lift - 0.15, min(1.0, lift + 0.13)
        decision = (
            "helps"
            if low > 0
            else "hurts"
            if high < 0
            else ("no effect", "saves", "undecided")[number % 3]
        )
        cost = (lambda: draw.random() / 10) if priced else (lambda: None)
        baseline = arm(before, 48 - before, tokens=draw.randint(20, 200), cost=cost())
        skill = arm(after, 48 - after, tokens=draw.randint(300, 2000), cost=cost())
        rows.append(
            model(name, baseline, skill, lift=lift, interval=[low, high], decision=decision)
        )
    if models > 6:
        none: dict[str, Any] = {"lift": None, "interval": None, "pairs": 0, "decision": "undecided"}
        rows[5] = model(rows[5]["model"], arm(0, 0, 48), arm(0, 0, 48), **none)
        rows[6]["interval"] = [None, 1.0]  # open on one side
        rows[6]["skill"]["cost_usd"] = None
    return {"run": "r", "skill": {"name": "kernel-builder"}, "models": rows}


def every_kind(document: dict[str, Any], options: PictureOptions) -> dict[str, str]:
    return {
        "forest": pictures.lift_forest(document, options),
        "bars": pictures.pass_rates(document, options),
        "pareto": pictures.pareto(document, options),
        "tokens": pictures.pareto(document, options, by="tokens"),
    }


@cache
def crowds() -> dict[str, str]:
    """Pictures of few and many models, with names of every sort, wide and narrow."""
    found: dict[str, str] = {}
    for models, names in ((1, None), (3, None), (11, HOSTILE), (40, None)):
        document = made_up(models, names=names, priced=models != 3)
        for width in (310, 720) if models != 3 else (310, 520, 720, 1600):
            options = PictureOptions(
                width=width, notes=["Not finished: 37 of 96 trials are scored."]
            )
            for kind, svg in every_kind(document, options).items():
                found[f"{kind}, {models} models, {width} px"] = svg
    return found


def texts(root: ET.Element) -> list[ET.Element]:
    return list(root.iter(f"{SVG}text"))


def said(element: ET.Element) -> str:
    """What a text shows, without its tooltip."""
    return "".join([element.text or "", *(child.tail or "" for child in element)])


def box_of(element: ET.Element) -> Box:
    size, words = float(element.attrib["font-size"]), said(element)
    width = text_width(words, size, bold="font-weight" in element.attrib)
    x = (
        float(element.attrib["x"])
        - {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor", "start")] * width
    )
    return x, float(element.attrib["y"]) - 0.93 * size, width, 1.16 * size


def overlapping(boxes: list[tuple[str, Box]]) -> list[tuple[str, str]]:
    boxes = sorted(boxes, key=lambda each: each[1][1])
    found: list[tuple[str, str]] = []
    for index, (one, (x, y, width, height)) in enumerate(boxes):
        for other, (x2, y2, width2, height2) in boxes[index + 1 :]:
            if y2 > y + height:
                break
            across = min(x + width, x2 + width2) - max(x, x2)
            down = min(y + height, y2 + height2) - max(y, y2)
            if across > 0.5 and down > 0.5:
                found.append((one, other))
    return found


def view_box(root: ET.Element) -> Box:
    x, y, width, height = map(float, root.attrib["viewBox"].split())
    return x, y, width, height


def cut_off(boxes: list[tuple[str, Box]], view: Box) -> list[str]:
    x, y, width, height = view
    return [
        words
        for words, (left, top, wide, high) in boxes
        if left < x - 0.5
        or top < y - 0.5
        or left + wide > x + width + 0.5
        or top + high > y + height + 0.5
    ]


def test_no_text_is_small_or_cut_off_or_overlaps_another() -> None:
    for name, svg in crowds().items():
        root = ET.fromstring(svg)
        assert texts(root), name
        assert min(float(each.attrib["font-size"]) for each in texts(root)) >= 11, name
        boxes = [(said(each), box_of(each)) for each in texts(root)]
        assert overlapping(boxes) == [], name
        assert cut_off(boxes, view_box(root)) == [], name


def test_the_picture_of_one_model_uses_its_width_and_hides_nothing() -> None:
    document = {
        "run": "r",
        "skill": {"name": "tern"},
        "models": [model("local", arm(0, 12), arm(11, 1), lift=0.92)],
    }
    drawn = {
        kind: ET.fromstring(svg) for kind, svg in every_kind(document, PictureOptions()).items()
    }
    (lift,) = (each for each in texts(drawn["bars"]) if said(each) == "+92 points")
    bars = [
        each for each in drawn["bars"].iter(f"{SVG}rect") if "bar-skill" in each.get("class", "")
    ]
    assert sum(box_of(lift)[::2]) < float(bars[-1].attrib["x"])  # the first is of the legend
    assert {"1", "1 local"}.isdisjoint(map(said, texts(drawn["tokens"])))
    assert "local" in map(said, texts(drawn["tokens"]))


def test_a_real_browser_finds_no_text_that_is_cut_off_or_overlaps_another(browser: Browser) -> None:
    script = """() => [...document.querySelectorAll('text')].filter(each => each.textContent).map(each => {
        const box = each.getBBox()
        return [each.lastChild.data || '', [box.x, box.y, box.width, box.height]]
    })"""

    def measure(page: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, svg in crowds().items():
            if "11 models" not in name:  # those whose names are in all kinds of fonts
                continue
            page.set_content(svg)
            found[name] = page.evaluate(script)
        return found

    for name, measured in browser.run(measure, "about:blank", ready="html").items():
        assert measured, name
        # Accents of a font that is not the usual one may stand higher; a line has room for a little of that.
        flat: list[tuple[str, Box]] = [
            (words, (x, y + 0.12 * height, width, 0.76 * height))
            for words, (x, y, width, height) in measured
        ]
        assert overlapping(flat) == [], name
        assert cut_off(flat, view_box(ET.fromstring(crowds()[name]))) == [], name


def test_names_of_others_are_text_and_nothing_else() -> None:
    for name, svg in crowds().items():
        root = ET.fromstring(svg)
        tags = {each.tag.removeprefix(SVG) for each in root.iter()}
        assert tags <= {
            "svg",
            "title",
            "desc",
            "style",
            "rect",
            "line",
            "text",
            "path",
            "circle",
            "polygon",
        }, name
        assert not re.search(
            "[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff\ufffe\uffff]", svg
        ), name
    assert "\\x202eevil\\x202c" in crowds()["forest, 11 models, 720 px"]
    assert "&lt;script&gt;" in crowds()["pareto, 11 models, 720 px"]


def test_a_screen_reader_is_told_the_values_under_ids_of_their_own() -> None:
    ids: list[str] = []
    for svg in set(crowds().values()):  # one without prices is drawn by tokens, whoever asks
        root = ET.fromstring(svg)
        assert root.attrib["role"] == "img"
        labels = root.attrib["aria-labelledby"].split()
        own = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
        assert labels == own
        ids += own
    assert len(ids) == len(set(ids))
    described = ET.fromstring(crowds()["forest, 3 models, 720 px"]).findtext(f"{SVG}desc") or ""
    for row in made_up(3, priced=False)["models"]:
        assert f"{row['model']}: {row['decision']}: {signed_points(row['lift'])}" in described


def shown(svg: str) -> str:
    return "\n".join(said(each) for each in texts(ET.fromstring(svg)))


def test_every_value_is_printed_as_the_document_has_it() -> None:
    document = made_up(9)
    drawn = {kind: shown(svg) for kind, svg in every_kind(document, PictureOptions()).items()}
    for row in document["models"]:
        if row["lift"] is not None:
            low, high = (row["lift"] if end is None else end for end in row["interval"])
            interval = f"({signed_points(low)} to {signed_points(high)})"
            value = f"{row['decision']}: {signed_points(row['lift'])} {interval}"
            assert value in drawn["forest"]
        for each in (row["baseline"], row["skill"]):
            if each["pass_rate"] is not None:
                assert f"{percent(each['pass_rate'])} ({each['passed']}/48)" in drawn["bars"]
                assert (
                    f"{percent(each['pass_rate'])} at {each['input_tokens'] / 48:,.0f} tokens"
                    in drawn["tokens"]
                )
    assert "no lift, 0 pairs" in drawn["forest"]
    assert drawn["bars"].count("not scored") == 2
    assert "price unknown" in drawn["pareto"] or "tokens" in drawn["pareto"]


LONG = [
    [
        f"provider:org/m{number:02}-Qwen2.5-Coder-{number}.5B-Instruct-2026-11-16-preview"
        for number in range(12)
    ],
    [f"provider:{'a' * 80}{number:02}{'b' * 80}" for number in range(12)],  # nothing to leave out
    [
        "provider:model",
        *(f"provider:model-{'x-' * number}" for number in range(1, 40, 4)),
        "\u202emodel",
    ],
]


@pytest.mark.parametrize("names", LONG)
def test_no_two_names_look_alike_however_narrow_the_picture(names: list[str]) -> None:
    document = made_up(12, names=names)
    drawn = [
        (width, every_kind(document, PictureOptions(width=width))) for width in (310, 390, 720)
    ]
    for width, kind, svg in [
        (width, kind, svg) for width, kinds in drawn for kind, svg in kinds.items()
    ]:
        root = ET.fromstring(svg)
        boxes = [(said(each), box_of(each)) for each in texts(root)]
        assert (overlapping(boxes), cut_off(boxes, view_box(root))) == ([], []), (kind, width)
        meant: dict[str, set[str]] = {}
        for each in texts(root):
            meant.setdefault(said(each), set()).add(each.findtext(f"{SVG}title") or said(each))
        assert [words for words, wholes in meant.items() if len(wholes) > 1] == [], (kind, width)
        told = {re.sub(r"^\d+ ", "", whole) for wholes in meant.values() for whole in wholes}
        assert set(map(clean, names)) <= told, (kind, width)


def test_names_that_differ_in_the_middle_are_numbered_and_told_below() -> None:
    drawn = shown(pictures.lift_forest(made_up(12, names=LONG[1]), PictureOptions(width=390)))
    below = drawn.replace("\n", "")
    for number, name in enumerate(LONG[1], 1):
        assert re.search(rf"^{number} provider:a+…b+$", drawn, re.MULTILINE)
        assert f"{number}: {name}" in below


def test_a_forest_says_what_a_decision_is_about_and_what_prevents_it() -> None:
    rows = [
        model("m", arm(1, 1), arm(1, 1), decision="undecided", reason="errors"),
        model("n", arm(1, 1), arm(1, 1), about="these", caveats=["Read this."]),
    ]
    drawn = shown(pictures.lift_forest({"skill": {"name": "s"}, "models": rows}))
    assert "undecided (errors): +50 (+30 to +70)" in drawn
    assert "helps on these cases: +50 (+30 to +70)" in drawn
    assert "Read this." in drawn


def test_pictures_of_two_skills_say_so() -> None:
    document = made_up(3)
    for kind, svg in every_kind(
        document, PictureOptions(baseline="reference skill", skill="this skill")
    ).items():
        drawn = shown(svg)
        assert "reference skill" in drawn, kind
        assert "this skill" in drawn or kind == "forest", kind  # which draws no arms
        assert not re.search("without|with skill", drawn), kind


def test_a_forest_without_a_lift_has_no_axis() -> None:
    rows = [
        model("m", arm(0, 0), arm(3, 1), lift=None, interval=None, pairs=0, decision="undecided")
    ]
    svg = pictures.lift_forest({"skill": {"name": "s"}, "models": rows})
    assert "no lift, 0 pairs" in shown(svg)
    assert list(ET.fromstring(svg).iter(f"{SVG}line")) == []


def test_a_mark_stands_where_its_value_is() -> None:
    document = {
        "skill": {"name": "s"},
        "models": [model("m", arm(1, 3), arm(3, 1), lift=0.25, interval=[-0.5, 0.75])],
    }
    root = ET.fromstring(pictures.lift_forest(document))
    ticks = {
        said(each): float(each.attrib["x"])
        for each in texts(root)
        if re.fullmatch(r"[+-]?\d+", said(each))
    }
    [mark] = [each for each in root.iter(f"{SVG}circle") if float(each.attrib["r"]) == 5][:1]
    a_point = (ticks["+60"] - ticks["0"]) / 60
    assert float(mark.attrib["cx"]) == pytest.approx(ticks["0"] + 25 * a_point, abs=0.1)
    ends = next(each for each in root.iter(f"{SVG}line") if each.attrib["class"] == "up-helps")
    assert float(ends.attrib["x1"]) == pytest.approx(ticks["0"] - 50 * a_point, abs=0.1)
    assert float(ends.attrib["x2"]) == pytest.approx(ticks["0"] + 75 * a_point, abs=0.1)
    root = ET.fromstring(pictures.pass_rates(document))
    bars = [
        float(each.attrib["width"])
        for each in root.iter(f"{SVG}rect")
        if "bar" in each.attrib["class"]
    ]
    assert bars[-1] == pytest.approx(3 * bars[-2], rel=0.01)


def test_the_front_is_the_one_of_the_document(upskill: Upskill, home: Path) -> None:
    write_skill(home / "greeter", cases=12)
    usage = {"input": 60, "output": 3, "cost": 0.002}
    names = [
        write_script(
            home / "dear.yaml",
            [
                {"system": "ahoy", "answer": "ahoy", "usage": usage | {"cost": 0.5}},
                {"answer": "no", "usage": usage},
            ],
        ),
        write_script(
            home / "cheap.yaml",
            [
                {"system": "ahoy", "answer": "ahoy", "usage": usage},
                {"answer": "no", "usage": usage | {"cost": 0.001}},
            ],
        ),
    ]
    document = upskill(
        "eval", home / "greeter", *(word for name in names for word in ("-m", name)), "--json"
    ).json
    described = ET.fromstring(pictures.pareto(document)).findtext(f"{SVG}desc") or ""
    arms = {"baseline": "baseline", "skill": "with skill"}
    front = [f"{each['model']} {arms[each['arm']]}" for each in document["choices"]["pareto"]]
    assert len(front) == 2
    assert f"On the front, cheapest first: {', '.join(front)}." in described


def test_numbers_that_mean_nothing_say_so() -> None:
    document = {
        "skill": {"name": "s"},
        "models": [model("m", arm(1, 1), arm(1, 1), reason="isolation")],
    }
    for kind, svg in every_kind(document, PictureOptions()).items():
        assert "INVALID" in shown(svg), kind


def test_pictures_of_no_model_at_all_are_still_pictures() -> None:
    for svg in every_kind({"skill": {"name": "s"}, "models": []}, PictureOptions()).values():
        assert ET.fromstring(svg).tag == f"{SVG}svg"


# Colours.


def luminance(color: str) -> float:
    values = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values
    ]
    return sum(
        weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def contrast(*colors: str) -> float:
    low, high = sorted(map(luminance, colors))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_signs_stand_out_for_everybody(theme: dict[str, str]) -> None:
    for ink in ("ink", "muted"):
        assert contrast(theme[ink], theme["paper"]) >= 4.5, ink
    for step in range(5):
        assert contrast(theme["heat-ink"], theme[f"heat-{step}"]) >= 4.5, step
    for sign in ("skill", "hurts", "saves", "undecided"):
        assert contrast(theme[sign], theme["paper"]) >= 3, sign


def test_a_picture_has_the_colors_of_light_and_dark() -> None:
    document = made_up(1)
    svg = pictures.lift_forest(document)
    assert {LIGHT["ink"], DARK["ink"]} <= set(re.findall("#[0-9a-f]{6}", svg))
    assert "prefers-color-scheme" in svg
    bare = pictures.lift_forest(document, PictureOptions(style=False))
    assert "<style" not in bare
    assert "style=" not in bare  # which a strict Content-Security-Policy would ignore
    used = set(
        re.findall(
            r"up-[\w-]+", " ".join(re.findall(r'class="([^"]*)"', "".join(crowds().values())))
        )
    )
    assert used <= set(re.findall(r"\.(up-[\w-]+)", style()))


# Texts.


def test_a_long_name_keeps_both_ends_and_no_part_of_a_character() -> None:
    short = shorten("hf:org/" + "x" * 300 + "-2026", 120)
    assert (short[:7], short[-5:], "…" in short) == ("hf:org/", "-2026", True)
    assert text_width(short) <= 120
    family = "👩‍👩‍👧‍👦"
    assert shorten(family * 40, 100).replace("…", "").replace(family, "") == ""
    assert clean("a\r\n\tb") == "a b"
    assert clean("Z" + "\u0301" * 50).count("\u0301") <= 2


# The commands.


@pytest.fixture
def run(upskill: Upskill, home: Path) -> dict[str, Any]:
    """A run of two models, as `--json` has it."""
    write_script(home / "dull.yaml", [{"answer": "hello"}])
    folder = write_skill(home / "greeter", cases=12)
    return upskill(
        "eval",
        folder,
        "-m",
        write_script(home / "bright.yaml"),
        "-m",
        "scripted:dull.yaml",
        "--json",
    ).json


def test_export_draws_what_the_file_is_called(
    upskill: Upskill, run: dict[str, Any], home: Path
) -> None:
    for name, kind, words in (
        ("lift.svg", "forest", "helps: +100 ("),
        ("pass-rates.svg", "bars", "100% (12/12)"),
        ("tokens.svg", "pareto", "0% at 23 tokens → 100% at 63 tokens"),
        ("cost.svg", "pareto", "0% at $0.0010 → 100% at $0.0020"),
        ("picture.svg", "forest", "scripted:dull.yaml"),
    ):
        done = upskill("export", "last", "--format", "svg", "-o", name)
        assert (done.code, done.out, done.err) == (0, "", f"Wrote 48 trials to {name}\n")
        svg = Path(name).read_text(encoding="utf-8")
        assert f"up-{kind}-" in svg
        assert words in shown(svg), name
    lift = Path("lift.svg").read_text(encoding="utf-8")
    assert upskill("export", run["run"], "--format", "svg", "-o", "-").out == lift
    assert upskill("export", "last", "--format", "svg").code == 0
    assert Path(f"{run['run']}.svg").read_text(encoding="utf-8") == lift
    done = upskill("report", "last", "-o", "page.svg")
    assert (done.code, done.err) == (0, "Wrote page.svg\n")
    assert Path("page.svg").read_text(encoding="utf-8") == lift
    for _ in range(2):  # a folder of ours is replaced
        assert upskill("export", "last", "--format", "svg", "-o", "made/here").code == 0
    names = ["lift.svg", "pass-rates.svg", "tokens.svg"]
    assert sorted(path.name for path in Path("made/here").glob("*.svg")) == names
    for name in names:
        assert (Path("made/here") / name).read_bytes() == Path(name).read_bytes()


REFUSED = {
    "lift.gif: not a supported picture format": ("last", "-o", "lift.gif"),
    "no run named 'nothing'": ("nothing", "-o", "lift.svg"),
    "cannot be written": ("last", "-o", "a-file/lift.svg"),
    "a-file: not a folder": ("last", "-o", "a-file"),
}


@pytest.mark.usefixtures("run")
def test_export_refuses_what_it_cannot_draw(upskill: Upskill) -> None:
    Path("a-file").write_text("not a folder", encoding="utf-8")
    for message, given in REFUSED.items():
        done = upskill("export", *given, "--format", "svg")
        assert (done.code, done.out, message in done.err) == (2, "", True), done.err


def test_a_picture_tells_trials_that_are_missing_from_errors(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter", cases=12)
    rules = [{"system": "ahoy", "answer": "ahoy", "usage": {"input": 60, "output": 3, "cost": 0.1}}]
    dear = write_script(
        home / "dear.yaml",
        [*rules, {"answer": "no", "usage": {"input": 60, "output": 3, "cost": 0.1}}],
    )
    halted = upskill(
        "eval", folder, "-m", dear, "--set", "max_calls=7", "--concurrency", "1", "--json"
    ).json
    scored = halted["models"][0]["unfinished"]["trials"]
    assert 0 < scored < 24
    draw = ("export", "last", "--format", "svg", "-o", "-")
    assert f"Not finished: {scored} of 24 trials" in shown(upskill(*draw).out).replace("\n", " ")
    rules = [
        {"system": "ahoy", "answer": "ahoy"},
        {"when": "1", "error": "overloaded"},
        {"answer": "no"},
    ]
    document = upskill("eval", folder, "-m", write_script(home / "errs.yaml", rules), "--json").json
    missing = sum(document["models"][0][name]["missing"] for name in ("baseline", "skill"))
    drawn = shown(upskill(*draw).out)
    assert (f"{missing} of 24 trials are missing" in drawn, "Not finished" in drawn) == (
        True,
        False,
    )
