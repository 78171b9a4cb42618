"""Redact: take secrets, e-mail addresses and home folders out of text and traces, before they are sent or kept.

The rules of detect-secrets and our own. What is found is replaced by `[REDACTED kind]` and counted by kind; a home
folder becomes `~`. A value that was found once is replaced wherever else in the trace it stands. Redacting twice
changes nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from upskill.plain import as_list, as_mapping
from upskill.traces import Step, Trace

MARK = "[REDACTED "
HOME = "home-path"
_TEXTS = ("text", "tool", "output", "at", "agent")
_ABOUT = ("goal", "source", "cwd", "session", "model", "agent", "stop", "started")


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of secret. The group `value` is what is replaced, or all of a match that has none."""

    kind: str
    pattern: re.Pattern[str]
    real: Callable[[str], bool] | None = None  # is this a secret, or code that speaks of one?
    hints: tuple[str, ...] = ()  # in lower case; a text with none of them has no match, and is not searched
    long: bool = False  # a match has at least 24 letters and digits in a row


@dataclass(frozen=True, slots=True)
class Redaction:
    """A trace without its secrets, and how many of each kind there were."""

    trace: Trace
    counts: Mapping[str, int]

    @property
    def said(self) -> str:
        """The counts in a line."""
        return counts_in_words(self.counts)


def counts_in_words(counts: Mapping[str, int]) -> str:
    if not counts:
        return "nothing to redact"
    return "redacted " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """Text without secrets; what was found is added to `counts`."""
    redactor = Redactor(counts)
    return redactor.text(text)


def redact_trace(trace: Trace) -> Redaction:
    """The same trace, with nothing secret in its words, arguments, outputs or what is known about it."""
    redactor = Redactor()
    # The first reading finds the values, the second finds them where nothing around them gives them away.
    steps = [redactor.step(step) for step in trace.steps]
    about: dict[str, Any] = {name: redactor.text(getattr(trace, name)) for name in _ABOUT}
    about["warnings"] = tuple(redactor.text(said) for said in trace.warnings)
    if redactor.values:
        steps = [redactor.again(step) for step in steps]
        about = {name: redactor.known(value) for name, value in about.items()}
    return Redaction(replace(trace, steps=tuple(steps), **about), dict(redactor.counts))


class Redactor:
    """Remembers what it found, so that it can be found again."""

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.home = os.path.expanduser("~")  # noqa: PTH111 - which, other than Path.home, never raises
        self.values: dict[str, str] = {}  # value -> kind

    def text(self, text: str) -> str:
        if len(text) < 4:
            return text
        low, long = text.lower(), bool(_LONG.search(text))
        for rule in rules():
            if (long or not rule.long) and (not rule.hints or any(hint in low for hint in rule.hints)):
                text = self._apply(rule, text)
        return self._homes(text)

    def value(self, value: Any, name: str = "") -> Any:
        """Plain data, with all text in it redacted; `name` is the field that it stands in."""
        if isinstance(value, str):
            kind = _kind_of_name(name) if _SECRET_NAME.search(name) else ""
            counted = kind == "secret" and value.isdigit()  # max_tokens: "2048"
            if kind and not counted and _is_secret_field(value):
                return self._replaced(kind, value)
            return self.text(value)
        if (fields := as_mapping(value)) is not None:
            redacted: dict[str, Any] = {}
            for key, item in fields.items():
                shown = self.text(key)
                while shown in redacted:
                    shown += "'"
                redacted[shown] = self.value(item, key)
            return redacted
        if (entries := as_list(value)) is not None:
            return [self.value(item, name) for item in entries]
        return value

    def step(self, step: Step) -> Step:
        words = {name: self.text(getattr(step, name)) for name in _TEXTS if getattr(step, name)}
        arguments = self.value(step.arguments) if step.arguments else step.arguments
        return replace(step, arguments=arguments, **words)

    def again(self, step: Step) -> Step:
        words = {name: self.known(getattr(step, name)) for name in _TEXTS if getattr(step, name)}
        return replace(step, arguments=self.known(step.arguments) if step.arguments else step.arguments, **words)

    def known(self, value: Any) -> Any:
        """Replace the values that were found before."""
        if isinstance(value, str):
            for secret, kind in self.values.items():
                if secret in value:
                    self.counts[kind] += value.count(secret)
                    value = value.replace(secret, f"{MARK}{kind}]")
            return value
        if (fields := as_mapping(value)) is not None:
            return {self.known(key): self.known(item) for key, item in fields.items()}
        if (entries := as_list(value)) is not None:
            return [self.known(item) for item in entries]
        if isinstance(value, tuple):
            return tuple(self.known(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
        return value

    def _apply(self, rule: Rule, text: str) -> str:
        pieces: list[str] = []
        last = 0
        for found in rule.pattern.finditer(text):
            for start, end in _spans(found):
                value = text[start:end]
                if start < last or MARK.rstrip() in value or (rule.real is not None and not rule.real(value)):
                    continue
                pieces += [text[last:start], self._replaced(rule.kind, value)]
                last = end
        return "".join([*pieces, text[last:]]) if pieces else text

    def _replaced(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        if kind != "email" and _stands_out(value):
            self.values.setdefault(value, kind)
        return f"{MARK}{kind}]"

    def _homes(self, text: str) -> str:
        if "/" not in text and "\\" not in text:
            return text
        found = 0
        if len(self.home) > 3 and self.home in text:  # ours may lie anywhere
            text, found = re.subn(rf"{re.escape(self.home)}(?![\w.-])", "~", text)
        text, more = _HOME_FOLDER.subn("~", text)
        if found + more:
            self.counts[HOME] += found + more
        return text


def _spans(found: re.Match[str]) -> list[tuple[int, int]]:
    if "value" in found.re.groupindex:
        return [found.span("value")] if found["value"] else []
    groups = [found.span(number) for number in range(1, found.re.groups + 1) if found[number]]
    return groups or [found.span()]


def _stands_out(value: str) -> bool:
    """Would this value be found elsewhere only where it is the same secret?"""
    kinds = sum(bool(re.search(pattern, value)) for pattern in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]"))
    return "\n" not in value and (len(value) >= 8 and kinds >= 2)


# Assignments: `password = hunter2`, `"api_key": "…"`, `--token …`.

_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|account[_-]?key|private[_-]?key|client[_-]?secret|credentials?)"
)
_SECRET_NAME = re.compile(rf"(?:^|[_.\- ]|(?<=[a-z])(?=[A-Z])){_NAME}s?$|^authorization$|^cookie$", re.I)
_PASSWORD = re.compile(r"pass|pwd", re.I)
_PLACEHOLDER = re.compile(
    r"^(?:[*x.•]+|\.\.\.|<.*>|\$.*|%.*|\{.*|your[_-].*|my[_-].*|example.*|changeme|placeholder|none|null|nil|true|false"
    r"|undefined|string|str|int|required|optional|redacted|hidden|todo|test|secret|password|token|key)$",
    re.I,
)
_CODE = re.compile(r"[(){}\[\]<>]|^(?:os|self|process|env|config|settings|args|this|request|req|secrets)\.|->|=>")


def _kind_of_name(name: str) -> str:
    return "password" if _PASSWORD.search(name) else "secret"


def _is_secret_field(value: str) -> bool:
    return len(value) >= 4 and MARK.rstrip() not in value and not _PLACEHOLDER.match(value) and not value.isspace()


def _is_password(value: str) -> bool:
    return _is_secret_field(value) and not _CODE.search(value)


def _is_random(value: str) -> bool:
    """Does it look like something that a machine made, rather than a word or an expression?"""
    return (
        len(value) >= 8
        and not _PLACEHOLDER.match(value)
        and not _CODE.search(value)
        and bool(re.search(r"\d", value))
        and bool(re.search(r"[A-Za-z]", value))
        and not re.fullmatch(r"[a-z_]+\d{0,2}(?:\.[a-z_]+\d{0,2})*", value)
    )


def _is_bare_password(value: str) -> bool:
    """A password without quotes: a word alone is more likely a variable."""
    return _is_password(value) and bool(re.search(r"[\d!@#%^&*+?]", value)) and not value.startswith(("/", "."))


def _has_letters_and_digits(value: str) -> bool:
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value))


def _is_address(value: str) -> bool:
    local, _, domain = value.partition("@")
    if local.lower() in ("git", "hg", "svn"):  # git@github.com:owner/name
        return False
    end = domain.rsplit(".", 1)[-1].lower()
    return end not in _FILE_ENDINGS


_FILE_ENDINGS = {"py", "js", "ts", "json", "yml", "yaml", "md", "txt", "toml", "lock", "tgz", "gz", "zip", "png", "svg"}


_LONG = re.compile(r"[A-Za-z0-9_-]{24}")


def _rule(
    kind: str,
    hints: str,
    pattern: str,
    real: Callable[[str], bool] | None = None,
    flags: int = 0,
    *,
    long: bool = False,
) -> Rule:
    return Rule(kind, re.compile(pattern, flags), real, tuple(hints.split()), long)


_BLOCK = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
# Blocks and whole lines first; then what is known by its own shape; then what only its surroundings give away.
OURS: tuple[Rule, ...] = (
    _rule(
        "private-key",
        "-----begin",
        rf"{_BLOCK}(?:.(?!-----BEGIN))*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
        flags=re.S,
    ),
    _rule("private-key", "-----begin", rf"{_BLOCK}(?:(?:\\n|\s)*[A-Za-z0-9+/=:,\-]{{8,}})*"),  # one that was cut off
    _rule("private-key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _rule("aws-key", "akia asia abia acca aroa aida", r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[0-9A-Z]{16}\b"),
    _rule(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    ),
    _rule("gitlab-token", "gl", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat)-[\w-]{16,}"),
    _rule("slack-token", "xox xapp-", r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}"),
    _rule("slack-webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[\w/+-]{20,}"),
    _rule("discord-webhook", "/webhooks/", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
    _rule(
        "stripe-key",
        "sk_ rk_ pk_ whsec_",
        r"\b(?:[srp]k|whsec)_(?:live_|test_)?[0-9A-Za-z]{20,}",
        _has_letters_and_digits,
    ),
    _rule(
        "model-key", "sk-", r"\bsk-(?:ant-|proj-|or-v1-|svcacct-|admin-)?[A-Za-z0-9_-]{16,}", _has_letters_and_digits
    ),
    _rule(
        "model-key",
        "gsk_ r8_ fw_ tgp_v1_ xai- pplx- nvapi- csk-",
        r"\b(?:gsk|r8|fw|tgp_v1)_[A-Za-z0-9]{20,}|\b(?:xai|pplx|nvapi|csk)-[A-Za-z0-9_-]{20,}",
    ),
    _rule("huggingface-token", "hf_ api_org_", r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    _rule(
        "google-key",
        "aiza gocspx- ya29. 1//0",
        r"\bAIza[\w-]{35}|\bGOCSPX-[\w-]{20,}|\bya29\.[\w-]{20,}|\b1//0[\w-]{30,}",
    ),
    _rule("npm-token", "npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    _rule("pypi-token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{40,}"),
    _rule("sendgrid-key", "sg.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    _rule("twilio-key", "sk ac", r"\b(?:SK|AC)[0-9a-f]{32}\b"),
    _rule("mailgun-key", "key-", r"\bkey-[0-9a-f]{32}\b"),
    _rule("digitalocean-token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{40,}"),
    _rule("databricks-token", "dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
    _rule("vault-token", "hvs. hvb. hvr.", r"\bhv[sbr]\.[\w-]{20,}"),
    _rule("telegram-token", ":aa", r"\b\d{8,10}:AA[\w-]{30,}"),
    _rule("discord-token", "", r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}"),
    _rule("jwt", "eyj", r"\beyJ[\w-]{10,}\.eyJ[\w-]{6,}\.[\w-]*"),
    _rule("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    _rule("square-token", "sq0 eaaa", r"\bsq0(?:atp|csp|idp)-[\w-]{20,}|\bEAAA[\w-]{50,}"),
    _rule(
        "service-token",
        "lin_api_ ntn_ figd_ dckr_pat_ pmak- nrak- glsa_ atatt3 hrku- dp.pt. pul- tskey- "
        "sntrys_ phc_ phx_ rubygems_ oy2 sbp_ pscale_ aq.ab",
        r"\b(?:lin_api_|ntn_|figd_|dckr_pat_|PMAK-|NRAK-|glsa_|ATATT3|HRKU-|dp\.pt\.|pul-|tskey-[a-z]+-|sntrys_|phc_|phx_"
        r"|rubygems_|oy2|sbp_|pscale_(?:tkn|pw)_|AQ\.Ab)[\w=.-]{20,}",
        _has_letters_and_digits,
    ),
    _rule("password-hash", "$", r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$(?:1|5|6|y|argon2id?)\$[^\s:\"']{20,}"),
    _rule("url-password", "://", r"(?<=://)(?P<value>[^\s/@:\"'<>\[\]{}$]*:[^\s/@\"'<>\[\]{}$]+)(?=@)"),
    _rule("url-token", "://", r"(?<=://)(?P<value>[A-Za-z0-9_-]{16,})(?=@[\w.-]+\.)", _has_letters_and_digits),
    _rule(
        "url-secret",
        "?",
        r"[?&](?:access_token|token|api_?key|key|sig|signature|secret|password|auth|X-Amz-Signature|X-Amz-Credential)"
        r"=(?P<value>[^\s&\"'<>#\[]{8,})",
        _has_letters_and_digits,
        re.I,
    ),
    _rule(
        "authorization",
        "authorization",
        r"\b(?:authorization|proxy-authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest|apikey)?\s*"
        r"(?P<value>[A-Za-z0-9._~+/=-]{8,})",
        None,
        re.I,
    ),
    _rule("authorization", "bearer", r"\bBearer\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", _has_letters_and_digits, re.I),
    _rule("cookie", "cookie", r"(?:^|[\s\"'])(?:set-)?cookie:\s*(?P<value>[^\s;=]+=[^\r\n\"']{6,})", None, re.I | re.M),
    _rule(
        "azure-key", "accountkey sharedaccesskey", r"\b(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/=]{20,})"
    ),
    _rule("azure-key", "sharedaccesssignature", r"\bSharedAccessSignature=(?P<value>[^\s\"';]{20,})"),
    _rule(
        "aws-key",
        "secret",
        r"(?i:aws.{0,20}secret.{0,20})[\"']?\s*[:=]\s*[\"']?(?P<value>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
    ),
    _rule("password", "machine", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<value>\S+)"),
    _rule(
        "password",
        "-u --user",
        r"\b(?:curl|wget|http|https|xh)\b[^\n|;]{0,300}?\s(?:-u|--user)[ =][\"']?[^\s:\"']+:(?P<value>[^\s\"']+)",
    ),
    _rule("password", "sshpass", r"\bsshpass\s+-p\s*[\"']?(?P<value>[^\s\"']+)"),
    _rule(
        "password",
        "mysql mariadb",
        r"\b(?:mysql|mysqldump|mariadb)\b[^\n|;]{0,300}?\s-p(?P<value>[^\s\"'-][^\s\"']{3,})",
    ),
    _rule(
        "password",
        "pass pwd secret token key credential",
        rf"--?{_NAME}s?[ =](?P<quote>[\"'])(?P<value>[^\"'\n]{{4,}})(?P=quote)",
        _is_password,
        re.I,
    ),
    _rule(
        "password",
        "pass pwd",
        r"--?(?:\w+-)*pass(?:word|wd|phrase)?[ =](?P<value>[^\s\"']{4,})",
        _is_bare_password,
        re.I,
    ),
    _rule(
        "secret",
        "pass pwd secret token key credential",
        rf"--?(?:\w+-)*{_NAME}[ =](?P<value>[^\s\"'|;&]{{8,}})",
        _is_random,
        re.I,
    ),
    _rule(
        "password",
        "pass pwd",
        r"(?:pass(?:word|wd|phrase)|pwd)\w*\\?[\"']?\s*(?:=|:|=>)\s*\\?(?P<quote>[\"'])(?P<value>[^\"'\n\\]{4,})\\?(?P=quote)",
        _is_password,
        re.I,
    ),
    _rule(
        "password",
        "pass pwd",
        r"(?:pass(?:word|wd|phrase)|pwd)\s*[=:]\s*(?P<value>[^\s\"',;`]{4,})",
        _is_bare_password,
        re.I,
    ),
    _rule(
        "secret",
        "pass pwd secret token key credential",
        rf"{_NAME}\w*\\?[\"']?\s*(?:=|:|=>)\s*\\?[\"']?(?P<value>[^\s\"',;`\\)]{{8,}})",
        _is_random,
        re.I,
    ),
    _rule(
        "email",
        "@",
        r"(?<![\w.+/%-])[A-Za-z0-9][\w.+%-]*@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}\b(?!\()",
        _is_address,
    ),
)
# The person's folder, wherever a path begins; what lies below it stays.
_HOME_FOLDER = re.compile(
    r"(?<![\w~.$}])(?:/(?:home|Users|var/home|export/home)/(?!\*|\$|<|\{|user\b|username\b|you\b|runner\b)[^\s/\\:;,\"'`()<>|&?*]+"
    r"|/root(?=[/\s\"'`:;,)]|$)|[A-Za-z]:\\{1,2}Users\\{1,2}(?!Public\b)[^\s\\/:;,\"'`()<>|&?*]+"
    r"|/(?:mnt/)?[a-z]/Users/[^\s/\\:;,\"'`()<>|&?*]+)"
)
# Of detect-secrets, the detectors that know a shape; those that measure randomness take hashes for secrets.
DETECTORS: dict[str, tuple[str, str]] = {  # module -> kind, hints
    "artifactory": ("artifactory-token", "akc ap"),
    "aws": ("aws-key", "akia asia abia acca a3t aws"),
    "azure_storage_key": ("azure-key", "accountkey"),
    "basic_auth": ("url-password", "://"),
    "cloudant": ("cloudant-password", "cl"),
    "discord": ("discord-token", ""),
    "github_token": ("github-token", "gh"),
    "gitlab_token": ("gitlab-token", "gl gr1348941"),
    "ibm_cloud_iam": ("ibm-key", "key pwd pass token"),
    "ibm_cos_hmac": ("ibm-key", "key"),
    "mailchimp": ("mailchimp-key", "-us"),
    "npm": ("npm-token", "_authtoken"),
    "openai": ("model-key", "sk-"),
    "private_key": ("private-key", "begin putty"),
    "pypi_token": ("pypi-token", "pypi-"),
    "sendgrid": ("sendgrid-key", "sg."),
    "slack": ("slack-token", "xox hooks.slack.com"),
    "softlayer": ("softlayer-key", "softlayer sl"),
    "square_oauth": ("square-token", "sq0"),
    "stripe": ("stripe-key", "k_live_"),
    "telegram_token": ("telegram-token", ":"),
    "twilio": ("twilio-key", "sk ac"),
}
_LONG_ONES = (
    "cloudant",
    "softlayer",
    "ibm_cloud_iam",
    "ibm_cos_hmac",
    "discord",
    "telegram_token",
    "mailchimp",
    "twilio",
)


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied."""
    return (*OURS[:-1], *_detectors(), OURS[-1])


def _detectors() -> Iterable[Rule]:
    from importlib import import_module  # noqa: PLC0415 - requests comes with it, and most commands never redact

    from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415

    for name, (kind, hints) in DETECTORS.items():
        for found in vars(import_module(f"detect_secrets.plugins.{name}")).values():
            if isinstance(found, type) and issubclass(found, RegexBasedDetector) and found is not RegexBasedDetector:
                detector: Any = found()
                for pattern in detector.denylist:
                    yield Rule(kind, pattern, None, tuple(hints.split()), name in _LONG_ONES)
