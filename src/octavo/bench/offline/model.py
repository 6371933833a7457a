"""What these benchmarks need of a loaded model: `octavo.LLM`, which stands above this layer and is
handed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from octavo.bench.workload.sample import Sample
from octavo.errors import EngineError
from octavo.request import SamplingParams


class Model(Protocol):
    """See octavo.llm.LLM."""

    @property
    def built(self) -> Any:
        """Its parts: core, limits, tokenizer."""
        ...

    def generate(
        self, prompts: Any, sampling_params: Any = None, *, use_tqdm: bool = True
    ) -> Sequence[Any]:
        """Complete prompts of token ids, all together."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def params_for(samples: Sequence[Sample], n: int = 1) -> list[SamplingParams]:
    """Greedy (drawn, if there are several choices), on past the end of text: the full length of
    each."""
    temperature = 0.0 if n == 1 else 1.0
    return [
        SamplingParams(max_tokens=s.output_len, temperature=temperature, ignore_eos=True, n=n)
        for s in samples
    ]


def complete(
    llm: Model, samples: Sequence[Sample], params: Sequence[SamplingParams], show: bool = False
) -> Sequence[Any]:
    """Run all samples together. Raises EngineError if a sequence failed."""
    prompts = [s.prompt if isinstance(s.prompt, str) else list(s.prompt) for s in samples]
    outputs = llm.generate(prompts, params, use_tqdm=show)
    for output in outputs:
        for choice in output.outputs:
            if choice.error is not None:
                raise EngineError(f"{output.request_id}: {choice.error}")
    return outputs
