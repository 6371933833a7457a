"""The composition root: the one place where an engine meets a runner, a model and its files."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config import CacheConfig, EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.limits import EngineLimits
from octavo.errors import ConfigError, RequestError
from octavo.kv.contiguous import ContiguousKV
from octavo.kv.manager import KVManager
from octavo.llm.tiers import Tiers, host_blocks, make_tiers
from octavo.models.catalog import find_alias
from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.decoder import Model
from octavo.models.fetch import resolve_model
from octavo.models.formats import FLOAT_FORMATS
from octavo.models.loader import check_max_model_len, load_model
from octavo.models.packed_key import packed_copy_of
from octavo.ops.base import Ops
from octavo.ops.select import make_ops
from octavo.request import SamplingParams
from octavo.runner.host_memory import available_bytes
from octavo.runner.kv_size import Demand, KVSize, human, size_kv
from octavo.runner.kv_storage import KVShape
from octavo.runner.model_runner import ModelRunner
from octavo.sched.scheduler import Scheduler
from octavo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.text.chat_template import ChatTemplate

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

# Bytes of a weight once it is loaded, by --quantization (groups of 32 with their scales).
_QUANTIZED_BYTES = {"q8": 1.125, "q4": 0.75}


@dataclass(frozen=True, kw_only=True)
class Built:
    """An engine ready to step, and what its callers need to know of it.

    `model_names`: in the API, the canonical one first. `default_sampling`: the author's defaults.
    `chat_template`: --chat-template's, else the model's, else None.
    """

    config: EngineConfig
    core: EngineCore
    limits: EngineLimits
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    default_sampling: SamplingParams
    model_names: tuple[str, ...]
    checkpoint: Checkpoint
    ops: Ops
    model: Model
    kv_size: KVSize


def build(
    config: EngineConfig, progress: Progress | None = None, like: Built | None = None
) -> Built:
    """Find the model, settle the KV memory, load the weights. Raises ConfigError or ModelError.

    `progress(done, total)` is called as weights are loaded. `like`: an engine of the same model and
    device, with requests at least as long; its weights are used, and nothing is loaded.
    """
    path = resolve_model(config.model.model)
    checkpoint = like.checkpoint if like else open_checkpoint(path)
    tokenizer = like.tokenizer if like else load_tokenizer(checkpoint)
    chat_template = _chat_template(config, tokenizer)
    ops = like.ops if like else _ops(config, checkpoint)
    weight_bytes = 0 if like else _weight_bytes(config, checkpoint, ops)
    kv_size = _size_kv(config, checkpoint, available_bytes() - weight_bytes)
    log.info(
        "%s: %s, %d layers, weights %s; %s, %d threads",
        path.name,
        checkpoint.spec.architecture,
        checkpoint.spec.num_layers,
        human(checkpoint.size_bytes),
        "numpy reference (slow)" if ops.name == "reference" else ops.name,
        config.device.num_threads,
    )
    log.info("%s", kv_size)
    model = like.model if like else _load(config, checkpoint, ops, kv_size, progress)
    names = _names(config, path)
    tiers = make_tiers(config, checkpoint, kv_size, ops, names[0])
    kv = _manager(config.cache, kv_size, tiers)
    spec = checkpoint.spec
    scheduler = Scheduler(
        config.scheduler, kv, kv_size.max_model_len, spec.kv_window, spec.attention_weight
    )
    return Built(
        config=config,
        core=EngineCore(scheduler, ModelRunner(model, ops, tiers.storage), time.monotonic),
        limits=_limits(config, checkpoint, kv_size),
        tokenizer=tokenizer,
        chat_template=chat_template,
        default_sampling=default_sampling(config, checkpoint),
        model_names=names,
        checkpoint=checkpoint,
        ops=ops,
        model=model,
        kv_size=kv_size,
    )


def _ops(config: EngineConfig, checkpoint: Checkpoint) -> Ops:
    # With quantised weights activations are rounded to 8 bits anyway; float models stay exact.
    is_float = all(w.type in FLOAT_FORMATS for w in checkpoint.tensors.values())
    is_quantized = config.model.quantization is not None or not is_float
    may_round = is_quantized and config.model.dtype != "float32"
    return make_ops(config.device.device, config.device.num_threads, may_round)


def _load(
    config: EngineConfig,
    checkpoint: Checkpoint,
    ops: Ops,
    kv_size: KVSize,
    progress: Progress | None,
) -> Model:
    packed = None
    if config.model.packed_cache:
        packed = packed_copy_of(checkpoint, ops, config.model, config.device.num_threads)
    return load_model(
        checkpoint,
        ops,
        dtype=config.model.dtype,
        quantization=config.model.quantization,
        max_model_len=kv_size.max_model_len,
        progress=progress,
        packed=packed,
    )


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's tokenizer; what its files say about ends of text is put together."""
    if checkpoint.directory is not None:
        from octavo.text.hf_tokenizer import load_hf_tokenizer

        tokenizer = load_hf_tokenizer(checkpoint.directory)
    else:
        from octavo.text.gguf_tokenizer import gguf_tokenizer

        tokenizer = gguf_tokenizer(checkpoint.gguf_metadata or {})
    ends = (*tokenizer.eos_token_ids, *checkpoint.eos_token_ids)
    tokenizer.eos_token_ids = tuple(dict.fromkeys(ends))
    return tokenizer


def default_sampling(config: EngineConfig, checkpoint: Checkpoint) -> SamplingParams:
    """The author's defaults: those in the model's files, over those that the catalog knows of.

    One that is out of the API's range is left out, and that is said.
    """
    given = config.model.model
    entry = None if Path(given).exists() else find_alias(given)
    params = SamplingParams()
    values = {**(entry.sampling if entry else {}), **checkpoint.generation_config}
    for name, value in values.items():
        change: dict[str, Any] = {name: int(value) if name == "top_k" else value}
        try:
            params = dataclasses.replace(params, **change)
        except RequestError as error:
            log.warning("the model's own default is not used: %s", error)
    return params


def _manager(cache: CacheConfig, kv_size: KVSize, tiers: Tiers) -> KVManager:
    if cache.is_contiguous:
        return ContiguousKV(
            kv_size.num_blocks, cache.block_size, cache.kv_allocator, kv_size.max_model_len
        )
    kv = KVManager(
        kv_size.num_blocks,
        cache.block_size,
        cache.enable_prefix_caching,
        match_tokens=cache.prefix_match == "token",
        num_host_blocks=tiers.num_host_blocks,
        num_disk_blocks=tiers.num_disk_blocks,
    )
    kv.memory.restore(tiers.on_disk)
    return kv


def _limits(config: EngineConfig, checkpoint: Checkpoint, kv_size: KVSize) -> EngineLimits:
    runs = kv_size.num_blocks // -(-kv_size.max_model_len // config.cache.block_size)
    return EngineLimits(
        max_model_len=kv_size.max_model_len,
        num_kv_blocks=kv_size.num_blocks,
        block_size=config.cache.block_size,
        max_num_seqs=config.scheduler.max_num_seqs,
        vocab_size=checkpoint.spec.vocab_size,
        max_num_queued_reqs=config.scheduler.max_num_queued_reqs,
        max_choices=runs if config.cache.is_contiguous else None,
    )


def _size_kv(config: EngineConfig, checkpoint: Checkpoint, free_bytes: int) -> KVSize:
    spec, cache, asked = checkpoint.spec, config.cache, config.model.max_model_len
    if asked is not None:
        check_max_model_len(spec, asked)
    shape = KVShape(
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        block_size=cache.block_size,
        dtype="float16" if cache.kv_cache_dtype == "auto" else cache.kv_cache_dtype,
    )
    host_bytes = host_blocks(cache, shape) * shape.block_bytes
    demand = Demand(
        longest=spec.max_position,
        max_model_len=asked,
        max_num_seqs=config.scheduler.max_num_seqs,
        free_bytes=free_bytes - host_bytes,
    )
    return size_kv(shape, cache, demand)


def _weight_bytes(config: EngineConfig, checkpoint: Checkpoint, ops: Ops) -> int:
    """Memory that the loaded weights will take, about."""
    num_weights = sum(math.prod(w.shape) for w in checkpoint.tensors.values())
    if config.model.dtype == "float32" or ops.name == "reference":
        return 4 * num_weights
    if config.model.quantization is not None:
        return int(_QUANTIZED_BYTES[config.model.quantization] * num_weights)
    return checkpoint.size_bytes


def _chat_template(config: EngineConfig, tokenizer: Tokenizer) -> ChatTemplate | None:
    if config.model.chat_template is None:
        return tokenizer.chat_template
    from octavo.text.chat_template import ChatTemplate

    path = Path(config.model.chat_template)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--chat-template: expected a text file with a Jinja template, got {path}: {error}",
            "chat_template",
        ) from None
    bos = tokenizer.bos_token_id
    eos = tokenizer.eos_token_ids
    return ChatTemplate(
        source,
        bos_token="" if bos is None else tokenizer.token_text(bos),
        eos_token=tokenizer.token_text(eos[0]) if eos else "",
    )


def _names(config: EngineConfig, path: Path) -> tuple[str, ...]:
    """The name to serve under, then what else the model may be called in requests."""
    if config.model.served_model_name:
        return (config.model.served_model_name,)
    given = config.model.model
    short = (path.stem if path.suffix == ".gguf" else path.name) if Path(given).exists() else given
    return tuple(dict.fromkeys((short, given)))
