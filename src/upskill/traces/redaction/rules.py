"""The rules that recognize secrets, by shape or surroundings; the first that matches decides the kind.

To add a rule, add a row to the section that fits, and examples to tests/fixtures/secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MARK = "[REDACTED "
MAX_ENCODED = 100_000  # letters; what is longer is a file


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of secret. The group `value` is what is replaced, or the whole match if there is no such group."""

    kind: str
    hints: tuple[str, ...]  # in lower case; a text with none of them is not searched
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] | None = None  # tells a secret from code that mentions one

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        group = "value" if "value" in self.pattern.groupindex else 0
        for match in self.pattern.finditer(text):
            value = match[group]
            if (
                value
                and MARK.rstrip() not in value
                and (self.is_secret is None or self.is_secret(value))
            ):
                yield match.span(group)


def _rule(
    kind: str, hints: str, pattern: str, is_secret: Callable[[str], bool] | None = None
) -> Rule:
    return Rule(kind, tuple(hints.split()), re.compile(pattern), is_secret)


LONG_NAME = r"(?:pass(?:word|wd(?<!/etc/passwd)|phrase|wort|code)|pwd|kennwort)"
# Short names that are also words: `pass: 214`, `psk`.
SHORT_NAME = r"(?:pass(?<!bypass)(?<!compass)(?<!surpass)(?<!overpass)(?<!trespass)|pw|psk)"
_KEY = (
    r"(?:api|access|auth|signing|encryption|account|private|license|shared|master|session|hmac|subscription|secret)"
    r"[ _-]?key"
)
NAME = rf"(?:{LONG_NAME}|secret|token|{_KEY}|client[_-]?secret|credentials?)"
_TOKEN = rf"(?:(?:access|auth|api|bearer|deploy)[_-]?)?(?:token|{_KEY})"
# `password_file`, `token_url`, `secretName`: about a secret, and not the secret.
ABOUT = (
    r"(?:file|path|dir|url|uri|env|name|type|count|length|len|min|max|size|regex|pattern|field|label|hint|hash(?!\w)"
    r"|policy|prompt|reset|ref|key_?ref|header|id(?![a-z])|manager|stdin|timeout|expir|auth(?![a-z]|or)|limit|budget|endpoint)"
)
# The name ends here, or another word begins: `token_prod` and `tokenValue`, but no `tokenizer` or `password_file`.
_ABOUT = rf"s?(?!(?-i:[a-z]|(?<=[A-Z])[A-Z]))(?![_-]?{ABOUT})"
SECRET_NAME = re.compile(
    rf"(?:^|[_.\- ]|(?<=[a-z])(?=[A-Z])){NAME}s?$|_(?:pass|pw|psk|pat)$|^authorization$|^cookie$",
    re.I,
)


def kind_of_name(name: str) -> str:
    return "password" if re.search(r"pass|pwd", name, re.I) else "secret"


# What tells values that are secrets from those that are not.
_PLACEHOLDER = re.compile(
    r"^(?:[*x.•]+|\.\.\.|<.*>?|\$.*|%.*|\{.*|\[.*|[:@]\w+|\?|(?:your|my|the|an?)[_-].*|.*_here|(?:example|sample|dummy|fake).*"
    r"|(?:env|file|fd|stdin):?.*|!vault.*|changeme|placeholder|none|null|nil|true|false|undefined|string|str|int|required|optional"
    r"|redacted|hidden|todo|test|secret|pass|passwd|password\d?|passphrase|pwd|token|key|user|include|foo|bar|\\?[nrt])$",
    re.I,
)
_CODE = re.compile(
    r"[(){}\[\]<>]|^(?:os|self|process|env|config|settings|args|this|request|req|secrets)\.|->|=>"
)
# Words with digits in them that follow `password` in prose.
_TERM = re.compile(
    r"^(?:sha-?\d+|md5|bcrypt|argon2\w*|pbkdf2\w*|scrypt|base64|utf-?8|oauth2?|2fa|v\d+|\d+)$", re.I
)
# Words that follow the name of a secret in prose: `password: required`, `use --token when`, `token set correctly`.
_PROSE_WORD = re.compile(
    r"^(?:\w+ly|wrong|incorrect|invalid|missing|empty|unset|expired|unknown|needed|found|valid|enabled|disabled|prompt|auto|read|write"
    r"|bytes|text|varchar|char|number|bool(?:ean)?|any|object|field|input|data|value|generic|hashed|encoded|bearer|basic|default"
    r"|flag|option|argument|parameter|variable|from|with|when|that|this|which|before|after|instead|must|should|only|into|have|will|then"
    r"|and|for|not|also|both|rather|here|there|again|anyway|manager|file|name|type|expiry|policy|reset|store)[.:,]?$",
    re.I,
)
_FILE_ENDINGS = {
    "py",
    "js",
    "ts",
    "json",
    "yml",
    "yaml",
    "md",
    "txt",
    "toml",
    "lock",
    "tgz",
    "gz",
    "zip",
    "png",
    "svg",
}


def has_letters_and_digits(value: str) -> bool:
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value))


def is_secret_field(value: str) -> bool:
    return (
        len(value) >= 4
        and MARK.rstrip() not in value
        and not _PLACEHOLDER.match(value)
        and not value.isspace()
    )


def _is_login(value: str) -> bool:
    return is_secret_field(value.partition(":")[2])


def _is_password(value: str) -> bool:
    return is_secret_field(value) and not _CODE.search(value)


def _password(hints: str, pattern: str, is_secret: Callable[[str], bool] = _is_password) -> Rule:
    return _rule("password", hints, pattern, is_secret)


def _secret(hints: str, pattern: str, is_secret: Callable[[str], bool]) -> Rule:
    return _rule("secret", hints, pattern, is_secret)


def _is_bare_password(value: str) -> bool:
    """A password without quotes: a plain word is more likely a variable."""
    return (
        _is_password(value)
        and bool(re.search(r"[\d!@#%^&*+?]", value))
        and not value.startswith(("/", ".", "~"))
    )


def is_mixed(value: str) -> bool:
    """A password where most words are none: it has letters, and digits or signs."""
    return (
        _is_bare_password(value) and bool(re.search(r"[A-Za-z]", value)) and not _TERM.match(value)
    )


def is_mixed_in_prose(value: str) -> bool:
    """The same after a name that is also a word: `all tests pass: **Perfect!**`, `tests pass: p5.js works`."""
    return is_mixed(value.strip("*_!?.:")) and value.rpartition(".")[2] not in _FILE_ENDINGS


def _is_word(value: str) -> bool:
    """A password that may be a plain word, where prose about passwords is possible too."""
    return (
        _is_password(value)
        and not _PROSE_WORD.match(value)
        and not value.startswith(("-", "/", ".", "~"))
    )


def is_word_or_mixed(value: str) -> bool:
    """A word that is not the name of a variable: `deploy_key`, `DEPLOY_KEY` and `newPassword` are."""
    return _is_word(value) and not re.fullmatch(
        r"[A-Z][A-Z0-9_]*|\w+_\w+|[a-z]+(?:[A-Z][a-z]+)+", value
    )


def _is_random(value: str) -> bool:
    """Does it look machine-made, rather than like a word or an expression?"""
    return (
        len(value) >= 8
        and not _PLACEHOLDER.match(value)
        and not _CODE.search(value)
        and not value.startswith(("/", "~", "./"))
        and has_letters_and_digits(value)
        and not re.fullmatch(r"[a-z_]+\d{0,2}(?:\.[a-z_]+\d{0,2})*", value)
    )


def _is_hidden_setting(value: str) -> bool:
    """What is kept among secrets and is one: an address that anybody may know is none, nor a list of them."""
    addresses = [
        re.fullmatch(r"\w+://[\w.*:-]+((?:/[\w.~*-]{0,30})*)", each.strip())
        for each in value.split(",")
    ]
    return _is_password(value) and not all(
        each and not any(map(_is_random, each[1].split("/"))) for each in addresses
    )


def decode_base64(word: str) -> bytes:
    letters = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return (
            base64.b64decode(letters + "=" * (-len(letters) % 4))
            if len(word) <= MAX_ENCODED
            else b""
        )
    except (binascii.Error, ValueError):
        return b""


def _is_encoded_login(value: str) -> bool:
    """Is it `user:password` in base64, or what SMTP makes of it?"""
    return bool(re.fullmatch(rb"[ -~]*[:\0][ -~]+", decode_base64(value)))


def _is_crypt(value: str) -> bool:
    return all(re.search(letters, value) for letters in ("[a-z]", "[A-Z]", "[0-9]"))


def _is_email(value: str) -> bool:
    local, _, domain = value.partition("@")
    # git@github.com:owner/name is an address of a repository, and react@18.2.0.tgz a file
    return (
        local.lower() not in ("git", "hg", "svn")
        and domain.rsplit(".", 1)[-1].lower() not in _FILE_ENDINGS
    )


# A value in quotes, or one word.
_QUOTED = r"(?P<quote>[\"'`])(?P<value>[^\"'`\n\\]{4,})\\?(?P=quote)"
_VALUE = r"(?P<quote>[\"'])?(?P<value>(?(quote)[^\"'\n]{4,}|[^\s\"'|;&<>,]{4,}))"
# `: str =`, `: Final[str] =`, `: &str =`, and Go's ` string =`
_TYPED = r"(?::\s*[&\w][\w.|&\[\], ]{0,40}|\sstring\s*)="
_ASSIGN = rf"\\{{0,3}}[\"'`\]]{{0,2}}\s*(?:{_TYPED}|[:?]=|=>|=|:|%3[AaDd])\s*(?:!!\w+\s+)?\\{{0,3}}(?:[bru](?=[\"']))?"
_HINTS = "pass pwd secret token key credential"

_KEY_BLOCK = r"-----BEGIN (?:(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----"
SHAPES = (
    _rule(
        "private-key",
        "-----begin",
        rf"(?s){_KEY_BLOCK}(?:.(?!-----BEGIN))*?-----END [A-Za-z0-9 ]{{0,60}}-----",
    ),
    _rule(
        "private-key", "-----begin", rf"{_KEY_BLOCK}(?:(?:\\n|\s)*[A-Za-z0-9+/=:,\-]{{8,}})*"
    ),  # cut off
    _rule(
        "private-key", "private-lines", r"\bPrivate-Lines: \d+(?P<value>(?:\r?\n[A-Za-z0-9+/=]+)+)"
    ),  # PuTTY
    _rule(
        "private-key",
        "client-key-data",
        r"\bclient-key-data\\?[\"']?\s*[:=]\s*\\?[\"']?(?P<value>[A-Za-z0-9+/=]{16,})",
    ),
    _rule(
        "vault",
        "$ansible_vault",
        r"\$ANSIBLE_VAULT;[^\s\"'\\]{1,60}(?P<value>(?:(?:\\n|\s)+[0-9a-f]{8,})+)",
    ),
    _rule("private-key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _rule(
        "github-token",
        "github_pat_ ghp_ gho_ ghu_ ghs_ ghr_",
        r"\b(?:github_pat_\w{30,}|gh[pousr]_\w{30,})",
    ),
    _rule(
        "gitlab-token",
        "gl gr1348941",
        r"\b(?:gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|imt|oas|ffct)-|GR1348941)[\w.-]{20,}",
    ),
    _rule("slack-token", "xox xapp-", r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}"),
    _rule(
        "slack-webhook",
        "hooks.slack.com",
        r"https://hooks\.slack\.com/(?:services|workflows)/[\w/+-]{20,}",
    ),
    _rule(
        "discord-webhook",
        "/webhooks/",
        r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    ),
    _rule(
        "stripe-key",
        "sk_ rk_ pk_ whsec_",
        r"\b(?:[srp]k|whsec)_(?:live_|test_)?[0-9A-Za-z]{20,}",
        has_letters_and_digits,
    ),
    _rule(
        "model-key",
        "sk-",
        r"\bsk-(?:ant-|proj-|or-v1-|svcacct-|admin-)?[A-Za-z0-9_-]{16,}",
        has_letters_and_digits,
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
    _rule("discord-token", "", r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}"),
    _rule("jwt", "eyj", r"\beyJ[\w-]{10,}\.eyJ[\w-]{6,}\.[\w-]*"),
    _rule(
        "service-token",
        "",
        r"\b(?:(?:lin_api_|ntn_|figd_|dckr_pat_|PMAK-|NRAK-|glsa_|ATATT3|HRKU-|dp\.[a-z]{2}\.|lsv2_|sk\.eyJ|pul-|tskey-[a-z]+-|sntrys_|phc_|phx_"
        r"|rubygems_|oy2|sbp_|pscale_(?:tkn|pw)_|AQ\.Ab|hv[sbr]\.|sq0(?:atp|csp|idp)-)[\w=.-]{20,}"
        r"|key-[0-9a-f]{32}\b|do[opr]_v1_[a-f0-9]{40,}|dapi[0-9a-f]{32}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b|EAAA[\w-]{50,}"
        r"|SG\.[\w-]{22}\.[\w-]{43}|[0-9a-z]{32}-us\d{1,2})",
        has_letters_and_digits,
    ),
    _rule(
        "password-hash",
        "$",
        r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$(?:1|5|6|7|g?y|apr1|sha1|md5|argon2id?|scrypt|pbkdf2[\w-]*)\$[^\s:\"']{20,}"
        r"|\b(?:pbkdf2|scrypt|SCRAM-SHA-\d+)[\w:-]{0,40}\$[\w:+/=$.]{20,}",
    ),
    _rule(
        "password-hash",
        "sha} sha2 sha5 md5} crypt}",
        r"\{(?:S?SHA\d*|S?MD5|CRYPT)\}[A-Za-z0-9+/=$.]{11,}",
    ),
    _rule("password-hash", "md5", r"\bmd5[0-9a-f]{32}\b"),  # PostgreSQL
    _rule("password-hash", ":::", r":\d+:(?P<value>[0-9a-fA-F]{32}:[0-9a-fA-F]{32}):::"),  # Windows
    _rule(
        "password-hash", ":", r"(?m)^[\w.@-]{1,40}:(?P<value>[./A-Za-z0-9]{13})$", _is_crypt
    ),  # htpasswd -d
    _rule("aws-key", "akia asia abia acca a3t", r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}"),
    _rule("telegram-token", ":", r"\d{8,10}:[0-9A-Za-z_-]{35}"),
    _rule("twilio-key", "ac", r"\bAC[0-9a-f]{32}[\"']?\s*[,:]\s*[\"']?(?P<value>[0-9a-f]{32})\b"),
    _rule("twilio-key", "sk ac", r"(?:AC|SK)[a-z0-9]{32}"),
)

_AUTHORIZATION = r"(?i)\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?"
_CREDENTIAL = r"(?P<value>[A-Za-z0-9._~+/=-]{8,})(?![\w(\[.~+/=-])"
URLS_AND_HEADERS = (
    _rule(
        "url-password",
        "://",
        r"(?<=://)(?P<value>[^\s/@:\"'<>\[\]{}$]*:[^\s/@\"'<>\[\]{}$]+)(?=@)",
        _is_login,
    ),
    _rule(
        "url-password",
        "jdbc:oracle",
        r"\bjdbc:oracle:\w+:[^\s/:@]+/(?P<value>[^\s@\"']{4,})@",
        _is_password,
    ),
    _rule(
        "url-token",
        "://",
        r"(?<=://)(?P<value>[A-Za-z0-9_-]{16,})(?=@[\w.-]+\.)",
        has_letters_and_digits,
    ),
    _rule(
        "url-secret",
        "? #",
        r"(?i)[?&#](?:access_token|token|api_?key|key|sig|signature|secret|auth|X-Amz-Signature|X-Amz-Credential)"
        r"=(?P<value>[^\s&\"'<>#\[]{8,})",
        has_letters_and_digits,
    ),
    _rule(
        "url-secret",
        "?",
        r"(?i)[?&](?:password|passwd|pwd|pass)=(?P<value>[^\s&\"'<>#\[]{4,})",
        is_word_or_mixed,
    ),
    _rule(
        "npm-token",
        "_auth=",
        r"(?<![\w.])_auth=[\"']?(?P<value>[^\s\"',()]{8,})(?=[\s\"']|$)",
        is_mixed,
    ),
    _rule(
        "authorization",
        "auth basic",
        r"(?i)(?:(?<![\w.])_?auth\\?[\"']?\s*[:=]\s*\\?[\"']?|\bBasic\s+|\bAUTH\s+PLAIN\s+)(?P<value>[A-Za-z0-9+/=_-]{8,})",
        _is_encoded_login,
    ),
    _rule(
        "authorization",
        "authorization",
        rf"{_AUTHORIZATION}(?:AWS4-HMAC-SHA256|Digest)\s[^\n]{{0,400}}?(?:Signature=|response=\\?\"?)(?P<value>[0-9a-f]{{32,64}})",
    ),
    _rule(
        "authorization",
        "authorization",
        rf"{_AUTHORIZATION}(?:bearer|basic|token|digest|apikey)\s+{_CREDENTIAL}",
    ),
    _rule(
        "authorization", "authorization", rf"{_AUTHORIZATION}{_CREDENTIAL}", has_letters_and_digits
    ),
    _rule("authorization", "ssws", r"\bSSWS\s+(?P<value>[\w-]{30,})"),
    _rule(
        "authorization",
        "bearer",
        r"(?i)\bBearer\s+(?P<value>[a-z0-9._~+/-]{16,}=*)",
        has_letters_and_digits,
    ),
    _rule(
        "cookie",
        "cookie",
        r"(?im)(?:^|[\s\"'])(?:set-)?cookie:\s*(?P<value>[^\s;=]+=[^\r\n\"']{6,})",
    ),
    _rule(
        "cookie",
        "cookie",
        r"(?i)\bcookie\s*=\s*[\"'`][\w.-]+=(?P<value>[^\s;\"'`]{8,})",
        has_letters_and_digits,
    ),
    _rule(
        "cookie",
        "cookie",
        r"(?i)\bcookies\s*=\s*\{\s*[\"'][\w.-]+[\"']\s*:\s*[\"'](?P<value>[^\s\"']{8,})",
        is_mixed,
    ),
    _rule(  # a jar of curl or wget
        "cookie", "true false", r"(?:TRUE|FALSE)\t/\S*\t(?:TRUE|FALSE)\t\d+\t\S+\t(?P<value>\S{8,})"
    ),
    _rule(
        "azure-key", "sharedaccesssignature", r"\bSharedAccessSignature=(?P<value>[^\s\"';]{20,})"
    ),
)


# Flags that are followed by a password, and the programs that read them so.
_FLAGS = {
    "-p": r"mysql\w*|mariadb[\w-]*",
    r"-p\s+": r"psexec\w*|mongo\w*|cypher-shell|cqlsh|usermod|useradd",
    r"-p\s*": r"sshpass|twine\s+upload|rdesktop"
    r"|(?:docker|podman|buildah|skopeo|nerdctl|oras|helm registry|az|oc|cf)\s+login",
    r"(?:/p:|-p\s*)": r"\w*freerdp\w*",
    r"-h?p": r"7z[ar]?|rar|unrar",
    r"-P(?!assword)\s*": r"sqlcmd|bcp|mosquitto_\w+|ipmitool|(?:un)?zip",
    r"-pw\s+": "plink|pscp|psftp|putty",
    r"-w\s*": r"ldap\w+|security\s+add-\w+-password",
    r"(?:-a|--pass)\s+": r"(?:redis|valkey|keydb)-cli",
    r"-[AXc]\s*": r"snmp\w+",
    r"-[NP]\s+": "ssh-keygen",
    r"-k\s+": "openssl",
    r"-U\s*[\"']?[^\s%\"']+%": "smbclient|rpcclient|winexe",
    r"-u\s*[\"']?[^\s,\"']+,": "lftp",
    r"/user:\S+\s+": r"net\s+use",
    r"-\w*b\w*\s(?:[^\n|;]{0,200}\s)?\S{1,100}\s\S{1,100}\s+": "htpasswd",
    r"(?:add_user|change_password)\s+\S+\s+": "rabbitmqctl",
    rf"[\w-]{{0,40}}?{NAME}=": r"vault\s+(?:kv\s+put|write)",
    "--secret-string[ =]": "secretsmanager",
}
_FLAGGED = "|".join(
    rf"(?:{programs})\b[^\n|;]{{0,300}}?\s{flag}" for flag, programs in _FLAGS.items()
)

# These also find secrets in lists of arguments, such as `["--password", "…"]`.
COMMAND_LINES = (
    _password(
        "curl wget http xh",
        r"\b(?:curl|wget|https?|xh)\b[^\n|;]{0,300}?\s"
        r"(?:-\w{0,5}u[ =]?|(?:--user|-a|--auth)[ =])[\"']?[^\s:\"'/]+:(?P<value>[^\s\"'/][^\s\"']+)",
    ),
    _rule(
        "cookie",
        "curl xh",
        r"\b(?:curl|xh)\b[^\n|;]{0,300}?\s(?:-b|--cookie)[ =][\"']?[\w.-]+=(?P<value>[^\s;\"']{8,})",
        is_mixed,
    ),
    _password("/pass", r"(?i)\s/pass(?:word)?:(?P<value>[^\s\"']{4,})"),
    _password("", rf"\b(?:{_FLAGGED}){_VALUE}"),
    _password(
        "vault",
        r"\bvault\s+login\s+(?:-\S+\s+)*(?P<value>[\w.-]{12,})(?!\S)",
    ),
    _password("sqlplus", r"\bsqlplus\s+(?:-\w+\s+)*[\"']?[\w.]+/(?P<value>[^\s@/\"']{4,})@"),
    _password(
        "chpasswd", r"(?<![\w/])[\w.-]+:(?P<value>[^\s:\"']{4,})[\"']?\s*\|\s*(?:sudo\s+)?chpasswd"
    ),
    _password("securestring", rf"(?i)\bConvertTo-SecureString\s+(?:-String\s+)?{_QUOTED}"),
    _password(
        "<<<",
        r"\b(?:kinit|keepassxc-cli|\w*passwd|su|cryptsetup|secret-tool|pass\s+insert|secrets?\s+put|env\s+add)\b"
        rf"[^\n|;]{{0,200}}<<<\s*{_VALUE}",
    ),
    _password(
        "sudo -stdin with-token",
        rf"\b(?:echo|printf)\s+(?:-n\s+)?{_VALUE}(?(quote)[\"'])\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-\w*S"
        r"|[^\n|]{0,200}(?:--?pass\w{0,10}-stdin|\bpasswd\s+--stdin|--with-token))",
    ),
    # Flags that are named after what they take, whatever the program.
    _password("pass pwd token secret", rf"(?i)\s--?[\w-]{{0,40}}?{NAME}\s*\\\n\s*{_VALUE}"),
    _password("pass", rf"\s-pass(?:in|out)?[ =][\"']?pass:{_VALUE}"),
    _password(_HINTS, rf"(?i)\s--?(?!ask)[\w-]{{0,40}}?{NAME}s?[ =]{_QUOTED}"),
    _password(
        "pass pwd",
        rf"(?i)\s--?(?!ask)[\w-]*?(?:{LONG_NAME}|{SHORT_NAME})[ =](?P<value>[^\s\"']{{4,}})",
        _is_bare_password,
    ),
    _password("pass pwd", rf"(?i)\s--[\w-]{{0,40}}?{LONG_NAME}=(?P<value>[^\s\"'|;&]{{4,}})"),
    _password(
        "pass pwd", rf"(?i)\s--{LONG_NAME} (?P<value>[^\s\"'|;&-][^\s\"'|;&]{{3,}})", _is_word
    ),
    _secret(
        _HINTS, rf"(?i)\s--?[\w-]{{0,40}}?{NAME}[ =](?!id=)(?P<value>[^\s\"'|;&]{{8,}})", _is_random
    ),
    _secret(
        "token key",
        rf"(?i)\s--[\w-]{{0,40}}?{_TOKEN}=(?P<value>[^\s\"'|;&]{{4,}})",
        is_word_or_mixed,
    ),
    _secret(
        "token key",
        rf"(?i)\s--{_TOKEN} (?P<value>[^\s\"'|;&-][^\s\"'|;&]{{3,}})",
        is_word_or_mixed,
    ),
    _password("--from-literal", rf"(?i)--from-literal[= ][\"']?[\w.-]{{0,40}}?{NAME}={_VALUE}"),
    _secret("--secret", rf"(?m)(?:^|\s)--secret[ =](?!id=){_VALUE}", is_mixed),
    _rule("pin", "--pin", r"(?i)\s--pin(?:-?code)?[ =](?P<value>\d{4,8})\b"),
    # `moorctl token set VALUE`, `config set api.token VALUE`, `secret set NAME --body VALUE`, `secrets set NAME=VALUE`
    _secret(
        _HINTS,
        rf"(?i)\b(?:{LONG_NAME}|token|secret|{_KEY}|pin)[ :](?:set|add|put|store|save)\s+{_VALUE}",
        is_word_or_mixed,
    ),
    _secret(
        _HINTS,
        rf"(?i)\bconfig(?:ure)?[ :]set\s+[\w./:-]{{0,80}}?{NAME}\s+{_VALUE}",
        is_word_or_mixed,
    ),
    _secret(
        "secret",
        rf"\bsecrets?[ :](?:set|put|add|create)\b[^\n|;]{{0,200}}?\s(?:--body|-b|--value|--data)[ =]{_VALUE}",
        _is_hidden_setting,
    ),
    _secret(
        "secret",
        rf"\bsecrets?[ :](?:set|put|add|create)\s+[A-Z][A-Z0-9_]*(?:=|\s+(?!-)){_VALUE}",
        _is_hidden_setting,
    ),
    _password(
        "http-basic.", rf"\bconfig\s[^\n|;]{{0,80}}?http-basic\.\S+\s+\S+\s+{_VALUE}", _is_word
    ),
    _password("net", r"\bnet\s+user\s+[^\s/]+\s+(?P<value>[^\s\"'/]{4,})(?=\s+/)", _is_word),
    _password("net", r"\bnet\s+user\s+[^\s/]+\s+(?P<value>[^\s\"'/]{4,})", is_mixed),
    _password("bw cargo", rf"\b(?:bw\s+(?:unlock|login\s+\S+)|cargo\s+login)\s+{_VALUE}", is_mixed),
    _secret("login", r"\b\w+\s+login\s+(?P<value>[A-Za-z0-9_-]{24,})(?!\S)", _is_random),
    # `setx NAME VALUE`, `setenv NAME VALUE`, `set -x NAME VALUE`, `env:set NAME VALUE`, a Dockerfile's `ENV NAME VALUE`
    _password(
        _HINTS,
        r"(?im)(?:\bsetx\s+(?:/m )?|\bsetenv\s+|\bset\s+(?:--?\w+\s+){1,4}|\benv:set\s+|(?:^|[\"'])[ \t]*(?-i:ENV)\s+)"
        rf"\w{{0,40}}?(?:{NAME}|_PASS)[ \t]+(?!=){_VALUE}",
        _is_word,
    ),
)

_IDENTIFIED = r"(?i)\bIDENTIFIED\s+(?:WITH\s+\S+\s+)?(?:BY|AS)\s+(?:PASSWORD\s+)?"
# The value in the rest of a line of settings. Before a bracket it is code, and the word a variable.
_TO_THE_END = r"[ \t]*:[ \t]+(?P<value>[A-Za-z][\w-]{3,40})[ \t]*(?:#.*)?$(?!\s*[})\]])"
_SET = r"(?i)\b(?:define|putenv|set\w{0,30})\s*\(\s*[\"'][\w.-]{0,40}?"
_CALL = r"(?i)\w\s*\(\s*[\"'](?:--)?[\w.-]{0,40}?"
# A name and its value in fields beside each other, in YAML, JSON or XML.
_NAME_FIELD = rf"(?:parameter)?(?:name|key)[\"']?\s*[:=][\s\"']*[\w.-]{{0,40}}(?:{NAME}|_pass|_pw|_pat)[\"']?(?![\w.-])"
_VALUE_FIELD = rf"(?:parameter)?value[\"']?\s*[:=]\s*{_VALUE.replace('<>,', '<>,}')}"
_BESIDE = r"\s*,?\s*(?:[\"']?(?!value|name|key)\w{1,30}[\"']?\s*[:=][^\n{}\[\],]{0,60}[\n,]\s*){0,2}[\"']?"
_TO = r"[\"']\s*,\s*(?:\w+\s*=\s*)?[\"'](?P<value>[^\"'\n]{4,})[\"']"
# SQL, markup, pairs of a name and a value, settings without a sign between name and value, calls and assignments.
FILES = (
    _password("identified", rf"{_IDENTIFIED}{_QUOTED}"),
    _password("identified", rf"{_IDENTIFIED}(?P<value>[^\s\"'`;]{{4,}})", is_mixed),
    _password("password", r"(?i)\bPASSWORD(?:\s*=\s*N?|\s+|\s*\(\s*)'(?P<value>[^'\n]{4,})'"),
    _password("set", r"(?i)\bSET\s+PASSWORD\s+FOR\s+\S+\s*=\s*'(?P<value>[^'\n]{4,})'"),
    _password(
        "pass pwd",
        rf"(?i)<[\w.:-]{{0,40}}{LONG_NAME}{_ABOUT}\w{{0,40}}(?:\s[^<>]{{0,200}})?>(?P<value>[^<>\n]{{4,}})</",
    ),
    _secret(
        _HINTS,
        rf"(?i)<[\w.:-]{{0,40}}{NAME}{_ABOUT}\w{{0,40}}(?:\s[^<>]{{0,200}})?>(?P<value>[^<>\n]{{8,}})</",
        _is_random,
    ),
    _password(
        _HINTS,
        rf"(?i)\b(?:name|key|id)\s*=\s*[\"'][\w.:-]{{0,40}}{NAME}[\"']\s*>(?P<value>[^\"'<>\n]{{4,}})",
    ),
    _password("value", rf"(?i)\b{_NAME_FIELD}{_BESIDE}{_VALUE_FIELD}"),
    _password("value", rf"(?i)\b{_VALUE_FIELD}(?(quote)[\"']){_BESIDE}{_NAME_FIELD}"),
    _password(
        "variable",
        rf"\bvariable\s+\"[\w-]{{0,40}}{NAME}\"\s*\{{[^{{}}]{{0,300}}?default\s*=\s*{_QUOTED}",
    ),
    # .netrc, where `\\n` is a new line inside a string; .pgpass; a password that Cisco stores; expect and pexpect
    _password(
        "password",
        r"\b(?:machine|login|account)(?:\s|\\n)+\S+?(?:(?:\s|\\n)+(?:login|account)(?:\s|\\n)+\S+?)*(?:\s|\\n)+"
        r"password(?:\s|\\n)+(?P<value>[^\s\"'\\]+)",
        _is_word,
    ),
    _password(
        ":543 :6432: :26257: :*:",  # PostgreSQL, Redshift, PgBouncer, CockroachDB
        r"(?:^|(?<=[\s\"'`])|(?<=\\n))(?:[\w.*-]+|/[\w./-]+):(?:543\d|6432|26257|\*)"
        r":(?:\*|[A-Za-z_][\w-]*):(?:\*|[A-Za-z_][\w.@-]*):(?P<value>(?:\\[\\:]|[^\s:\\\"'`])+)(?=[\s\"'`\\]|$)",
        _is_word,
    ),
    _password("password secret", r"\b(?:password|secret)\s+[05789]\s+(?P<value>\S{6,})", is_mixed),
    _password(
        "send",
        r"(?i)(?:passw|passphrase|assword|\bpin\b|token|secret)(?:[^\n]{0,80}\n)?[^\n]{0,60}?\bsend(?:line)?\b[\s({-]{1,8}"
        r"\\?[\"'](?P<value>[^\"'\n\\$]{4,})",
    ),
    _password("send", r"\bsend\s+(?:--\s+)?\\?[\"'](?P<value>[^\s\"'\\]{6,})\\{1,2}[rn]", is_mixed),
    _password("sendline", r"\bsendline\(\s*[\"'](?P<value>[^\s\"'\\]{6,})[\"']", is_mixed),
    _secret(
        "mnemonic phrase",
        r"(?i)\b(?:mnemonic|(?:seed|recovery)\s+phrase)\W{1,4}(?:is\W{1,4})?"
        r"(?P<value>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b",
        is_secret_field,
    ),
    _password(
        _HINTS, rf"(?i){NAME}:[ \t]+[|>][-+]?[ \t]*\n[ \t]+(?P<value>\S{{4,}})[ \t]*(?:\n|$)"
    ),
    _password(
        "pass pwd",
        rf"(?im)^[ \t]*(?:-[ \t]+)?(?:(?:my|our)[ \t]+)?[\w.-]{{0,40}}?{LONG_NAME}{_TO_THE_END}",
        is_word_or_mixed,
    ),
    _secret(
        "token key", rf"(?im)^[ \t]*(?:-[ \t]+)?[\w.-]{{0,40}}?{_TOKEN}{_TO_THE_END}", is_mixed
    ),
    _password(
        "pass pwd",
        rf"=\S{{1,200}} {LONG_NAME}=(?P<value>[A-Za-z]\w{{3,40}})(?=\s|$|[\"'])",
        is_word_or_mixed,
    ),
    # Plain words in lines of settings (`password=…`, without spaces as in code), in connection strings and options
    _password(
        "pass pwd",
        rf"(?im)^(?:export[ \t]+)?[\w.-]{{0,40}}?{LONG_NAME}=(?P<value>[A-Za-z][\w-]{{3,40}})$",
        is_word_or_mixed,
    ),
    _password(
        "pass pwd",
        r"(?i);[ ]?(?:password|pwd)=(?P<value>[^\s;\"'{}$]{4,}(?=[;\"'\n]|$)|[^\n;\"'{}$]{4,}(?=[;\"']))",
        is_word_or_mixed,
    ),
    _password(
        "pass",
        r"\buser(?:name)?=[^\s,()]+,pass(?:word)?=(?P<value>[^\s,()\"']{4,})",
        is_word_or_mixed,
    ),
    _password(
        "pass pwd",
        r"(?im)^\[[^\]\n\"']{1,60}\]\n(?:[^\[\n][^\n]{0,200}\n){0,20}?"
        rf"[\w.-]{{0,40}}?{LONG_NAME}[ \t]*=[ \t]*(?P<value>[A-Za-z][\w-]{{3,40}})$",
        is_word_or_mixed,
    ),
    _password("psk", r"(?m)^\s*psk=(?P<quote>\")?(?P<value>(?(quote)[^\"\n]{8,63}|[^\s\"]{8,64}))"),
    # `define('DB_PASSWORD', '…')`, `SetEnvironmentVariable("API_KEY", "…")`, `setProperty("password", "…")`
    _password("pass pwd", rf"{_SET}{LONG_NAME}{_TO}", is_word_or_mixed),
    # `os.environ.get("API_KEY", "…")`, `add_argument("--token", default="…")`, `process.env.API_KEY || "…"`
    _password("pass pwd", rf"{_CALL}{LONG_NAME}{_ABOUT}\w{{0,40}}{_TO}", is_mixed),
    _secret(
        _HINTS,
        rf"{_CALL}{NAME}{_ABOUT}\w{{0,40}}{_TO}",
        lambda value: len(value) >= 12 and _is_random(value),
    ),
    _secret(
        _HINTS,
        rf"(?i)(?:{NAME}|_KEY)[\"'\])]{{0,3}}\s*(?:\bor\b|\|\||\?\?|\?:)\s*{_QUOTED}",
        is_mixed,
    ),
    _password(
        "requirepass masterauth bindpw rootpw auth-pass",
        rf"(?m)^\s*(?:requirepass|masterauth|bindpw|rootpw|(?:sentinel\s+)?auth-pass\s+\S+)\s+{_VALUE}",
    ),
    _password(
        "password",
        r"(?i)password(?<!get.password)(?<!getpassword)(?<!hash.password)\(\s*(?P<quote>[\"'])(?P<value>[^\"'\n]{4,})(?P=quote)\s*\)",
        is_mixed,
    ),
    _password(
        "auth login credential",
        r"(?i)(?:\blogin|\bauth\w{0,20}|BasicAuth\w{0,20}|\bcredentials?)\s*=?\s*[(\[]\s*([\"'])[^\"'\n]*\1\s*,\s*"
        r"(?P<quote>[\"'])(?P<value>[^\"'\n]{4,})(?P=quote)",
    ),
    _password("pass pwd", rf"(?i){LONG_NAME}{_ABOUT}\w{{0,40}}{_ASSIGN}{_QUOTED}"),
    _password(
        "pass pwd",
        rf"(?i){LONG_NAME}s?\d?\s*[:?]?[=:]\s*(?:!!\w+\s+)?(?P<value>[^\s\"',;`]{{4,}})",
        _is_bare_password,
    ),
    _secret(
        "secret",
        rf"\b(?:[A-Z][A-Z0-9_]*_)?SECRET(?:_KEY)?\b(?:[\"'\]]{{0,2}}\s*[=:]\s*{_QUOTED})",
        _is_word,
    ),
    _secret("secret", r"\b[A-Z][A-Z0-9_]*_SECRET(?:_KEY)?=(?P<value>[^\s\"',;`]{8,})", _is_word),
    _password("pass", r"\b[A-Z][A-Z0-9_]*_PASS(?:WORD|WD|PHRASE)?=(?P<value>[^\s\"',;`]{4,})"),
    _password("pass pw psk", rf"(?i){SHORT_NAME}{_ASSIGN}{_QUOTED}", is_mixed),
    _password(
        "pass pw psk",
        rf"(?i){SHORT_NAME}\s*[=:][ \t]*(?P<value>[^\s\"',;`]{{4,}})",
        is_mixed_in_prose,
    ),
    _secret(
        _HINTS,
        rf"(?i){NAME}{_ABOUT}\w{{0,40}}{_ASSIGN}[\"'`]?(?P<value>[^\s\"',;`\\)]{{8,}})",
        _is_random,
    ),
    # `AZURE_OPENAI_KEY=…`, but no key that everybody may know
    _secret(
        "_key _pat",
        r"\b(?!\w*(?:PUBLIC|PUB|GPG|CACHE|PRIMARY|FOREIGN|SORT|PARTITION)_KEY)[A-Z][A-Z0-9_]*_(?:KEY|PAT)[\"']?\s*[=:]\s*[\"']?(?P<value>[\w+/=~-]{20,})(?![\w.+/=~-])",
        _is_random,
    ),
)

_WORD = r"(?P<quote>[\"'`«])?(?P<value>(?(quote)[^\"'`»\n]{4,}|[^\s\"',;`«»]{4,200}?(?=[.,;:!?)]*(?:\s|$))))"
_IS = (
    r"(?:\s+(?:for|of|on|to|in)(?:\s+[\w.@-]+){1,4}?)?(?:\s+(?:is|was|are|will\s+be|ist|lautet|war|est|es)|\s*[-=]>)"
    r"(?:\s+(?:now|still|set\s+to|jetzt))?\s*:?\s+"
)
_NAMED = rf"(?i)\b(?:{LONG_NAME}|the\s+pass|mot\s+de\s+passe|contraseña|senha)"
_AS = rf"\s+as\s+(?:(?:the|your|my|its|an?)\s+)?(?:\w+\s+){{0,2}}?(?:{LONG_NAME}|secret|token|api[ _-]?key)\b"
_USE = r"(?i)\b(?:use|enter|type|take|with|set)\s+"
_PIN = r"(?P<value>\d{4,8})\b(?!\s*(?:char|letter|bit|byte|digit|word|time|second|minute|day|year))"
PROSE = (
    _rule(
        "pin",
        "pin pass",
        rf"(?i)\b(?:pin|passcode|password)(?:\s+(?:code|number))?(?:{_IS}|:\s+){_PIN}",
    ),
    _rule("pin", "pin", rf"\bPIN(?:\s+code)?\s+{_PIN}"),
    _password("pass pwd kennwort contra senha", rf"{_NAMED}{_IS}{_WORD}", is_mixed),
    _password("pass pwd kennwort contra senha", rf"{_NAMED}{_IS}{_QUOTED}"),
    _password(
        "pass", rf"(?i)\bpass(?:word|phrase)\s+(?:for\s+[^:\n]{{1,60}}:\s+)?{_WORD}", is_mixed
    ),
    _password("pass", rf"(?i)\b(?:the|with|a)\s+pass(?:word|phrase)\s+{_QUOTED}"),
    _password(
        "passe contra senha пароль 密码 密碼 パスワード",
        rf"(?i)(?:mot\s+de\s+passe|contraseña|senha|пароль|密[码碼]|パスワード)\s*[:：]\s*{_WORD}",
        is_mixed,
    ),
    _password(_HINTS, rf"{_USE}{_QUOTED}{_AS}"),
    _password(_HINTS, rf"{_USE}(?P<value>[^\s\"'`]{{4,200}}){_AS}", is_mixed),
    _password(
        "credential", rf"(?i)\bcredentials?(?:\s+are|\s+is|:)\s+\S+\s*[/:]\s*{_WORD}", is_mixed
    ),
    _secret(
        "key token secret",
        rf"(?i)\b(?:[A-Z]+_)?(?:api[ -]?key|(?:secret\s+)?access\s+key|(?:secret|private)(?:\s+key)?"
        rf"|(?:access\s+)?token)(?:{_IS}|\s*[:=]\s+)"
        r"[\"'`]?(?P<value>[\w.+/=-]{12,})",
        _is_random,
    ),
)

# Shapes so plain that the rules above are tried first.
LAST = (
    _rule(
        "url-password",
        "://",
        r"://[^:/?#\[\]@!$&'()*+,;=\s]+:(?P<value>[^:/?#\[\]@!$&'()*+,;=\s]+)@",
    ),
    _rule(
        "email",
        "@",
        r"(?<![\w.+/%-])[A-Za-z0-9][\w.+%-]*@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}\b(?!\()",
        _is_email,
    ),
)
RULES: tuple[Rule, ...] = (*SHAPES, *URLS_AND_HEADERS, *COMMAND_LINES, *FILES, *PROSE, *LAST)

# Somebody's home folder at the beginning of a path; what is below it stays.
HOME_FOLDER = re.compile(
    r"(?<![\w~.$}])(?:/(?:home|Users|var/home|export/home)/(?!\*|\$|<|\{|user\b|username\b|you\b|runner\b)[^\s/\\:;,\"'`()<>|&?*]+"
    r"|/root(?=[/\s\"'`:;,)]|$)|[A-Za-z]:\\{1,2}Users\\{1,2}(?!Public\b)[^\s\\/:;,\"'`()<>|&?*]+"
    r"|/(?:mnt/)?[a-z]/Users/[^\s/\\:;,\"'`()<>|&?*]+"
    r"|(?<=/)-(?:home|Users)-[^\s/-]+(?=-))"  # as Claude Code names the folder of a project
)
# Values that are also everyday words of a session; such a password gives nothing away elsewhere.
EVERYDAY = re.compile(
    r"admin|root|postgres|mysql|mariadb|redis|mongo|minio|rabbitmq|elastic|guest|user|demo|local|localhost|default"
    r"|docker|python|node|prod|staging|production|development|tests?|example|none|true|false|null|main|master|data"
    rf"|build|server|1234|{NAME}s?",
    re.I,
)
