"""Flags of `octavo verify`."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import Settings, opt


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(Settings):
    """What is run, and how much of it."""

    title = "Verify"

    num_requests: int = opt(12, "requests: as many are drawn, or taken from --workload", least=1)
    workload: str | None = opt(
        None,
        'JSON file of requests, {"requests": [{"prompt": [token ids] or text, "max_tokens": 16}, '
        "...]}; a few that begin like the first are added (default: drawn, always the same)",
        metavar="FILE",
    )
    max_tokens: int | None = opt(None, "cut every output to this", least=2)
    few_blocks: int | None = opt(
        None,
        "KV blocks of the regimes that run out of them (default: a quarter of what the requests "
        "need, or less until one is preempted)",
        least=1,
    )
    only: tuple[str, ...] = opt(
        (), "run only the regimes whose name contains this; may be given again", metavar="TEXT"
    )
    threads: int = opt(
        0, "CPU threads of the regimes with several (0: one per core, two at least)", least=0,
        most=1024,
    )  # fmt: skip
    block_size: int = opt(16, "tokens in a block, a multiple of 16", multiple_of=16)
    kv_cache_dtype: str = opt(
        "auto", "type of the stored keys and values; auto is float16",
        choices=("auto", "float16", "float32"),
    )  # fmt: skip
    device: str = opt(
        "auto",
        "cpu is the native kernels, reference the slow numpy code; auto takes cpu if it is there",
        choices=("auto", "cpu", "reference"),
    )
    json: str | None = opt(
        None, "write the results as JSON to this file; - is standard output, and nothing else goes "
        "there",
        metavar="FILE|-",
    )  # fmt: skip
