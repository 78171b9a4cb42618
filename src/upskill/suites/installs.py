"""What the scripts of other tools' tasks install. A sandbox installs nothing: it has this machine's programs."""

from __future__ import annotations

import re

# Programs that a check can name as needed, and packages that only fetch or report.
TOOLS = {
    *(
        "pytest",
        "python3",
        "git",
        "jq",
        "make",
        "gcc",
        "g++",
        "sqlite3",
        "unzip",
        "zip",
        "curl",
        "wget",
    ),
    *("go", "cargo", "javac", "node", "ruby", "perl", "php", "npm"),
}
HELPERS = {
    *(
        "",
        "uv",
        "pip",
        "pytest-json-ctrf",
        "ca-certificates",
        "python3-pip",
        "python3-venv",
        "nodejs",
        "tmux",
    ),
    *("bash", "coreutils", "findutils", "procps", "asciinema"),
}
INSTALL = re.compile(
    r"(?m)(^(?:RUN\b)?|&&|\|\||;|\bthen\b)[ \t]*"
    r"(?:(?:sudo )?(?:apt-get|apt|apk|(?:python3? -m )?pip3?|uv(?: pip)?|npm|conda)(?: -\S+)*"
    r" (?:install|add|i|ci|update|upgrade|clean|init|venv)\b((?:[^\n;&|]|>&)*)"
    r"|curl [^\n;&]*astral\.sh/uv[^\n;&|]*\| *(?:ba)?sh|(?:source|\.) \S*\.local/bin/env\S*|rm -rf /var/lib/apt\S*)"
)
RUNNER = re.compile(r"\b(?:uvx|uv run)\b([^\n;&|]*?)\spytest(?=\s)|\s--ctrf[= ]\S+")
FETCHES = re.compile(
    r"(?m)^(?!\s*#).*\b(?:apt-get|apk|uvx|uv (?:run|sync)|pip3? install|npm (?:i|ci|install)|npx|conda"
    r"|(?:curl|wget)\b.*//(?!localhost|127)).*"
)


def without_installs(script: str) -> tuple[str, set[str]]:
    """The script with `:` in place of what installs packages, and the packages. Continued lines are joined."""
    text = re.sub(r"\\[ \t]*\n", " ", script)
    words = [word for match in INSTALL.finditer(text) for word in (match[2] or "").split()]
    words = [word for word in words if not word.startswith(("-", ">", "2>"))]
    words += [
        word
        for match in RUNNER.finditer(text)
        for word in re.findall(r"(?:-w|--with)[ =](\S+)", match[1] or "")
    ]
    text = RUNNER.sub(
        lambda match: "" if match[1] is None else "pytest", INSTALL.sub(r"\1 :", text)
    )
    text = re.sub(r"(?m)^(RUN)?(?:[ \t]*:[ \t]*&&)+", r"\1", text)
    names = {re.split(r"[=<>~\[]", word.strip("'\""))[0] for word in words} | (
        {"pytest"} & set(text.split())
    )
    return text, names


def missing_packages(packages: set[str]) -> str:
    """Those that no program here can stand for, in words; empty without any."""
    return ", ".join(sorted(packages - TOOLS - HELPERS))


def fetching_lines(script: str) -> list[str]:
    """The lines that need the network, which a sandbox does not have."""
    return [match[0].strip() for match in FETCHES.finditer(script)]
