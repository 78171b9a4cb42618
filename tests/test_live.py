"""The live page: who may read it, what it answers, and that it follows what goes on."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, greetings, start, write_script, write_skill
from live_server import HOSTILE, Live, add_runs, run_now, served
from test_store import PLAN, TRIALS, begin, result_of
from upskill import Plan, Skill, Suite, Trial, evaluate, make_plan, open_store
from upskill.reports import json as json_report
from upskill.reports.live import pages, server
from upskill.reports.live.server import Watcher
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store
from upskill.suites.suite import CaseFilter


@dataclass(frozen=True)
class Site:
    live: Live
    place: Path
    first: str
    second: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One store with two runs, and its pages."""
    folder = tmp_path_factory.mktemp("site")
    ids = add_runs(folder)
    with served(folder / "runs") as live:
        yield Site(live, folder / "runs", **ids)


# Who may read it.


def test_only_the_whole_address_opens_anything(site: Site) -> None:
    live, token = site.live, site.live.page.token
    assert len(token) >= 32
    assert live.ask().status == 200
    wrong = (
        "",
        f"{token[:-1]}/",
        f"{token}x/",
        f"{token.swapcase()}/",
        "api/overview",
        "assets/page.js",
        "/",
    )
    for path in (f"/{rest}" for rest in wrong):
        answer = live.ask(path)
        assert answer.status == 403, path
        assert token not in answer.text
        assert "address that `upskill view` printed" in answer.text


def test_requests_under_another_name_or_from_another_site_are_refused(site: Site) -> None:
    live = site.live
    own = f"127.0.0.1:{live.port}"
    near = (
        "127.0.0.1.evil.example",
        "user@127.0.0.1",
        "127.0.0.1:x",
        f"[::ffff:127.0.0.1]:{live.port}",
        "127.1",
    )
    for host in (
        "evil.example",
        f"evil.example:{live.port}",
        "localhost.evil.example",
        "0.0.0.0",
        *near,
    ):
        assert live.ask(Host=host).status == 403, host
    for host in (own, f"localhost:{live.port}", "127.0.0.1:9999"):  # also a port that was forwarded
        assert live.ask(Host=host).status == 200, host
    others = ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1")
    for origin in (*others, f"https://{own}", f"http://localhost:{live.port}"):
        assert live.ask("api/overview", Origin=origin).status == 403, origin
        assert live.mark(site.first, {}, Origin=origin).status == 403, origin
    assert live.ask("api/overview", Origin=f"http://{own}").status == 200
    assert live.ask("api/overview", Sec_Fetch_Site="cross-site").status == 403
    assert live.ask("api/overview", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    assert (
        live.ask(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    )  # a link in a mail
    assert (
        live.ask(
            f"api/feedback?run={site.first}", "POST", {}, Content_Type="application/json"
        ).status
        == 403
    )


def test_nothing_but_feedback_can_be_sent(site: Site) -> None:
    live = site.live
    origin = f"http://127.0.0.1:{live.port}"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("", "api/overview", "api/trials", f"run/{site.first}", "events"):
            assert live.ask(path, method, Origin=origin).status == 405, (method, path)
    assert live.ask("api/feedback", "DELETE", Origin=origin).status == 405


def test_no_path_leads_to_a_file(site: Site) -> None:
    for path in ("assets/../server.py", "assets/%2e%2e/server.py", "assets/..%2fserver.py", "assets/live.js", "assets/",
                 "assets/%2fetc%2fpasswd", "../../etc/passwd", "assets/page.js/../../guard.py"):  # fmt: skip
        assert site.live.ask(path).status in (403, 404), path


def test_every_answer_forbids_what_a_page_does_not_need(site: Site) -> None:
    paths = ("", "assets/page.css", "api/overview", "api/nothing", "/", "run/nothing")
    for path in (*paths, f"api/trial?run={site.first}&key=x"):
        headers = site.live.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"


# What it answers.


def test_the_list_has_runs_with_their_decisions_and_skills(site: Site) -> None:
    found = site.live.api("overview")
    assert [row["id"] for row in found["runs"]] == [site.second, site.first]
    first = found["runs"][1]
    assert [(one["decision"], one["lift"]) for one in first["verdicts"]] == [
        ("helps", 1.0),
        ("undecided", 0.0),
    ]
    assert (first["state"], first["trials"], first["scored"]) == ("done", 24, 24)
    assert first["verdicts_are_current"]
    (skill,) = found["skills"]
    assert (skill["name"], skill["runs"], skill["latest"]) == ("greeter", 2, site.second)
    assert [(one["run"], one["of"]) for one in skill["verdicts"]] == [
        (site.second, ""),
        (site.first, "an older version of the skill"),  # the other model has seen no later one
    ]


def test_a_run_of_a_part_or_against_an_older_skill_replaces_no_decision(tmp_path: Path) -> None:
    helped = write_script(tmp_path / "helped.json")
    hurt = write_script(
        tmp_path / "hurt.json", [{"system": "ahoy", "answer": "no"}, {"answer": "ahoy"}]
    )
    skill, suite = Skill.load(write_skill(tmp_path / "greeter")), Suite.parse(greetings(8))
    part = CaseFilter(limit=2).choose(suite)
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:

        def verdicts() -> list[tuple[str, str, str]]:
            (row,) = live.api("overview")["skills"]
            return [(one["model"], one["decision"], one["of"]) for one in row["verdicts"]]

        run_now(store, skill, part, [helped])
        assert verdicts() == [(helped, "undecided", "only 2 of 8 cases")]
        alone = live.api("skill", skill="greeter")
        assert [one["of"] for one in alone["versions"][0]["verdicts"].values()] == [
            "only 2 of 8 cases"
        ]
        assert not alone["picture"]  # which is of lifts on whole suites
        run_now(store, skill, suite, [helped, hurt])
        decided = [(helped, "helps", ""), (hurt, "hurts", "")]
        assert verdicts() == decided
        run_now(store, skill, part, [helped])
        against = run_now(store, skill, suite, [hurt], reference_skill=skill)
        assert verdicts() == decided
        page = live.api("skill", skill="greeter")
        (version,) = page["versions"]
        shown = [(one["model"], one["decision"], one["of"]) for one in version["verdicts"].values()]
        assert sorted(shown) == sorted(decided)
        assert ">helps<" in page["picture"]
        assert ">hurts<" in page["picture"]
        assert "undecided" not in page["picture"]
        rows = {row["id"]: row for row in live.api("overview")["runs"]}
        assert [row["id"] for row in rows.values() if row["against"]] == [against]


def test_a_run_whose_trials_all_ended_is_done_and_a_model_that_only_erred_is_undecided(
    tmp_path: Path,
) -> None:
    helped = write_script(tmp_path / "helped.json")
    broken = write_script(tmp_path / "broken.json", [{"error": "the server is on fire"}])
    skill, suite = Skill.load(write_skill(tmp_path / "greeter")), Suite.parse(greetings(8))
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:
        for models in ([helped, broken], [broken]):
            run_now(store, skill, suite, models)
            row = live.api("overview")["runs"][0]
            assert (row["state"], row["missing"], row["verdicts_are_current"]) == ("done", 16, True)
            shown = {one["model"]: (one["decision"], one["reason"]) for one in row["verdicts"]}
            assert list(shown) == models
            assert shown[broken] == ("undecided", "errors")


def test_versions_without_a_common_case_are_compared_by_what_they_say(tmp_path: Path) -> None:
    model = write_script(tmp_path / "model.json")
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:
        ids: list[str] = []
        for number in (1, 2):
            skill = Skill.load(
                write_skill(tmp_path / "greeter", body=f"Say ahoy {number} times.\n")
            )
            cases = [{"id": f"of-{number}", "prompt": "Greet me", "checks": [{"contains": "ahoy"}]}]
            ids.append(run_now(store, skill, Suite.parse({"cases": cases}), [model]))
        found = live.api("compare", before=ids[0], after=ids[1])
    assert ["-", "Say ahoy 1 times."] in found["diff"]
    assert ["+", "Say ahoy 2 times."] in found["diff"]
    assert (found["changed"], found["same"]) == ([], [])
    assert "have no cases in common" in found["words"][0]


def test_the_server_chooses_which_runs_are_compared(tmp_path: Path) -> None:
    one, two = (write_script(tmp_path / f"{name}.json") for name in ("one", "two"))
    first, second = (
        Skill.load(write_skill(tmp_path / "greeter", body=body))
        for body in ("Say ahoy.", "Say ahoy to all.")
    )
    suite = Suite.parse(greetings(2))
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:
        assert live.api("pair") == []
        older = run_now(store, first, suite, [one])
        assert live.api("pair") == [older, older]
        newer = run_now(store, second, suite, [one])
        of_two = run_now(store, first, suite, [two])
        other_cases = [{"id": "hi", "prompt": "Say hi.", "checks": [{"contains": "hi"}]}]
        of_other_cases = run_now(store, second, Suite.parse({"cases": other_cases}), [one])
        assert live.api("pair") == [older, newer]
        versions = [version["hash"] for version in live.api("skill", skill="greeter")["versions"]]
        for before, after, pair in (
            (*versions, [older, newer]),
            (*reversed(versions), [newer, older]),
            (of_two, "", [of_two, of_other_cases]),
            ("", of_other_cases, [of_two, of_other_cases]),
        ):
            assert live.api("pair", skill="greeter", before=before, after=after) == pair


def test_a_store_that_is_deleted_or_replaced_is_said_to_be_gone(tmp_path: Path) -> None:
    run = add_runs(tmp_path)["first"]
    with served(tmp_path / "runs") as live:
        assert live.ask("api/overview").status == 200
        (tmp_path / "runs").rename(tmp_path / "elsewhere")
        for again in (False, True):
            if again:
                open_store(tmp_path / "runs").close()
            for path in (
                "overview",
                *(f"{name}?run={run}" for name in ("run", "summary", "trials", "feedback.json")),
            ):
                answer = live.ask(f"api/{path}")
                assert answer.status == 503, path
                assert (
                    "upskill.db: the store was deleted, moved or replaced. This happened"
                    in answer.text
                )
                assert "damaged" not in answer.text
        for file in (tmp_path / "runs").iterdir():
            file.unlink()
        (tmp_path / "runs").rmdir()
        (tmp_path / "elsewhere").rename(tmp_path / "runs")
        assert live.ask("api/overview").status == 200


def test_older_runs_are_listed_a_page_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upskill.reports.live.pages.RUNS_AT_ONCE", 2)
    with open_store(tmp_path) as store:
        ids = [begin(store, new=True).id for _ in range(5)]
    with served(tmp_path) as live:
        pages = [live.api("overview")]
        while pages[-1]["more"] is not None:
            pages.append(live.api("overview", before=pages[-1]["more"]))
        assert [row["id"] for page in pages for row in page["runs"]] == ids[::-1]
        assert [len(page["runs"]) for page in pages] == [2, 2, 1]


def test_the_page_of_a_run_has_the_numbers_of_json(site: Site) -> None:
    with open_store(site.place) as store:
        expected = json_report.to_dict(evaluation_of(store, store.run(site.first)))
    path = f"api/summary?run={site.first}"
    answer = site.live.ask(path)
    assert answer.json["document"] == json.loads(json.dumps(expected))
    again = site.live.ask(path, If_None_Match=answer.headers["ETag"])
    assert (again.status, again.text) == (304, "")
    assert "Content-Encoding" not in answer.headers
    assert site.live.ask(path, Accept_Encoding="gzip, br").headers["Content-Encoding"] == "gzip"


def test_trials_are_filtered_and_come_a_page_at_a_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(site.place) as store:
        run = store.run(site.first)
        everything = {
            (row.case, row.model, row.arm, row.seed): row.passed for row in store.outcomes(run)
        }

    def listed(**wanted: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        after: dict[str, str] = {}
        while True:
            page = site.live.api("trials", run=site.first, **wanted, **after)
            found += [(row["case"], row["model"], row["arm"], row["seed"]) for row in page["rows"]]
            assert page["total"] is None or page["total"] >= len(found)
            if page["next"] is None:
                assert page["total"] in (None, len(found))
                return found
            after = {"after": page["next"]}

    whole = list(everything)
    model = next(key[1] for key in whole if "student" in key[1])
    for page, looked_at in ((50, 10_000), (5, 3), (1, 7)):
        monkeypatch.setattr(pages, "TRIALS_AT_ONCE", page)
        monkeypatch.setattr(pages, "MAX_OUTCOMES_READ", looked_at)
        assert listed() == whole
        assert listed(model=model) == [key for key in whole if key[1] == model]
        assert listed(outcome="failed", arm="skill") == [
            key for key in whole if key[2] == "skill" and not everything[key]
        ]
        assert listed(case="greet-2") == [key for key in whole if key[0] == "greet-2"]
        assert listed(text="GUEST 4") == [
            key for key in whole if key[0] == "greet-4"
        ]  # what was asked
        assert listed(text="onerror=") == [("greet-1", model, "skill", 0)]  # what was answered
        assert listed(text="onerror=", outcome="failed") == []
        assert listed(tag="no such tag") == []
    for after in ("x", "[]", "[1,2,3,4]", '["a","b","c","d"]', '["a","b","c",1e99]', "[" * 5000):
        assert site.live.ask(f"api/trials?run={site.first}&after={after}").status == 400, after[:20]


def test_one_trial_is_told_whole(site: Site) -> None:
    with open_store(site.place) as store:
        rows = [
            row
            for row in store.outcomes(store.run(site.first), "greet-1")
            if "student" in row.model
        ]
    key = next(row for row in rows if row.arm == "skill")
    asked = json.dumps([key.case, key.model, key.arm, key.seed])
    found = site.live.api("trial", run=site.first, key=asked)
    assert found["outcome"] == "passed"
    assert found["answer"]["text"] == HOSTILE
    assert site.live.api("trial", run=site.first, key=asked.replace("greet-1", "nothing")) is None


def test_what_there_is_not_is_said(site: Site) -> None:
    for path in (
        "api/summary?run=nothing",
        "api/trials?run=",
        "api/skill?skill=nothing",
        f"api/compare?before={site.first}&after=no",
    ):
        answer = site.live.ask(path)
        assert answer.status == 404, path
        assert "run" in answer.text
    refused = site.live.ask(f"api/compare?before={site.first}&after={site.second}&model=nobody")
    assert (refused.status, "no model named 'nobody'.\n" in refused.text) == (400, True)


def test_two_runs_are_compared_with_their_answers_and_skills(site: Site) -> None:
    found = site.live.api("compare", before=site.first, after=site.second)
    assert found["before"]["model"] == found["after"]["model"]
    assert [(one["id"], one["change"]) for one in found["changed"]] == [
        (f"greet-{n}", "worse") for n in range(1, 7)
    ]
    answers = [[answer["answer"]["text"] for answer in one["answers"]] for one in found["changed"]]
    assert answers == [[HOSTILE, "hello, friend"], *[["ahoy, friend", "hello, friend"]] * 5]
    assert ["-", "Say ahoy, then the name."] in found["diff"]
    assert ["+", "Say hello."] in found["diff"]
    assert "6 got worse" in " ".join(found["words"])


def test_a_skill_is_shown_over_the_versions_and_models_of_its_latest_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = site.live.api("skill", skill="greeter", width=500)
    first, second = found["versions"]
    assert (first["latest"], second["latest"]) == (site.first, site.second)
    assert [one["decision"] for one in first["verdicts"].values()] == ["helps", "undecided"]
    assert 'width="524"' in found["picture"]  # and a margin
    assert ([first["name"], second["name"]], ">v2 " in found["picture"]) == (["v1", "v2"], True)
    monkeypatch.setattr(pages, "MAX_RUNS", 1)
    found = site.live.api("skill", skill="greeter")
    assert [(each["latest"], each["name"]) for each in found["versions"]] == [(site.second, "v2")]
    assert (found["runs"], found["shown"]) == (2, 1)


# Large runs.


def test_a_large_run_is_summarized_while_pages_are_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SMALL", 0)
    path = f"api/summary?run={site.second}"
    with served(site.place) as live:
        assert live.ask(path).status == 202
        assert live.ask(f"run/{site.second}").status == 200
        while (answer := live.ask(path)).status == 202:
            pass
        assert answer.json["run"]["id"] == site.second


# What goes on.


@contextmanager
def listening(live: Live) -> Generator[http.client.HTTPResponse]:
    """A page that hears what has changed."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=600)
    connection.request("GET", f"/{live.page.token}/events")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream"
    assert heard(response) == []
    yield response
    connection.close()


def heard(response: http.client.HTTPResponse) -> list[dict[str, Any]]:
    """The next message."""
    while not (line := response.readline()).startswith(b"data: "):
        assert line, "the server has gone"
    return json.loads(line.removeprefix(b"data: "))


def add(store: Store, number: int, passed: bool | None = True) -> None:
    asyncio.run(store.add_result(store.run("last"), result_of(TRIALS[number], passed)))


def test_the_time_left_is_that_of_the_command_that_runs(tmp_path: Path) -> None:
    day = timedelta(days=1)
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)
        add(store, 0)  # by an earlier command
        run = store.annotate(
            run, began=((datetime.now(UTC) - day).isoformat(), store.count_timed(run))
        )
        with store.claim(run):
            assert live.api("run", run=run.id)["seconds_left"] is None
            instant = replace(
                result_of(TRIALS[1], True), seconds=0.01
            )  # says nothing about the pace
            asyncio.run(store.add_result(run, instant))
            assert live.api("run", run=run.id)["seconds_left"] is None
            add(store, 2)
            add(store, 3)
            left = live.api("run", run=run.id)["seconds_left"]
        assert left == pytest.approx((len(PLAN) - 4) * day.total_seconds() / 2, rel=0.01)


async def test_a_run_in_progress_knows_when_its_command_began(home: Path) -> None:
    began: list[tuple[str, int] | None] = []

    def started(_: Plan, run: Run, __: Collection[Trial]) -> None:
        began.append(run.plan.began)

    plan = make_plan(
        Skill.load(write_skill(home / "greeter", cases=2)),
        models=[write_script(home / "model.yaml")],
    )
    with open_store(home / "runs") as store:
        for _ in range(2):
            await evaluate(plan, store=store, events=Events(started=started))
            assert store.run("last").plan.began is None
    first, second = began
    assert first is not None
    assert (first[1], second) == (0, None)  # nothing was missing the second time


def test_pages_hear_of_every_result_and_of_who_works(tmp_path: Path) -> None:
    with (
        open_store(tmp_path) as store,
        served(tmp_path) as live,
        listening(live) as page,
        listening(live) as other,
    ):
        run = begin(store)
        assert [row["id"] for row in heard(page)] == [run.id]
        with store.claim(run):
            add(store, 0)
            (row,) = heard(page)
            assert (row["state"], row["scored"], row["trials"]) == ("running", 1, len(PLAN))
            add(store, 1, None)
            (row,) = heard(page)
            assert (row["missing"], row["tokens"], row["cost_usd"]) == (1, 46, 1.5)
            assert row["seconds_left"] is None  # nothing says when the command began
        (row,) = heard(page)  # nobody works on it any more, which nothing in the store says
        assert row["state"] == "interrupted"
        store.delete_run(run)
        assert heard(page) == [{"id": ""}]
        assert heard(other)[0]["id"] == run.id


# Feedback.


def test_marks_are_kept_and_survive_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        run = begin(store).id
        add(store, 0)
        add(store, 1)
    one, two = (
        {"case": trial.case, "model": trial.model, "arm": trial.arm, "seed": trial.seed}
        for trial in TRIALS[:2]
    )
    with served(tmp_path) as live:
        assert (
            live.mark(run, one | {"verdict": "wrong", "feedback": " no \ud800 name "}).status == 200
        )
        assert live.mark(run, two | {"verdict": "odd"}).status == 200
        assert live.mark(run, two | {"verdict": "", "feedback": ""}).status == 200  # taken back
    with served(tmp_path) as live:
        (review,) = live.api("feedback.json", run=run)["reviews"]
        assert {name: review[name] for name in one} == one
        assert (review["verdict"], review["feedback"]) == ("wrong", "no \\ud800 name")


def test_what_is_no_feedback_is_refused_and_changes_nothing(site: Site) -> None:
    key = {"case": "greet-1", "model": "x", "arm": "skill", "seed": 0}
    wrong = ({"verdict": "fine"}, {"verdict": 3}, {"seed": "0"}, {"seed": 10**30}, {"arm": None})
    bodies: list[object] = [
        b"",
        b"{",
        b"[]",
        b"3",
        {},
        key,
        b"[" * 50_000,
        *(key | each for each in wrong),
    ]
    bodies.append(key | {"feedback": "x" * 10_001})
    for body in bodies:
        assert site.live.mark(site.first, body).status in (400, 404), body
    assert "seed" in site.live.mark(site.first, key | {"verdict": "odd", "seed": 10**30}).text
    assert site.live.mark(site.first, key | {"verdict": "odd"}).status == 404  # no such model
    assert site.live.mark(site.first, b"x" * 200_000).status in (400, 413)
    assert site.live.mark(site.first, key, Content_Type="text/plain").status == 415
    for encoding in ("gzip", "deflate"):
        assert site.live.mark(site.first, key, Content_Encoding=encoding).status == 400, encoding
    assert site.live.api("feedback.json", run=site.first)["reviews"] == []


def test_texts_that_cannot_be_encoded_are_refused_and_no_bug(site: Site) -> None:
    live = site.live
    mark = {
        "case": "greet-1",
        "model": "x",
        "arm": "skill",
        "seed": 0,
        "verdict": "right",
        "feedback": "",
    }
    origin = f"http://127.0.0.1:{live.port}"
    for content_type in ("nonsense", "utf-16", "utf-7", "\x7f", "idna", "undefined"):
        form = f"application/json; charset={content_type}"
        sent = live.ask(
            f"api/feedback?run={site.first}", "POST", mark, Content_Type=form, Origin=origin
        )
        assert sent.status == 400, (content_type, sent.text)
    for name in ("case", "model", "arm"):
        for value in ("\ud800", "a\udfffb", "a\0b"):
            assert live.mark(site.first, mark | {name: value}).status == 400
    for body in (b"\xff\xfe", b"[" * 100_000, b'{"seed": 1' + b"0" * 5000 + b"}", b"NaN", b""):
        sent = live.ask(
            f"api/feedback?run={site.first}",
            "POST",
            body,
            Content_Type="application/json",
            Origin=origin,
        )
        assert sent.status == 400, body[:20]
    for value in (
        "%ED%A0%80",
        "%FF",
        "%00",
        "%ud800",
        "%EF%BF%BF",
        "9" * 5000,
        "[" * 5000,
        "-1",
        "1e400",
    ):
        run = f"run={site.first}&"
        for path in (
            *(
                f"api/{page}?run={value}"
                for page in ("run", "summary", "trials", "trial", "feedback.json")
            ),
            *(
                f"api/trials?{run}{name}={value}"
                for name in ("after", "model", "arm", "outcome", "tag", "text", "case")
            ),
            *(
                f"api/compare?before={site.first}&after={site.first}&{name}={value}"
                for name in ("model", "other", "arm")
            ),
            *(
                f"api/overview?before={value}",
                f"api/skill?skill={value}",
                f"api/skill?skill=greeting&width={value}",
            ),
            *(
                f"api/trial?{run}key={value}",
                f"run/{value}",
                f"skill/{value}",
                f"assets/{value}",
                f"api/run?{value}=1",
            ),
        ):
            assert live.ask(path).status < 500, path


# The command.


def test_the_command_prints_its_address_and_ends_with_ctrl_c(site: Site) -> None:
    process = start("view", site.first[:-2], "--port", 0, "--store", site.place)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.endswith(f"/run/{site.first}")
    host = address.split("/")[2]
    assert host.startswith("127.0.0.1:")
    connection = http.client.HTTPConnection(host, timeout=600)
    connection.request("GET", address.split(host)[1])
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "Ctrl-C stops it" in said


def test_what_cannot_be_served_is_said(upskill: Upskill, home: Path, site: Site) -> None:
    done = upskill("view")
    assert (done.code, "Nothing yet: no run is stored here." in done.err) == (0, True)
    done = upskill("view", "nothing", "--store", site.place)
    assert (done.code, "no run named 'nothing'" in done.err) == (2, True)
    done = upskill("view", "--store", site.place, "--port", site.live.port, "--no-browser")
    assert done.code == 2
    assert f"port {site.live.port} on this machine is already in use" in done.err
    assert "--port" in done.err


# What open pages cost the server and the run that they follow.


def test_pages_that_open_at_once_have_one_watcher(tmp_path: Path) -> None:
    async def use() -> None:
        found = Watcher(store)
        for _ in range(2):  # also after all have been closed
            pages = [found.messages() for _ in range(20)]
            assert await asyncio.gather(*(anext(page) for page in pages)) == [b"[]"] * 20
            watching = [
                task
                for task in asyncio.all_tasks()
                if "Watcher._watch" in repr(task.get_coro()) and not task.cancelling()
            ]
            assert len(watching) == 1
            for page in pages:
                await page.aclose()

    with open_store(tmp_path) as store:
        begin(store)
        asyncio.run(use())


def test_a_page_that_has_heard_of_a_change_is_answered_with_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live, listening(live) as page:
        run = begin(store).id
        for number in range(4):
            heard(page)
            assert live.api("trials", run=run)["total"] == number
            assert live.api("summary", run=run)["run"]["scored"] == number
            assert [row["scored"] for row in live.api("overview")["runs"]] == [number]
            add(store, number)


def test_a_run_that_goes_on_is_summarized_seldom_and_at_once_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RECOMPUTE_FACTOR", 1e9)
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)
        with store.claim(run):
            add(store, 0)
            assert live.api("summary", run=run.id)["run"]["scored"] == 1
            add(store, 1)
            answer = live.ask(f"api/summary?run={run.id}")
            assert (answer.json["run"]["scored"], answer.headers["X-Stale"]) == (1, "1")
        answer = live.ask(f"api/summary?run={run.id}")
        assert (answer.json["run"]["scored"], answer.headers.get("X-Stale")) == (2, None)
