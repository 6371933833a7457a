"""Qwen2 and Qwen2.5: Llama's layer with biases on q, k and v, which `spec.qkv_bias` tells."""

from __future__ import annotations

from octavo.models.llama import load_layer

__all__ = ["load_layer"]
