"""Chat messages to one prompt text, by the model's own template."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.text import chat_messages, jinja_env

if TYPE_CHECKING:
    import jinja2

_RESERVED = frozenset({"range", "raise_exception", "strftime_now"})
_PROBE = "octavo-probe"
_PROBE_TIME = datetime.datetime(2025, 1, 1)


class ChatTemplate:
    """A model's chat template, or its named templates ("default", "tool_use", ...).

    `bos_token`, `eos_token` and `special_tokens` are variables the template may use; `now` is the
    clock behind strftime_now. Compiled at the first use. May be used from several threads.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        bos_token: str = "",
        eos_token: str = "",
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self.sources = {"default": source} if isinstance(source, str) else dict(source)
        self._tokens = {**(special_tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        self._now = now
        self._compiled: dict[str, _Compiled] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt for these messages, special tokens written as text.

        `add_generation_prompt` ends it with the opening of an answer; `continue_final_message` ends
        it right after the text of the last message instead, so that the model goes on with it.
        `kwargs` are further variables of the template (enable_thinking, documents, ...). Raises
        RequestError with the template's own message if it refuses or fails.
        """
        if clash := _RESERVED & kwargs.keys():
            raise RequestError(
                f"chat_template_kwargs: {', '.join(sorted(clash))} cannot be set there",
                "chat_template_kwargs",
            )
        template = self._template(bool(tools))
        prepared = chat_messages.normalise(
            messages, takes_text=template.takes_text, takes_parts=template.takes_parts
        )
        mark = ""
        if continue_final_message:
            if add_generation_prompt:
                raise RequestError(
                    "continue_final_message: expected add_generation_prompt=false with it, "
                    "got true",
                    "continue_final_message",
                )
            mark = _mark_end(prepared[-1], str(prepared))
        variables = {
            **self._tokens,
            "documents": None,
            **kwargs,
            "messages": prepared,
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        text = jinja_env.render(template.template, variables, self._now)
        return _cut_at(text, mark) if mark else text

    def _template(self, with_tools: bool) -> _Compiled:
        name = "tool_use" if with_tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            if len(self.sources) != 1:
                raise RequestError(
                    "the model has no default chat template, only "
                    f"{', '.join(sorted(self.sources)) or 'none'}; pass one with --chat-template"
                )
            name = next(iter(self.sources))
        if name not in self._compiled:
            template = jinja_env.compile_template(self.sources[name])
            self._compiled[name] = _Compiled(template, self._tokens)
        return self._compiled[name]


class _Compiled:
    """A template and the forms of content it reads, found by trying both."""

    def __init__(self, template: jinja2.Template, tokens: Mapping[str, str]) -> None:
        self.template = template

        as_text = self._try(_PROBE, tokens)
        as_parts = self._try([{"type": "text", "text": _PROBE}], tokens)
        if _PROBE in as_text:
            self.takes_text, self.takes_parts = True, as_parts == as_text
        else:
            # A list that is only printed shows the probe too, with its keys around it.
            printed = "'type'" in as_parts or '"type"' in as_parts
            self.takes_parts = _PROBE in as_parts and not printed
            self.takes_text = not self.takes_parts

    def _try(self, content: Any, tokens: Mapping[str, str]) -> str:
        messages = [{"role": "user", "content": content}]
        variables = {**tokens, "messages": messages, "add_generation_prompt": False}
        try:
            return jinja_env.render(self.template, variables, lambda: _PROBE_TIME)
        except RequestError:
            return ""


def _mark_end(message: dict[str, Any], all_text: str) -> str:
    """Put a mark after the text of a message; returns the mark, which occurs nowhere in
    all_text."""
    mark = "[continue-here]"
    while mark in all_text:
        mark = f"[{mark}]"
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + mark
    elif content:
        message["content"] = [*content[:-1], {"type": "text", "text": content[-1]["text"] + mark}]
    else:
        raise RequestError(
            "continue_final_message: expected text in the last message, got none", "messages"
        )
    return mark


def _cut_at(text: str, mark: str) -> str:
    end = text.rfind(mark)
    if end < 0:
        raise RequestError(
            "continue_final_message: the chat template does not show the text of the last message",
            "continue_final_message",
        )
    return text[:end]
