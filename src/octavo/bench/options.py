"""Flags of `octavo bench`, once. Names follow `vllm bench`; this module loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.config import require

DATASETS = ("random", "sharegpt", "sharegpt-like", "prefix_repetition", "custom", "trace")


def _opt(default: Any, help: str, **meta: Any) -> Any:
    return field(default=default, metadata={"help": help, **meta})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where results go."""

    json: str | None = _opt(
        None, "write the results as JSON to this file; - is standard output, and nothing else goes there",
        metavar="FILE|-",
    )  # fmt: skip
    disable_tqdm: bool = _opt(False, "no progress bar (there is none where stderr is no terminal)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions:
    """Which prompts, and how many tokens to make of each."""

    dataset_name: str = _opt("random", "kind of workload", choices=DATASETS)
    dataset_path: str | None = _opt(
        None, "file for sharegpt (JSON), custom (JSON with prompts as text or token ids), "
        "trace (Mooncake .jsonl or Azure .csv)",
    )  # fmt: skip
    num_prompts: int = _opt(1000, "requests to send; a file gives fewer if it is shorter")
    salt: int = _opt(
        0,
        "other than 0: changes the first token of each prompt, so that no earlier run's prefix cache helps",
    )
    random_input_len: int = _opt(1024, "prompt tokens (random)")
    random_output_len: int = _opt(128, "new tokens (random)")
    random_range_ratio: float = _opt(0.0, "lengths are drawn from (1 - r) to (1 + r) of these")
    random_prefix_len: int = _opt(0, "tokens that all random prompts begin with, before their own")
    sharegpt_output_len: int | None = _opt(None, "new tokens (default: those of the conversation)")
    sharegpt_input_mean: float = _opt(161.31, "mean prompt tokens (sharegpt-like)")
    sharegpt_output_mean: float = _opt(337.99, "mean new tokens (sharegpt-like)")
    max_sample_len: int = _opt(
        2048, "longest prompt + output drawn or kept (sharegpt, sharegpt-like)"
    )
    prefix_repetition_prefix_len: int = _opt(256, "tokens of a shared prefix")
    prefix_repetition_suffix_len: int = _opt(256, "own tokens after it")
    prefix_repetition_num_prefixes: int = _opt(10, "different prefixes")
    prefix_repetition_output_len: int = _opt(128, "new tokens")
    trace_scale: float = _opt(1.0, "lengths of a trace are multiplied by this")
    trace_speed: float = _opt(1.0, "a trace is played back so many times faster")
    vocab_size: int | None = _opt(
        None, "token ids are drawn below this (default: the tokenizer's, else 32000)"
    )
    min_token_id: int = _opt(100, "token ids are drawn from here on, past the special ones")

    def __post_init__(self) -> None:
        require(
            self.dataset_name in DATASETS, "dataset_name", " or ".join(DATASETS), self.dataset_name
        )
        for name in ("num_prompts", "random_input_len", "random_output_len",
                     "prefix_repetition_num_prefixes", "prefix_repetition_output_len"):  # fmt: skip
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("random_prefix_len", "prefix_repetition_prefix_len",
                     "prefix_repetition_suffix_len", "min_token_id"):  # fmt: skip
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        prefix = self.prefix_repetition_prefix_len + self.prefix_repetition_suffix_len
        require(prefix >= 1, "prefix_repetition_prefix_len", "a prompt of at least 1 token", prefix)
        ratio = self.random_range_ratio
        require(0 <= ratio < 1, "random_range_ratio", "0 up to, not including, 1", ratio)
        for name in ("trace_scale", "trace_speed", "sharegpt_input_mean", "sharegpt_output_mean"):
            require(getattr(self, name) > 0, name, "a number above 0", getattr(self, name))
        require(self.max_sample_len >= 2, "max_sample_len", "at least 2", self.max_sample_len)
        length = self.sharegpt_output_len
        require(length is None or length >= 1, "sharegpt_output_len", "at least 1", length)
        vocab = self.vocab_size
        require(
            vocab is None or vocab > self.min_token_id + 1,
            "vocab_size", f"more than --min-token-id + 1 = {self.min_token_id + 1}", vocab,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOptions:
    """Apart from the workload: offline, the engine has a seed already."""

    seed: int = _opt(0, "seeds lengths, token ids and arrival times")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How requests are sent to a server, and what is made of the answers."""

    backend: str = _opt(
        "openai", "openai: /v1/completions; openai-chat: /v1/chat/completions",
        choices=("openai", "openai-chat"),
    )  # fmt: skip
    base_url: str | None = _opt(
        None, "server, such as http://127.0.0.1:8000 (default: --host and --port)"
    )
    host: str = _opt("127.0.0.1", "host, if there is no --base-url")
    port: int = _opt(8000, "port, if there is no --base-url")
    endpoint: str | None = _opt(None, "path of the request (default: that of the backend)")
    model: str | None = _opt(None, "name to ask for (default: the first of /v1/models)")
    tokenizer: str | None = _opt(
        None,
        "model whose tokenizer is used: path, hub id or alias; for text prompts and for counting",
    )
    prompt_format: str = _opt(
        "auto", "ids: token ids; text: decoded with --tokenizer; auto: text where ids cannot be sent",
        choices=("auto", "ids", "text"),
    )  # fmt: skip
    api_key: str | None = _opt(None, "bearer token", env="OPENAI_API_KEY")
    header: tuple[str, ...] = _opt((), "more headers, Name=Value; may be given more than once")
    request_rate: float | None = _opt(
        None, "requests per second, or inf: all at once (default: inf; a trace's own times)"
    )
    burstiness: float = _opt(
        1.0, "shape of the gamma distribution of gaps: 1 is Poisson, less is burstier"
    )
    max_concurrency: int | None = _opt(None, "requests in flight at most")
    num_warmups: int = _opt(1, "requests before the clock starts")
    ready_check_timeout_sec: float = _opt(60.0, "wait so long for the server to answer")
    request_timeout_sec: float = _opt(1800.0, "a request that takes longer is an error")
    ignore_eos: bool = _opt(True, "every answer has its full length")
    temperature: float = _opt(0.0, "of the requests")
    extra_body: str | None = _opt(None, "JSON object put into each request body", metavar="JSON")
    goodput: tuple[str, ...] = _opt(
        (), "limits in ms, such as ttft:500 tpot:50 (also e2el); goodput counts requests within all of them",
        metavar="NAME:MS",
    )  # fmt: skip
    percentile_metrics: str = _opt("ttft,tpot,itl,e2el", "metrics to show in detail")
    metric_percentiles: str = _opt("99", "percentiles to show, such as 50,90,99")
    save_detailed: bool = _opt(
        False, "also lengths, times, errors and texts of each request in the JSON"
    )
    label: str | None = _opt(None, "name of this run in the JSON")

    def __post_init__(self) -> None:
        rate = self.request_rate
        require(rate is None or rate > 0, "request_rate", "a number above 0, or inf", rate)
        require(self.burstiness > 0, "burstiness", "a number above 0", self.burstiness)
        at_most = self.max_concurrency
        require(at_most is None or at_most >= 1, "max_concurrency", "at least 1", at_most)
        require(self.num_warmups >= 0, "num_warmups", "0 or more", self.num_warmups)
        for name in ("ready_check_timeout_sec", "request_timeout_sec"):
            require(getattr(self, name) > 0, name, "a number above 0", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """One batch, again and again."""

    input_len: int = _opt(32, "prompt tokens of each request")
    output_len: int = _opt(128, "new tokens of each request")
    batch_size: int = _opt(8, "requests at once")
    n: int = _opt(1, "choices of each request")
    num_iters_warmup: int = _opt(3, "batches before the clock starts")
    num_iters: int = _opt(10, "batches that count")

    def __post_init__(self) -> None:
        for name in ("input_len", "output_len", "batch_size", "n", "num_iters"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.num_iters_warmup >= 0, "num_iters_warmup", "0 or more", self.num_iters_warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions:
    """Fresh processes, one after the other."""

    num_iters: int = _opt(5, "starts that count")
    num_iters_warmup: int = _opt(1, "starts before these, which also read files from disk")
    timeout: float = _opt(600.0, "seconds to wait for /health")

    def __post_init__(self) -> None:
        require(self.num_iters >= 1, "num_iters", "at least 1", self.num_iters)
        require(self.num_iters_warmup >= 0, "num_iters_warmup", "0 or more", self.num_iters_warmup)
        require(self.timeout > 0, "timeout", "a number above 0", self.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Where the time of a step goes."""

    in_flight: str = _opt("1,64", "numbers of sequences to measure with")
    input_len: int = _opt(128, "prompt tokens")
    output_len: int = _opt(64, "decode steps that are measured")
    rounds: int = _opt(3, "runs of each; the one with the median time is shown")
    by_op: bool = _opt(
        False, "also the time in each operation of the op set (costs a little itself)"
    )

    def __post_init__(self) -> None:
        for name in ("input_len", "rounds"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.output_len >= 2, "output_len", "at least 2", self.output_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """Which kernels on which shapes."""

    kernels: str = _opt("linear,attention,elementwise", "groups to measure")
    models: str = _opt(
        "smollm2-135m",
        "whose shapes: smollm2-135m, llama-3.2-1b, qwen2.5-1.5b, llama-3.1-8b, or all",
    )
    types: str = _opt("Q4_1,Q8_0,F16", "weight types, or all")
    rows: str = _opt("1,16,64,512", "numbers of rows (tokens)")
    contexts: str = _opt("128,1024,4096,8192", "tokens of context (attention)")
    batches: str = _opt("1,16,64", "sequences at once (attention)")
    threads: int = _opt(0, "CPU threads (0: one per core)")
    isa: str = _opt("", "instruction set: portable, avx2, avx512 (default: the best)")
    min_seconds: float = _opt(0.2, "measure each for at least so long")
    rounds: int = _opt(
        5,
        "figures are the best of so many; for --paged-vs-contiguous, turns, of which the median counts",
    )
    paged_vs_contiguous: bool = _opt(
        False,
        "only this: attention over scattered blocks against blocks in order, same data, in turns",
    )

    def __post_init__(self) -> None:
        require(0 <= self.threads <= 1024, "threads", "0 to 1024", self.threads)
        kinds = ("", "portable", "avx2", "avx512")
        require(self.isa in kinds, "isa", "portable, avx2 or avx512", self.isa)
        require(self.min_seconds >= 0, "min_seconds", "0 or more", self.min_seconds)
        require(self.rounds >= 1, "rounds", "at least 1", self.rounds)


def parse_ints(name: str, text: str) -> tuple[int, ...]:
    """'1,16,64' of the flag `name` -> (1, 16, 64). Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    ok = all(part.isdecimal() and int(part) >= 1 for part in parts)
    require(ok, name, "numbers of at least 1 such as 1,16,64", text)
    return tuple(int(part) for part in parts)


def parse_names(name: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """'a,b' or 'all' of the flag `name` -> some of `known`. Raises ConfigError."""
    if text == "all":
        return known
    parts = tuple(part.strip() for part in text.split(","))
    require(all(p in known for p in parts), name, f"all, or some of {', '.join(known)}", text)
    return parts
