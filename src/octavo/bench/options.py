"""Flags of `octavo bench`, once. Names follow `vllm bench`; this module loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import Settings, opt, require

DATASETS = ("random", "sharegpt", "sharegpt-like", "prefix_repetition", "custom", "trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions(Settings):
    """Where results go."""

    json: str | None = opt(
        None, "write the results as JSON to this file; - is standard output, and nothing else goes "
        "there",
        metavar="FILE|-",
    )  # fmt: skip
    disable_tqdm: bool = opt(False, "no progress bar (there is none where stderr is no terminal)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions(Settings):
    """Which prompts, and how many tokens to make of each."""

    dataset_name: str = opt("random", "kind of workload", choices=DATASETS)
    dataset_path: str | None = opt(
        None, "file for sharegpt (JSON), custom (JSON with prompts as text or token ids), "
        "trace (Mooncake .jsonl or Azure .csv)",
    )  # fmt: skip
    num_prompts: int = opt(1000, "requests to send; a file gives fewer if it is shorter", least=1)
    salt: int = opt(
        0,
        "other than 0: changes the first token of each prompt, so that no earlier run's prefix "
        "cache helps",
    )
    random_input_len: int = opt(1024, "prompt tokens (random)", least=1)
    random_output_len: int = opt(128, "new tokens (random)", least=1)
    random_range_ratio: float = opt(0.0, "lengths are drawn from (1 - r) to (1 + r) of these")
    random_prefix_len: int = opt(
        0, "tokens that all random prompts begin with, before their own", least=0
    )
    sharegpt_output_len: int | None = opt(
        None, "new tokens (default: those of the conversation)", least=1
    )
    sharegpt_input_mean: float = opt(161.31, "mean prompt tokens (sharegpt-like)", above=0)
    sharegpt_output_mean: float = opt(337.99, "mean new tokens (sharegpt-like)", above=0)
    max_sample_len: int = opt(
        2048, "longest prompt + output drawn or kept (sharegpt, sharegpt-like)", least=2
    )
    prefix_repetition_prefix_len: int = opt(256, "tokens of a shared prefix", least=0)
    prefix_repetition_suffix_len: int = opt(256, "own tokens after it", least=0)
    prefix_repetition_num_prefixes: int = opt(10, "different prefixes", least=1)
    prefix_repetition_output_len: int = opt(128, "new tokens", least=1)
    trace_scale: float = opt(1.0, "lengths of a trace are multiplied by this", above=0)
    trace_speed: float = opt(1.0, "a trace is played back so many times faster", above=0)
    vocab_size: int | None = opt(
        None, "token ids are drawn below this (default: the tokenizer's, else 32000)"
    )
    min_token_id: int = opt(100, "token ids are drawn from here on, past the special ones", least=0)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        prefix = self.prefix_repetition_prefix_len + self.prefix_repetition_suffix_len
        require(prefix >= 1, "prefix_repetition_prefix_len", "a prompt of at least 1 token", prefix)
        ratio = self.random_range_ratio
        require(0 <= ratio < 1, "random_range_ratio", "0 up to, not including, 1", ratio)
        vocab = self.vocab_size
        require(
            vocab is None or vocab > self.min_token_id + 1,
            "vocab_size", f"more than --min-token-id + 1 = {self.min_token_id + 1}", vocab,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOptions(Settings):
    """Apart from the workload: offline, the engine has a seed already."""

    seed: int = opt(0, "seeds lengths, token ids and arrival times")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(Settings):
    """How requests are sent to a server, and what is made of the answers."""

    backend: str = opt(
        "openai", "openai: /v1/completions; openai-chat: /v1/chat/completions",
        choices=("openai", "openai-chat"),
    )  # fmt: skip
    base_url: str | None = opt(
        None, "server, such as http://127.0.0.1:8000 (default: --host and --port)"
    )
    host: str = opt("127.0.0.1", "host, if there is no --base-url")
    port: int = opt(8000, "port, if there is no --base-url")
    endpoint: str | None = opt(None, "path of the request (default: that of the backend)")
    model: str | None = opt(None, "name to ask for (default: the first of /v1/models)")
    tokenizer: str | None = opt(
        None,
        "model whose tokenizer is used: path, hub id or alias; for text prompts and for counting",
    )
    prompt_format: str = opt(
        "auto", "ids: token ids; text: decoded with --tokenizer; auto: text where ids cannot be "
        "sent",
        choices=("auto", "ids", "text"),
    )  # fmt: skip
    api_key: str | None = opt(None, "bearer token", env="OPENAI_API_KEY")
    header: tuple[str, ...] = opt((), "more headers, Name=Value; may be given more than once")
    request_rate: float | None = opt(
        None,
        "requests per second, or inf: all at once (default: inf; a trace's own times)",
        above=0,
    )
    burstiness: float = opt(
        1.0, "shape of the gamma distribution of gaps: 1 is Poisson, less is burstier", above=0
    )
    max_concurrency: int | None = opt(None, "requests in flight at most", least=1)
    num_warmups: int = opt(1, "requests before the clock starts", least=0)
    ready_check_timeout_sec: float = opt(60.0, "wait so long for the server to answer", above=0)
    request_timeout_sec: float = opt(1800.0, "a request that takes longer is an error", above=0)
    ignore_eos: bool = opt(True, "every answer has its full length")
    temperature: float = opt(0.0, "of the requests")
    extra_body: str | None = opt(None, "JSON object put into each request body", metavar="JSON")
    goodput: tuple[str, ...] = opt(
        (), "limits in ms, such as ttft:500 tpot:50 (also e2el); goodput counts requests within "
        "all of them",
        metavar="NAME:MS",
    )  # fmt: skip
    percentile_metrics: str = opt("ttft,tpot,itl,e2el", "metrics to show in detail")
    metric_percentiles: str = opt("99", "percentiles to show, such as 50,90,99")
    save_detailed: bool = opt(
        False, "also lengths, times, errors and texts of each request in the JSON"
    )
    label: str | None = opt(None, "name of this run in the JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(Settings):
    """One batch, again and again."""

    input_len: int = opt(32, "prompt tokens of each request", least=1)
    output_len: int = opt(128, "new tokens of each request", least=1)
    batch_size: int = opt(8, "requests at once", least=1)
    n: int = opt(1, "choices of each request", least=1)
    num_iters_warmup: int = opt(3, "batches before the clock starts", least=0)
    num_iters: int = opt(10, "batches that count", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(Settings):
    """Contiguous against paged: one model, one budget of KV memory, every allocator in turn."""

    workload: tuple[str, ...] = opt(
        ("mixed", "shared-prefix"),
        "mixed (lengths that differ a lot), shared-prefix (one long common beginning), or a file: "
        'JSON {"requests": [{"prompt": [token ids], "max_tokens": 16}, ...]}; may be given more '
        "than once",
        metavar="NAME|FILE",
    )
    allocators: str = opt(
        "all",
        "some of contiguous-max, contiguous-pow2, contiguous-oracle, paged-no-sharing, paged",
    )
    full_length_requests: int = opt(
        6,
        "size of the KV memory: so many requests of --max-model-len (by default the next power of "
        "two above the longest request), unless --num-kv-blocks or --kv-cache-memory-bytes says it",
        least=1,
    )
    num_prompts: int = opt(48, "requests of mixed and of shared-prefix", least=2)
    repeats: int = opt(
        1, "runs of each allocator, in turns; the one with the median time is shown", least=1
    )
    overhead: bool = opt(
        True,
        "also the cases where paging cannot pay: one user, equal lengths, ample memory",
    )
    turns: int = opt(25, "turns of each of these cases, of which the median counts", least=1)
    html: str | None = opt(None, "write a report with charts to this file", metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions(Settings):
    """Fresh processes, one after the other."""

    num_iters: int = opt(5, "starts that count", least=1)
    num_iters_warmup: int = opt(1, "starts before these, which also read files from disk", least=0)
    timeout: float = opt(600.0, "seconds to wait for /health", above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions(Settings):
    """Where the time of a step goes."""

    in_flight: str = opt("1,64", "numbers of sequences to measure with")
    input_len: int = opt(128, "prompt tokens", least=1)
    output_len: int = opt(64, "decode steps that are measured", least=2)
    rounds: int = opt(3, "runs of each; the one with the median time is shown", least=1)
    by_op: bool = opt(
        False, "also the time in each operation of the op set (costs a little itself)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions(Settings):
    """Which kernels on which shapes."""

    kernels: str = opt("linear,attention,elementwise", "groups to measure")
    models: str = opt(
        "smollm2-135m",
        "whose shapes: smollm2-135m, llama-3.2-1b, qwen2.5-1.5b, llama-3.1-8b, or all",
    )
    types: str = opt("Q4_1,Q8_0,F16", "weight types, or all")
    rows: str = opt("1,16,64,512", "numbers of rows (tokens)")
    contexts: str = opt("128,1024,4096,8192", "tokens of context (attention)")
    batches: str = opt("1,16,64", "sequences at once (attention)")
    threads: int = opt(0, "CPU threads (0: one per core)", least=0, most=1024)
    isa: str | None = opt(
        None,
        "instruction set (default: the best)",
        choices=("portable", "avx2", "avx512", "avx512bf16"),
    )
    min_seconds: float = opt(0.2, "measure each for at least so long", least=0)
    rounds: int = opt(
        5,
        "figures are the best of so many; for --paged-vs-contiguous, turns, of which the median "
        "counts",
        least=1,
    )
    paged_vs_contiguous: bool = opt(
        False,
        "only this: attention over scattered blocks against blocks in order, same data, in turns",
    )


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
