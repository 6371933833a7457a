from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from octavo import config
from octavo.cli.app import ENGINE, ONE_REQUEST, app
from octavo.cli.options import with_options
from octavo.cli.sampling import SamplingOptions, sampling_params
from octavo.errors import RequestError
from octavo.request import SamplingParams

run = CliRunner()


@dataclass(frozen=True, kw_only=True)
class Sample:
    what: str = field(default="a", metadata={"help": "thing", "positional": True})
    how_many: int | None = field(default=None, metadata={"help": "count"})
    kind: str = field(default="x", metadata={"help": "kind", "choices": ("x", "y-z")})
    other: str | None = field(default=None, metadata={"help": "o", "choices": ("q8", "q4")})
    size: int | None = field(default=None, metadata={"help": "size", "parse": int})
    on: bool = field(default=True, metadata={"help": "on"})
    words: tuple[str, ...] = field(default=(), metadata={"help": "words"})
    secret: str | None = field(default=None, metadata={"help": "s", "env": "OCTAVO_TEST_SECRET"})


DEFAULTS: dict[str, Any] = {
    "what": "a", "how_many": None, "kind": "x", "other": None, "size": None, "on": True, "words": (),
    "secret": None,
}  # fmt: skip


@pytest.fixture
def parse():
    seen: list[Any] = []
    little = typer.Typer(rich_markup_mode=None)

    @little.command()
    @with_options(Sample)
    def command(settings: dict[str, Any], extra: int = 5) -> None:
        """Docstring here."""
        seen.append((settings, extra))

    def parse(*args: str, env: dict[str, str] | None = None) -> Any:
        result = run.invoke(little, args, env=env)
        return seen.pop() if result.exit_code == 0 and seen else result.output

    return parse


def test_nothing_given_gives_the_defaults(parse):
    assert parse() == (DEFAULTS, 5)


def test_every_kind_of_field(parse):
    args = ["b", "--how-many", "3", "--kind", "y-z", "--other", "q4", "--size", "7", "--no-on"]
    settings, extra = parse(
        *args, "--words", "p", "--words", "q r", "--secret", "s", "--extra", "6"
    )
    assert settings == {
        "what": "b", "how_many": 3, "kind": "y-z", "other": "q4", "size": "7", "on": False,
        "words": ("p", "q r"), "secret": "s",
    }  # fmt: skip
    assert extra == 6
    assert type(settings["kind"]) is str


def test_the_environment_and_what_wins(parse):
    env = {"OCTAVO_TEST_SECRET": "e"}
    assert parse(env=env)[0]["secret"] == "e"
    assert parse("--secret", "s", env=env)[0]["secret"] == "s"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--kind", "w"], "--kind"),
        (["--how-many", "x"], "--how-many"),
        (["--nothing"], "--nothing"),
        (["a", "b"], "b"),
    ],
)
def test_wrong_arguments_name_themselves(parse, args, message):
    assert message in parse(*args)


def test_help_shows_each_flag_in_full(parse):
    text = parse("--help")
    assert "Docstring here." in text
    for flag in ("--how-many", "--no-on", "OCTAVO_TEST_SECRET", "x|y-z", "WHAT"):
        assert flag in text


@pytest.mark.parametrize("command", ["serve", "generate", "chat"])
def test_every_setting_of_the_engine_is_a_flag(command):
    text = run.invoke(app, [command, "--help"]).output
    own = {"serve": config.ServerConfig}.get(command, SamplingOptions)
    for cls in (*ENGINE, own):
        for f in dataclasses.fields(cls):
            if not f.metadata.get("positional"):
                dropped = command != "serve" and any(key in ONE_REQUEST for key in f.metadata)
                assert (f"--{f.name.replace('_', '-')}" in text) is not dropped
    assert "MODEL" in text


def test_sampling_flags_go_over_the_models_defaults():
    base = SamplingParams(temperature=0.6, top_p=0.9, max_tokens=16)
    blank = {f.name: f.default for f in dataclasses.fields(SamplingOptions)}
    settings = {**blank, "model": "m"}
    assert sampling_params(settings, base) == dataclasses.replace(base, max_tokens=None)
    assert settings == {"model": "m"}
    # Zero is a value.
    zero = sampling_params({**blank, "temperature": 0.0, "top_k": 0, "min_tokens": 0}, base)
    assert zero.temperature == 0.0
    more = sampling_params({**blank, "stop": ("a",), "ignore_eos": True, "max_tokens": 4}, base)
    assert (more.stop, more.ignore_eos, more.max_tokens, more.top_p) == (("a",), True, 4, 0.9)


def test_help_puts_flags_into_groups_and_ends_with_examples():
    text = run.invoke(app, ["generate", "--help"]).output
    heads = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert heads == [
        "Arguments", "Options", "Sampling", "Model", "KV memory", "Scheduler", "Device", "Examples",
    ]  # fmt: skip
    assert "\n  octavo generate --prompt " in text
    for python in ("<str>", "<int>", "list["):
        assert python not in text


def test_help_of_every_command_speaks_no_python():
    for command in ("serve", "chat", "pull", "bench serve", "bench kernels", "bench startup"):
        text = run.invoke(app, [*command.split(), "--help"]).output
        for python in ("<str>", "<int>", "<float>", "list[", "more_goodput"):
            assert python not in text, command


def test_errors_of_sampling_flags_name_the_flags():
    blank = {f.name: f.default for f in dataclasses.fields(SamplingOptions)}
    with pytest.raises(RequestError, match=r"^--min-tokens: expected at most --max-tokens \(4\)"):
        sampling_params({**blank, "min_tokens": 9, "max_tokens": 4}, SamplingParams())


def test_sampling_options_are_sampling_parameters():
    known = {f.name for f in dataclasses.fields(SamplingParams)}
    assert {f.name for f in dataclasses.fields(SamplingOptions)} <= known
