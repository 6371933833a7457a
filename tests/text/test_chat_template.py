"""Chat templates in the styles of several model families (templates/), and what may go wrong."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import RequestError, UnsupportedParameterError
from octavo.text import ChatTemplate

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi <b> & 'é'"}
ANSWER = {"role": "assistant", "content": "Yo."}
AGAIN = {"role": "user", "content": "سلام"}
TOOL = {"type": "function", "function": {"name": "temp", "description": "Wärme <C> & 'F'"}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "temp", "arguments": '{"at": "Köln"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "21"}


def template(name: str) -> ChatTemplate:
    source = (Path(__file__).with_name("templates") / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, "<s>", "</s>", now=lambda: datetime.datetime(2025, 7, 26))


EXPECTED: tuple[tuple[str, list[dict[str, Any]], dict[str, Any], str], ...] = (
    (
        "chatml", [USER, ANSWER], {"add_generation_prompt": False},
        "<|im_start|>system\nYou are a friendly test.<|im_end|>\n"
        "<|im_start|>user\nHi <b> & 'é'<|im_end|>\n<|im_start|>assistant\nYo.<|im_end|>\n",
    ),
    (
        "chatml", [SYSTEM, AGAIN], {},
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nسلام<|im_end|>\n"
        "<|im_start|>assistant\n",
    ),
    (
        "llama3", [SYSTEM, USER], {},
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2025\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi <b> & 'é'<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    (
        "llama3", [AGAIN, CALL, RESULT], {"date_string": "today", "add_generation_prompt": False},
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: today\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nسلام<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "temp", "parameters": '
        '{"at": "Köln"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n21<|eot_id|>',
    ),
    (
        "qwen25", [SYSTEM, AGAIN, CALL, RESULT, RESULT], {"tools": [TOOL]},
        "<|im_start|>system\nBe brief.\n\n# Tools\n<tools>\n"
        '{"type": "function", "function": {"name": "temp", "description": "Wärme <C> & \'F\'"}}'
        "\n</tools><|im_end|>\n<|im_start|>user\nسلام<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "temp", "arguments": {"at": "Köln"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n21\n</tool_response>\n<tool_response>\n21\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    ("qwen25", [AGAIN], {"tools": []}, "<|im_start|>user\nسلام<|im_end|>\n<|im_start|>assistant\n"),
    (
        "qwen3", [AGAIN], {"enable_thinking": False},
        "<|im_start|>user\nسلام<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    (
        "qwen3", [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYo."}, AGAIN], {},
        "<|im_start|>user\nHi <b> & 'é'<|im_end|>\n<|im_start|>assistant\nYo.<|im_end|>\n"
        "<|im_start|>user\nسلام<|im_end|>\n<|im_start|>assistant\n",
    ),
    (
        "mistral", [SYSTEM, USER, ANSWER, AGAIN], {},
        "<s>[INST] Hi <b> & 'é'[/INST] Yo.</s>[INST] Be brief.\n\nسلام[/INST]",
    ),
    (
        "zephyr", [SYSTEM, USER, ANSWER, AGAIN], {},
        "<|system|>\nBe brief.</s>\n<|user|>\nHi <b> & 'é'</s>\n<|assistant|>\nYo.</s>\n"
        "<|user|>\nسلام</s>\n<|assistant|>\n",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("name", "messages", "options", "expected"), EXPECTED)
def test_renders(
    name: str, messages: list[dict[str, Any]], options: dict[str, Any], expected: str
) -> None:
    assert template(name).render(messages, **options) == expected


def test_the_templates_own_refusal_reaches_the_caller() -> None:
    with pytest.raises(RequestError, match="Roles must alternate user/assistant") as error:
        template("mistral").render([USER, USER])
    assert error.value.param == "messages"
    with pytest.raises(RequestError, match="Only one tool call at once!"):
        template("llama3").render([USER, CALL | {"tool_calls": CALL["tool_calls"] * 2}])


PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            "<|im_start|>user\none\ntwo<|im_end|>",
        ),  # reads strings only: joined by a newline
        ("llama3", "<|end_header_id|>\n\none\ntwo<|eot_id|>"),
        ("parts", "<user>onetwo</>"),  # reads parts only
        ("both", "<user>one + two</>"),  # reads either: sees the parts
    ],
)
def test_content_in_parts(name: str, expected: str) -> None:
    assert expected in template(name).render([PARTS])


@pytest.mark.parametrize("name", ["parts", "both"])
def test_plain_content_where_a_template_reads_parts(name: str) -> None:
    assert template(name).render([ANSWER]) == "<assistant>Yo.</>"


def test_messages_are_not_changed() -> None:
    messages = [USER, CALL, RESULT]
    before = repr(messages)
    template("qwen25").render(messages)
    assert repr(messages) == before


@pytest.mark.parametrize(
    "name", ["chatml", "llama3", "qwen25", "qwen3", "mistral", "zephyr", "both", "parts"]
)
@pytest.mark.parametrize("text", ["Once upon", "Once upon ", "a [continue-here] b"])
def test_continue_the_final_message(name: str, text: str) -> None:
    messages = [USER, {"role": "assistant", "content": text}]
    prompt = template(name).render(
        messages, add_generation_prompt=False, continue_final_message=True
    )
    whole = template(name).render(messages, add_generation_prompt=False)
    assert prompt.endswith(text)
    assert whole.startswith(prompt.rstrip())
    assert len(whole) > len(prompt)


def test_continue_a_final_message_in_parts() -> None:
    prompt = template("both").render(
        [PARTS], add_generation_prompt=False, continue_final_message=True
    )
    assert prompt == "<user>one + two"


@pytest.mark.parametrize(
    ("source", "messages", "generation", "message"),
    [
        ("{{ messages[0].content }}", [USER], True, "expected add_generation_prompt=false"),
        ("{{ messages[0].content }}", [CALL], False, "expected text in the last message"),
        ("{{ messages[0].content[:2] }}", [USER], False, "does not show the text of the last"),
    ],
)
def test_a_final_message_that_cannot_be_continued(
    source: str, messages: list[dict[str, Any]], generation: bool, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        ChatTemplate(source).render(
            messages, add_generation_prompt=generation, continue_final_message=True
        )


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "expected a list with at least one message"),
        ("hi", "expected a list"),
        ([USER, "hi"], r"messages\[1\]: expected an object with a role"),
        ([{"content": "hi"}], r"messages\[0\]: expected an object with a role"),
        ([{"role": 1, "content": "hi"}], "with a role"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content: expected a string or a list"),
        ([{"role": "user", "content": [7]}], r"content\[0\]: expected a part"),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            r"content\[0\]\.text: expected a string",
        ),
        (
            [CALL | {"tool_calls": [{}]}],
            r"messages\[0\]\.tool_calls\[0\]: expected an object with a function",
        ),
        ([CALL | {"tool_calls": 5}], "tool_calls: expected a list"),
        (
            [CALL | {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            r"tool_calls\[0\]\.function\.arguments: expected JSON text",
        ),
    ],
)
def test_malformed_messages(messages: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        template("chatml").render(messages)
    assert error.value.param == "messages"


def test_images_are_refused_by_name() -> None:
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(UnsupportedParameterError, match=r"content\[1\]\.type: .* got 'image_url'"):
        template("chatml").render([{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "syntax error in line 1"),
        ("line\n{{ messages[0 }}", "syntax error in line 2"),
        ("{% nonesuch %}", "syntax error"),
        ("{{ nonesuch.field }}", "'nonesuch' is undefined"),
        ("{{ messages[0].missing.field }}", "needs something the request does not have"),
        ("{{ nonesuch() }}", "'nonesuch' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "the chat template failed on these messages"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ messages[0].update(role='x') }}", "unsafe|not safely callable"),
        ("{% include '/etc/passwd' %}", "the chat template failed|no loader"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without end"),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "steps of range",
        ),
        ("{{ 'ab' * 999999999 }}", r"result of \* is too large"),
        ("{{ 999999999 * [1] }}", r"result of \* is too large"),
        ("{{ 9 ** 9 ** 9 ** 9 ** 9 }}", r"result of \*\* is too large"),
        ("{% for i in range(99) %}{{ 'ab' * 999999 }}{% endfor %}", "wrote more than"),
        (
            "{{ raise_exception('no \\'quotes\\' please') }}",
            "refuses these messages: no 'quotes' please",
        ),
    ],
)
def test_a_template_that_fails_is_a_clear_refusal(source: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        ChatTemplate(source).render([USER])
    assert "Traceback" not in str(error.value)


def test_sums_and_products_of_ordinary_size_work() -> None:
    source = "{{ '-' * 3 }}{{ 2 ** 10 }}{{ 3 * 1.5 }}{{ 2 ** -1 }}{% for i in range(3) %}{{ i }}{% endfor %}"
    assert ChatTemplate(source).render([USER]) == "---10244.50.5012"


def test_tojson_writes_characters_as_they_are() -> None:
    source = "{{ x | tojson }}\n{{ x | tojson(indent=1) }}\n{{ x | tojson(separators=(',', ':')) }}"
    text = ChatTemplate(source).render([USER], x={"é": "<'&\">", "n": None})
    assert text == (
        '{"é": "<\'&\\">", "n": null}\n{\n "é": "<\'&\\">",\n "n": null\n}\n{"é":"<\'&\\">","n":null}'
    )


@pytest.mark.parametrize("name", ["range", "strftime_now"])
def test_functions_of_the_sandbox_cannot_be_replaced(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name} cannot be set there"):
        ChatTemplate("x").render([USER], **{name: 1})


def test_named_templates() -> None:
    named = ChatTemplate({"default": "d", "tool_use": "t"})
    assert named.render([USER]) == "d"
    assert named.render([USER], tools=[TOOL]) == "t"
    assert ChatTemplate({"only": "o"}).render([USER], tools=[TOOL]) == "o"
    with pytest.raises(RequestError, match="no default chat template, only a, b"):
        ChatTemplate({"a": "", "b": ""}).render([USER])


def test_lines_with_only_a_block_tag_leave_no_trace() -> None:
    source = "{% for m in messages %}\n    {% if true %}\n    {{ m.role }}\n    {% endif %}\n{% endfor %}\nend"
    assert ChatTemplate(source).render([USER, ANSWER]) == "    user\n    assistant\nend"


def test_generation_marks_are_a_scope_and_show_their_text() -> None:
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}a{{ x }}{% endgeneration %}b{{ x }}"
    assert ChatTemplate(source).render([USER]) == "a2b1"


def test_renders_from_many_threads() -> None:
    shared, texts = template("qwen3"), []
    threads = [
        threading.Thread(target=lambda: texts.extend(shared.render([USER]) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [template("qwen3").render([USER])] * 200
