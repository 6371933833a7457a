"""What the KV memory holds while requests run: tokens, and each shared prefix once."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.repo.doc_session import Session

BLOCK = 16


def blocks_for(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK)


@pytest.mark.parametrize("num_kv_blocks", [None, 128])
def test_blocks_in_use_are_full_but_for_the_last_of_each(
    num_kv_blocks: int | None, default_model_path: Path, shared_dir: Path
) -> None:
    """After each step, what is empty in the blocks in use is less than one block for each request."""
    from octavo import LLM, SamplingParams

    requests = json.loads((shared_dir / "bench" / "mixed64.json").read_text())["requests"][:24]
    params = [SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True) for _ in requests]
    steps: list[tuple[int, int, int, int]] = []
    with LLM(model=str(default_model_path), num_kv_blocks=num_kv_blocks) as llm:
        core = llm.built.core

        def note(*_: object) -> None:
            stats = core.stats()
            empty = stats.num_blocks_used * BLOCK - stats.num_tokens_in_used_blocks
            holders = stats.num_requests_running + stats.num_requests_waiting
            steps.append((stats.num_blocks_used, empty, holders, stats.num_requests_running))

        core.on_step = note
        llm.generate([r["prompt"] for r in requests], params, use_tqdm=False)
    assert max(used for used, *_ in steps) > 64
    for used, empty, holders, running in steps:
        assert 0 <= empty < BLOCK * max(holders, 1), (used, empty, holders)
        assert used > 0 or running == 0


class Client:
    """Token ids to a server, and numbers from its /metrics."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def complete(self, prompt: list[int], max_tokens: int) -> Any:
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            self.url + "/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def metric(self, name: str, label: str = "") -> int:
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        match = re.search(rf"^octavo_{name}{{[^}}]*{label}[^}}]*}} (\S+)$", text, re.MULTILINE)
        assert match, f"no metric {name} {label}"
        return int(float(match[1]))


@pytest.fixture
def client(default_model_path: Path, tmp_path: Path) -> Iterator[Client]:
    session = Session(tmp_path)
    session.start("octavo serve --num-kv-blocks 2048")
    yield Client(session.port)
    session.stop()


def test_a_common_prefix_is_held_once(client: Client, shared_dir: Path) -> None:
    """64 requests with 768 tokens in common, in one pool that could not hold 64 prefixes."""
    shared = json.loads((shared_dir / "bench" / "workload.json").read_text())["shared"]
    prefix, tails, max_tokens = shared["prefix"], shared["tails"], 48
    once = blocks_for(len(prefix))
    own = blocks_for(len(tails[0]) + max_tokens)
    assert (len(tails), once, len(tails) * once > 2048) == (64, 48, True)
    assert client.metric("kv_blocks", 'state="used",tier="device"') == 0
    client.complete(prefix + tails[0], 1)
    before = client.metric("kv_blocks", 'state="cached",tier="device"')
    assert once <= before <= once + own

    seen = {0: 0}  # requests running -> most blocks in use
    with ThreadPoolExecutor(len(tails)) as pool:
        answers = [pool.submit(client.complete, prefix + tail, max_tokens) for tail in tails]
        while not all(a.done() for a in answers):
            used = client.metric("kv_blocks", 'state="used",tier="device"')
            running = client.metric("num_requests_running")
            seen[running] = max(seen.get(running, 0), used)
    assert max(seen) == len(tails), "they never ran all at once"
    assert once + len(tails) <= seen[len(tails)] <= once + len(tails) * own
    usages = [a.result()["usage"] for a in answers]
    # The first comes again whole: one token is computed. Some of the others begin with its next.
    cached = {u["prompt_tokens_details"]["cached_tokens"] for u in usages}
    assert len(prefix + tails[0]) - 1 in cached
    assert cached - {len(prefix + tails[0]) - 1} <= {768, 769, 770}
    assert client.metric("num_preemptions_total") == 0
    assert client.metric("kv_blocks", 'state="used",tier="device"') == 0
    assert client.metric("kv_blocks", 'state="cached",tier="device"') <= once + len(tails) * own
