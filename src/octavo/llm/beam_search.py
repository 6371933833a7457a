"""What `LLM.beam_search` takes and gives. Names as in vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.llm.outputs import RequestOutput
from octavo.request import SamplingParams, TokenLogprob
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How to search; see SamplingParams. `temperature` can only be 0 or 1: nothing is drawn."""

    beam_width: int
    max_tokens: int | None = 16
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    stop_token_ids: tuple[int, ...] = ()

    def to_sampling_params(self) -> SamplingParams:
        """The engine's parameters. Raises RequestError for values out of range."""
        return SamplingParams(
            use_beam_search=True,
            n=self.beam_width,
            beam_width=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            stop_token_ids=self.stop_token_ids,
            logprobs=0,
        )


@dataclass(slots=True)
class BeamSearchSequence:
    """One output. `tokens` and `text` begin with the prompt; `logprobs` are of what follows it.

    `cum_logprob` is their sum, `score` that divided by their number ** length_penalty.
    """

    tokens: list[int]
    text: str
    logprobs: list[TokenLogprob]
    cum_logprob: float
    score: float
    finish_reason: str | None
    stop_reason: int | str | None


@dataclass(slots=True)
class BeamSearchOutput:
    """The `beam_width` best outputs for one prompt, best first."""

    sequences: list[BeamSearchSequence]


def search_output(
    output: RequestOutput, length_penalty: float, tokenizer: Tokenizer
) -> BeamSearchOutput:
    """From what the engine gave for a prompt."""
    sequences = []
    for choice in output.outputs:
        cum_logprob = choice.cumulative_logprob or 0.0
        tokens = [*output.prompt_token_ids, *choice.token_ids]
        sequences.append(
            BeamSearchSequence(
                tokens,
                tokenizer.decode(tokens),
                choice.logprobs or [],
                cum_logprob,
                cum_logprob / len(choice.token_ids) ** length_penalty,
                choice.finish_reason,
                choice.stop_reason,
            )
        )
    return BeamSearchOutput(sequences)
