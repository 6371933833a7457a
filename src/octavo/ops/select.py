"""Which op set serves: the native CPU kernels, or the numpy reference where they were not built."""

from __future__ import annotations

import logging

from octavo.errors import ConfigError
from octavo.ops.base import Ops

log = logging.getLogger(__name__)

_REMEDY = "install a C++17 compiler (g++ or clang++) and reinstall octavo with pip"


def make_ops(device: str, threads: int) -> Ops:
    """The op set for `device` (auto, cpu, reference) on `threads` threads.

    auto takes the native kernels, else the reference set with a warning. Raises ConfigError for cpu without
    native kernels, for OCTAVO_ISA naming a set that the machine lacks, and for an unknown device.
    """
    if device not in ("auto", "cpu", "reference"):
        raise ConfigError(f"--device: expected auto, cpu or reference, got {device!r}", "device")
    if device != "reference":
        try:
            return _native_ops(threads)
        except ImportError as e:
            if device == "cpu":
                raise ConfigError(
                    f"--device cpu: the native CPU kernels are not installed ({e}); {_REMEDY}, "
                    "or use --device reference",
                    "device",
                ) from e
            log.warning(
                "no native CPU kernels (%s): running on the slow numpy reference; %s", e, _REMEDY
            )
    from octavo.ops.reference import ReferenceOps

    return ReferenceOps(threads)


def _native_ops(threads: int) -> Ops:
    from octavo.ops.cpu import CpuOps

    try:
        return CpuOps(threads)
    except ValueError as e:
        raise ConfigError(str(e)) from e
