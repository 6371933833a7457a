"""What this engine can take, and the door where requests are held against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.errors import QueueFullError, RequestError
from octavo.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Fixed at start. `max_num_queued_reqs` 0 means no limit.

    `max_choices`: choices of one request whose memory can be reserved together; None: any.
    """

    max_model_len: int
    num_kv_blocks: int
    block_size: int
    max_num_seqs: int
    vocab_size: int
    max_num_queued_reqs: int = 0
    max_choices: int | None = None

    def admit(
        self, prompt_token_ids: Sequence[int], params: SamplingParams, num_waiting: int
    ) -> SamplingParams:
        """Check a request; returns its parameters with `max_tokens` settled.

        Raises RequestError (too long, empty, ids out of range, n too large) or QueueFullError.
        """
        self._check_prompt(prompt_token_ids)
        room = self.max_model_len - len(prompt_token_ids)
        max_tokens = room if params.max_tokens is None else params.max_tokens
        if room < max_tokens or (room < 1 and params.max_tokens is None):
            asked = (
                f"{max_tokens} new tokens"
                if params.max_tokens is not None
                else "no room for new ones"
            )
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens, but the "
                f"request needs {len(prompt_token_ids)} prompt tokens + {asked}. Shorten the "
                "prompt or lower max_tokens.",
                "max_tokens" if room >= 1 else "prompt",
                "context_length_exceeded",
            )
        self._check_num_seqs(params)
        self._check_ids(params)
        if self.max_num_queued_reqs and num_waiting >= self.max_num_queued_reqs:
            raise QueueFullError(
                f"{num_waiting} requests wait already, the limit is {self.max_num_queued_reqs} "
                "(--max-num-queued-reqs); try again later."
            )
        return replace(params, max_tokens=max_tokens)

    def _check_prompt(self, token_ids: Sequence[int]) -> None:
        if not token_ids:
            raise RequestError("prompt: expected at least one token, got an empty prompt", "prompt")
        for token_id in (min(token_ids), max(token_ids)):
            if not 0 <= token_id < self.vocab_size:
                raise RequestError(
                    f"prompt: expected token ids from 0 to {self.vocab_size - 1}, got {token_id}",
                    "prompt",
                )

    def _check_num_seqs(self, params: SamplingParams) -> None:
        width = params.num_seqs
        name = next(n for n in ("beam_width", "best_of", "n") if getattr(params, n) is not None)
        if width > self.max_num_seqs:
            raise RequestError(
                f"{name}: expected at most {self.max_num_seqs} (--max-num-seqs), got {width}", name
            )
        if self.max_choices is not None and params.use_beam_search:
            raise RequestError(
                "use_beam_search: expected false, beams share their blocks and a contiguous "
                "--kv-allocator shares none; start with --kv-allocator paged",
                "use_beam_search",
            )
        if self.max_choices is not None and width > self.max_choices:
            raise RequestError(
                f"{name}: expected at most {self.max_choices}, the contiguous runs of full length "
                f"that the KV memory holds (--kv-allocator), got {width}",
                name,
            )
        # The first token must give each beam a beginning of its own.
        if params.use_beam_search and 2 * width > self.vocab_size:
            raise RequestError(
                f"{name}: expected at most half of the vocabulary's {self.vocab_size} tokens, "
                f"got {width} beams",
                name,
            )

    def _check_ids(self, params: SamplingParams) -> None:
        named = (
            ("logit_bias", [token_id for token_id, _ in params.logit_bias]),
            ("stop_token_ids", list(params.stop_token_ids)),
        )
        for name, token_ids in named:
            for token_id in token_ids:
                if not 0 <= token_id < self.vocab_size:
                    raise RequestError(
                        f"{name}: expected token ids from 0 to {self.vocab_size - 1}, "
                        f"got {token_id}",
                        name,
                    )
