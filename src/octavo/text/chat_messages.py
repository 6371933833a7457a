"""Chat messages as clients send them, made into what templates expect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import RequestError, UnsupportedParameterError

Message = dict[str, Any]


def normalise(
    messages: Sequence[Mapping[str, Any]], *, takes_text: bool, takes_parts: bool
) -> list[Message]:
    """Copies of the messages whose content has a form that the template reads.

    `takes_text`, `takes_parts`: the template reads content as a string, as a list of parts. Parts
    for a template without them become one string, joined by newlines; the other way round a string
    becomes one part. Arguments of tool calls, JSON text on the wire, become objects. Raises
    RequestError naming the message that is malformed, UnsupportedParameterError for parts that are
    not text.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise RequestError("messages: expected a list with at least one message", "messages")
    result: list[Message] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(f"{where}: expected an object with a role and content", "messages")
        copy = dict(message)
        copy["content"] = _content(message.get("content"), where, takes_text, takes_parts)
        if copy.get("tool_calls"):
            copy["tool_calls"] = _tool_calls(copy["tool_calls"], f"{where}.tool_calls")
        result.append(copy)
    return result


def _content(content: Any, where: str, takes_text: bool, takes_parts: bool) -> Any:
    if content is None:
        return None
    if isinstance(content, str):
        return content if takes_text else [{"type": "text", "text": content}]
    if not isinstance(content, Sequence):
        raise RequestError(
            f"{where}.content: expected a string or a list of parts, got {type(content).__name__}",
            "messages",
        )
    texts = [_part_text(part, f"{where}.content[{at}]") for at, part in enumerate(content)]
    if takes_parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return text
        raise RequestError(
            f"{where}.text: expected a string, got {type(text).__name__}", "messages"
        )
    if isinstance(kind, str):
        raise UnsupportedParameterError(
            f"{where}.type: only text parts are supported, got {kind!r}", "messages"
        )
    raise RequestError(
        f'{where}: expected a part such as {{"type": "text", "text": ...}}', "messages"
    )


def _tool_calls(calls: Any, where: str) -> list[Any]:
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{where}: expected a list, got {type(calls).__name__}", "messages")
    return [_tool_call(call, f"{where}[{at}]") for at, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise RequestError(f"{where}: expected an object with a function", "messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError as error:
            raise RequestError(
                f"{where}.function.arguments: expected JSON text: {error}", "messages"
            ) from None
    return {**call, "function": {**function, "arguments": arguments}}
