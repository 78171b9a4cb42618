"""Command roles: what a shell command is for, told by its program and subcommand.

Some commands are context (`cd`, `export`, `echo`), some only look around (`ls`, `git status`, `--help`), some move
files about, some keep the books of git, some are scripts for once (`python -c`); the rest is the work. What runs
another command (`sudo`, `timeout 60`, `uv run`, `docker exec NAME`) is looked through.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

Role = Literal["context", "look", "files", "books", "script", "work"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CONTEXT_PROGRAMS = _words(
    "cd set export source . sleep echo printf true false : wait trap unset alias shopt umask exit pushd popd clear"
    " read yes local declare ulimit activate deactivate conda history tput stty return eval test [ [["
    " Set-Location Push-Location Pop-Location"
)
LOOKING_PROGRAMS = _words(
    "ls ll cat pwd head tail wc grep egrep fgrep rg ag ack find fd tree stat file which whereis type date du df whoami"
    " less more diff cmp sort uniq cut tr column awk xxd hexdump od strings nm objdump readelf ps top free uname id"
    " hostname nproc lsof ss netstat nl realpath dirname basename printenv env command bat man jq yq seq tac md5sum"
    " sha256sum ldd lscpu lsblk nvidia-smi ping nc sw_vers open view code vim nano create edit submit goto scroll_up"
    " squeue sacct sinfo scroll_down find_file search_file search_dir decompile disassemble"
)
FILE_PROGRAMS = _words(
    "apply_patch mkdir touch rm cp mv ln chmod chown tee rmdir install unzip tar truncate kill pkill killall sed"
)
LOOKING_VERBS = _words(
    "status list ls show get describe info log logs diff search explain inspect whoami version help ps images"
    " top events cat tree outdated showmigrations history stats get-contexts current-context cluster-info"
    " versions doc check-ignore rev-parse blame ls-files ls-tree ls-remote shortlog grep reflog config"
    " env which why"
)
BOOKKEEPING = _words(
    "add commit push pull fetch checkout switch stash branch merge rebase restore reset clone init remote tag"
    " cherry-pick revert clean am apply bisect worktree"
)
SQL_PROGRAMS = _words("sqlite3 psql mysql mariadb duckdb clickhouse-client")
# Programs whose next word is a thing and not a verb.
VERBLESS = _words(
    "curl wget ssh scp rsync gcc g++ clang clang++ cc pytest mypy pyright tsc eslint prettier black isort flake8 pylint"
    " ffmpeg ffprobe psql mysql mariadb sqlite3 redis-cli latexmk pdflatex xelatex lualatex biber java javac rustc rm"
    " cp mv mkdir touch ln chmod chown sed tar unzip zip kill pkill tee jest convert magick pandoc gofmt rustfmt"
    " xdotool code vim nano open timeout nvcc ld"
)
# Programs whose verbs have verbs, after these words; any word where none is named.
DEEPER = {
    "docker": _words("compose container image volume network buildx system"),
    "npm": _words("run exec"),
    "pnpm": _words("run exec"),
    "yarn": _words("run"),
    "bun": _words("run"),
    "git": _words("submodule"),
    "uv": _words("tool python"),
    "helm": _words("repo dependency plugin"),
    "cargo": _words("nextest"),
    "go": _words("mod tool"),
    "gh": frozenset[str](),
    "aws": frozenset[str](),
    "az": frozenset[str](),
    "gcloud": frozenset[str](),
}
# Options with a value that may stand before the verb.
GLOBAL_OPTIONS = {
    "git": _words("-C -c --git-dir --work-tree"),
    "kubectl": _words("--context -n --namespace --kubeconfig --cluster"),
    "helm": _words("--kube-context -n --namespace"),
    "aws": _words("--profile --region --output"),
    "npm": _words("--prefix -w --workspace"),
    "pnpm": _words("-C --dir --filter -F"),
    "yarn": _words("--cwd"),
    "docker": _words("-H --context -f --file -p --project-name --profile"),
    "gh": _words("-R --repo"),
    "make": _words("-C -f -j"),
    "cargo": _words("--manifest-path"),
    "uv": _words("--directory --project"),
    "poetry": _words("-C"),
    "go": _words("-C"),
}
# Programs that run another: how many words of theirs come first, and their options with a value.
RUNNERS: dict[str, tuple[int, frozenset[str]]] = {
    "sudo": (0, _words("-u -g -h -C")),
    "timeout": (1, _words("-s -k --signal --kill-after")),
    "gtimeout": (1, _words("-s -k")),
    "env": (0, _words("-u -C -S")),
    "nice": (0, _words("-n")),
    "ionice": (0, _words("-c -n")),
    "time": (0, _words("-f -o")),
    "nohup": (0, frozenset()),
    "stdbuf": (0, _words("-o -e -i")),
    "xargs": (0, _words("-n -P -I -L -d -s")),
    "exec": (0, frozenset()),
    "npx": (0, _words("-p --package")),
    "bunx": (0, frozenset()),
    "uvx": (0, _words("--from --with --python -p")),
    "watch": (0, _words("-n")),
    "xvfb-run": (0, _words("-s -n")),
    "uv run": (0, _words("--with --python -p --extra --group --project --directory --env-file --package")),
    "uv pip": (-1, frozenset()),
    "poetry run": (0, frozenset()),
    "pipenv run": (0, frozenset()),
    "pdm run": (0, frozenset()),
    "rye run": (0, frozenset()),
    "hatch run": (0, frozenset()),
    "bundle exec": (0, frozenset()),
    "npm exec": (0, _words("-p --package")),
    "pnpm exec": (0, frozenset()),
    "pnpm dlx": (0, frozenset()),
    "yarn dlx": (0, frozenset()),
    "docker exec": (1, _words("-e -u -w --env --user --workdir --env-file")),
    "podman exec": (1, _words("-e -u -w --env --user --workdir --env-file")),
    "docker compose exec": (1, _words("-e -u -w --env --user --workdir --index")),
}
HELP = _words("--help --explain --usage")
HELP_AT_THE_END = _words("--version -V -v -h help version")
INLINE = _words("-c -e -p --eval -")
_INTERPRETERS = r"(?:python|node|ruby|perl|bash|sh|deno|tsx|ts-node|pip)[\d.]*"
_QUERY = re.compile(r"\bselect\b|\bpragma\b|\bexplain\b|\bshow \w|\.tables|\.schema|\\d", re.I)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_CHANGES_OR_LOCAL = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0| -(?:X|d|F|o|O|T)\b| --(?:data|request|output|upload)"
)


def split_runner(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Variables and programs that run another one, and the command they run."""
    rest = list(words)
    front: list[str] = []
    while rest:
        if _VARIABLE.match(rest[0]):
            front.append(rest.pop(0))
            continue
        head = PurePosixPath(rest[0]).name
        name = next((n for n in (" ".join([head, *rest[1:3]]), " ".join([head, *rest[1:2]]), head) if n in RUNNERS), "")
        if not name:
            break
        own, valued = RUNNERS[name]
        taken = len(name.split()) + min(own, 0)
        while taken < len(rest) and (rest[taken].startswith("-") or _VARIABLE.match(rest[taken])):
            ended = rest[taken] == "--"
            taken += 2 if rest[taken] in valued else 1
            if ended:
                break
        taken += max(own, 0)
        if taken >= len(rest):  # nothing is run
            break
        front += rest[:taken]
        rest = rest[taken:]
    return tuple(front), tuple(rest)


def program_and_verb(words: tuple[str, ...]) -> str:
    """`git commit` of `git commit -m x`. Two commands with the same program and verb try to do the same thing."""
    rest = list(split_runner(words)[1])
    if not rest or _VARIABLE.match(rest[0]):
        return ""
    program = re.sub(r"\.(?:exe|cmd|bat)$", "", PurePosixPath(rest.pop(0)).name)
    if re.fullmatch(_INTERPRETERS, program):
        program, rest = _script_and_rest(re.sub(r"[\d.]+$", "", program), rest)
    return program if program in VERBLESS else " ".join([program, *_verbs(program, rest)])


def _script_and_rest(program: str, rest: list[str]) -> tuple[str, list[str]]:
    """What an interpreter runs, and its arguments: `manage.py` of `python manage.py migrate`."""
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest[1], rest[2:]
    script = next((word for word in rest if not word.startswith("-")), "")
    if program == "pip" or not script or rest[0] in INLINE:
        return program, rest if program == "pip" else []
    return PurePosixPath(script).name, rest[rest.index(script) + 1 :]


def _verbs(program: str, rest: list[str]) -> list[str]:
    deeper = DEEPER.get(program)
    verbs: list[str] = []
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith(("-", "+")):
            skip = word in GLOBAL_OPTIONS.get(program, ())
            if verbs or (program not in GLOBAL_OPTIONS and not word.startswith("+")):
                break
        elif re.fullmatch(r"[a-zA-Z][\w:-]*", word):
            verbs.append(word)
            if deeper is None or len(verbs) == 2 or (deeper and word not in deeper):
                break
        else:
            break
    return verbs


def role_of(words: tuple[str, ...]) -> Role:
    """What a command is for."""
    rest = split_runner(words)[1]
    if not rest or _VARIABLE.match(rest[0]) or rest[0] in CONTEXT_PROGRAMS:
        return "context"
    program, *verbs = program_and_verb(words).split() or [""]
    if _asks_for_help(rest) or _looks(program, verbs, rest):
        return "look"
    if program == "git" and verbs and verbs[0] in BOOKKEEPING:
        return "books"
    if re.fullmatch(r"(?:New|Remove|Copy|Move|Rename)-Item|(?:Set|Add)-Content|Expand-Archive", program):
        return "files"
    if program in FILE_PROGRAMS or (program == "git" and verbs in (["mv"], ["rm"])):
        return "files"
    # Where no file is named, the code is on the line or comes through a pipe.
    return "script" if re.fullmatch(r"python|node|ruby|perl|bash|sh|deno", program) else "work"


def _asks_for_help(rest: tuple[str, ...]) -> bool:
    return bool(HELP & set(rest[1:])) or (1 < len(rest) <= 3 and rest[-1] in HELP_AT_THE_END and rest[-2] != "-m")


def _looks(program: str, verbs: list[str], rest: tuple[str, ...]) -> bool:
    if re.fullmatch(r"(?:Get|Test|Select|Measure|Where|Format|Out|Write|Resolve|Compare|Sort)-[A-Z]\w+", program):
        return True
    if program == "sed":
        return not any(word.startswith("-i") for word in rest)
    if program in ("curl", "wget"):
        return not _CHANGES_OR_LOCAL.search(" ".join(rest))
    if program in SQL_PROGRAMS:
        return bool(_QUERY.search(" ".join(rest)))
    if program == "pip" and verbs and verbs[0] in ("freeze", "index"):
        return True
    if program == "make":
        return bool({"-n", "--dry-run"} & set(rest))
    if program in ("npm", "pnpm", "yarn") and verbs == ["run"]:
        return True
    return program in LOOKING_PROGRAMS or bool(LOOKING_VERBS & set(verbs)) or verbs[1:] == ["view"]
