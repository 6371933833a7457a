from __future__ import annotations

from pathlib import Path

import pytest

from octavo.runner.host_memory import available_bytes

MB = 2**20


def write(root: Path, name: str, text: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path):
    write(tmp_path, "proc/meminfo", f"MemTotal: 9999 kB\nMemAvailable:   {1000 * 1024} kB")
    return tmp_path


def test_without_control_groups(machine):
    assert available_bytes(machine) == 1000 * MB


def test_version_2_the_tightest_group_counts_and_cached_files_are_free(machine):
    write(machine, "proc/self/cgroup", "0::/a/b")
    group = "sys/fs/cgroup"
    write(machine, f"{group}/a/b/memory.max", "max")
    write(machine, f"{group}/a/b/memory.current", 400 * MB)
    assert available_bytes(machine) == 1000 * MB
    write(machine, f"{group}/a/memory.max", 500 * MB)
    write(machine, f"{group}/a/memory.current", 420 * MB)
    assert available_bytes(machine) == 80 * MB
    write(
        machine,
        f"{group}/a/memory.stat",
        f"anon 5\ninactive_file {100 * MB}\nactive_file {20 * MB}",
    )
    assert available_bytes(machine) == 200 * MB


def test_version_2_in_a_container(machine):
    # The group's path is the host's; the container sees its own group at the top.
    write(machine, "proc/self/cgroup", "0::/docker/123")
    write(machine, "sys/fs/cgroup/memory.max", 300 * MB)
    write(machine, "sys/fs/cgroup/memory.current", 400 * MB)
    assert available_bytes(machine) == 0


def test_version_1(machine):
    write(machine, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n1:name=systemd:/y")
    write(machine, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", 64 * MB)
    write(machine, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", 4 * MB)
    assert available_bytes(machine) == 60 * MB


def test_this_machine():
    assert 2**20 < available_bytes() < 2**50
