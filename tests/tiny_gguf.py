"""Writes the tiny models of tiny_models.py as GGUF files, the way llama.cpp's converter lays them out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from tiny_tokenizer import CHAT_TEMPLATE, EOS_ID, gguf_vocabulary

if TYPE_CHECKING:
    from tiny_models import F32, Sizes

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str) -> str:
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[part]}.{kind}"


def interleave(rows: F32, heads: int) -> F32:
    """Rows of q or k from pairs (i, i + D/2), as Hugging Face has them, to pairs (2i, 2i + 1)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def random_k_blocks(shape: tuple[int, ...], qtype: str, std: float, seed: int) -> Any:
    """Valid random blocks of a K type, uint8 [rows, bytes], whose numbers have that standard deviation."""
    kind = gguf.GGMLQuantizationType[qtype]
    block, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = math.prod(shape) // block
    blocks = np.random.default_rng(seed).integers(0, 256, (count, num_bytes), np.uint8)

    def set_scales(scale: float) -> None:
        if qtype == "Q6_K":
            blocks[:, 208:] = np.array([scale], np.float16).view(np.uint8)
        else:  # value = d * scale * q - dmin * min: centred for the middle q
            middle = 7.5 if qtype == "Q4_K" else 15.5
            blocks[:, :4] = np.array([scale, scale * middle], np.float16).view(np.uint8)

    set_scales(1.0)
    set_scales(std / float(gguf.quants.dequantize(blocks, kind).std()))
    return blocks.reshape(*shape[:-1], -1)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: F32, qtype: str) -> None:
    kind = gguf.GGMLQuantizationType[qtype]
    if qtype.endswith("_K"):
        seed = int(abs(float(values.flat[0])) * 1e6)
        data = random_k_blocks(values.shape, qtype, float(values.std()), seed)
    else:
        data = gguf.quants.quantize(values, kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def write_gguf(path: Path, sizes: Sizes, weights: dict[str, F32], qtype: str) -> None:
    s = sizes
    writer = gguf.GGUFWriter(str(path), ARCHITECTURES[s.family])
    add_settings(writer, s)
    add_vocabulary(writer, s.vocab_size)
    if s.rope and s.rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(s))
    floats = qtype in ("F32", "F16", "BF16")
    for name, values in weights.items():
        if ARCHITECTURES[s.family] == "llama" and ".q_proj." in name:
            values = interleave(values, s.heads)
        if ARCHITECTURES[s.family] == "llama" and ".k_proj." in name:
            values = interleave(values, s.kv_heads)
        vocab = name in ("model.embed_tokens.weight", "lm_head.weight")
        matrix_type = "Q8_0" if vocab and not floats else qtype
        add_tensor(writer, gguf_name(name), values, "F32" if values.ndim == 1 else matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_settings(writer: gguf.GGUFWriter, s: Sizes) -> None:
    writer.add_name(f"tiny {s.family}")
    writer.add_block_count(s.layers)
    writer.add_context_length(s.max_position)
    writer.add_embedding_length(s.hidden)
    writer.add_feed_forward_length(s.ffn)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.dim)
    writer.add_value_length(s.dim)
    writer.add_layer_norm_rms_eps(s.eps)
    writer.add_vocab_size(s.vocab_size)
    writer.add_rope_dimension_count(s.dim)
    writer.add_rope_freq_base(s.theta)
    if s.sliding_window is not None:
        writer.add_sliding_window(s.sliding_window)
    rope = s.rope or {"rope_type": "default"}
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind not in ("default", "llama3"):
        raise ValueError(f"GGUF files have no rope scaling {kind!r}")


def add_vocabulary(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    tokens, types, merges = gguf_vocabulary(vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(EOS_ID)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def llama3_factors(s: Sizes) -> F32:
    """Divisors of the rotary frequencies that are llama3's scaling: 1 for fast pairs, `factor` for slow ones."""
    rope = s.rope or {}
    frequencies = s.theta ** -(np.arange(0, s.dim, 2, dtype=np.float64) / s.dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    span = rope["high_freq_factor"] - rope["low_freq_factor"]
    kept = np.clip((turns - rope["low_freq_factor"]) / span, 0.0, 1.0)
    return (1.0 / (kept + (1.0 - kept) / rope["factor"])).astype(np.float32)
