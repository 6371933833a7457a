"""Workloads from files: ShareGPT conversations, prompts of one's own, recorded traces."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo.bench.options import DatasetOptions
from octavo.bench.workload.sample import Draw, Prompt, Sample, Tokenizer
from octavo.errors import ConfigError

TRACE_BLOCK = 512
"""Tokens that one id of a Mooncake trace stands for."""


def refuse(path: Path, expected: str, got: object) -> ConfigError:
    """The error for a file that is not what its --dataset-name says."""
    return ConfigError(
        f"--dataset-path: expected {expected} in {path}, got {got!s:.200}", "dataset_path"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset-path: cannot read {path}: {error}", "dataset_path") from None


def _json(path: Path, text: str) -> Any:
    """A JSON document, or JSON lines as a list."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError:
            raise refuse(path, "JSON or JSON lines", error) from None


def sharegpt(
    path: Path, options: DatasetOptions, draw: Draw, tokenizer: Tokenizer | None
) -> Iterator[Sample]:
    """First turns of conversations, in random order; those too short or too long are passed
    over."""
    if tokenizer is None and options.sharegpt_output_len is None:
        raise ConfigError(
            "--tokenizer: sharegpt needs one to count the tokens of its answers; "
            "or give --sharegpt-output-len",
            "tokenizer",
        )
    entries = _json(path, _read(path))
    if not isinstance(entries, list):
        raise refuse(path, "a list of conversations", type(entries).__name__)
    pairs = [pair for pair in map(_first_turns, entries) if pair is not None]
    draw.random.shuffle(pairs)
    found = 0
    for prompt, answer in pairs:
        num_in = len(tokenizer.encode(prompt)) if tokenizer else 0
        num_out = options.sharegpt_output_len
        if num_out is None and tokenizer:
            num_out = len(tokenizer.encode(answer, add_special_tokens=False))
        assert num_out is not None
        if (tokenizer and num_in < 4) or num_out < 4 or num_in + num_out > options.max_sample_len:
            continue
        yield Sample(prompt, num_out)
        found += 1
        if found == options.num_prompts:
            return


def _first_turns(entry: Any) -> tuple[str, str] | None:
    turns = (
        entry.get("conversations", entry.get("conversation")) if isinstance(entry, dict) else None
    )
    if not isinstance(turns, list) or len(turns) < 2:
        return None
    first, second = (t.get("value") if isinstance(t, dict) else None for t in turns[:2])
    if not (isinstance(first, str) and isinstance(second, str) and first and second):
        return None
    return first, second


def custom(path: Path, options: DatasetOptions) -> Iterator[Sample]:
    """{"requests": [...]}, a list, or JSON lines of objects with `prompt` (text or token ids) and
    `max_tokens`."""
    entries = _json(path, _read(path))
    if isinstance(entries, dict):
        entries = entries.get("requests", [entries])
    if not isinstance(entries, list):
        raise refuse(path, "requests", type(entries).__name__)
    for at, entry in enumerate(entries[: options.num_prompts]):
        where = f"request {at}"
        if not isinstance(entry, dict):
            raise refuse(path, f"an object as {where}", entry)
        length = entry.get("max_tokens", entry.get("output_tokens", options.random_output_len))
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise refuse(path, f"max_tokens of at least 1 in {where}", length)
        yield Sample(_prompt(path, where, entry.get("prompt")), length)


def _prompt(path: Path, where: str, prompt: Any) -> Prompt:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(i) is int for i in prompt):
        return tuple(prompt)
    raise refuse(path, f"a prompt (text or token ids) in {where}", prompt)


def trace(path: Path, options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    """Recorded arrivals and lengths; equal block ids of a Mooncake trace become equal tokens."""
    read = _azure if path.suffix == ".csv" else _mooncake
    yield from read(path, options, draw)


def _mooncake(path: Path, options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    block = max(1, round(TRACE_BLOCK * options.trace_scale))
    start: float | None = None
    lines = [line for line in _read(path).splitlines() if line.strip()]
    for at, line in enumerate(lines[: options.num_prompts]):
        try:
            entry = json.loads(line)
            ids = [int(i) for i in entry["hash_ids"]]
            num_in, num_out = int(entry["input_length"]), int(entry["output_length"])
            when = float(entry["timestamp"]) / 1000
        except (ValueError, KeyError, TypeError) as error:
            expected = "timestamp, input_length, output_length and hash_ids"
            raise refuse(
                path, f"{expected} in line {at + 1}", f"{type(error).__name__} {error}"
            ) from None
        start = when if start is None else start
        tokens = [t for i in ids for t in draw.tokens(block, seed=i)]
        count = max(1, round(num_in * options.trace_scale))
        prompt = tuple(tokens[:count]) or draw.tokens(1)
        output_len = max(1, round(num_out * options.trace_scale))
        yield Sample(prompt, output_len, (when - start) / options.trace_speed)


def _azure(path: Path, options: DatasetOptions, draw: Draw) -> Iterator[Sample]:
    start: datetime | None = None
    for at, row in enumerate(csv.DictReader(_read(path).splitlines())):
        if at == options.num_prompts:
            return
        try:
            when = datetime.fromisoformat(row["TIMESTAMP"][:26])
            num_in, num_out = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (ValueError, KeyError, TypeError) as error:
            expected = "TIMESTAMP, ContextTokens and GeneratedTokens"
            raise refuse(
                path, f"{expected} in row {at + 1}", f"{type(error).__name__} {error}"
            ) from None
        start = when if start is None else start
        prompt = draw.tokens(max(1, round(num_in * options.trace_scale)))
        output_len = max(1, round(num_out * options.trace_scale))
        yield Sample(prompt, output_len, (when - start).total_seconds() / options.trace_speed)
