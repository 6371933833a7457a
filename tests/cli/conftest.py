from __future__ import annotations

from pathlib import Path

import pytest

from tiny_models import make_hf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 512 tokens of context with a tokenizer and a chat template."""
    return make_hf(tmp_path_factory.mktemp("models") / "tiny-llama", "llama")
