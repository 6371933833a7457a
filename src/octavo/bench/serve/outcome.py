"""What came of one request."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """Times in seconds. Everything is counted from `started`, when the request was sent.

        started ---- ttft ----> first token ---- itl[0] ----> .. ---- itl[-1] ----> last token
               ------------------------------ latency --------------------------------->

    `itl` has an entry for each chunk after the first one; a server may put several tokens into a
    chunk. `output_len` is what the server counted, or else the number of chunks. `error` says why
    it failed.
    """

    prompt_len: int = 0
    output_len: int = 0
    num_cached: int | None = None
    started: float = 0.0
    ttft: float = 0.0
    latency: float = 0.0
    itl: list[float] = field(default_factory=list)
    text: str = ""
    error: str | None = None

    @property
    def tpot(self) -> float | None:
        """Time per token after the first one; None if there was none."""
        if self.output_len < 2:
            return None
        return (self.latency - self.ttft) / (self.output_len - 1)
