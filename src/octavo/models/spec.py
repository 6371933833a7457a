"""What a model is, whatever file described it: sizes, rotary embedding, which optional parts it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import MalformedModelError

ROPE_KINDS = ("none", "linear", "dynamic", "yarn", "llama3")

HF_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""`architectures` of config.json -> family."""

GGUF_ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""`general.architecture` of a GGUF file -> family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding.

    `theta`: base of the frequencies. `rotary_dim`: the first so many dimensions of a head turn.
    `interleaved`: pairs are (2i, 2i+1), else (i, i + rotary_dim/2). `kind`: none, linear, dynamic (NTK),
    yarn or llama3; the fields below belong to the kinds that use them. `original_max_position`: context
    length of training, before it was stretched by `factor`. `attention_factor` multiplies cos and sin (yarn; already
    resolved). `freq_factors`: rotary_dim/2 divisors of the frequencies, as GGUF files carry for llama3.
    """

    theta: float
    rotary_dim: int
    interleaved: bool
    kind: str = "none"
    factor: float = 1.0
    original_max_position: int = 0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    freq_factors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One decoder-only model. Sizes in elements, `max_position` in tokens.

    family: llama, qwen2 or qwen3 (which model file runs it); architecture: the name as found. qk_norm: RMSNorm of each
    head of q and k. tied_embeddings: the output matrix is the embedding table. sliding_window: tokens that a
    query sees, itself included, in all layers but full_attention_layers (numbers from 0); None: every query sees all.
    Raises MalformedModelError if the sizes do not fit each other.
    """

    family: str
    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_eps: float
    max_position: int
    rope: RopeSpec
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied_embeddings: bool = False
    sliding_window: int | None = None
    full_attention_layers: frozenset[int] = frozenset()
    source: str = field(default="model", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise MalformedModelError(
                f"{self.source}: expected query heads in equal groups per key/value head, "
                f"got {self.num_heads} heads and {self.num_kv_heads} key/value heads"
            )
        rope = self.rope
        if rope.rotary_dim % 2 or not 2 <= rope.rotary_dim <= self.head_dim:
            raise MalformedModelError(
                f"{self.source}: expected an even number of rotary dimensions from 2 to the head size "
                f"{self.head_dim}, got {rope.rotary_dim}"
            )
        if rope.freq_factors is not None and len(rope.freq_factors) != rope.rotary_dim // 2:
            raise MalformedModelError(
                f"{self.source}: expected {rope.rotary_dim // 2} rope frequency factors, "
                f"got {len(rope.freq_factors)}"
            )
        if rope.kind == "llama3" and rope.low_freq_factor >= rope.high_freq_factor:
            raise MalformedModelError(
                f"{self.source}: expected low_freq_factor below high_freq_factor, "
                f"got {rope.low_freq_factor:g} and {rope.high_freq_factor:g}"
            )

    def window_of(self, layer: int) -> int | None:
        """Tokens that a query of that layer sees, itself included; None: all."""
        return None if layer in self.full_attention_layers else self.sliding_window

    @property
    def kv_window(self) -> int | None:
        """The query at position p needs keys and values from position p - kv_window + 1 on; None: from 0 on."""
        return None if self.full_attention_layers else self.sliding_window

    @property
    def q_size(self) -> int:
        """Outputs of q_proj: query heads times head size."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Outputs of k_proj and of v_proj: key/value heads times head size."""
        return self.num_kv_heads * self.head_dim

    @property
    def attention_weight(self) -> float:
        """Multiplications of a token's attention to one other, as a part of those with the weights of the layers."""
        projections = self.hidden_size * (2 * self.q_size + 2 * self.kv_size)
        return 2 * self.q_size / (projections + 3 * self.hidden_size * self.intermediate_size)
