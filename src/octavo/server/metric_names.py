"""The metrics: vLLM's names with `octavo_` for `vllm:`, and Octavo's own block accounting."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter"]


class Number(NamedTuple):
    """A metric that is one field of EngineStats; a counter is exposed as `name`_total."""

    name: str
    kind: Kind
    field: str
    help: str


ENGINE_NUMBERS = (
    Number("num_requests_running", "gauge", "num_requests_running",
           "sequences (choices of requests) that run"),
    Number("num_requests_waiting", "gauge", "num_requests_waiting",
           "requests that wait to be scheduled"),
    Number("num_preemptions", "counter", "num_preemptions",
           "times that a running sequence gave up KV blocks because others needed them"),
    Number("preempted_blocks", "counter", "num_preempted_blocks",
           "KV blocks given up in preemptions"),
    Number("preempted_tokens", "counter", "num_preempted_tokens",
           "tokens in the KV blocks given up in preemptions: to be found in the cache or computed "
           "again before the sequence goes on"),
    Number("prompt_tokens", "counter", "prompt_tokens",
           "prompt tokens of the requests that were admitted"),
    Number("generation_tokens", "counter", "generation_tokens", "tokens generated"),
    Number("computed_tokens", "counter", "computed_tokens",
           "tokens that the model computed: prompts without cached tokens, generated tokens, "
           "guesses, and what was computed again"),
    Number("engine_steps", "counter", "num_steps", "steps of the engine"),
    Number("prefix_cache_queries", "counter", "prefix_cache_queries",
           "tokens looked up in the prefix cache"),
    Number("prefix_cache_hits", "counter", "prefix_cache_hits", "tokens found in the prefix cache"),
    Number("prefix_cache_hit_blocks", "counter", "prefix_cache_hit_blocks",
           "KV blocks found in the prefix cache"),
    Number("kv_evictions", "counter", "num_evictions",
           "cached KV blocks that were taken for new tokens"),
    Number("kv_cow_copies", "counter", "num_cow_copies",
           "KV blocks copied because a sequence wrote into a shared one"),
    Number("num_kv_blocks", "gauge", "num_blocks_total", "KV blocks in the pool"),
    Number("kv_tokens_in_used_blocks", "gauge", "num_tokens_in_used_blocks",
           "tokens in the KV blocks that requests use; those in shared blocks count once"),
)  # fmt: skip

BLOCK_STATES = {
    "used": "num_blocks_used",
    "cached": "num_blocks_cached",
    "free": "num_blocks_free",
}

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
TOKENS = tuple(float(2**i) for i in range(18))
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

HISTOGRAMS = {
    "time_to_first_token_seconds": (SECONDS, "seconds from arrival to the first token"),
    "inter_token_latency_seconds": (SECONDS, "seconds between two tokens of a choice"),
    "e2e_request_latency_seconds": (SECONDS, "seconds from arrival to the last token"),
    "request_queue_time_seconds": (SECONDS, "seconds from arrival to the first step"),
    "request_prefill_time_seconds": (SECONDS, "seconds from the first step to the first token"),
    "request_decode_time_seconds": (SECONDS, "seconds from the first token to the last"),
    "request_inference_time_seconds": (SECONDS, "seconds from the first step to the last token"),
    "request_prompt_tokens": (TOKENS, "prompt tokens of a request"),
    "request_generation_tokens": (TOKENS, "tokens generated for a request, all choices"),
    "request_max_num_generation_tokens": (
        TOKENS,
        "most tokens that a request might have generated",
    ),
    "request_params_n": (CHOICES, "choices a request asked for"),
    "request_params_max_tokens": (TOKENS, "max_tokens of a request"),
    "iteration_tokens_total": (TOKENS, "tokens computed in one step"),
}
