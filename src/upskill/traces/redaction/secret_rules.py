"""Secrets with a shape of their own: the rules of detect-secrets, and ours for what it does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


def has_letters_and_digits(value: str) -> bool:
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value))


def _is_email(value: str) -> bool:
    local, _, domain = value.partition("@")
    if local.lower() in ("git", "hg", "svn"):  # git@github.com:owner/name
        return False
    end = domain.rsplit(".", 1)[-1].lower()
    return end not in _FILE_ENDINGS


_FILE_ENDINGS = {"py", "js", "ts", "json", "yml", "yaml", "md", "txt", "toml", "lock", "tgz", "gz", "zip", "png", "svg"}


def rule(kind: str, hints: str, pattern: str, is_secret: Callable[[str], bool] | None = None, flags: int = 0) -> Rule:
    return Rule(kind, re.compile(pattern, flags), is_secret, tuple(hints.split()))


def matched_spans(found: re.Match[str]) -> list[tuple[int, int]]:
    """Where the secrets are in what a rule's pattern matched."""
    if "value" in found.re.groupindex:
        return [found.span("value")] if found["value"] else []
    groups = [found.span(number) for number in range(1, found.re.groups + 1) if found[number]]
    # A group at the beginning is what tells the kind (`(abc|abd)_…`), and the secret is all of it.
    return [found.span()] if not groups or groups[0][0] == found.start() else groups


_BLOCK = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
# Secrets with a shape of their own that detect-secrets does not know, or knows only in part.
SHAPES: tuple[Rule, ...] = (
    rule(
        "private-key",
        "-----begin",
        rf"{_BLOCK}(?:.(?!-----BEGIN))*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
        flags=re.S,
    ),
    rule("private-key", "-----begin", rf"{_BLOCK}(?:(?:\\n|\s)*[A-Za-z0-9+/=:,\-]{{8,}})*"),  # cut off
    rule("private-key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    rule("github-token", "github_pat_ ghp_ gho_ ghu_ ghs_ ghr_", r"\b(?:github_pat_\w{30,}|gh[pousr]_\w{30,})"),
    rule(
        "gitlab-token",
        "gl gr1348941",
        r"\b(?:gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|imt|oas|ffct)-|GR1348941)[\w.-]{20,}",
    ),
    rule("slack-token", "xox xapp-", r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}"),
    rule("slack-webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[\w/+-]{20,}"),
    rule("discord-webhook", "/webhooks/", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
    rule(
        "stripe-key",
        "sk_ rk_ pk_ whsec_",
        r"\b(?:[srp]k|whsec)_(?:live_|test_)?[0-9A-Za-z]{20,}",
        has_letters_and_digits,
    ),
    rule("model-key", "sk-", r"\bsk-(?:ant-|proj-|or-v1-|svcacct-|admin-)?[A-Za-z0-9_-]{16,}", has_letters_and_digits),
    rule(
        "model-key",
        "gsk_ r8_ fw_ tgp_v1_ xai- pplx- nvapi- csk-",
        r"\b(?:gsk|r8|fw|tgp_v1)_[A-Za-z0-9]{20,}|\b(?:xai|pplx|nvapi|csk)-[A-Za-z0-9_-]{20,}",
    ),
    rule("huggingface-token", "hf_ api_org_", r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    rule(
        "google-key",
        "aiza gocspx- ya29. 1//0",
        r"\bAIza[\w-]{35}|\bGOCSPX-[\w-]{20,}|\bya29\.[\w-]{20,}|\b1//0[\w-]{30,}",
    ),
    rule("npm-token", "npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    rule("pypi-token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{40,}"),
    rule("mailgun-key", "key-", r"\bkey-[0-9a-f]{32}\b"),
    rule("digitalocean-token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{40,}"),
    rule("databricks-token", "dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
    rule("vault-token", "hvs. hvb. hvr.", r"\bhv[sbr]\.[\w-]{20,}"),
    rule("discord-token", "", r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}"),
    rule("jwt", "eyj", r"\beyJ[\w-]{10,}\.eyJ[\w-]{6,}\.[\w-]*"),
    rule("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    rule("square-token", "sq0 eaaa", r"\bsq0(?:atp|csp|idp)-[\w-]{20,}|\bEAAA[\w-]{50,}"),
    rule(
        "service-token",
        "lin_api_ ntn_ figd_ dckr_pat_ pmak- nrak- glsa_ atatt3 hrku- dp.pt. pul- tskey- "
        "sntrys_ phc_ phx_ rubygems_ oy2 sbp_ pscale_ aq.ab",
        r"\b(?:lin_api_|ntn_|figd_|dckr_pat_|PMAK-|NRAK-|glsa_|ATATT3|HRKU-|dp\.pt\.|pul-|tskey-[a-z]+-|sntrys_|phc_|phx_"
        r"|rubygems_|oy2|sbp_|pscale_(?:tkn|pw)_|AQ\.Ab)[\w=.-]{20,}",
        has_letters_and_digits,
    ),
    rule("password-hash", "$", r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$(?:1|5|6|y|argon2id?)\$[^\s:\"']{20,}"),
)
EMAIL = (
    rule(
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
# among them. The first group knows shapes and goes before our CONTEXTS, which would call everything a `secret`.
SHAPE_DETECTORS = {
    "aws": ("aws-key", "akia asia abia acca a3t aws"),
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


def detectors(table: Mapping[str, tuple[str, str]]) -> Iterator[Rule]:
    from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415 - requests comes with it

    for name, (kind, hints) in table.items():
        for found in vars(import_module(f"detect_secrets.plugins.{name}")).values():
            if isinstance(found, type) and issubclass(found, RegexBasedDetector) and found is not RegexBasedDetector:
                detector: Any = found()
                for pattern in detector.denylist:
                    yield Rule(kind, pattern, None, tuple(hints.split()), name in LONG_WORD_DETECTORS)
