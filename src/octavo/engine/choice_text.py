"""From a choice's tokens to the text that may be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.engine.outputs import TextDelta
from octavo.request import SamplingParams
from octavo.sched.outputs import FinishReason, SeqOutput
from octavo.text.stop import StopStrings
from octavo.text.tokenizer import Tokenizer


class ChoiceText:
    """Detokenises one choice and watches for its stop strings."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> None:
        self._detokenizer = tokenizer.detokenizer(params.skip_special_tokens, prompt_token_ids)
        self._stop = (
            StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
        )
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self.is_finished = False

    def push(self, output: SeqOutput) -> TextDelta:
        """The delta for a step's output. `is_finished` turns true with the choice's last one.

        If a stop string ended it while the engine would go on, the caller must end the choice
        there.
        """
        if self._stop is None and output.finish_reason is None:
            return _delta(output, self._detokenizer.push(output.token_ids))
        text, stopped, num_used = self._text_of(output.token_ids)
        if num_used < len(
            output.token_ids
        ):  # a stop string ended it among several tokens of a step
            output = replace(
                output,
                token_ids=output.token_ids[:num_used],
                logprobs=output.logprobs[:num_used],
            )
        finish_reason, stop_reason = output.finish_reason, output.stop_reason
        if stopped is not None:
            return self._ended(output, text, "stop", stopped)
        if finish_reason is not None:
            rest, stopped = self._flush()
            text += rest
            if stopped is not None and finish_reason != "error":
                return self._ended(output, text, "stop", stopped)
        return self._ended(output, text, finish_reason, stop_reason)

    def _text_of(self, token_ids: Sequence[int]) -> tuple[str, str | None, int]:
        """Text, the stop string met, and how many tokens it took to meet it."""
        if self._stop is None:
            return self._detokenizer.push(token_ids), None, len(token_ids)
        text = ""
        for i, token_id in enumerate(token_ids, 1):
            self._num_tokens += 1
            piece, stopped = self._watch(self._detokenizer.push((token_id,)))
            text += piece
            if stopped is not None:
                return text, stopped, i
        return text, None, len(token_ids)

    def _watch(self, text: str) -> tuple[str, str | None]:
        # Stop strings within the first min_tokens tokens do not count.
        if self._stop is None or self._num_tokens < self._min_tokens:
            return text, None
        return self._stop.push(text)

    def _flush(self) -> tuple[str, str | None]:
        text, stopped = self._watch(self._detokenizer.flush())
        if stopped is None and self._stop is not None:
            text += self._stop.flush()
        return text, stopped

    def _ended(
        self,
        output: SeqOutput,
        text: str,
        finish_reason: FinishReason | None,
        stop_reason: int | str | None,
    ) -> TextDelta:
        self.is_finished = finish_reason is not None
        delta = _delta(output, text)
        delta.finish_reason, delta.stop_reason = finish_reason, stop_reason
        return delta


def _delta(output: SeqOutput, text: str) -> TextDelta:
    """An output, which may be its choice's last, with its text."""
    return TextDelta(
        output.request_id,
        output.index,
        text,
        output.token_ids,
        output.logprobs,
        output.finish_reason,
        output.stop_reason,
        output.num_cached_tokens,
        output.prompt_logprobs,
        output.error,
    )
