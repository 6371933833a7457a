"""Two API keys share no block and the same key shares all, from the HTTP header to the block pool."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.limits import EngineLimits
from octavo.server.app import create_app
from octavo.server.context import ServingContext
from tests.engine.letters import Letters
from tests.sched.drive import make_core

LIMITS = EngineLimits(
    max_model_len=200, num_kv_blocks=64, block_size=4, max_num_seqs=8, vocab_size=50
)


async def ask(app: Any, key: str, **body: Any) -> int:
    """Prompt tokens that were found in the cache."""
    import httpx

    transport = httpx.ASGITransport(app)
    headers = {"authorization": f"Bearer {key}"}
    prompt = [1 + i % 7 for i in range(17)]
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        answer = await client.post(
            "/v1/completions", json={"prompt": prompt, "max_tokens": 3, **body}, headers=headers
        )
    assert answer.status_code == 200, answer.text
    cached: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


@pytest.mark.asyncio
@pytest.mark.parametrize("per_key", [True, False])
async def test_who_shares_with_whom(per_key: bool) -> None:
    core = make_core(64, match_tokens=True, max_model_len=200)
    engine = AsyncEngine(core, Letters(), LIMITS)  # type: ignore[arg-type]
    app = create_app(
        ServingContext(
            engine=engine,
            tokenizer=Letters(),  # type: ignore[arg-type]
            model_names=("toy",),
            version="1",
            api_keys=("anna", "bert"),
            cache_salt_per_key=per_key,
        )
    )
    await engine.start()
    assert await ask(app, "anna") == 0
    assert await ask(app, "anna") == 16
    assert await ask(app, "bert") == (0 if per_key else 16)
    assert await ask(app, "bert") == 16
    assert await ask(app, "anna", cache_salt="x") == 0
    assert await ask(app, "bert", cache_salt="x") == (0 if per_key else 16)
    assert await ask(app, "anna", cache_salt="x") == 16
    stats = engine.stats()
    assert stats.num_hits_device == 4 * (3 if per_key else 5)
    await engine.drain(5.0)
