"""Every setting, once. The command line, the Python API and the docs are generated from these classes.

A field's flag is its name with dashes; its help text, unit and choices are in its metadata.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

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


def _opt(default: Any, help: str, **meta: Any) -> Any:
    return field(default=default, metadata={"help": help, **meta})


def require(ok: bool, name: str, expected: str, got: object) -> None:
    """Raise ConfigError naming the flag, what was expected and what came, unless `ok`."""
    if not ok:
        raise ConfigError(f"--{name.replace('_', '-')}: expected {expected}, got {got!r}", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and how its weights are held."""

    model: str = _opt(
        "smollm2-135m-instruct",
        "directory (Hugging Face layout), .gguf file, hub id, or catalog alias",
        positional=True,
    )
    served_model_name: str | None = _opt(None, "name in the API (default: derived from MODEL)")
    max_model_len: int | None = _opt(
        None, "longest prompt + output in tokens (default: what the model and the KV pool allow)"
    )
    dtype: str = _opt(
        "auto",
        "auto: weights stay in the precision of their file; float32: they are dequantised",
        choices=("auto", "float32"),
    )
    quantization: str | None = _opt(
        None, "quantise float weights while loading", choices=("q8", "q4")
    )
    chat_template: str | None = _opt(
        None, "file with a Jinja chat template, in place of the model's"
    )

    def __post_init__(self) -> None:
        require(self.dtype in ("auto", "float32"), "dtype", "auto or float32", self.dtype)
        require(
            self.quantization in (None, "q8", "q4"), "quantization", "q8 or q4", self.quantization
        )
        require(
            self.max_model_len is None or self.max_model_len >= 1,
            "max_model_len", "at least 1 token", self.max_model_len,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV memory."""

    block_size: int = _opt(16, "tokens in a block: a multiple of 16")
    num_kv_blocks: int | None = _opt(None, "usable KV blocks (default: from the KV memory)")
    kv_cache_memory_bytes: int | None = _opt(
        None, "KV memory, such as 512M or 4G (default: a share of the free RAM)", parse=parse_bytes
    )
    kv_cache_dtype: str = _opt("auto", "auto is float16", choices=("auto", "float16", "float32"))
    enable_prefix_caching: bool = _opt(True, "share the blocks of equal prefixes")

    def __post_init__(self) -> None:
        require(
            self.block_size > 0 and self.block_size % 16 == 0,
            "block_size", "a multiple of 16", self.block_size,
        )  # fmt: skip
        require(
            self.num_kv_blocks is None or self.num_kv_blocks >= 1,
            "num_kv_blocks", "at least 1", self.num_kv_blocks,
        )  # fmt: skip
        require(
            self.num_kv_blocks is None or self.kv_cache_memory_bytes is None,
            "num_kv_blocks", "one of --num-kv-blocks and --kv-cache-memory-bytes", "both",
        )  # fmt: skip
        kinds = ("auto", "float16", "float32")
        require(
            self.kv_cache_dtype in kinds, "kv_cache_dtype", " or ".join(kinds), self.kv_cache_dtype
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How requests share a step."""

    max_num_seqs: int = _opt(256, "sequences that run at once")
    max_num_batched_tokens: int = _opt(
        2048, "tokens computed in one step; longer prompts are chunked"
    )
    scheduling_policy: str = _opt(
        "fcfs", "who runs first; priority: lower values of a request's `priority`",
        choices=("fcfs", "priority"),
    )  # fmt: skip
    speculative: str | None = _opt(
        None,
        "guess tokens ahead and verify them in one pass; ngram: from the sequence's own text",
        choices=("ngram",),
    )
    max_num_queued_reqs: int = _opt(
        4096, "requests that may wait; one more is refused with 429 (0: no limit)"
    )

    def __post_init__(self) -> None:
        require(self.max_num_seqs >= 1, "max_num_seqs", "at least 1", self.max_num_seqs)
        n = self.max_num_batched_tokens
        require(n >= 1, "max_num_batched_tokens", "at least 1", n)
        kinds = ("fcfs", "priority")
        require(
            self.scheduling_policy in kinds,
            "scheduling_policy",
            " or ".join(kinds),
            self.scheduling_policy,
        )
        require(
            self.max_num_queued_reqs >= 0,
            "max_num_queued_reqs",
            "0 or more",
            self.max_num_queued_reqs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """What computes."""

    device: str = _opt(
        "auto",
        "op set: native CPU kernels, or the numpy reference",
        choices=("auto", "cpu", "reference"),
    )
    threads: int = _opt(0, "CPU threads for the kernels (0: one per core)")
    seed: int = _opt(0, "seeds the requests that bring none")

    def __post_init__(self) -> None:
        kinds = ("auto", "cpu", "reference")
        require(self.device in kinds, "device", " or ".join(kinds), self.device)
        require(0 <= self.threads <= 1024, "threads", "0 to 1024", self.threads)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP side."""

    host: str = _opt("127.0.0.1", "address to listen on")
    port: int = _opt(8000, "port to listen on")
    api_key: str | None = _opt(None, "clients must send it as a bearer token", env="OCTAVO_API_KEY")
    log_level: str = _opt("info", "how much to say", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "port", "0 to 65535", self.port)
