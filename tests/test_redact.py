"""Redact: no secret gets through, and what is no secret stays as it was."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import REPOSITORY
from secret_corpus import measure, read_corpus
from upskill.plain import canonical
from upskill.traces import Step, Trace
from upskill.traces.formats import read_trace
from upskill.traces.redaction.redact import redact, redact_trace


def made(length: int, letters: str = "aB3dE6gH9kLmN2pQ5sT8vWxY") -> str:
    """Something that looks random and is the same every time."""
    return (letters * (length // len(letters) + 1))[:length]


HEX = made(64, "0a1b2c3d4e5f6789")
# kind, a line, the secret in it; the corpus has more. Put together, so that no scanner takes this file for a leak.
PLANTED: dict[str, tuple[str, str, str]] = {
    "GitHub token": ("github-token", "git remote set-url origin {}", "ghp_" + made(36)),
    "Slack webhook": (
        "slack-webhook",
        "curl {}",
        "https://hooks.slack.com/services/" + "T0/B0/" + made(24),
    ),
    "secret in escaped JSON": ("secret", '{{\\"token\\": \\"{}\\"}}', made(24, "q1w2e3r4t5")),
    "private key": (
        "private-key",
        "cat key.pem\n{}\ndone",
        "-----BEGIN RSA PRIVATE"
        " KEY-----\n" + made(64) + "\n" + made(64) + "\n-----END RSA PRIVATE" + " KEY-----",
    ),
    "private key that was cut off": (
        "private-key",
        "{}",
        "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n" + made(70) + "\n" + made(50),
    ),
    "e-mail address": ("email", "Author: Ada <{}>", "ada.lovelace@analytical-engine.net"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_secret_is_replaced_and_counted(name: str) -> None:
    kind, line, secret = PLANTED[name]
    counts: Counter[str] = Counter()
    text = f"before\n{line.format(secret)}\nafter"
    shown = redact(text, counts)
    assert secret not in shown
    assert not any(piece in shown for piece in secret.split("\n") if len(piece) > 20)
    assert f"[REDACTED {kind}]" in shown
    assert counts[kind] == 1
    assert sum(counts.values()) == 1, counts
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter")
    assert redact(shown) == shown


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("cd /home/ada/src/island", "cd ~/src/island"),
        ("open /Users/ada/Documents", "open ~/Documents"),
        (r"type C:\Users\ada\notes.txt", r"type ~\notes.txt"),
        ("ls /root/.ssh", "ls ~/.ssh"),
        ("ls /tmp/claude/-Users-ada-src-island/x", "ls /tmp/claude/~-src-island/x"),
        ('npm --cache "/home/ada/.npm"', 'npm --cache "$HOME/.npm"'),
        ("{'cwd':'/home/ada'}", "{'cwd':'~'}"),
        ("PATH=/home/ada/bin:/home/ada/.local/bin", "PATH=~/bin:~/.local/bin"),
    ],
)
def test_a_home_folder_becomes_a_tilde_or_where_a_shell_expands_none_a_variable(
    path: str, shown: str
) -> None:
    counts: Counter[str] = Counter()
    assert redact(path, counts) == shown
    assert counts["home-path"] >= 1
    assert redact(shown) == shown


ORDINARY = f"""
commit 3f786850e387550fdab836ed7e6dc881de23001b
sha256:{HEX} size 12345
id: 123e4567-e89b-12d3-a456-426614174000
integrity: sha512-{made(86)}==
token = get_token(user)
password = os.environ["DB_PASSWORD"]
password: str = Field(default=None)
if token != expected_token: raise ValueError("token expired")
api_key=os.getenv("API_KEY", "")
secret = "${{{{ secrets.DEPLOY }}}}"
--token $TOKEN --password "$PASSWORD"
max_tokens: 1024, tokens_used = 4821, cache_key = f"{{name}}:{{version}}"
key = "name"; keys = ["one", "two"]; primary_key=True
git clone git@github.com:ada/engine.git
npm install react@18.2.0 @types/node@20.1.0
uses: actions/checkout@v4
@pytest.fixture
http://localhost:8080/path?page=2&sort=name#top
https://github.com/ada/engine/commit/3f786850e387550fdab836ed7e6dc881de23001b
def password_reset(self, token: str) -> None:
The password is asked for at the prompt. The secret of success is patience.
/usr/local/bin/python3 /workspace/src/main.py /etc/passwd
tokenizer = AutoTokenizer.from_pretrained("gpt2")
Authorization header is missing
export API_KEY=<your key here>
fly secrets set ALLOWED_ORIGINS=https://desk.example.com,https://lab.example.com
fly secrets set ALLOWED_ORIGINS="https://desk.example.com, https://*.lab.example.com:8443"
fly secrets set GIT_REMOTE_URL="https://github.com/username/repo.git"
Let me see if all tests pass: Perfect! All green.
Do they pass: **Great!** And tests pass: p5.js works, tests pass = Yay!!
data = b"\\x00\\x01"; x = 0xDEADBEEFCAFEBABE
"""


@pytest.mark.parametrize("line", ORDINARY.strip().splitlines())
def test_ordinary_code_hashes_and_prose_stay_as_they_are(line: str) -> None:
    assert redact(line) == line


def test_an_address_with_something_hidden_in_it_is_a_secret() -> None:
    for hidden in (
        "https://hooks.example.com/in/9f8e7d6c5b4a",
        "https://ada:hunter2@example.com",
        "https://a.io/?k=x9y8",
    ):
        assert "[REDACTED" in redact(f"fly secrets set HOOK_URL={hidden}"), hidden


def test_the_name_of_a_secret_that_is_one_somewhere_stays_where_it_is_a_word() -> None:
    clean = redact(
        "An access token goes into the URL: https://username:token@github.com/username/repo.git"
    )
    assert (
        clean
        == "An access token goes into the URL: https://username:[REDACTED url-password]@github.com/username/repo.git"
    )


def test_the_code_of_this_package_is_left_alone() -> None:
    for path in sorted((REPOSITORY / "src/upskill/models").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        counts: Counter[str] = Counter()
        assert redact(text, counts) == text, (path.name, counts)


def test_secrets_and_near_misses_are_told_apart_in_both_halves_of_the_corpus() -> None:
    for half in ("seen", "unseen"):
        found = measure([sample for sample in read_corpus() if sample.half == half])
        assert min(found.positives, found.negatives) >= 75
        assert len(found.missed) <= 1, found.missed
        assert len(found.false_alarms) <= 2, found.false_alarms


@pytest.mark.parametrize(
    "text",
    [
        "token_" * 20_000,
        "password is " + "." * 50_000,
        '"a" ' * 20_000,
        '["[",' * 20_000,
        "key." * 20_000 + "token",
        "<password " + "a " * 40_000,
        "machine x " * 20_000,
        "[a]\n" * 20_000 + "password",
        "password send " * 10_000,
        "password=" * 16_000,
        "print env " * 10_000,
        "a:5432:" * 20_000,
        "QVBJ" * 20_000 + " " + "Q" * 50_000,
        "apiVersion: v1\n" * 10_000 + "data:\n" * 10_000,
        "pbkdf2:" * 20_000 + "$1$" * 20_000,
        "".join(f"password=h0rse{number}battery\n" for number in range(8_000)),
    ],
)
def test_no_text_takes_the_rules_long(text: str) -> None:
    """Quadratic rules would need minutes for these, and the test's own time limit would end it."""
    assert redact(text).startswith(text[:5])


def test_a_secret_that_was_found_is_found_in_other_forms_in_other_steps() -> None:
    encoded = [
        base64.b64encode(b"ada:h0rse&battery9\n").decode(),
        base64.urlsafe_b64encode(b"h0rse&battery9").decode().rstrip("="),
        b"h0rse&battery9".hex().upper(),
        "h0rse%26battery9",
    ]
    steps = (
        *(Step("assistant", f"it printed {form} there") for form in encoded),
        Step("tool", tool="Bash", arguments={"command": "redis-cli -a 'h0rse&battery9' ping"}),
    )
    redaction = redact_trace(Trace(steps))
    assert [step.text for step in redaction.trace.steps[:4]] == [
        "it printed [REDACTED password] there"
    ] * 4
    assert redaction.counts == {"password": 5}


def test_what_a_command_prints_is_a_secret_if_it_prints_one() -> None:
    for arguments in ({"command": "pass show db"}, {"file_path": "/srv/db/token"}):
        for command, output in ((arguments, "kittiwake"), ({"command": "ls"}, "a kittiwake")):
            steps = (Step("tool", arguments=command, output=output),)
            assert "kittiwake" not in canonical(
                redact_trace(
                    Trace((Step("tool", arguments=arguments, output="kittiwake\n"), *steps))
                )
            )


def test_letters_of_other_widths_stay_where_no_secret_is() -> None:
    text = "👩‍💻 ｈｅｌｌｏ\nｔｏｋｅｎ＝a1b2c3d4e5\nｈｅｌｌｏ"
    assert redact(text) == "👩‍💻 ｈｅｌｌｏ\ntoken=[REDACTED secret]\nｈｅｌｌｏ"


def test_every_part_of_a_trace_is_redacted() -> None:
    secret = "ghp_" + made(36)
    step = Step(
        "tool",
        tool="Bash",
        arguments={
            "command": f"echo {secret}",
            "deep": [{"env": {"X": secret}}],
            f"key {secret}": 1,
            "n": 3,
        },
        output=f"{secret}\n",
        at="2026-01-01",
        agent=secret,
    )
    trace = Trace(
        (Step("user", f"use {secret}"), Step("thinking", secret), Step("assistant", secret), step),
        goal=secret,
        cwd=f"/home/ada/{secret}",
        source="/home/ada/t.jsonl",
        model=secret,
        warnings=(secret,),
    )
    redaction = redact_trace(trace)
    assert secret not in canonical(
        [getattr(redaction.trace, field.name) for field in fields(redaction.trace)]
    )
    assert "/home/ada" not in canonical(redaction.trace)
    assert redaction.trace.steps[3].arguments["n"] == 3
    assert redaction.counts["github-token"] == 11
    assert redaction.summary == "redacted 11 github tokens, 2 home folders"
    assert redact_trace(redaction.trace).trace == redaction.trace
    assert redact_trace(Trace((Step("user", "hello"),))).summary == "nothing to redact"


def test_a_field_with_a_telling_name_is_redacted_whatever_it_holds() -> None:
    given = {
        "password": "swordfish",
        "authToken": "plain words",
        "max_tokens": "2048",
        "key": "name",
        "token": "$TOKEN",
    }
    shown = (
        redact_trace(Trace((Step("tool", tool="login", arguments=given),))).trace.steps[0].arguments
    )
    assert shown == {
        "password": "[REDACTED password]",
        "authToken": "[REDACTED secret]",
        "max_tokens": "2048",
        "key": "name",
        "token": "$TOKEN",
    }


def clean_arguments(given: Mapping[str, object]) -> Mapping[str, object]:
    return (
        redact_trace(Trace((Step("tool", tool="run", arguments=given),))).trace.steps[0].arguments
    )


def test_a_command_in_pieces_is_redacted_like_one_in_a_line() -> None:
    secret = "Wren7!Feather9"
    for command in (
        ["mysql", "-u", "root", f"-p{secret}", "shop"],
        ["curl", "-u", f"admin:{secret}", "https://x.test"],
        ["redis-cli", "-p", 6379, "-a", secret, "ping"],
        ["sshpass", "-p", secret, "ssh", "h"],
        ["gh", "secret", "set", "DEPLOY", "--body", secret],
        ["ldapsearch", "-x", "-w", secret],
        ["mycli", "--password", secret],
        ["--password", secret],
    ):
        pieces = [
            piece.replace(secret, "[REDACTED]") if isinstance(piece, str) else piece
            for piece in command
        ]
        shown = canonical(clean_arguments({"command": command})["command"])
        assert shown.replace(" password]", "]").replace(" secret]", "]") == canonical(pieces)
    for value in ("correct horse", "swordfish", "semi;colon", 'quo"te'):
        assert clean_arguments({"args": ["--db-password", value]}) == {
            "args": ["--db-password", "[REDACTED password]"]
        }
    for ordinary in (
        ["ls", "-la", "password", "Token7"],
        ["mysql", "-p", "shop"],
        ["docker", "login", "--password-stdin", "registry.test"],
        ["--token", "$TOKEN"],
        ["pytest", "-k", "password or token", "-p", "no:cacheprovider"],
    ):
        assert clean_arguments({"command": ordinary}) == {"command": ordinary}


def test_a_field_is_a_secret_when_the_one_beside_it_says_so() -> None:
    for naming, name in (
        ("name", "DB_PASSWORD"),
        ("Key", "apiToken"),
        ("selector", "#password"),
        ("selector", "input[name=userPassword]"),
        ("element", "Password field"),
        ("field", "#passwordInput"),
    ):
        for valued in ("value", "text"):
            shown = clean_arguments({"env": [{naming: name, valued: "swordfish", "ref": "e12"}]})
            assert "swordfish" not in canonical(shown)
            assert "e12" in canonical(shown)
    for ordinary in (
        {"name": "TOKEN_LIMIT", "value": "20000"},
        {"name": "PASSWORD_FILE", "value": "/run/db"},
        {"selector": "#compass", "text": "north"},
        {"element": "Token count", "text": "many"},
        {"name": "password", "text": "How to\nchoose a password"},
        {"key": "password", "value": "$PASSWORD"},
    ):
        assert clean_arguments(ordinary) == ordinary


def test_a_value_that_was_found_once_is_found_everywhere() -> None:
    steps = (
        Step("assistant", "It answered h0rse-battery9 to that."),
        Step("tool", tool="Bash", arguments={"command": "export DB_PASSWORD=h0rse-battery9"}),
        Step("tool", tool="Bash", arguments={"command": "printenv"}, output="… h0rse-battery9 …"),
    )
    redaction = redact_trace(Trace(steps))
    assert "h0rse-battery9" not in canonical(redaction.trace)
    assert redaction.counts["password"] == 3


def test_what_was_asked_is_counted_once_though_it_is_also_the_goal() -> None:
    redaction = redact_trace(
        Trace(
            (Step("user", "The password is h0rse-battery9."),),
            goal="The password is h0rse-battery9.",
        )
    )
    assert redaction.counts == {"password": 1}
    assert redaction.trace.goal == "The password is [REDACTED password]."


def test_a_short_secret_is_found_again_as_a_whole_word_only() -> None:
    steps = (
        Step("user", "The PIN is 4821."),
        Step(
            "tool",
            tool="Bash",
            arguments={"command": "cat moor.yaml"},
            output="depot: south\npassword: finch\n",
        ),
        Step(
            "tool",
            tool="Bash",
            arguments={"command": "moorctl login finch 4821"},
            output="finch ok; 2 goldfinches, 148210",
        ),
        Step(
            "tool",
            tool="Bash",
            arguments={"command": "moorctl ship https://finch.test/finch"},
            output="finch-api",
        ),
    )
    shown = canonical(redact_trace(Trace(steps)).trace)
    assert "moorctl login [REDACTED password] [REDACTED pin]" in shown
    assert "[REDACTED password] ok; 2 goldfinches, 148210" in shown
    assert "https://finch.test/finch" in shown
    assert "finch-api" in shown


def test_a_name_that_also_serves_as_a_password_stays_where_it_is_a_name() -> None:
    steps = [
        Step("tool", tool="Bash", arguments={"command": f"tidewatch run {n}"}) for n in range(10)
    ]
    compose = Step(
        "tool", tool="Bash", arguments={"command": "POSTGRES_PASSWORD=tidewatch docker compose up"}
    )
    shown = canonical(redact_trace(Trace((compose, *steps))).trace)
    assert "POSTGRES_PASSWORD=tidewatch" not in shown
    assert shown.count("tidewatch run") == 10


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from([line.format(secret) for _, line, secret in PLANTED.values()]),
        ),
        max_size=5,
    )
)
def test_redacting_twice_changes_nothing(pieces: list[str]) -> None:
    once = redact(" ".join(pieces))
    assert redact(once) == once


@pytest.mark.parametrize(
    "name", ["claude_code/tarn.jsonl", "codex/orchard.jsonl", "opencode/orchard.json"]
)
def test_a_recorded_session_loses_nothing_but_its_home_folder(name: str) -> None:
    trace = read_trace(REPOSITORY / "tests/fixtures/traces" / name)
    redaction = redact_trace(trace)
    assert set(redaction.counts) <= {"home-path"}
    plain: list[Mapping[str, object]] = [step.arguments for step in trace.steps]
    assert json.loads(json.dumps(plain).replace("/home/ada", "~")) == [
        step.arguments for step in redaction.trace.steps
    ]
