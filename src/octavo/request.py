"""What a caller asks for, in token ids: the only form the engine knows."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from octavo.errors import RequestError

MAX_LOGPROBS = 20
"""Most alternatives that a request may ask for at one position (as the OpenAI API)."""

MAX_STOP_LENGTH = 1024
"""Most characters of a stop string: all the time that it could still match, text is held back."""

GREEDY_BELOW = 1e-5
"""A temperature under this means greedy: differences of float32 logits carry no more than that."""

MAX_CHOICES = 128
"""Most choices (`n`, `best_of`) and beams of one request (as the OpenAI API for `n`)."""

# name -> (least, most, may be None)
_INTS: dict[str, tuple[int, int, bool]] = {
    "max_tokens": (0, 2**31 - 1, True),
    "min_tokens": (0, 2**31 - 1, False),
    "top_k": (-1, 2**31 - 1, False),
    "seed": (-(2**63), 2**64 - 1, True),
    "n": (1, MAX_CHOICES, False),
    "best_of": (1, MAX_CHOICES, True),
    "beam_width": (1, MAX_CHOICES, True),
    "logprobs": (0, MAX_LOGPROBS, True),
    "prompt_logprobs": (0, MAX_LOGPROBS, True),
}

# name -> (least, most, whether the least itself is allowed)
_FLOATS: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 1e38, True),
    "top_p": (0.0, 1.0, False),
    "min_p": (0.0, 1.0, True),
    "presence_penalty": (-2.0, 2.0, True),
    "frequency_penalty": (-2.0, 2.0, True),
    "repetition_penalty": (0.0, math.inf, False),
    "length_penalty": (-16.0, 16.0, True),
}


_BOOLS = ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "use_beam_search")


def _refuse(param: str, expected: str, got: object) -> NoReturn:
    raise RequestError(f"{param}: expected {expected}, got {reprlib.repr(got)}", param)


def _int(param: str, value: Any, least: int, most: int, what: str = "a whole number") -> int:
    """`value` as an int from `least` to `most`; true and 1.0 are not ints."""
    ok = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not ok or not least <= value <= most:
        top = "" if most >= 2**31 - 1 and param != "seed" else f" and at most {most}"
        _refuse(param, f"{what} of at least {least}{top}", value)
    return int(value)


def _float(param: str, value: Any, least: float, most: float, closed: bool) -> float:
    """`value` as a finite float from `least` (itself allowed if `closed`) to `most`."""
    number = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an int beyond every float
            number = math.inf
    ok = math.isfinite(number) and least <= number <= most
    if not ok or (number == least and not closed):
        low = f"{'of at least' if closed else 'above'} {least:g}"
        top = "" if most == math.inf else f" and at most {most:g}"
        _refuse(param, f"a finite number {low}{top}", value)
    return number


def _texts(param: str, value: Any) -> tuple[str, ...]:
    """None, a string or strings -> strings, none of them empty."""
    items = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(items, Iterable) or isinstance(items, Mapping | bytes):
        _refuse(param, "a string or a list of strings", value)
    texts = tuple(items)
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_LENGTH:
            _refuse(param, f"strings of 1 to {MAX_STOP_LENGTH} characters", text)
    return texts


def _token_ids(param: str, value: Any) -> tuple[int, ...]:
    if value is not None and (not isinstance(value, Iterable) or isinstance(value, str | Mapping)):
        _refuse(param, "a list of token ids", value)
    return tuple(_int(param, i, 0, 2**31 - 1, "token ids") for i in value or ())


def _biases(value: Any) -> tuple[tuple[int, float], ...]:
    """None, a mapping (JSON's string keys too) or pairs of token id and bias -> sorted pairs."""
    param = "logit_bias"
    items = value.items() if isinstance(value, Mapping) else value
    pairs: dict[int, float] = {}
    try:
        for key, bias in items or ():
            token_id = int(key) if isinstance(key, str) else key
            token_id = _int(param, token_id, 0, 2**31 - 1, "token ids")
            if token_id in pairs:
                _refuse(param, "each token id once", token_id)
            pairs[token_id] = _float(param, bias, -100.0, 100.0, True)
    except RequestError:
        raise
    except (TypeError, ValueError):
        _refuse(param, "a map from token id to a bias from -100 to 100", value)
    return tuple(sorted(pairs.items()))


def _check_sampling(params: SamplingParams) -> None:
    """Raise for what belongs to beam search."""
    for name, neutral in _BEAM_ONLY.items():
        value = getattr(params, name)
        if value != neutral or isinstance(value, bool) != isinstance(neutral, bool):
            _refuse(name, f"{neutral} without use_beam_search (set that to true)", value)


def _check_beam_search(params: SamplingParams) -> None:
    """Raise for what beam search cannot mean."""
    if params.temperature not in (0.0, 1.0):
        _refuse("temperature", "0 or 1 with beam search, which draws nothing", params.temperature)
    for name, neutral in _NO_FILTER.items():
        value = getattr(params, name)
        if value not in neutral:
            _refuse(name, f"{neutral[0]} with beam search, which draws nothing", value)
    if params.stop:
        _refuse("stop", "none with beam search (stop_token_ids can end a beam)", params.stop)
    if params.max_tokens == 0:
        _refuse("max_tokens", "at least 1 with beam search", 0)
    if not (isinstance(params.early_stopping, bool) or params.early_stopping == "never"):
        _refuse("early_stopping", "true, false or 'never'", params.early_stopping)
    both = (params.beam_width, params.best_of)
    if None not in both and both[0] != both[1]:
        _refuse(
            "best_of", f"beam_width ({params.beam_width}), of which it is another name", both[1]
        )
    if params.num_seqs < params.n:
        _refuse("beam_width", f"at least n ({params.n})", params.num_seqs)


_BEAM_ONLY: dict[str, Any] = {"beam_width": None, "length_penalty": 1.0, "early_stopping": False}
_NO_FILTER = {"top_p": (1.0,), "top_k": (0, -1), "min_p": (0.0,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose the tokens of one request. Names and defaults follow the OpenAI API and vLLM.

    `max_tokens`: most tokens to generate, 16 as in the API's completions (the command line has no
    such limit); None means up to the model's context length, 0 computes the prompt alone (for its
    log-probabilities). `min_tokens`: before so many tokens nothing ends the output.
    `temperature` divides the logits; below 1e-5 the most likely token is always taken. `top_k` 0 or
    -1, `top_p` 1 and `min_p` 0 switch the filter off. `seed` None lets the engine draw one; the
    same seed gives the same tokens. `n`: choices for each prompt. `best_of`: choices to make, of
    which the `n` with the largest sums of log-probabilities are given back, best first.

    `logprobs` is the number of alternatives beside the chosen token (0 = the chosen one alone,
    None = none at all); `prompt_logprobs` the same for the prompt's own tokens. `stop` and
    `stop_token_ids` end an output. `presence_penalty` is subtracted from the logit of tokens that
    the output contains, `frequency_penalty` once for each time; `repetition_penalty` above 1 makes
    tokens of prompt and output less likely. `logit_bias`: token id to what is added to its logit.

    `use_beam_search`: no draws; the `beam_width` likeliest beginnings (`best_of` is another name of
    it; `n` if neither is given) are kept at each length, and the `n` best outputs given back, best
    first, all at the end. An output's score is the sum of its log-probabilities divided by its
    number of tokens to the power of `length_penalty`. `early_stopping`: True ends the search when
    `beam_width` outputs are complete, False when in addition the best beginning, scored as it
    stands, is no better than the worst of them, "never" when it could not become better at any
    length. `logit_bias` and penalties change the log-probabilities that are summed.

    The values are taken as they are: a model's own defaults are in `LLM.default_sampling`.
    Lists are taken for tuples, one string for `stop`, a map for `logit_bias`, None for an empty one
    of these. Raises RequestError naming the field that is out of its range.
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
    skip_special_tokens: bool = True
    best_of: int | None = None
    use_beam_search: bool = False
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for name, (low, high, optional) in _INTS.items():
            value = getattr(self, name)
            if value is not None or not optional:
                settle(name, _int(name, value, low, high))
        for name, (least, most, closed) in _FLOATS.items():
            settle(name, _float(name, getattr(self, name), least, most, closed))
        for name in _BOOLS:
            if not isinstance(getattr(self, name), bool):
                _refuse(name, "true or false", getattr(self, name))
        settle("stop", _texts("stop", self.stop))
        settle("stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        settle("logit_bias", _biases(self.logit_bias))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", f"at most max_tokens ({self.max_tokens})", self.min_tokens)
        if self.best_of is not None and self.best_of < self.n:
            _refuse("best_of", f"at least n ({self.n})", self.best_of)
        (_check_beam_search if self.use_beam_search else _check_sampling)(self)

    @property
    def is_greedy(self) -> bool:
        """True if the most likely token is taken, without a draw."""
        return self.temperature < GREEDY_BELOW

    @property
    def num_choices(self) -> int:
        """Choices that come out of the engine: `n`, or more to choose from (`best_of`)."""
        return self.n if self.use_beam_search else self.best_of or self.n

    @property
    def num_seqs(self) -> int:
        """Sequences that run at a time: one for each choice, or the beams."""
        return (
            (self.beam_width or self.best_of or self.n)
            if self.use_beam_search
            else (self.num_choices)
        )

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
