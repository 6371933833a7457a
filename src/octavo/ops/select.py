"""Which op set serves: the native CPU kernels, or the numpy reference where they were not built."""

from __future__ import annotations

import logging
import os

from octavo.errors import ConfigError
from octavo.ops.base import Ops

log = logging.getLogger(__name__)

_REMEDY = "install a C++17 compiler (g++ or clang++) and reinstall octavo with pip"


def make_ops(device: str, threads: int, may_round: bool = True) -> Ops:
    """The op set for `device` (auto, cpu, reference) on `threads` threads.

    `may_round`: False keeps attention in float32 where the processor's best instructions would round keys
    and values to bfloat16; OCTAVO_ISA overrides it. auto takes the native kernels, else the reference set with a warning. Raises ConfigError for cpu without
    native kernels, for OCTAVO_ISA naming a set that the machine lacks, and for an unknown device.
    """
    if device not in ("auto", "cpu", "reference"):
        raise ConfigError(f"--device: expected auto, cpu or reference, got {device!r}", "device")
    if device != "reference":
        try:
            return _native_ops(threads, may_round)
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


def _native_ops(threads: int, may_round: bool) -> Ops:
    from octavo.ops.cpu import CpuOps

    try:
        ops = CpuOps(threads)
        if ops.rounds_attention and not may_round and "OCTAVO_ISA" not in os.environ:
            return CpuOps(threads, "avx512")
        return ops
    except ValueError as e:
        raise ConfigError(str(e)) from e
