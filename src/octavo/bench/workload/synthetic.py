"""Workloads that are drawn: random, prefix_repetition, sharegpt-like."""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.bench.options import DatasetOptions
from octavo.bench.workload.sample import Draw, Sample


def random_prompts(options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    """Prompts of about --random-input-len tokens, after a common prefix if one is asked for."""
    prefix = draw.tokens(options.random_prefix_len)
    ratio = options.random_range_ratio
    for _ in range(options.num_prompts):
        own = draw.tokens(draw.about(options.random_input_len, ratio))
        yield Sample(prefix + own, draw.about(options.random_output_len, ratio))


def prefix_repetition(options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    """Prompts that share prefixes in equal shares, in mixed order."""
    count = options.prefix_repetition_num_prefixes
    prefixes = [draw.tokens(options.prefix_repetition_prefix_len) for _ in range(count)]
    order = [i % count for i in range(options.num_prompts)]
    draw.random.shuffle(order)
    for i in order:
        own = draw.tokens(options.prefix_repetition_suffix_len)
        yield Sample(prefixes[i] + own, options.prefix_repetition_output_len)


SPREAD = 1.0
"""Standard deviation of the logarithm of a length: chats have many short and few very long
turns."""


def sharegpt_like(options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    """Lengths of chat: log-normal with the means of ShareGPT (vLLM paper, fig. 11: 161 in, 338
    out).

    Pairs longer than --max-sample-len together are drawn again.
    """

    def length(mean: float) -> int:
        mu = math.log(mean) - SPREAD**2 / 2  # so that the mean of the distribution is `mean`
        return max(1, round(draw.random.lognormvariate(mu, SPREAD)))

    for _ in range(options.num_prompts):
        while True:
            prompt_len = length(options.sharegpt_input_mean)
            output_len = length(options.sharegpt_output_mean)
            if prompt_len + output_len <= options.max_sample_len:
                break
        yield Sample(draw.tokens(prompt_len), options.sharegpt_output_len or output_len)
