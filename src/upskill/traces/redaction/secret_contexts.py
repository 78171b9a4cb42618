"""Secrets that only their surroundings give away: assignments, flags, SQL, settings, headers, URLs, prose, calls.

A value without a shape of its own is taken for a secret by what stands before it, unless it is a variable, a
placeholder, an expression, or a plain word where a secret would be rare.
"""

from __future__ import annotations

import re

from upskill.traces.redaction.secret_rules import MARK, Rule, has_letters_and_digits, rule

LONG_NAME = r"(?:pass(?:word|wd(?<!/etc/passwd)|phrase|wort|code)|pwd|kennwort)"
# Short names that are also words: `pass: 214`, `psk`.
SHORT_NAME = r"(?:pass(?<!bypass)(?<!compass)(?<!surpass)(?<!overpass)(?<!trespass)|pw|psk)"
_KEY = r"(?:api|access|auth|signing|encryption|account|private|license|shared|master|session)[_-]?key"
NAME = rf"(?:{LONG_NAME}|secret|token|{_KEY}|client[_-]?secret|credentials?)"
# `password_file`, `token_url`, `secretName`: about a secret, and not the secret.
ABOUT = (
    r"(?:file|path|dir|url|uri|env|name|type|count|length|len|min|max|size|regex|pattern|field|label|hint|hash(?!\w)"
    r"|policy|prompt|reset|ref|key_?ref|id(?![a-z])|manager|stdin|timeout|expir|auth(?![a-z]|or)|limit|budget|endpoint)"
)
_ABOUT = rf"(?![_-]?{ABOUT})"
SECRET_NAME = re.compile(rf"(?:^|[_.\- ]|(?<=[a-z])(?=[A-Z])){NAME}s?$|^authorization$|^cookie$", re.I)
_PASSWORD = re.compile(r"pass|pwd", re.I)
_PLACEHOLDER = re.compile(
    r"^(?:[*x.•]+|\.\.\.|<.*>?|\$.*|%.*|\{.*|\[.*|[:@]\w+|\?|(?:your|my|the|an?)[_-].*|.*_here|(?:example|sample|dummy|fake).*"
    r"|(?:env|file|fd|stdin):?.*|!vault.*|changeme|placeholder|none|null|nil|true|false|undefined|string|str|int|required|optional"
    r"|redacted|hidden|todo|test|secret|pass|passwd|password\d?|passphrase|pwd|token|key|user|include|foo|bar|\\?[nrt])$",
    re.I,
)
_CODE = re.compile(r"[(){}\[\]<>]|^(?:os|self|process|env|config|settings|args|this|request|req|secrets)\.|->|=>")
# Words with digits in them that follow `password` in prose.
_TERM = re.compile(r"^(?:sha-?\d+|md5|bcrypt|argon2\w*|pbkdf2\w*|scrypt|base64|utf-?8|oauth2?|2fa|v\d+|\d+)$", re.I)


# What is said of a secret, where a secret could stand: `password: required`, `use --token when`, `token set correctly`.
_SAID = re.compile(
    r"^(?:\w+ly|wrong|incorrect|invalid|missing|empty|unset|expired|unknown|needed|found|valid|enabled|disabled|prompt|auto|read|write"
    r"|bytes|text|varchar|char|number|bool(?:ean)?|any|object|field|input|data|value|generic|hashed|encoded|bearer|basic|default"
    r"|flag|option|argument|parameter|variable|from|with|when|that|this|which|before|after|instead|must|should|only|into|have|will|then"
    r"|and|for|not|also|both|rather|here|there|again|anyway|manager|file|name|type|expiry|policy|reset|store)[.:,]?$",
    re.I,
)
# Values that are also everyday words of a session; such a password gives nothing away elsewhere.
EVERYDAY = frozenset(
    (
        *(
            "admin",
            "root",
            "postgres",
            "mysql",
            "mariadb",
            "redis",
            "mongo",
            "minio",
            "rabbitmq",
            "elastic",
            "guest",
            "user",
        ),
        *(
            "demo",
            "local",
            "localhost",
            "default",
            "docker",
            "python",
            "node",
            "prod",
            "staging",
            "production",
            "development",
        ),
        *(
            "test",
            "tests",
            "example",
            "none",
            "true",
            "false",
            "null",
            "main",
            "master",
            "data",
            "build",
            "server",
            "1234",
        ),
    )
)


def kind_of_name(name: str) -> str:
    return "password" if _PASSWORD.search(name) else "secret"


def is_secret_field(value: str) -> bool:
    return len(value) >= 4 and MARK.rstrip() not in value and not _PLACEHOLDER.match(value) and not value.isspace()


def _is_password(value: str) -> bool:
    return is_secret_field(value) and not _CODE.search(value)


def _is_bare_password(value: str) -> bool:
    """A password without quotes: a plain word is more likely a variable."""
    return _is_password(value) and bool(re.search(r"[\d!@#%^&*+?]", value)) and not value.startswith(("/", ".", "~"))


def _is_mixed(value: str) -> bool:
    """A password where most words are none: it has letters, and digits or signs."""
    return _is_bare_password(value) and bool(re.search(r"[A-Za-z]", value)) and not _TERM.match(value)


def _is_word(value: str) -> bool:
    """A password that may be a plain word, where prose about passwords can stand too."""
    return _is_password(value) and not _SAID.match(value) and not value.startswith(("-", "/", ".", "~"))


def _is_word_or_mixed(value: str) -> bool:
    """A word that is no name of a variable: `deploy_key`, `DEPLOY_KEY` and `newPassword` are."""
    return _is_word(value) and not re.fullmatch(r"[A-Z][A-Z0-9_]*|\w+_\w+|[a-z]+(?:[A-Z][a-z]+)+", value)


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


def _is_login(value: str) -> bool:
    return is_secret_field(value.partition(":")[2])


# A value in quotes, or one word.
_QUOTED = r"(?P<quote>[\"'`])(?P<value>[^\"'`\n\\]{4,})\\?(?P=quote)"
_VALUE = r"(?P<quote>[\"'])?(?P<value>(?(quote)[^\"'\n]{4,}|[^\s\"'|;&<>,]{4,}))"
_ASSIGN = r"\\?[\"'`\]]{0,2}\s*(?::=|=>|=|:)\s*\\?(?:[bru](?=[\"']))?"
_TOKEN = rf"(?:(?:access|auth|api|bearer|deploy)[_-]?)?(?:token|{_KEY})"
_HINTS = "pass pwd secret token key credential"


def _flag(hints: str, programs: str, flag: str, value: str = _VALUE) -> Rule:
    """A password that a program takes after a flag."""
    return rule("password", hints, rf"\b(?:{programs})\b[^\n|;]{{0,300}}?\s{flag}{value}", _is_password)


URLS = (
    rule("url-password", "://", r"(?<=://)(?P<value>[^\s/@:\"'<>\[\]{}$]*:[^\s/@\"'<>\[\]{}$]+)(?=@)", _is_login),
    rule("url-password", "jdbc:oracle", r"\bjdbc:oracle:\w+:[^\s/:@]+/(?P<value>[^\s@\"']{4,})@", _is_password),
    rule("url-token", "://", r"(?<=://)(?P<value>[A-Za-z0-9_-]{16,})(?=@[\w.-]+\.)", has_letters_and_digits),
    rule(
        "url-secret",
        "? #",
        r"[?&#](?:access_token|token|api_?key|key|sig|signature|secret|auth|X-Amz-Signature|X-Amz-Credential)"
        r"=(?P<value>[^\s&\"'<>#\[]{8,})",
        has_letters_and_digits,
        re.I,
    ),
    rule("url-secret", "?", r"[?&](?:password|passwd|pwd|pass)=(?P<value>[^\s&\"'<>#\[]{4,})", _is_mixed, re.I),
)
_AUTHORIZATION = r"\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?"
_CREDENTIAL = r"(?P<value>[A-Za-z0-9._~+/=-]{8,})(?![\w(\[.~+/=-])"
HEADERS = (
    rule("npm-token", "_auth=", r"(?<![\w.])_auth=[\"']?(?P<value>[^\s\"',()]{8,})(?=[\s\"']|$)", _is_mixed),
    rule(
        "authorization",
        "authorization",
        rf"{_AUTHORIZATION}(?:bearer|basic|token|digest|apikey)\s+{_CREDENTIAL}",
        None,
        re.I,
    ),
    rule("authorization", "authorization", rf"{_AUTHORIZATION}{_CREDENTIAL}", has_letters_and_digits, re.I),
    rule("authorization", "bearer", r"\bBearer\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", has_letters_and_digits, re.I),
    rule("cookie", "cookie", r"(?:^|[\s\"'])(?:set-)?cookie:\s*(?P<value>[^\s;=]+=[^\r\n\"']{6,})", None, re.I | re.M),
    rule("cookie", "cookie", r"\bcookie\s*=\s*[\"'`][\w.-]+=(?P<value>[^\s;\"'`]{8,})", has_letters_and_digits, re.I),
    rule("azure-key", "accountkey sharedaccesskey", r"\b(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/=]{20,})"),
    rule("azure-key", "sharedaccesssignature", r"\bSharedAccessSignature=(?P<value>[^\s\"';]{20,})"),
    rule(
        "aws-key",
        "secret",
        r"(?i:aws.{0,20}secret.{0,20})[\"']?\s*[:=]\s*[\"']?(?P<value>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
    ),
)
FLAGS = (
    rule(
        "password",
        "-u --user",
        r"\b(?:curl|wget|https?|xh)\b[^\n|;]{0,300}?\s(?:-u|--user)[ =][\"']?[^\s:\"']+:(?P<value>[^\s\"']+)",
        _is_password,
    ),
    _flag("mysql maria", r"mysql\w*|mariadb[\w-]*", "-p"),
    _flag("redis valkey keydb", r"(?:redis|valkey|keydb)-cli", r"(?:-a|--pass)\s+"),
    _flag("sshpass", "sshpass", r"-p\s*"),
    _flag("mongo cypher", r"mongo\w*|cypher-shell", r"-p\s+"),
    _flag("login", r"(?:docker|podman|buildah|skopeo|nerdctl|oras|helm registry|az|oc|cf)\s+login", r"-p\s*"),
    _flag("sqlcmd bcp mosquitto ipmitool zip", r"sqlcmd|bcp|mosquitto_\w+|ipmitool|(?:un)?zip", r"-P\s*"),
    _flag("7z rar", r"7z[ar]?|rar|unrar", r"-h?p"),
    _flag("ldap", r"ldap\w+", r"-w\s*"),
    _flag("smbclient rpcclient winexe", "smbclient|rpcclient|winexe", r"-U\s*[\"']?[^\s%\"']+%"),
    _flag("net", r"net\s+use", r"/user:\S+\s+"),
    _flag("htpasswd", "htpasswd", r"(?:-\w*b\w*)\s(?:[^\n|;]{0,200}\s)?\S{1,100}\s\S{1,100}\s+"),
    _flag("rabbitmqctl", "rabbitmqctl", r"(?:add_user|change_password)\s+\S+\s+"),
    _flag("lftp", "lftp", r"-u\s*[\"']?[^\s,\"']+,"),
    _flag("rdp rdesktop", r"\w*freerdp\w*|rdesktop", r"(?:/p:|-p\s*)"),
    _flag("openssl", "openssl", r"-k\s+"),
    _flag("security", r"security\s+add-\w+-password", r"-w\s+"),
    _flag("vault", r"vault\s+login", r"(?:-\S+\s+)*", r"(?P<value>[\w.-]{12,})(?!\S)"),
    rule(
        "secret",
        "configure _authtoken",
        r"\bconfigure\s+set\s+\S*(?:secret|token)(?:_access)?(?:_key)?\s+(?P<value>\S{8,})",
        _is_random,
    ),
    rule("npm-token", "_authtoken", r"_authToken[\s=]+[\"']?(?P<value>[\w.-]{8,})", _is_random),
    rule("password", "sqlplus", r"\bsqlplus\s+(?:-\w+\s+)*[\"']?[\w.]+/(?P<value>[^\s@/\"']{4,})@", _is_password),
    rule(
        "password",
        "chpasswd",
        r"(?<![\w/])[\w.-]+:(?P<value>[^\s:\"']{4,})[\"']?\s*\|\s*(?:sudo\s+)?chpasswd",
        _is_password,
    ),
    rule("password", "chpasswd", r"\bchpasswd\s*<<<\s*[\"']?[\w.-]+:(?P<value>[^\s:\"']{4,})", _is_password),
    rule("password", "securestring", rf"\bConvertTo-SecureString\s+(?:-String\s+)?{_QUOTED}", _is_password, re.I),
    rule("password", "pass pwd token secret", rf"\s--?[\w-]{{0,40}}?{NAME}\s*\\\n\s*{_VALUE}", _is_password, re.I),
    rule(
        "password",
        "<<<",
        r"\b(?:kinit|\w*passwd|su|cryptsetup|secret-tool|pass\s+insert|secrets?\s+put|env\s+add)\b"
        rf"[^\n|;]{{0,200}}<<<\s*{_VALUE}",
        _is_password,
    ),
    rule(
        "password",
        "sudo -stdin",
        rf"\b(?:echo|printf)\s+(?:-n\s+)?{_VALUE}(?(quote)[\"'])\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-\w*S|[^\n|]{{0,200}}--?pass\w{{0,10}}-stdin)",
        _is_password,
    ),
    rule("password", "pass", rf"\s-pass(?:in|out)?[ =][\"']?pass:{_VALUE}", _is_password),
    rule("password", _HINTS, rf"\s--?(?!ask)[\w-]{{0,40}}?{NAME}s?[ =]{_QUOTED}", _is_password, re.I),
    rule(
        "password",
        "pass pwd",
        rf"\s--?(?!ask)[\w-]*?(?:{LONG_NAME}|{SHORT_NAME})[ =](?P<value>[^\s\"']{{4,}})",
        _is_bare_password,
        re.I,
    ),
    rule("password", "pass pwd", rf"\s--[\w-]{{0,40}}?{LONG_NAME}=(?P<value>[^\s\"'|;&]{{4,}})", _is_password, re.I),
    rule("password", "pass pwd", rf"\s--{LONG_NAME} (?P<value>[^\s\"'|;&-][^\s\"'|;&]{{3,}})", _is_word, re.I),
    rule("secret", _HINTS, rf"\s--?[\w-]{{0,40}}?{NAME}[ =](?!id=)(?P<value>[^\s\"'|;&]{{8,}})", _is_random, re.I),
    rule("secret", "token key", rf"\s--[\w-]{{0,40}}?{_TOKEN}=(?P<value>[^\s\"'|;&]{{4,}})", _is_word_or_mixed, re.I),
    rule("secret", "token key", rf"\s--{_TOKEN} (?P<value>[^\s\"'|;&-][^\s\"'|;&]{{3,}})", _is_word_or_mixed, re.I),
    rule("password", "--from-literal", rf"--from-literal[= ][\"']?[\w.-]{{0,40}}?{NAME}={_VALUE}", _is_password, re.I),
    # `moorctl token set VALUE`, `config set api.token VALUE`, `secret set NAME --body VALUE`, `secrets set NAME=VALUE`
    rule(
        "secret",
        _HINTS,
        rf"\b(?:{LONG_NAME}|token|secret|{_KEY}|pin)[ :](?:set|add|put|store|save)\s+{_VALUE}",
        _is_word_or_mixed,
        re.I,
    ),
    rule("secret", _HINTS, rf"\bconfig(?:ure)?[ :]set\s+[\w./:-]{{0,80}}?{NAME}\s+{_VALUE}", _is_word_or_mixed, re.I),
    rule(
        "secret",
        "secret",
        rf"\bsecrets?[ :](?:set|put|add|create)\b[^\n|;]{{0,200}}?\s(?:--body|-b|--value|--data)[ =]{_VALUE}",
        _is_password,
    ),
    rule(
        "secret",
        "secret",
        rf"\bsecrets?[ :](?:set|put|add|create)\s+[A-Z][A-Z0-9_]*(?:=|\s+(?!-)){_VALUE}",
        _is_password,
    ),
    _flag("ssh-keygen", "ssh-keygen", r"-[NP]\s+"),
    _flag("cqlsh usermod useradd", "cqlsh|usermod|useradd", r"-p\s+"),
    rule("password", "http-basic.", rf"\bconfig\s[^\n|;]{{0,80}}?http-basic\.\S+\s+\S+\s+{_VALUE}", _is_word),
    _flag("twine", r"twine\s+upload", r"-p\s*"),
    _flag("--secret-string", r"secretsmanager", r"--secret-string[ =]"),
    rule("secret", "--secret", rf"(?:^|\s)--secret[ =](?!id=){_VALUE}", _is_mixed, re.M),
    rule("password", "net", r"\bnet\s+user\s+[^\s/]+\s+(?P<value>[^\s\"'/]{4,})(?=\s+/)", _is_word),
    rule("password", "net", r"\bnet\s+user\s+[^\s/]+\s+(?P<value>[^\s\"'/]{4,})", _is_mixed),
    rule("password", "bw cargo", rf"\b(?:bw\s+(?:unlock|login\s+\S+)|cargo\s+login)\s+{_VALUE}", _is_mixed),
    # `setx NAME VALUE`, `env:set NAME VALUE`, and a Dockerfile's `ENV NAME VALUE`
    rule(
        "password",
        _HINTS,
        r"(?:\bsetx\s+(?:/m\s+)?|\benv:set\s+|(?:^|[\"'])[ \t]*(?-i:ENV)\s+)"
        rf"\w{{0,40}}?(?:{NAME}|_PASS)[ \t]+(?!=){_VALUE}",
        _is_word,
        re.I | re.M,
    ),
    rule("pin", "--pin", r"\s--pin(?:-?code)?[ =](?P<value>\d{4,8})\b", None, re.I),
)
_IDENTIFIED = r"\bIDENTIFIED\s+(?:WITH\s+\S+\s+)?(?:BY|AS)\s+(?:PASSWORD\s+)?"
SQL = (
    rule("password", "identified", rf"{_IDENTIFIED}{_QUOTED}", _is_password, re.I),
    rule("password", "identified", rf"{_IDENTIFIED}(?P<value>[^\s\"'`;]{{4,}})", _is_mixed, re.I),
    rule("password", "password", r"\bPASSWORD(?:\s*=\s*N?|\s+|\s*\(\s*)'(?P<value>[^'\n]{4,})'", _is_password, re.I),
    rule("password", "set password", r"\bSET\s+PASSWORD\s+FOR\s+\S+\s*=\s*'(?P<value>[^'\n]{4,})'", _is_password, re.I),
)
# The value in the rest of a line of settings. Before a bracket it is code, and the word a variable.
_TO_THE_END = r"[ \t]*:[ \t]+(?P<value>[A-Za-z][\w-]{3,40})[ \t]*(?:#.*)?$(?!\s*[})\]])"
# Markup, pairs of a name and a value, and settings without a sign between name and value.
FILES = (
    rule(
        "password",
        "pass pwd",
        rf"<[\w.:-]{{0,40}}{LONG_NAME}{_ABOUT}\w{{0,40}}(?:\s[^<>]{{0,200}})?>(?P<value>[^<>\n]{{4,}})</",
        _is_password,
        re.I,
    ),
    rule(
        "secret",
        _HINTS,
        rf"<[\w.:-]{{0,40}}{NAME}{_ABOUT}\w{{0,40}}(?:\s[^<>]{{0,200}})?>(?P<value>[^<>\n]{{8,}})</",
        _is_random,
        re.I,
    ),
    rule(
        "password",
        _HINTS,
        rf"\b(?:name|key|id)\s*=\s*[\"'][\w.:-]{{0,40}}{NAME}[\"'](?:\s+value\s*=\s*[\"']|\s*>)(?P<value>[^\"'<>\n]{{4,}})",
        _is_password,
        re.I,
    ),
    rule(
        "password",
        _HINTS,
        rf"\b(?:name|key)[\"']?\s*[:=]\s*[\"']?[\w.-]{{0,40}}{NAME}[\"']?\s*,?\s*[\"']?value[\"']?\s*[:=]\s*{_VALUE}",
        _is_password,
        re.I,
    ),
    rule(
        "password",
        "variable",
        rf"\bvariable\s+\"[\w-]{{0,40}}{NAME}\"\s*\{{[^{{}}]{{0,300}}?default\s*=\s*{_QUOTED}",
        _is_password,
    ),
    rule("password", "password", r"\blogin\s+\S+\s+password\s+(?P<value>\S+)", is_secret_field),
    rule(
        "password",
        _HINTS,
        rf"{NAME}:[ \t]+[|>][-+]?[ \t]*\n[ \t]+(?P<value>\S{{4,}})[ \t]*(?:\n|$)",
        _is_password,
        re.I,
    ),
    rule(
        "password",
        "pass pwd",
        rf"^[ \t]*(?:-[ \t]+)?[\w.-]{{0,40}}?{LONG_NAME}{_TO_THE_END}",
        _is_word_or_mixed,
        re.I | re.M,
    ),
    rule(
        "secret",
        "token key",
        rf"^[ \t]*(?:-[ \t]+)?[\w.-]{{0,40}}?{_TOKEN}{_TO_THE_END}",
        _is_mixed,
        re.I | re.M,
    ),
    rule(
        "password", "pass pwd", rf"\b\w+=\S+ {LONG_NAME}=(?P<value>[A-Za-z]\w{{3,40}})(?=\s|$|[\"'])", _is_word_or_mixed
    ),
    rule(
        "password",
        "requirepass masterauth bindpw rootpw auth-pass",
        rf"^\s*(?:requirepass|masterauth|bindpw|rootpw|(?:sentinel\s+)?auth-pass\s+\S+)\s+{_VALUE}",
        _is_password,
        re.M,
    ),
)
CALLS = (
    rule(
        "password",
        "password",
        r"password(?<!get.password)(?<!getpassword)(?<!hash.password)\(\s*(?P<quote>[\"'])(?P<value>[^\"'\n]{4,})(?P=quote)\s*\)",
        _is_mixed,
        re.I,
    ),
    rule(
        "password",
        "auth login credential",
        r"(?:\blogin|\bauth\w{0,20}|BasicAuth\w{0,20}|\bcredentials?)\s*=?\s*[(\[]\s*([\"'])[^\"'\n]*\1\s*,\s*(?P<quote>[\"'])"
        r"(?P<value>[^\"'\n]{4,})(?P=quote)",
        _is_password,
        re.I,
    ),
)
ASSIGNMENTS = (
    rule(
        "password",
        "pass pwd",
        rf"{LONG_NAME}{_ABOUT}\w{{0,40}}{_ASSIGN}{_QUOTED}",
        _is_password,
        re.I,
    ),
    rule("password", "pass pwd", rf"{LONG_NAME}s?\d?\s*[=:]\s*(?P<value>[^\s\"',;`]{{4,}})", _is_bare_password, re.I),
    rule("password", "pass", r"\b[A-Z][A-Z0-9_]*_PASS(?:WORD|WD|PHRASE)?=(?P<value>[^\s\"',;`]{4,})", _is_password),
    rule("password", "pass pw psk", rf"{SHORT_NAME}{_ASSIGN}{_QUOTED}", _is_mixed, re.I),
    rule("password", "pass pw", rf"{SHORT_NAME}\s*[=:]\s*(?P<value>[^\s\"',;`]{{4,}})", _is_mixed, re.I),
    rule(
        "secret", _HINTS, rf"{NAME}{_ABOUT}\w{{0,40}}{_ASSIGN}[\"'`]?(?P<value>[^\s\"',;`\\)]{{8,}})", _is_random, re.I
    ),
)
_WORD = r"(?P<quote>[\"'`«])?(?P<value>(?(quote)[^\"'`»\n]{4,}|[^\s\"',;`«»]{4,200}?(?=[.,;:!?)]*(?:\s|$))))"
_IS = (
    r"(?:\s+(?:for|of|on|to|in)(?:\s+[\w.@-]+){1,4}?)?(?:\s+(?:is|was|are|will\s+be|ist|lautet|war|est|es)|\s*[-=]>)"
    r"(?:\s+(?:now|still|set\s+to|jetzt))?\s*:?\s+"
)
_NAMED = rf"\b(?:{LONG_NAME}|the\s+pass|mot\s+de\s+passe|contraseña|senha)"
_AS = rf"\s+as\s+(?:(?:the|your|my|its|an?)\s+)?(?:\w+\s+){{0,2}}?(?:{LONG_NAME}|secret|token|api[ _-]?key)\b"
_USE = r"\b(?:use|enter|type|take|with|set)\s+"
_PIN = r"(?P<value>\d{4,8})\b(?!\s*(?:char|letter|bit|byte|digit|word|time|second|minute|day|year))"
PROSE = (
    rule("pin", "pin pass", rf"\b(?:pin|passcode|password)(?:\s+(?:code|number))?(?:{_IS}|:\s+){_PIN}", None, re.I),
    rule("pin", "pin", rf"\bPIN(?:\s+code)?\s+{_PIN}"),
    rule("password", "pass pwd kennwort contra senha", rf"{_NAMED}{_IS}{_WORD}", _is_mixed, re.I),
    rule("password", "pass pwd kennwort contra senha", rf"{_NAMED}{_IS}{_QUOTED}", _is_password, re.I),
    rule("password", "pass", rf"\bpass(?:word|phrase)\s+(?:for\s+[^:\n]{{1,60}}:\s+)?{_WORD}", _is_mixed, re.I),
    rule("password", "pass", rf"\b(?:the|with|a)\s+pass(?:word|phrase)\s+{_QUOTED}", _is_password, re.I),
    rule(
        "password",
        "passe contra senha пароль 密码 密碼 パスワード",
        rf"(?:mot\s+de\s+passe|contraseña|senha|пароль|密[码碼]|パスワード)\s*[:：]\s*{_WORD}",
        _is_mixed,
        re.I,
    ),
    rule("password", _HINTS, rf"{_USE}{_QUOTED}{_AS}", _is_password, re.I),
    rule("password", _HINTS, rf"{_USE}(?P<value>[^\s\"'`]{{4,200}}){_AS}", _is_mixed, re.I),
    rule("password", "credential", rf"\bcredentials?(?:\s+are|\s+is|:)\s+\S+\s*[/:]\s*{_WORD}", _is_mixed, re.I),
    rule(
        "secret",
        "key token secret",
        rf"\b(?:[A-Z]+_)?(?:api[ -]?key|secret(?:\s+key)?|(?:access\s+)?token)(?:{_IS}|:\s+)"
        r"[\"'`]?(?P<value>[\w.+/=-]{12,})",
        _is_random,
        re.I,
    ),
)
CONTEXTS: tuple[Rule, ...] = (*URLS, *HEADERS, *FLAGS, *SQL, *FILES, *CALLS, *ASSIGNMENTS, *PROSE)
