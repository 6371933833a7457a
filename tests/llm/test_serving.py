"""What the flags of `octavo serve` become on the HTTP side."""

from __future__ import annotations

from pathlib import Path

from octavo.config import ServerConfig
from octavo.llm.build import build
from octavo.llm.serving import serving_context
from octavo.llm.settings import engine_config


def test_flags_reach_the_server(tiny_model: Path) -> None:
    built = build(engine_config({"model": str(tiny_model), "num_kv_blocks": 40}))
    config = ServerConfig(api_key=("a", "b"), cache_salt_per_key=True, log_stats=False)
    context = serving_context(built, config)
    assert context.api_keys == ("a", "b")
    assert context.cache_salt_per_key
    assert context.engine._stats_log is None  # type: ignore[attr-defined]
    context = serving_context(built, ServerConfig())
    assert context.api_keys == ()
    assert not context.cache_salt_per_key
    assert context.engine._stats_log is not None  # type: ignore[attr-defined]
    assert context.cache_info["num_kv_blocks"] == "40"
