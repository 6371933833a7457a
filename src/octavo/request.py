"""What a caller asks for, in token ids: the only form the engine knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose the tokens of one request. Names and defaults follow the OpenAI API and vLLM.

    `max_tokens` None means: up to the model's context length. `top_k` 0 or -1 and `min_p` 0 switch
    the filter off. `logprobs` is the number of alternatives beside the chosen token (0 = the chosen
    one alone, None = none at all); `prompt_logprobs` the same for the prompt's own tokens.
    `seed` None lets the engine draw one; the same seed gives the same tokens.
    """

    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def needs_history(self) -> bool:
        """True if the choice of a token depends on the tokens before it (penalties)."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One admitted request. `params.seed` and `params.max_tokens` are settled (never None) by now.

    `eos_token_ids` end a sequence unless `params.ignore_eos`; `priority`: lower runs first;
    `cache_salt` keeps its blocks apart from those of other salts; `arrival_time` in seconds.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0
    arrival_time: float = 0.0
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token, and the `top` alternatives at its position, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
