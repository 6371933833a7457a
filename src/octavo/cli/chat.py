"""`octavo chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from octavo.cli.load import load
from octavo.cli.sampling import sampling_params
from octavo.errors import RequestError

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.request import SamplingParams

HELP = "/exit ends, /clear starts over, Ctrl-C stops an answer"


def chat(settings: dict[str, Any], system: str | None) -> None:
    """Read a line, stream an answer, and so on until /exit or the end of the input."""
    llm, params = load(settings, sampling_params)
    with llm:
        Conversation(llm, params, system).run()


class Conversation:
    """The messages so far. On a terminal it prompts for lines; piped, it only answers them."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._start = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._start)
        self._watched = sys.stdin.isatty() and sys.stdout.isatty()

    def run(self) -> None:
        """Until /exit or the end of the input."""
        if self._watched:
            print(f"{self._llm.built.model_names[0]}. {HELP}")
        for line in self._lines():
            text = line.strip()
            if text in ("/exit", "/quit"):
                return
            if text == "/clear":
                self._messages = list(self._start)
            elif text in ("/help", "/?"):
                print(HELP)
            elif text:
                self._answer(text)

    def _lines(self) -> Iterator[str]:
        if not self._watched:
            yield from sys.stdin
            return
        import readline  # noqa: F401 - line editing and history for input()

        while True:
            try:
                yield input("> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print(f"\n{HELP}")

    def _answer(self, text: str) -> None:
        """Stream the answer; what the user stopped is kept as far as it came."""
        self._messages.append({"role": "user", "content": text})
        answer = ""
        try:
            with _stop_on_interrupt() as stopped:
                stream = self._llm.stream_chat(self._messages, self._params)
                with closing(stream):  # type: ignore[type-var]
                    for delta in stream:
                        print(delta.text, end="", flush=True)
                        answer += delta.text
                        if stopped:
                            break
        except RequestError as error:  # too long by now, or refused by the template
            self._messages.pop()
            print(f"octavo: {error} (/clear starts over)", file=sys.stderr)
            return
        print()
        self._messages.append({"role": "assistant", "content": answer})


@contextmanager
def _stop_on_interrupt() -> Iterator[list[bool]]:
    """A list that is no longer empty after the first Ctrl-C; a second one interrupts at once.

    The engine must not be interrupted in the middle of its books, so the loop asks between tokens.
    """
    stopped: list[bool] = []

    def note(*_: object) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
