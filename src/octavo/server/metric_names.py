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


class Labelled(NamedTuple):
    """A metric that is several fields of EngineStats: the values of `labels` -> the field."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    fields: dict[tuple[str, ...], str]
    help: str


ENGINE_NUMBERS = (
    Number("num_requests_running", "gauge", "num_requests_running",
           "sequences (choices of requests) that run"),
    Number("num_requests_waiting", "gauge", "num_requests_waiting",
           "requests that wait to be scheduled"),
    Number("num_preemptions", "counter", "num_preemptions",
           "times that a running sequence gave up its place because others needed KV blocks"),
    Number("preempted_blocks", "counter", "num_preempted_blocks",
           "KV blocks given up in preemptions"),
    Number("preempted_tokens", "counter", "num_preempted_tokens",
           "tokens in the KV blocks given up in preemptions: to be found in a tier or computed "
           "again before the sequence goes on"),
    Number("recomputed_tokens", "counter", "num_recomputed_tokens",
           "tokens computed again because no tier had them after a preemption"),
    Number("prompt_tokens", "counter", "prompt_tokens",
           "prompt tokens of the requests that were admitted"),
    Number("generation_tokens", "counter", "generation_tokens", "tokens generated"),
    Number("computed_tokens", "counter", "computed_tokens",
           "tokens that the model computed: prompts without cached tokens, generated tokens, "
           "guesses, and what was computed again"),
    Number("spec_decode_num_draft_tokens", "counter", "num_guessed_tokens", "tokens guessed"),
    Number("spec_decode_num_accepted_tokens", "counter", "num_accepted_guesses",
           "guesses that were right"),
    Number("engine_steps", "counter", "num_steps", "steps of the engine"),
    Number("prefix_cache_queries", "counter", "prefix_cache_queries",
           "prompt tokens looked up in all tiers"),
    Number("prefix_cache_hits", "counter", "prefix_cache_hits", "prompt tokens found in a tier"),
    Number("prefix_cache_hit_blocks", "counter", "prefix_cache_hit_blocks",
           "full KV blocks of prompts found in a tier"),
    Number("kv_miss_blocks", "counter", "num_misses",
           "full KV blocks that were wanted and no tier had, or that were quicker to compute"),
    Number("kv_evictions", "counter", "num_evictions",
           "cached KV blocks of the device that were taken for new tokens"),
    Number("kv_dropped_blocks", "counter", "num_dropped",
           "KV blocks that were forgotten: the last tier that held them gave them up"),
    Number("kv_lost_writes", "counter", "num_lost",
           "KV blocks that a slow or broken disk did not take"),
    Number("kv_failed_promotions", "counter", "num_missing",
           "KV blocks that were to be brought back and were not there intact; they are computed"),
    Number("kv_cow_copies", "counter", "num_cow_copies",
           "KV blocks copied because a sequence wrote into a shared one"),
    Number("num_kv_blocks", "gauge", "num_blocks_total", "KV blocks of the device"),
    Number("kv_blocks_shared", "gauge", "num_blocks_shared",
           "KV blocks that several sequences use, each counted once"),
    Number("kv_blocks_saved_by_sharing", "gauge", "num_blocks_saved_by_sharing",
           "KV blocks more that would be in use if sequences shared none"),
)  # fmt: skip

LABELLED_NUMBERS = (
    Labelled(
        "kv_blocks", "gauge", ("tier", "state"),
        {
            ("device", "used"): "num_blocks_used",
            ("device", "cached"): "num_blocks_cached",
            ("device", "free"): "num_blocks_free",
            ("host", "cached"): "num_host_blocks_cached",
            ("host", "free"): "num_host_blocks_free",
            ("disk", "cached"): "num_disk_blocks_cached",
            ("disk", "free"): "num_disk_blocks_free",
        },
        "KV blocks of each tier by state: used by requests, cached for later ones, free",
    ),
    Labelled(
        "kv_slots", "gauge", ("state",),
        {("token",): "num_tokens_in_used_blocks", ("reserved",): "num_reserved_slots"},
        "slots of the KV blocks that requests use: with a token, or reserved and empty so far; "
        "those of shared blocks count once",
    ),
    Labelled(
        "kv_hit_blocks", "counter", ("tier",),
        {
            ("device",): "num_hits_device",
            ("host",): "num_promoted_host",
            ("disk",): "num_promoted_disk",
        },
        "KV blocks that were wanted and found, by the tier that had them; those of slower tiers "
        "are promoted (copied to the device)",
    ),
    Labelled(
        "kv_demoted_blocks", "counter", ("tier",),
        {("host",): "num_demoted_host", ("disk",): "num_demoted_disk"},
        "KV blocks copied down, by the tier that they went to",
    ),
)  # fmt: skip

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
