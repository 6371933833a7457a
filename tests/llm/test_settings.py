from __future__ import annotations

from pathlib import Path

import pytest

from octavo import LLM
from octavo.config import EngineConfig
from octavo.errors import ConfigError
from octavo.llm.settings import engine_config, keywords_in_errors


def test_defaults_are_those_of_the_dataclasses():
    assert engine_config({}) == EngineConfig()


def test_settings_find_their_sections():
    config = engine_config(
        {
            "model": Path("/m/x.gguf"),
            "kv_cache_memory_bytes": "1.5G",
            "max_num_seqs": 3,
            "enable_prefix_caching": False,
            "threads": 2,
        }
    )
    assert config.model.model == "/m/x.gguf"
    assert config.cache.kv_cache_memory_bytes == 3 * 2**29
    assert config.cache.enable_prefix_caching is False
    assert (config.scheduler.max_num_seqs, config.device.threads) == (3, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_seqs": 0}, "^max_num_seqs: expected at least 1, got 0$"),
        ({"num_kv_blocks": 4, "kv_cache_memory_bytes": "1G"}, "^num_kv_blocks and kv_cache_memory"),
        ({"device": "gpu"}, "^device: expected auto, cpu or reference, got 'gpu'$"),
    ],
)
def test_python_callers_read_the_names_they_wrote(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        LLM(**settings)
    assert caught.value.field == next(iter(settings))


def test_choices_of_flags_in_messages_become_values():
    with (
        pytest.raises(ConfigError, match=r"^device='cpu': no kernels; see --unknown, or device x$"),
        keywords_in_errors(),
    ):
        raise ConfigError("--device cpu: no kernels; see --unknown, or --device x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_model_length": 5}, "unknown setting 'max_model_length'; did you mean max_model_len"),
        ({"--num-kv-block": 5}, "did you mean num_kv_blocks"),
        ({"tensor_parallel_size_of_all": 5}, "unknown setting .*; known are model, "),
        ({"port": 8000}, "unknown setting 'port'"),  # the server's, not the engine's
        ({"max_num_seqs": "many"}, "max_num_seqs: expected int, got 'many'"),
        ({"max_num_seqs": True}, "max_num_seqs: expected int, got True"),
        ({"max_model_len": 1.5}, "max_model_len: expected int or None, got 1.5"),
        ({"enable_prefix_caching": 1}, "enable_prefix_caching: expected bool, got 1"),
        ({"max_num_seqs": 0}, "--max-num-seqs: expected at least 1, got 0"),
        ({"kv_cache_memory_bytes": "lots"}, "--kv-cache-memory-bytes: expected a size such as"),
        (
            {"num_kv_blocks": 4, "kv_cache_memory_bytes": "1G"},
            "--num-kv-blocks and --kv-cache-memory-bytes both",
        ),
    ],
)
def test_what_cannot_work_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        engine_config(settings)
