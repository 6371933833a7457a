"""Wires a built engine to the HTTP side."""

from __future__ import annotations

from octavo import __version__
from octavo.config import ServerConfig
from octavo.engine.async_engine import AsyncEngine
from octavo.llm.build import Built
from octavo.server.context import ServingContext


def serving_context(built: Built, config: ServerConfig) -> ServingContext:
    """What the HTTP side is given.

    With log level debug the books are proved whenever the engine idles.
    """
    cache, model = built.config.cache, built.config.model
    return ServingContext(
        engine=AsyncEngine(
            built.core,
            built.tokenizer,
            built.limits,
            built.config.device.seed,
            check_when_idle=config.log_level == "debug",
            log_stats=config.log_stats,
        ),
        tokenizer=built.tokenizer,
        model_names=built.model_names,
        version=__version__,
        chat_template=built.chat_template,
        api_keys=config.api_key,
        cache_salt_per_key=config.cache_salt_per_key,
        default_sampling=built.default_sampling,
        root=str(built.checkpoint.path),
        backend=(
            built.checkpoint.fingerprint,
            built.ops.name,  # with the instruction set
            model.dtype,
            model.quantization or "",
            built.kv_size.shape.dtype,
        ),
        cache_info={
            "block_size": str(cache.block_size),
            "num_kv_blocks": str(built.kv_size.num_blocks),
            "cache_dtype": built.kv_size.shape.dtype,
            "enable_prefix_caching": str(cache.enable_prefix_caching),
            "prefix_match": cache.prefix_match,
            "preemption_mode": built.config.scheduler.preemption_mode,
        },
    )
