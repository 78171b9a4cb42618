"""Guard: what a student left in the workspace must not decide what a program of a check does.

Before every check that runs programs:

1. Every file that the case brought is put back unless it is the student's to change (`ownership`). A pass does not
   count if one of them was written, moved or replaced while the check ran, even if that was undone.
2. Files that the student added are removed where they would decide what a program of the check does (`plants`).
3. Repositories lose settings, hooks and whatever hides a change, unless the case names it; their index is written anew
   (`_GIT`). Settings in the student's home are removed.

The environment of a check (`workspace.ENVIRONMENT`) turns off the rest. Python finds modules of the workspace, but only
after its own and those that are installed (`SITE`).

Whose a file is may be guessed wrong. So a check that fails gets a second look at everything as the student left it. If
it passes then, nobody can tell right work from a fake: the failure is disputed, and verdicts have to hold whichever way
it is counted. A second look never makes a pass.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from upskill.checks import Evidence, Finding
from upskill.checks.programs.ownership import (
    commands_of,
    is_below,
    is_used,
    mentions_file,
    mentions_path,
    plain,
    protected_files,
)
from upskill.checks.programs.plants import (
    STEERING,
    PlantFinder,
    invokes,
    steered_by,
    with_what_it_runs,
)
from upskill.checks.workspace import GIT_SETTINGS, CheckDir, DiskFull, in_words, open_check_dir
from upskill.errors import MissingTool, TrialError
from upskill.plain import listed
from upskill.sandboxes import Entry, Limits, Sandbox, printable

SECONDS = 60.0  # for tidying up
MAX_NAMED = 5  # files in a reason
MAX_FILES = Limits().files

# A module of the case may have the name of an installed one; nothing else in the workspace may.
SITE = """
import os, sys
from importlib.machinery import PathFinder
workspace, own = %r, %r
try:
    start = os.path.dirname(os.path.abspath(sys.argv[0])) if os.path.isfile(sys.argv[0]) else os.getcwd()
except OSError:
    start = workspace
here = [start, workspace]
installed = [path for path in sys.path if not (os.path.abspath(path) + "/").startswith(workspace + "/")]
class Installed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, installed) if path is None else None
        if spec is None or spec.loader is None:
            return None
        return PathFinder.find_spec(name, here) if name in own else spec
sys.meta_path.insert(sys.meta_path.index(PathFinder), Installed)
sys.path += [folder for folder in here if folder not in sys.path]
"""


Look = Callable[
    [CheckDir, Mapping[str, str]], Awaitable[Finding]
]  # with these variables in the environment

# The second look: what a check's environment turns off is on again. The first argument is a folder for what is in the
# workspace, the second holds what comes there.
_AS_LEFT = {
    **dict.fromkeys(("PYTHONSAFEPATH", "PYTEST_ADDOPTS", "GOWORK"), ""),
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
_AS_LEFT_SITE = "import sys; sys.path.append(%r)"
_COPY = 'mkdir -- "$1" && cp -a . "$1"'
_SWAP = """
mkdir -- "$1" && find . -mindepth 1 -maxdepth 1 -exec mv -t "$1" -- {} + &&
find "$2" -mindepth 1 -maxdepth 1 -exec mv -t . -- {} +
"""
# What a check put back or removed comes again, as new, for the checks that follow; not over what the check wrote there.
_RESTORE = """xargs -0 /bin/sh -c 'for path; do
  { [ -e "$0/$path" ] || [ -L "$0/$path" ]; } && [ ! -e "$path" ] && [ ! -L "$path" ] || continue
  case $path in */*) mkdir -p -- "${path%/*}" ;; esac
  cp -dR --preserve=mode,links -- "$0/$path" "$path"
done' "$1"
"""

_RUNNERS = (
    r"pytest|py\.test|unittest|tox|nox|npm|npx|yarn|pnpm|jest|vitest|mocha|go test|cargo test"
)
# What a command of the case writes to itself: such a file may change while it runs.
_WRITES = r"(?:\b(?:(?:sed|perl)\s+-\w*i|mv|rm|tee|touch|patch|truncate|unlink|rename)\b).*{name}"
_WRITES_IN = r"{name}.*(?:write|[\"'][wax]b?\+?[\"'])"
_WRITES_TO = r"(?:>\s*|\b(?:cp|ln|install)\b.*\s)[\"']?[^\s\"'<]*{name}[\"']?\s*$"
# These change a file's mode, or take it away and bring it back as it was.
_TOUCHES = re.compile(
    r"\bchmod\b|\bgit\b.*\b(?:checkout|stash|reset|restore|apply|switch|merge|rebase|revert|cherry-pick|pull)\b"
)
_GIT_FILES = re.compile(r"(?:^|/)\.git(?:/config|/hooks|/info|ignore|attributes)$")
_STATES = 'cd "$1" && find . -type f -printf "%i %C@ %p\\n"'
_CONTENT_STATES = 'cd "$1" && find . -type f -exec cksum {} +'
# Folders are opened on the way down, so that nothing hides in a closed one.
_OPEN = "find . -type d ! -perm -700 -exec chmod u+rwx {} ';' 2>/dev/null; exit 0"
# A link to /proc or /dev would open what the check has open, and one to a folder that the student can write to would
# hide what is in it. What stands in place of a file of the case, or of its folder, is removed. Programs also look for
# settings in the folder that holds the check's own ($1) and in the student's home ($2).
_PREPARE = """
find . -type l -exec /bin/sh -c 'for link; do
  case $(readlink -f -- "$link") in
    "$(pwd -P)"/*) ;;
    /proc/*|/dev/*) rm -f -- "$link" ;;
    "$0"/*|/tmp/*|/dev/shm/*|/home/*) [ -d "$link" ] && rm -f -- "$link" ;;
  esac
done' "$2" {} + < /dev/null > /dev/null 2>&1
xargs -0 /bin/sh -c 'for path; do
  folder=
  case $path in */*) rest=${path%/*}/ ;; *) rest= ;; esac
  while [ -n "$rest" ]; do
    folder=$folder${rest%%/*}; rest=${rest#*/}
    if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -d "$folder" ]; }; then rm -rf -- "$folder"; fi
    folder=$folder/
  done
  rm -rf -- "$path"
done' sh
above=$1 home=$2; shift 2
find "$above" "$home" -mindepth 1 -maxdepth 1 "$@" -exec rm -rf -- {} + 2>/dev/null
exit 0
"""
# Keeps of a repository's settings what makes it a repository, and $SETTINGS; its hooks stay where there are $HOOKS.
# The index is written anew from its entries: what it remembers of files, and flags that hide changes, are the student's
# word.
_GIT_ONE = r"""
git=$1 top=$PWD
case $git in
  */HEAD) git=${git%/HEAD}; tree=; [ -d "$git/objects" ] && [ -d "$git/refs" ] || exit 0 ;;
  *) tree=${git%/.git} ;;
esac
if [ -f "$git" ] && [ ! -L "$git" ]; then
  case $(cd "$tree" && readlink -f -- "$(sed -n 's/^gitdir: //p' .git)") in
    "$top"/*/worktrees/*) ;;
    *) rm -rf -- "$git"; exit 0 ;;
  esac
elif [ -L "$git" ] || [ ! -d "$git" ]; then
  rm -rf -- "$git"; exit 0
else
  chmod -R u+rwX "$git" 2>/dev/null
  cd "$git" || exit 0
  [ -n "$INFO" ] && [ ! -L info ] || rm -rf info
  rm -rf modules config.worktree commondir shallow objects/info objects/pack/multi-pack-index index.lock
  [ -n "$HOOKS" ] && [ ! -L hooks ] || rm -rf hooks
  [ -f config ] && [ ! -L config ] || rm -rf config
  mv -f config all 2>/dev/null || : > all
  git config -f all --no-includes --name-only --list 2>/dev/null | grep -ixE "$SETTINGS" | sort -u |
  while IFS= read -r key; do
    git config -f all --no-includes --get-all "$key" |
    while IFS= read -r value; do git config -f config --add "$key" "$value"; done
  done
  rm -f all
fi
[ -n "$tree" ] && cd "$top/$tree" || exit 0
index=$(git rev-parse --git-path index 2>/dev/null) && [ -n "$index" ] || exit 0
git ls-files -s -z > "$TMPDIR/entries" 2>/dev/null
rm -rf "$index" "${index%index}"sharedindex.*
info=$(git rev-parse --git-path info)
git update-index -z --index-info < "$TMPDIR/entries" 2>/dev/null
git config -f .gitmodules --name-only --get-regexp '[.]ignore$' 2>/dev/null |
while IFS= read -r key; do git config "$key" none; done
find . -name .git -prune -o "(" -name .gitignore -o -name .gitattributes ")" -print 2>/dev/null |
while IFS= read -r file; do
  case $IGNORES in *"
$tree/${file#./}
"*) continue ;; esac
  git ls-files --error-unmatch -- "$file" >/dev/null 2>&1 || rm -rf -- "$file"
  case $file in *attributes) mkdir -p "$info" && echo "* !whitespace !diff" > "$info/attributes" ;; esac
done
git update-index -q --refresh >/dev/null 2>&1
[ "$tree" = . ] && git ls-files -z -o -i --exclude-standard 2>/dev/null | git check-ignore -z -v --stdin 2>/dev/null
exit 0
"""
# The settings that make it a repository.
_REPOSITORY = (
    r"user\..*|init\..*|branch\..*|remote\..*\.(url|fetch)|core\.(repositoryformatversion|logallrefupdates)"
    r"|extensions\.objectformat"
)
_GIT = "find . '(' -name .git -prune -o -name HEAD -type f ')' -exec /bin/sh -c \"$0\" sh {} ';' 2>/dev/null; exit 0"


_OF_HOME = re.compile(r"(?:^|[\s=\"'(:])~/|\$\{?HOME\b|\bconfig --global\b", re.MULTILINE)


def risks(
    text: str, evidence: Evidence, keeps: Sequence[str], *, by_exit_code: bool
) -> Iterator[str]:
    """What a student may still do about a command, in words: where the case names a file, it is the student's."""
    for file in steered_by(text):
        if "*" not in file and mentions_file(evidence.case, file):
            yield f"what the command does is up to {file}, which the student may write"
    if _OF_HOME.search(text) and "HOME=" not in text:
        yield "the check has an empty home of its own; what the student left in its home is in /home/student"
    if by_exit_code and invokes(text, _RUNNERS):
        yield "the student's code runs inside the test runner and can make it exit with 0; check its output, too"
    steering = steered_by(with_what_it_runs(text, evidence.files), evidence.files)
    own = {*evidence.files} - {
        *protected_files(text, evidence, steering, keeps),
        *evidence.graded_files,
    }
    own -= {path for path in own if is_below(path, keeps)}
    for command in commands_of(text):
        used = [
            path
            for path in sorted(own)
            if is_used(path, with_what_it_runs(command, evidence.files))
        ]
        if len(used) > 1:
            yield (
                f"the check uses {listed(used)}, and the student may change all of them;"
                " list those that are part of the work in `keeps`, and all others are restored"
            )
            break


@dataclass(frozen=True)
class Guarded:
    """What was done before a check ran its programs."""

    check_dir: CheckDir
    text: str  # what the check runs
    keeps: Sequence[str]
    environment: Mapping[str, str]  # for the programs of the check
    protected: Mapping[str, str]  # but for what the check itself writes to
    versions: Mapping[str, str]  # of these and their folders
    brought: Mapping[str, str]  # all that was put back
    changed: Sequence[str]  # before they were put back
    removed: Sequence[str]
    dated: Sequence[
        str
    ]  # before the files of the case: built by the student, whatever the date of the file says
    settings: Sequence[str]  # links, and files of git, that may have been removed or changed, too
    copied: bool  # what the student left was kept for a second look
    hidden: Finding | None  # the student hid work from git

    async def states(self) -> dict[str, str]:
        """What tells whether the check's own files were touched, by path."""
        line = [
            "/bin/sh",
            "-c",
            _CONTENT_STATES if _TOUCHES.search(self.text) else _STATES,
            "sh",
            self.check_dir.files,
        ]
        done = await self.check_dir.run(line, SECONDS)
        rows = (row.split(" ./", 1) for row in done.output.splitlines() if " ./" in row)
        return {
            path: state
            for state, path in rows
            if not (_writes_to(self.text, path) or is_below(path, self.keeps))
        }

    async def conclude(self, finding: Finding, states: Mapping[str, str]) -> Finding:
        """A failure says what was put back and removed. A pass is none if what was put back was touched meanwhile."""
        if not finding.passed:
            return Finding(False, f"{finding.reason}{self._notes}")
        sandbox = self.check_dir.sandbox
        await sandbox.kill_processes()
        then = await self.states() if states else {}
        touched = [path for path, state in states.items() if then.get(path) != state]
        touched += [
            path
            for path, text in self.protected.items()
            if not await _is_as_brought(sandbox, path, text)
        ]
        now = (
            {entry.path: entry.version for entry in await sandbox.list("", MAX_FILES)}
            if self.versions
            else {}
        )
        for (
            path,
            version,
        ) in self.versions.items():  # that of a folder that got more files is shorter
            touched += [] if now.get(path) in (version, version.split(" ")[0]) else [path]
        if touched:
            return _dispute(
                f"{touched[0]}, which came with the case, was changed while the check ran"
            )
        return finding

    async def restore(self) -> None:
        """For the checks that follow, everything is as the student left it, but for what this one did."""
        sandbox = self.check_dir.sandbox
        back = [
            path for path in self.changed if await _is_as_brought(sandbox, path, self.brought[path])
        ]
        back += [path for path in self.settings if path.endswith("/config")]
        await _on_all(self.check_dir, back, "rm", "-rf")
        paths = "\0".join([*back, *self.removed, *self.settings]).encode("utf-8", "surrogateescape")
        line = ["/bin/sh", "-c", _RESTORE, "sh", f"{self.check_dir.root}/left"]
        await self.check_dir.run(line, SECONDS, stdin=paths)

    @property
    def _notes(self) -> str:
        notes = [
            f"{done}: {', '.join(map(printable, files[:MAX_NAMED]))}{', …' if len(files) > MAX_NAMED else ''}"
            for done, files in {
                "restored from the case": self.changed,
                "removed, because nothing asks for it": self.removed,
                "dated before the files of the case": self.dated,
            }.items()
            if files
        ]
        if not notes and self.settings:
            notes = [f"without what is in {', '.join(map(printable, self.settings[:MAX_NAMED]))}"]
        return f" ({'; '.join(notes)})" if notes else ""


def _dispute(reason: str) -> Finding:
    return Finding(
        False,
        f"disputed: {reason}; if that file is part of the work, name it in `keeps`",
        disputed=True,
    )


async def guard(
    check_dir: CheckDir,
    evidence: Evidence,
    text: str,
    look: Look,
    *,
    files: Mapping[str, str] | None = None,
    keeps: Sequence[str] = (),
    starts_programs: bool = True,
) -> Finding:
    """What a look finds that runs this text: with what would decide for it put back or removed, and these files beside.

    A failure that is none with everything as the student left it is disputed.
    """
    guarded = await disarm(check_dir, evidence, text, keeps, starts_programs=starts_programs)
    broken: TrialError | None = None
    if isinstance(guarded, Finding):
        return guarded
    finding = guarded.hidden
    if finding is None:
        await check_dir.put_all(files or {})
        states = await guarded.states() if files else {}
        try:
            finding = await guarded.conclude(await look(check_dir, guarded.environment), states)
        except MissingTool:
            raise
        except TrialError as error:
            finding, broken = await guarded.conclude(Finding(False, error.message), {}), error
    if guarded.copied:
        if not (finding.passed or finding.disputed) and await _passes_as_left(
            check_dir, look, files or {}
        ):
            finding = _dispute(
                f"the check passes only with all files as they were left: {finding.reason}"
            )
        await guarded.restore()
    if broken and not finding.disputed:
        raise broken
    return finding


async def _passes_as_left(check_dir: CheckDir, look: Look, files: Mapping[str, str]) -> bool:
    """Look again, at what the student left. Afterwards the workspace is as before, for the checks that follow."""
    sandbox, left, guarded = (
        check_dir.sandbox,
        f"{check_dir.root}/left",
        f"{check_dir.root}/guarded",
    )
    passed = False
    await sandbox.kill_processes()
    with suppress(TrialError, DiskFull):
        if (await check_dir.run(["/bin/sh", "-c", _SWAP, "sh", guarded, left], SECONDS)).code:
            return False
        async with open_check_dir(sandbox) as second:
            await second.put("../python/sitecustomize.py", _AS_LEFT_SITE % sandbox.workspace)
            await second.put_all(files)
            passed = (await look(second, _AS_LEFT)).passed
        await check_dir.run(["/bin/sh", "-c", _OPEN], SECONDS)
        await check_dir.run(
            ["/bin/sh", "-c", _SWAP, "sh", f"{check_dir.root}/after", guarded], SECONDS
        )
    return passed


async def disarm(
    check_dir: CheckDir,
    evidence: Evidence,
    text: str,
    keeps: Sequence[str] = (),
    *,
    starts_programs: bool = True,
) -> Finding | Guarded:
    """Put back and remove what would decide for a check that runs this text.

    A finding if the student made that impossible.
    """
    sandbox = check_dir.sandbox
    words = re.findall(r"[\w/-]+\.py\b", evidence.prompt)
    own = {
        part.split(".")[0]
        for path in (*evidence.files, *evidence.graded_files, *words)
        for part in path.split("/")
    }
    await check_dir.put("../python/sitecustomize.py", SITE % (sandbox.workspace, sorted(own)))
    await check_dir.run(["/bin/sh", "-c", _OPEN], SECONDS)
    left = {entry.path: entry for entry in await sandbox.list("", MAX_FILES + 1)}
    if len(left) > MAX_FILES:
        return Finding(False, f"more than {MAX_FILES:,} files were left, too many to look through")
    steering = (
        steered_by(with_what_it_runs(text, evidence.files), evidence.files)
        if starts_programs
        else []
    )
    protected = protected_files(text, evidence, steering, keeps, left)
    own_words = text
    text = with_what_it_runs(text, protected) if starts_programs else ""
    changed = [
        path
        for path, content in protected.items()
        if not await _is_as_brought(sandbox, path, content)
    ]
    plants = PlantFinder(text, evidence, protected, steering, keeps).find(list(left.values()))
    uses_git = invokes(text, "git")
    settings = [
        path
        for path, entry in left.items()
        if entry.kind == "link" or (uses_git and _GIT_FILES.search(path))
    ]
    files = [
        path
        for path, entry in left.items()
        if entry.kind == "file" and ".git" not in path.split("/")
    ]
    built = [path for path in files if path not in evidence.files and not is_below(path, plants)]
    dated = (
        [path for path in built if not is_below(path, keeps)]
        if invokes(text, "g?make|ninja|samu")
        else []
    )
    copied = bool(changed or plants or settings or dated)
    if copied:
        line = ["/bin/sh", "-c", _COPY, "sh", f"{check_dir.root}/left"]
        copied = not (await check_dir.run(line, SECONDS)).killed_why
    above = check_dir.root.rpartition("/")[0]
    names = [
        "(",
        *[word for pattern in (".*", *STEERING) for word in ("-o", "-name", pattern)][1:],
        ")",
    ]
    for name in set(re.findall(r"(?<=[/\s\"'`])\.\w[\w.-]*", evidence.case)):
        names += ["!", "-name", name]
    line = ["/bin/sh", "-c", _PREPARE, "sh", above, sandbox.home, *names]
    prepared = await check_dir.run(line, SECONDS, stdin="\0".join(changed))
    if prepared.killed_why:
        return Finding(False, f"what was left cannot be looked through: it {prepared.killed_why}")
    for path in changed:
        try:
            await sandbox.write(
                path, protected[path], executable=path in left and left[path].executable
            )
        except OSError as error:
            return Finding(False, f"{path} cannot be restored from the case: {in_words(error)}")
    await _on_all(check_dir, plants, "rm", "-rf")
    for seconds, paths in enumerate(
        (dated, [*evidence.files], [*{*built} - {*dated}]), start=10**9
    ):
        await _on_all(check_dir, paths if dated else (), "touch", "-c", "-h", "-d", f"@{seconds}")
    entries = {entry.path: entry for entry in await sandbox.list("", MAX_FILES)}
    kept = _git_settings(evidence, keeps) if uses_git else set[str]()
    hidden = await _open_up_git(check_dir, evidence, entries, kept, keeps) if uses_git else None
    unused = [number for number, name in enumerate(GIT_SETTINGS) if name.lower() in kept]
    own_words = f"{own_words}\n{text}"
    watched = {
        path: content for path, content in protected.items() if not _writes_to(own_words, path)
    }
    parents = {str(parent) for path in watched for parent in PurePosixPath(path).parents}
    return Guarded(
        check_dir=check_dir,
        text=own_words,
        keeps=keeps,
        environment={f"GIT_CONFIG_KEY_{number}": "upskill.unused" for number in unused},
        protected=watched,
        versions={}
        if _TOUCHES.search(own_words)
        else {path: entries[path].version for path in entries.keys() & {*watched, *parents}},
        brought=protected,
        changed=changed,
        removed=plants,
        dated=dated,
        settings=settings,
        copied=copied,
        hidden=hidden,
    )


async def _on_all(check_dir: CheckDir, paths: Sequence[str], *command: str) -> None:
    if paths:
        names = "\0".join(paths).encode("utf-8", "surrogateescape")
        await check_dir.run(["/usr/bin/env", "xargs", "-0", *command, "--"], SECONDS, stdin=names)


async def _is_as_brought(sandbox: Sandbox, path: str, content: str) -> bool:
    data = content.encode("utf-8", "surrogateescape")
    try:
        return await sandbox.read(path, len(data)) == data
    except OSError:
        return False


def _writes_to(text: str, path: str) -> bool:
    name = rf"(?<![\w.-]){re.escape(PurePosixPath(path).name)}(?![\w-]|\.\w)"
    patterns = [pattern.replace("{name}", name) for pattern in (_WRITES, _WRITES_IN, _WRITES_TO)]
    return any(re.search(each, command) for command in commands_of(text) for each in patterns)


def _git_settings(evidence: Evidence, keeps: Sequence[str]) -> set[str]:
    """The settings of a repository that the case names."""
    settings = set(map(str.lower, re.findall(r"\b[A-Za-z]+\.[A-Za-z][\w-]*", evidence.case)))
    if re.search(r"\balias", evidence.prompt, re.IGNORECASE):
        settings.add("alias.*")
    if re.search(
        r"\bhooks?\b|^\.git$", "\n".join([evidence.prompt, *keeps]), re.IGNORECASE | re.MULTILINE
    ):
        settings.add("core.hookspath")
    if is_below(".git/config", keeps):
        settings.add(".*")
    return settings


async def _open_up_git(
    check_dir: CheckDir,
    evidence: Evidence,
    entries: Mapping[str, Entry],
    settings: Collection[str],
    keeps: Sequence[str],
) -> Finding | None:
    """A finding where a file that the student added hides a file of the case."""
    brought = set(map(plain, (*evidence.files, *evidence.graded_files)))
    asks = (
        bool(re.search(r"\bignor", evidence.prompt, re.IGNORECASE))
        or "check-ignore" in evidence.case
    )
    kept = {
        path
        for path in entries
        if PurePosixPath(path).name in (".gitignore", ".gitattributes")
        and (
            path in brought
            or mentions_path(evidence.case, path)
            or (asks and path.endswith("ignore"))
        )
    }
    environment = {
        "IGNORES": "\n".join(["", *(f"./{path}" for path in sorted(kept)), ""]),
        "SETTINGS": "|".join([_REPOSITORY, *sorted(settings)]),
        "INFO": "kept" if is_below(".git/info", keeps) else "",
        "HOOKS": "kept" if "core.hookspath" in settings else "",
    }
    done = await check_dir.run(["/bin/sh", "-c", _GIT, _GIT_ONE], SECONDS, environment=environment)
    if done.killed_why:
        return Finding(False, f"the repository cannot be looked through: git {done.killed_why}")
    ignored = done.output.split("\0")
    for source, path in zip(ignored[::4], ignored[3::4], strict=False):
        if path in brought and source not in kept:
            return Finding(
                False, f"{printable(source)}, which nothing asks for, hides {path} from git"
            )
    return None
