from __future__ import annotations

import io
import os
import socket
import subprocess
import sys

import pytest

from octavo import LLM, SamplingParams, __version__
from octavo.cli import main

SMALL = ["--num-kv-blocks", "60", "--temperature", "0", "--max-tokens", "8"]


@pytest.fixture
def octavo(monkeypatch, capsys):
    """Runs a command line in this process: (exit code, stdout, stderr)."""

    def run(*args: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["octavo", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def expected(tiny_model):
    """What the model says greedily: prompts -> texts; a conversation -> answers."""
    params = SamplingParams(temperature=0, max_tokens=8)
    with LLM(tiny_model, num_kv_blocks=60) as llm:
        text = llm.generate("The octavo was", params)[0].outputs[0].text
        messages = [{"role": "system", "content": "Be brief."}]
        answers = []
        for question in ("Who are you?", "Why?"):
            messages.append({"role": "user", "content": question})
            answers.append(llm.chat(messages, params)[0].outputs[0].text)
            messages.append({"role": "assistant", "content": answers[-1]})
    return text, answers


def test_version_and_help(octavo):
    assert octavo("--version") == (0, f"octavo {__version__}\n", "")
    code, out, _ = octavo("--help")
    assert code == 0
    assert all(name in out for name in ("serve", "generate", "chat", "pull"))


def test_generate_prints_the_completion(octavo, tiny_model, expected):
    prompt = ["--prompt", "The octavo was"]
    assert octavo("generate", tiny_model, *prompt, *SMALL)[:2] == (0, expected[0] + "\n")
    assert octavo("generate", tiny_model, *prompt, *SMALL, "--stream")[:2] == (
        0,
        expected[0] + "\n",
    )
    piped = octavo("generate", tiny_model, *SMALL, stdin="The octavo was\n")
    assert piped[:2] == (0, expected[0] + "\n")


def test_chat_keeps_the_conversation(octavo, tiny_model, expected):
    lines = "Who are you?\n\nWhy?\n/exit\nnever read\n"
    code, out, _ = octavo("chat", tiny_model, *SMALL, "--system", "Be brief.", stdin=lines)
    assert (code, out) == (0, "".join(f"{answer}\n" for answer in expected[1]))


def test_chat_can_start_over_and_survives_what_does_not_fit(octavo, tiny_model, expected):
    lines = f"Who are you?\n/clear\nWho are you?\n{'word ' * 900}\nWhy?\n"
    code, out, err = octavo("chat", tiny_model, *SMALL, "--system", "Be brief.", stdin=lines)
    first, second = expected[1]
    assert (code, out) == (0, f"{first}\n{first}\n{second}\n")
    assert "maximum context length" in err


def test_pull_prints_where_the_model_lies(octavo, tiny_model):
    assert octavo("pull", tiny_model) == (0, f"{tiny_model}\n", "")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (
            ["serve", "--block-size", "7"],
            2,
            "octavo: --block-size: expected a multiple of 16, got 7",
        ),
        (
            ["serve", "--kv-cache-memory-bytes", "x"],
            2,
            "octavo: --kv-cache-memory-bytes: expected a size",
        ),
        (["serve", "--port", "70000"], 2, "octavo: --port: expected 0 to 65535, got 70000"),
        (["serve", "/no/such/model"], 1, "octavo: no model '/no/such/model'"),
        (["generate", "/no/such/model", "--prompt", "x"], 1, "octavo: no model '/no/such/model'"),
        (
            ["generate", "--prompt", "x", "--temperature", "-1"],
            1,
            "octavo: --temperature: expected",
        ),
        (["generate", "--prompt", "x", "--top-p", "2"], 1, "octavo: --top-p: expected"),
        (["generate", "Hello there"], 1, "octavo generate --prompt 'Hello there'"),
        (["generate", "Hello"], 1, "A text to complete goes to --prompt."),
        (["chat", "--num-kv-blocks", "9", "--kv-cache-memory-bytes", "1M"], 2, "octavo: --num-kv"),
        (["chat", "--served-model-name", "x"], 2, "--served-model-name"),
        (["pull", "/no/such/model"], 1, "octavo: no model '/no/such/model'"),
        (["serve", "--nonsense"], 2, "--nonsense"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(octavo, args, code, message):
    if args[0] == "serve" and "--port" not in args:
        args = [*args, "--port", "0"]
    got, out, err = octavo(*args)
    assert (got, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_what_the_model_cannot_hold(octavo, tiny_model):
    args = ("generate", tiny_model, "--prompt", "x", "--max-model-len", "600")
    assert octavo(*args)[::2] == (
        2,
        "octavo: --max-model-len: expected at most 512 tokens (the model's context length), got 600\n",
    )


def test_an_empty_prompt(octavo, tiny_model):
    code, _, err = octavo("generate", tiny_model, "--prompt", "", *SMALL)
    assert (code, "at least one token" in err) == (1, True)


def test_help_loads_neither_arrays_nor_the_server():
    code = (
        "import sys; from octavo.cli.app import app; "
        "print([m for m in ('numpy', 'fastapi', 'tokenizers', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_native_kernels_it_warns_and_serves(tiny_model):
    code = (
        "import sys; sys.modules['octavo._native'] = None; "
        f"sys.argv = ['octavo', 'generate', {str(tiny_model)!r}, '--prompt', 'The octavo was', *{SMALL!r}]; "
        "from octavo.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr.startswith("warning: no native CPU kernels")


def test_input_that_is_not_text(tiny_model):
    command = [sys.executable, "-m", "octavo", "generate", str(tiny_model), *SMALL]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, input=b"\xff\xfe", capture_output=True, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith(b"octavo: expected UTF-8 text on standard input")


def test_a_taken_port_ends_the_process_though_weights_are_loading(tiny_model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "octavo", "serve", str(tiny_model), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cannot listen" in done.stderr


def test_as_a_module_and_into_a_closed_pipe(tiny_model):
    command = [
        sys.executable,
        "-m",
        "octavo",
        "generate",
        str(tiny_model),
        "--prompt",
        "The",
        *SMALL,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 1)
    assert "Traceback" not in error
