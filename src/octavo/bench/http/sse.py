"""Server-sent events (WHATWG HTML, section 9.2), from bytes that arrive in any pieces."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SSEParser:
    """Feed it bytes; it gives the data of each event that ended in them.

    Lines end in LF, CR or CRLF. `data` lines of one event are joined by LF; comments and other
    fields are passed over; an event without data is none. What is left at the end of the stream was
    no event.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Data of the events that `piece` completed, in order."""
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")  # the second half of a CRLF
            self._after_cr = False
        text = self._rest + piece
        if self._at_start:
            if _BOM.startswith(text[:3]) and len(text) < 3:
                self._rest = text
                return []
            text = text.removeprefix(_BOM)
            self._at_start = False
        *lines, self._rest = _LINE_END.split(text)
        # A CR at the very end is an end of line already; a LF that follows it belongs to it.
        self._after_cr = text.endswith(b"\r")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> bytes | None:
        if not line:
            data, self._data = self._data, []
            return b"\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
