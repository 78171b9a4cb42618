"""The rules by which secrets are found in text: those of detect-secrets, and ours for what it does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

MARK = "[REDACTED "
LONG_WORD = re.compile(r"[A-Za-z0-9_-]{24}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of secret. The group `value` is what is replaced, or the whole match if there is no such group."""

    kind: str
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] | None = None  # tells a secret from code that mentions one
    hints: tuple[str, ...] = ()  # in lower case; a text with none of them has no match, and is not searched
    long_word: bool = False  # a match has a LONG_WORD in it


# Assignments: `password = hunter2`, `"api_key": "…"`, `--token …`.

_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|account[_-]?key|private[_-]?key|client[_-]?secret|credentials?)"
)
SECRET_NAME = re.compile(rf"(?:^|[_.\- ]|(?<=[a-z])(?=[A-Z])){_NAME}s?$|^authorization$|^cookie$", re.I)
_PASSWORD = re.compile(r"pass|pwd", re.I)
_PLACEHOLDER = re.compile(
    r"^(?:[*x.•]+|\.\.\.|<.*>|\$.*|%.*|\{.*|your[_-].*|my[_-].*|example.*|changeme|placeholder|none|null|nil|true|false"
    r"|undefined|string|str|int|required|optional|redacted|hidden|todo|test|secret|password|token|key)$",
    re.I,
)
_CODE = re.compile(r"[(){}\[\]<>]|^(?:os|self|process|env|config|settings|args|this|request|req|secrets)\.|->|=>")


def kind_of_name(name: str) -> str:
    return "password" if _PASSWORD.search(name) else "secret"


def is_secret_field(value: str) -> bool:
    return len(value) >= 4 and MARK.rstrip() not in value and not _PLACEHOLDER.match(value) and not value.isspace()


def _is_password(value: str) -> bool:
    return is_secret_field(value) and not _CODE.search(value)


def _is_random(value: str) -> bool:
    """Does it look machine-made, rather than like a word or an expression?"""
    return (
        len(value) >= 8
        and not _PLACEHOLDER.match(value)
        and not _CODE.search(value)
        and bool(re.search(r"\d", value))
        and bool(re.search(r"[A-Za-z]", value))
        and not re.fullmatch(r"[a-z_]+\d{0,2}(?:\.[a-z_]+\d{0,2})*", value)
    )


def _is_bare_password(value: str) -> bool:
    """A password without quotes: a plain word is more likely a variable."""
    return _is_password(value) and bool(re.search(r"[\d!@#%^&*+?]", value)) and not value.startswith(("/", "."))


def _has_letters_and_digits(value: str) -> bool:
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value))


def _is_email(value: str) -> bool:
    local, _, domain = value.partition("@")
    if local.lower() in ("git", "hg", "svn"):  # git@github.com:owner/name
        return False
    end = domain.rsplit(".", 1)[-1].lower()
    return end not in _FILE_ENDINGS


_FILE_ENDINGS = {"py", "js", "ts", "json", "yml", "yaml", "md", "txt", "toml", "lock", "tgz", "gz", "zip", "png", "svg"}


def _rule(kind: str, hints: str, pattern: str, is_secret: Callable[[str], bool] | None = None, flags: int = 0) -> Rule:
    return Rule(kind, re.compile(pattern, flags), is_secret, tuple(hints.split()))


_BLOCK = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
# Secrets with a shape of their own that detect-secrets does not know, or knows only in part.
SHAPES: tuple[Rule, ...] = (
    _rule(
        "private-key",
        "-----begin",
        rf"{_BLOCK}(?:.(?!-----BEGIN))*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
        flags=re.S,
    ),
    _rule("private-key", "-----begin", rf"{_BLOCK}(?:(?:\\n|\s)*[A-Za-z0-9+/=:,\-]{{8,}})*"),  # cut off
    _rule("private-key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _rule("github-token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
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
    _rule("mailgun-key", "key-", r"\bkey-[0-9a-f]{32}\b"),
    _rule("digitalocean-token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{40,}"),
    _rule("databricks-token", "dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
    _rule("vault-token", "hvs. hvb. hvr.", r"\bhv[sbr]\.[\w-]{20,}"),
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
)
# Secrets that only their surroundings give away.
ASSIGNMENTS: tuple[Rule, ...] = (
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
)
EMAIL = (
    _rule(
        "email",
        "@",
        r"(?<![\w.+/%-])[A-Za-z0-9][\w.+%-]*@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}\b(?!\()",
        _is_email,
    ),
)
# Somebody's home folder at the beginning of a path; what is below it stays.
HOME_FOLDER = re.compile(
    r"(?<![\w~.$}])(?:/(?:home|Users|var/home|export/home)/(?!\*|\$|<|\{|user\b|username\b|you\b|runner\b)[^\s/\\:;,\"'`()<>|&?*]+"
    r"|/root(?=[/\s\"'`:;,)]|$)|[A-Za-z]:\\{1,2}Users\\{1,2}(?!Public\b)[^\s\\/:;,\"'`()<>|&?*]+"
    r"|/(?:mnt/)?[a-z]/Users/[^\s/\\:;,\"'`()<>|&?*]+)"
)
# Detectors of detect-secrets: module -> kind, hints. Those that measure randomness take hashes for secrets and are not
# among them. The first group knows shapes and goes before our ASSIGNMENTS, which would call everything a `secret`.
SHAPE_DETECTORS = {
    "aws": ("aws-key", "akia asia abia acca a3t aws"),
    "github_token": ("github-token", "gh"),
    "gitlab_token": ("gitlab-token", "gl gr1348941"),
    "sendgrid": ("sendgrid-key", "sg."),
    "telegram_token": ("telegram-token", ":"),
    "twilio": ("twilio-key", "sk ac"),
}
OTHER_DETECTORS = {
    "artifactory": ("artifactory-token", "akc ap"),
    "azure_storage_key": ("azure-key", "accountkey"),
    "basic_auth": ("url-password", "://"),
    "cloudant": ("cloudant-password", "cl"),
    "discord": ("discord-token", ""),
    "ibm_cloud_iam": ("ibm-key", "key pwd pass token"),
    "ibm_cos_hmac": ("ibm-key", "key"),
    "mailchimp": ("mailchimp-key", "-us"),
    "npm": ("npm-token", "_authtoken"),
    "openai": ("model-key", "sk-"),
    "private_key": ("private-key", "begin putty"),
    "pypi_token": ("pypi-token", "pypi-"),
    "slack": ("slack-token", "xox hooks.slack.com"),
    "softlayer": ("softlayer-key", "softlayer sl"),
    "square_oauth": ("square-token", "sq0"),
    "stripe": ("stripe-key", "k_live_"),
}
# A match of these has a long word in it, which saves searching most texts.
LONG_WORD_DETECTORS = (
    *("cloudant", "softlayer", "ibm_cloud_iam", "ibm_cos_hmac"),
    *("discord", "telegram_token", "mailchimp", "twilio"),
)


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied."""
    return (*SHAPES, *_detectors(SHAPE_DETECTORS), *ASSIGNMENTS, *_detectors(OTHER_DETECTORS), *EMAIL)


def _detectors(table: Mapping[str, tuple[str, str]]) -> Iterator[Rule]:
    from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415 - requests comes with it

    for name, (kind, hints) in table.items():
        for found in vars(import_module(f"detect_secrets.plugins.{name}")).values():
            if isinstance(found, type) and issubclass(found, RegexBasedDetector) and found is not RegexBasedDetector:
                detector: Any = found()
                for pattern in detector.denylist:
                    yield Rule(kind, pattern, None, tuple(hints.split()), name in LONG_WORD_DETECTORS)
