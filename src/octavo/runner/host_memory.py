"""How much memory this process may still take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be taken without swapping: the machine's, or what its cgroup leaves if that is
    less.

    `root` is where /proc and /sys hang (for tests).
    """
    free = _meminfo(root / "proc" / "meminfo")
    return max(0, min([free, *_cgroup_rooms(root)]))


def _meminfo(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path}: expected a line MemAvailable, found none")


def _cgroup_rooms(root: Path) -> Iterator[int]:
    """Bytes left under the limit of each control group that this process is in (versions 2 and
    1)."""
    base = root / "sys" / "fs" / "cgroup"
    for folder in _cgroup_folders(root, base):
        names = (("memory.max", "memory.current"),)
        if folder.is_relative_to(base / "memory"):
            names = (("memory.limit_in_bytes", "memory.usage_in_bytes"),)
        for limit_name, used_name in names:
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None:
                yield limit - used + _reclaimable(folder / "memory.stat")


def _cgroup_folders(root: Path, base: Path) -> Iterator[Path]:
    """The process's groups and all above them; in a container the path may lead nowhere, the top
    then counts."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        top = base if controllers == "" else base / "memory"
        folder = top / path.strip("/")
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _number(path: Path) -> int | None:
    """The file's number; None if there is none ("max") or no such file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _reclaimable(path: Path) -> int:
    """Bytes of cached files, which the kernel drops when memory is asked for."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split() for line in lines if line.count(" ") == 1)
    return int(fields.get("inactive_file", 0)) + int(fields.get("active_file", 0))
