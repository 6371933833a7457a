"""Every setting, once: the command line, the Python API and the docs come from these classes.

A field's flag is its name with dashes. Its metadata hold its help text and what it may be:
`choices`, `least` and `most` (both allowed), `above`, `multiple_of`. `serve_only`, `many_only` (of
use only where there are many requests) and `paged_only` (of no use to every --kv-allocator) keep a
flag off some commands. Messages name flags; `octavo.LLM` turns them into its keywords.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from octavo.errors import ConfigError

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str | int) -> int:
    """'512M', '4G', '1.5GiB', '1000' -> bytes (powers of 1024). Raises ConfigError."""
    if isinstance(text, int):
        return text
    t = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = t[-1:] if t[-1:] in "KMGT" else ""
    try:
        value = int(float(t.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise ConfigError(f"expected a size such as 512M or 4G, got {text!r}") from None
    if value <= 0:
        raise ConfigError(f"expected a size above zero, got {text!r}")
    return value


def opt(default: Any, help: str, **meta: Any) -> Any:
    """A dataclass field with its metadata; see above."""
    return field(default=default, metadata={"help": help, **meta})


def require(ok: bool, name: str, expected: str, got: object) -> None:
    """Raise ConfigError naming the flag, what was expected and what came, unless `ok`."""
    if not ok:
        raise ConfigError(f"--{name.replace('_', '-')}: expected {expected}, got {got!r}", name)


class Settings:
    """Base of every group of settings: holds each field against its own metadata."""

    __slots__ = ()
    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if value is not None or f.default is not None:
                _check(f.name, value, f.metadata)


def _check(name: str, value: Any, meta: Mapping[str, Any]) -> None:
    if "choices" in meta:
        choices = meta["choices"]
        words = " or ".join((*filter(None, [", ".join(choices[:-1])]), choices[-1]))
        require(value in choices, name, words, value)
    if "multiple_of" in meta:
        unit = meta["multiple_of"]
        require(value > 0 and value % unit == 0, name, f"a multiple of {unit}", value)
    if "above" in meta:
        require(value > meta["above"], name, f"a number above {meta['above']}", value)
    low, high = meta.get("least"), meta.get("most")
    if low is None and high is None:
        return
    ok = (low is None or value >= low) and (high is None or value <= high)
    words = f"at least {low}" if high is None else f"{low} to {high}"
    require(ok, name, words, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(Settings):
    """Which model, and how its weights are held."""

    title = "Model"

    model: str = opt(
        "smollm2-135m-instruct",
        "directory (Hugging Face layout), .gguf file, hub id, or catalog alias",
        positional=True,
    )
    served_model_name: str | None = opt(
        None, "the model's name in the API (default: derived from MODEL)", serve_only=True
    )
    max_model_len: int | None = opt(
        None,
        "longest prompt and output together, in tokens "
        "(default: what the model and the KV memory allow)",
        least=1,
    )
    dtype: str = opt(
        "auto",
        "auto keeps the weights in the precision of their file, float32 dequantises them",
        choices=("auto", "float32"),
    )
    quantization: str | None = opt(
        None, "quantise float weights while loading, to 8 or 4 bits", choices=("q8", "q4")
    )
    packed_cache: bool = opt(
        True,
        "keep weights that took long to quantise or pack in the user's cache, for the next start",
    )
    chat_template: str | None = opt(
        None, "file with a Jinja chat template, used instead of the model's own", metavar="FILE"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig(Settings):
    """The KV memory."""

    title = "KV memory"

    block_size: int = opt(16, "tokens in a block, a multiple of 16", multiple_of=16)
    num_kv_blocks: int | None = opt(
        None, "number of KV blocks (default: as many as the KV memory holds)", least=1
    )
    kv_cache_memory_bytes: int | None = opt(
        None,
        "size of the KV memory, such as 512M or 4G (default: a share of the free RAM)",
        parse=parse_bytes,
        least=1,
    )
    kv_cache_dtype: str = opt(
        "auto", "type of the stored keys and values; auto is float16",
        choices=("auto", "float16", "float32"),
    )  # fmt: skip
    kv_allocator: str = opt(
        "paged",
        "paged takes blocks one by one; the others are for comparison, share nothing, and reserve "
        "one contiguous run for each sequence when it starts: of the longest length there can be "
        "(max), the next power of two of its true length (prompt and max_tokens), or that length "
        "(oracle)",
        choices=("paged", "contiguous-max", "contiguous-pow2", "contiguous-oracle"),
        paged_only=True,
    )
    enable_prefix_caching: bool = opt(
        True,
        "share the blocks of equal prefixes, also with requests that have ended",
        paged_only=True,
    )
    prefix_match: str = opt(
        "token",
        "where a shared prefix may end: block, with a full block; token, anywhere, the block in "
        "which it ends is copied",
        choices=("block", "token"),
        paged_only=True,
    )
    host_kv_bytes: int | None = opt(
        None,
        "size of a second tier in main memory, such as 4G: blocks that the KV memory has no room "
        "for are kept there",
        parse=parse_bytes,
        least=1,
        paged_only=True,
    )
    disk_kv_path: str | None = opt(
        None, "folder for a tier on disk; what is there is found again after a restart",
        metavar="DIR", paged_only=True,
    )  # fmt: skip
    disk_kv_bytes: int | None = opt(
        None,
        "size of the tier on disk, such as 50G (default: 10G)",
        parse=parse_bytes,
        least=1,
        paged_only=True,
    )

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is a copy of the class that super() would look for.
        Settings.__post_init__(self)
        if self.num_kv_blocks is not None and self.kv_cache_memory_bytes is not None:
            raise ConfigError(
                "--num-kv-blocks and --kv-cache-memory-bytes both set the size of the KV memory;"
                " give one of them",
                "num_kv_blocks",
            )
        if self.disk_kv_bytes is not None and self.disk_kv_path is None:
            raise ConfigError(
                "--disk-kv-bytes: expected --disk-kv-path with it, the folder to use",
                "disk_kv_bytes",
            )
        if not self.enable_prefix_caching and (self.host_kv_bytes or self.disk_kv_path):
            raise ConfigError(
                "--host-kv-bytes and --disk-kv-path need prefix caching: blocks in slower tiers are"
                " found by their prefix",
                "enable_prefix_caching",
            )
        if self.is_contiguous:
            self._check_contiguous()

    @property
    def is_contiguous(self) -> bool:
        """True if sequences reserve contiguous runs."""
        return self.kv_allocator != "paged"

    def _check_contiguous(self) -> None:
        sharing = {
            "--host-kv-bytes": self.host_kv_bytes,
            "--disk-kv-path": self.disk_kv_path,
            "--prefix-match block": self.prefix_match == "block",
        }
        for flag, is_given in sharing.items():
            if is_given:
                raise ConfigError(
                    f"--kv-allocator {self.kv_allocator} keeps nothing after a request and finds no"
                    f" prefix: leave {flag} away, or take --kv-allocator paged",
                    "kv_allocator",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(Settings):
    """How requests share a step."""

    title = "Scheduler"

    max_num_seqs: int = opt(256, "sequences that run at once", least=1, many_only=True)
    max_num_batched_tokens: int = opt(
        512,
        "most tokens computed in one step, fewer where they attend to long contexts; "
        "longer prompts are computed in chunks",
        least=1,
    )
    num_scheduler_steps: int = opt(
        4,
        "most steps of one token for each sequence that are computed before the scheduler looks "
        "again; fewer where that would take longer than 12 ms, or requests wait",
        least=1,
    )
    scheduling_policy: str = opt(
        "fcfs",
        "which requests run first: fcfs, those that came first; "
        "priority, those with the lowest `priority`",
        choices=("fcfs", "priority"),
        many_only=True,
        paged_only=True,
    )
    preemption_mode: str = opt(
        "blocks",
        "what a sequence gives up when others need memory: blocks, as many as are needed; "
        "sequence, all, moved to the next tier; recompute, all, computed again later",
        choices=("blocks", "sequence", "recompute"),
        paged_only=True,
    )
    speculative: str | None = opt(
        None,
        "guess several tokens ahead and verify them in one pass; "
        "ngram guesses from the sequence's own text",
        choices=("ngram",),
    )
    max_num_queued_reqs: int = opt(
        4096,
        "requests that may wait; further ones are refused with status 429 (0: no limit)",
        least=0,
        many_only=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig(Settings):
    """What computes."""

    title = "Device"

    device: str = opt(
        "auto",
        "cpu is the native kernels, reference the slow numpy code; auto takes cpu if it is there",
        choices=("auto", "cpu", "reference"),
    )
    threads: int = opt(0, "CPU threads for the kernels (0: one per core)", least=0, most=1024)
    seed: int = opt(0, "seed for the requests that bring none")

    @property
    def num_threads(self) -> int:
        """Threads to use: the flag, or the cores this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All that an engine is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        has_tier = self.cache.host_kv_bytes or self.cache.disk_kv_path
        if self.scheduler.preemption_mode == "sequence" and not has_tier:
            raise ConfigError(
                "--preemption-mode sequence moves blocks to a slower tier: give it one with"
                " --host-kv-bytes or --disk-kv-path",
                "preemption_mode",
            )
        if self.cache.is_contiguous:
            defaults = {"scheduling_policy": "fcfs", "preemption_mode": "blocks"}
            for name, default in defaults.items():
                value = getattr(self.scheduler, name)
                if value != default:
                    raise ConfigError(
                        f"--kv-allocator {self.cache.kv_allocator} runs who came first and takes"
                        f" memory from nobody: leave --{name.replace('_', '-')} {value} away, or"
                        " take --kv-allocator paged",
                        name,
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(Settings):
    """The HTTP side."""

    title = "Server"

    host: str = opt("127.0.0.1", "address to listen on (0.0.0.0: all of this machine's)")
    port: int = opt(8000, "port to listen on (0: any free one)", least=0, most=65535)
    api_key: tuple[str, ...] = opt(
        (),
        "key that clients must send as a bearer token; give the flag again for further keys "
        "(in the environment: separated by spaces)",
        env="OCTAVO_API_KEY",
        metavar="KEY",
    )
    cache_salt_per_key: bool = opt(
        False,
        "keep the KV blocks of each API key apart: no request finds what another key's requests "
        "have computed, nor can it tell from the time it takes",
    )
    log_stats: bool = opt(True, "log a line every ten seconds while requests run")
    log_level: str = opt(
        "info",
        "least severe messages to log; debug also logs each request and checks the KV books",
        choices=("debug", "info", "warning", "error"),
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        for key in self.api_key:  # not `require`: the message must not show a key
            if not key or any(c.isspace() for c in key):
                raise ConfigError(
                    "--api-key: expected a key without spaces that is not empty", "api_key"
                )
        if self.cache_salt_per_key and not self.api_key:
            raise ConfigError(
                "--cache-salt-per-key: expected at least one --api-key with it",
                "cache_salt_per_key",
            )
