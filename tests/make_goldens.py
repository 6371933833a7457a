"""Makes tests/goldens/*.npz with transformers in float32: what Octavo's models are compared with.

    pip install torch transformers gguf tokenizers
    python tests/make_goldens.py tiny beams rope
    python tests/make_goldens.py default --model SmolLM2-135M-Instruct.Q4_1.gguf --text wikitext2_test.txt

beams: what beam search gives for prompts on the tiny model `llama`, in all combinations of golden_models.py; only
prompts on which float32 and float64 agree, so that no choice hangs on a rounding.
tiny: log-probabilities for every tiny model of golden_models.py. rope: frequencies of all scalings. default: the same
for the default model, its weights dequantised from the GGUF file, and its perplexity on 16 windows of 1,024 tokens.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from golden_models import (
    BEAM_ENDS,
    BEAM_PROMPTS,
    BEAM_RULES,
    BEAM_TOKENS,
    BEAM_WIDTHS,
    GGUF_MODELS,
    PROMPT_LENGTHS,
    ROPE_CASES,
    golden_sizes,
    make_golden_model,
)
from tiny_gguf import LAYER_NAMES, TOP_NAMES
from tiny_models import VARIANTS, hf_config

GOLDENS = Path(__file__).resolve().parent / "goldens"
TOP = 8
WINDOW, NUM_WINDOWS = 1024, 16
TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return",
    "<|im_start|>user\nExplain in three sentences how the octavo format of a book came about, and how many pages "
    "a sheet gives. Then add 17 and 25.<|im_end|>\n<|im_start|>assistant\n",
)


def log_probabilities(model: Any, token_ids: list[int]) -> np.ndarray:
    """float64 [T, V]."""
    with torch.no_grad():
        logits = model(torch.tensor([token_ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1).numpy()


def summary(model: Any, prompts: list[list[int]]) -> dict[str, np.ndarray]:
    """The prompts one after the other; for each position the best TOP, and the token that follows."""
    tops, top_values, following = [], [], []
    for prompt in prompts:
        values = log_probabilities(model, prompt)
        best = np.argsort(-values, axis=1, kind="stable")[:, :TOP]
        tops.append(best)
        top_values.append(np.take_along_axis(values, best, axis=1))
        following.append(values[np.arange(len(prompt) - 1), prompt[1:]])
    return {
        "tokens": np.concatenate(prompts).astype(np.uint16),
        "lengths": np.array([len(p) for p in prompts], np.uint16),
        "top_ids": np.concatenate(tops).astype(np.uint16),
        "top_logprobs": np.concatenate(top_values).astype(np.float32),
        "next_logprobs": np.concatenate(following).astype(np.float32),
    }


def hf_model(config: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    """A transformers model with exactly these weights."""
    config = {k: v for k, v in config.items() if k != "torch_dtype"}
    parsed = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(
        parsed, dtype=torch.float32, attn_implementation="eager"
    )
    if parsed.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model.eval()


def gguf_state(path: Path, heads: int, kv_heads: int) -> dict[str, torch.Tensor]:
    """A GGUF file's weights, dequantised, under transformers' names and in its order of rows."""
    reader = gguf.GGUFReader(path)
    permuted = reader.fields["general.architecture"].contents() == "llama"
    parts = {short: long for long, short in LAYER_NAMES.items()}
    top = {short: long for long, short in TOP_NAMES.items()}
    state = {}
    for tensor in reader.tensors:
        name = tensor.name
        if name == "rope_freqs.weight":
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if name.startswith("blk."):
            _, layer, part, kind = name.split(".")
            if permuted and part in ("attn_q", "attn_k"):
                pairs = (heads if part == "attn_q" else kv_heads, values.shape[0])
                shape = (pairs[0], pairs[1] // pairs[0] // 2, 2, *values.shape[1:])
                values = values.reshape(shape).swapaxes(1, 2).reshape(values.shape)
            name = f"model.layers.{layer}.{parts[part]}.{kind}"
        else:
            name = top[name]
        state[name] = torch.from_numpy(np.array(values, np.float32))
    return state


def make_tiny() -> None:
    result: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (*VARIANTS, *GGUF_MODELS):
            path = make_golden_model(Path(folder), name)
            sizes = golden_sizes(name)
            if name in GGUF_MODELS:
                model = hf_model(hf_config(sizes), gguf_state(path, sizes.heads, sizes.kv_heads))
            else:
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    path, dtype=torch.float32, attn_implementation="eager"
                ).eval()
            rng = np.random.default_rng(11)
            lengths = PROMPT_LENGTHS.get(name, PROMPT_LENGTHS[""])
            prompts = [rng.integers(3, sizes.vocab_size, n).tolist() for n in lengths]
            result |= {f"{name}/{k}": v for k, v in summary(model, prompts).items()}
            print(name, "mean log-probability", result[f"{name}/next_logprobs"].mean())
    np.savez_compressed(GOLDENS / "tiny.npz", **result)


def make_rope() -> None:
    result = {}
    for name, (config, seq_len) in ROPE_CASES.items():
        parsed = transformers.AutoConfig.for_model(**{**config, "model_type": "llama"})
        kind = parsed.rope_parameters["rope_type"]
        if kind == "default":
            function = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding
            frequencies, scale = function.compute_default_rope_parameters(parsed)
        else:
            frequencies, scale = ROPE_INIT_FUNCTIONS[kind](parsed, "cpu", seq_len=seq_len)
        result[f"{name}/inv_freq"] = frequencies.numpy()
        result[f"{name}/scale"] = np.float64(scale)
    np.savez_compressed(GOLDENS / "rope.npz", **result)


def search(
    model: Any, prompts: list[list[int]], width: int, rule: tuple[float, bool | str]
) -> list[tuple[list[list[int]], list[float]]]:
    """For each of `prompts`, equally long: outputs, best first, without the prompt; their scores."""
    with torch.no_grad():
        result = model.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.long),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=BEAM_TOKENS,
            do_sample=False,
            length_penalty=rule[0],
            early_stopping=rule[1],
            eos_token_id=list(BEAM_ENDS),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
    outputs = []
    for row in result.sequences[:, len(prompts[0]) :].tolist():
        end = next((i for i, token in enumerate(row) if token in BEAM_ENDS), len(row) - 1)
        outputs.append(row[: end + 1])
    scores = result.sequences_scores.tolist()
    return [(outputs[i : i + width], scores[i : i + width]) for i in range(0, len(outputs), width)]


def make_beams() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = make_golden_model(Path(folder), "llama")
        load = transformers.AutoModelForCausalLM.from_pretrained
        single, double = (
            load(path, dtype=dtype, attn_implementation="eager").eval()
            for dtype in (torch.float32, torch.float64)
        )
    rng = np.random.default_rng(23)
    cases = [(width, rule) for rule in BEAM_RULES for width in BEAM_WIDTHS]
    kept: list[list[int]] = []
    outputs: list[list[int]] = []
    scores: list[float] = []
    for length, num in BEAM_PROMPTS:
        prompts = rng.integers(3, 500, (num + 4, length)).tolist()
        found = [search(single, prompts, *case) for case in cases]
        again = [search(double, prompts, *case) for case in cases]
        agree = [
            i for i in range(len(prompts))
            if all(f[i][0] == a[i][0] for f, a in zip(found, again, strict=True))
        ]  # fmt: skip
        print(length, "tokens:", len(agree), "of", len(prompts), "prompts agree", flush=True)
        for i in agree[:num]:
            kept.append(prompts[i])
            for each in found:
                outputs += each[i][0]
                scores += each[i][1]
    assert len(kept) == sum(num for _, num in BEAM_PROMPTS)
    np.savez_compressed(
        GOLDENS / "beams.npz",
        prompts=np.concatenate(kept).astype(np.uint16),
        prompt_lengths=np.array([len(p) for p in kept], np.uint8),
        tokens=np.concatenate(outputs).astype(np.uint16),
        lengths=np.array([len(o) for o in outputs], np.uint8),
        scores=np.array(scores, np.float32),
    )


def default_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """SmolLM2's: byte-level BPE, digits one by one."""
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
        if kind == 3
    ]
    tokenizer.add_special_tokens(special)
    return tokenizer


def default_config(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        "tie_word_embeddings": True,
    }


def make_default(path: Path, text_path: Path) -> None:
    meta = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    config = default_config(meta)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    model = hf_model(config, gguf_state(path, heads, kv_heads))
    tokenizer = default_tokenizer(meta)
    text = text_path.read_text(encoding="utf-8")
    wikitext = tokenizer.encode(text[:200_000]).ids[: WINDOW * NUM_WINDOWS]
    prompts = [tokenizer.encode(t).ids for t in TEXTS] + [wikitext[:100]]
    result = summary(model, prompts)
    windows = np.array(wikitext, np.uint16).reshape(NUM_WINDOWS, WINDOW)
    losses = []
    for window in windows.tolist():
        values = log_probabilities(model, window)
        losses.append(-values[np.arange(WINDOW - 1), window[1:]].sum())
        print("window", len(losses), "perplexity", np.exp(losses[-1] / (WINDOW - 1)))
    print("perplexity", np.exp(sum(losses) / (NUM_WINDOWS * (WINDOW - 1))))
    np.savez_compressed(
        GOLDENS / "default.npz", **result, wikitext_tokens=windows, wikitext_nll=np.array(losses)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="+", choices=("tiny", "beams", "rope", "default"))
    parser.add_argument("--model", type=Path, help="the default model's GGUF file")
    parser.add_argument("--text", type=Path, help="wikitext2_test.txt")
    arguments = parser.parse_args()
    GOLDENS.mkdir(exist_ok=True)
    if "tiny" in arguments.what:
        make_tiny()
    if "beams" in arguments.what:
        make_beams()
    if "rope" in arguments.what:
        make_rope()
    if "default" in arguments.what:
        if arguments.model is None or arguments.text is None:
            parser.error("default needs --model and --text")
        make_default(arguments.model, arguments.text)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, np)}
    (GOLDENS / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
