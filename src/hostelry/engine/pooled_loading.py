"""Loading of encoders, and of the parts that pool the hidden states of decoders."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.engine.config import EngineConfig, PooledTask, computing_dtype
from hostelry.engine.deps import EngineDeps
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.loader import AdapterLoader
from hostelry.engine.lora.store import AdapterStore, StoreLimits
from hostelry.engine.lora.uploads import PoolUploader
from hostelry.engine.models.encoder_spec import EncoderFamily, read_encoder_spec
from hostelry.engine.models.encoder_tensors import load_encoder
from hostelry.engine.models.pooling_files import PoolingSpec
from hostelry.engine.models.spec import TORCH_DTYPES, UnsupportedModelError
from hostelry.engine.pooling.encoder import TorchEncoder
from hostelry.engine.pooling.pooler import DECODER_MODES, DecoderPooler, EncoderPooler, NoDecoder
from hostelry.engine.pooling.reduce import load_dense
from hostelry.engine.sampling.structure_compiler import StructureCompiler

ENCODER_BATCH_TOKENS = 8192
ENCODER_BATCH_SIZE = 256


def load_encoder_deps(
    folder: Path,
    raw: Mapping[str, Any],
    pooling: PoolingSpec,
    family: EncoderFamily,
    config: EngineConfig,
    clock: Clock,
) -> EngineDeps:
    """Load the encoder in `folder`, whose parsed config.json is `raw`.

    Its pages hold no keys and values: they only count the tokens of a step. Raises
    UnsupportedModelError for the folder, ValueError for a setting.
    """
    _check_pooled_settings(config)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stored = read_encoder_spec(raw, family, pooling.name)
    dtype_name, warning = computing_dtype(
        config.dtype,
        stored.dtype,
        on_cpu=device.type == "cpu",
        has_fast_bf16=bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    )
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads or len(os.sched_getaffinity(0)))
    longest = get_pooled_max_len(stored.max_model_len, pooling, config)
    spec = replace(stored, dtype=dtype_name, max_model_len=longest + 1)
    config = replace(
        config,
        max_batch_size=max(config.max_batch_size, ENCODER_BATCH_SIZE),
        max_batched_tokens=max(config.step_tokens, ENCODER_BATCH_TOKENS, longest),
        max_waiting=max(config.max_waiting, config.pooled.max_waiting),
        prefix_cache=False,
    )
    dtype = TORCH_DTYPES[dtype_name]
    with torch.inference_mode():
        weights = load_encoder(
            folder, spec, num_labels=pooling.facts.dimension, dtype=dtype, device=device
        )
        pooler = EncoderPooler(
            TorchEncoder(spec, weights),
            pooling.modes,
            load_dense(pooling.dense, device),
            has_head=spec.has_head,
            max_tokens=config.step_tokens,
        )
    pages = config.max_batch_size * math.ceil((longest + 1) / config.page_tokens)
    layout = PoolLayout(
        num_layers=1, num_kv_heads=1, head_dim=1, page_tokens=config.page_tokens, dtype=dtype
    )
    pool = PoolTensor(layout, pages, torch.device("cpu"))
    placer = PoolUploader(pool)
    store = AdapterStore(
        AdapterLoader(NoAdapters(), clock), placer, clock, StoreLimits(host_bytes=1)
    )
    return EngineDeps(
        spec=spec,
        decoder=NoDecoder(),
        pool=pool,
        store=store,
        placer=placer,
        structures=StructureCompiler(folder, vocab_size=spec.vocab_size, end_token_ids=()),
        min_adapter_pages=0,
        kernels="torch",
        warnings=() if warning is None else (warning,),
        pooling=pooling.facts,
        pooler=pooler,
        config=config,
    )


def build_decoder_pooler(decoder: Decoder, pool: PoolTensor, pooling: PoolingSpec) -> DecoderPooler:
    """The pooler of a decoder's hidden states. Raises UnsupportedModelError for its files."""
    dense = load_dense(pooling.dense, pool.elements.device)
    return DecoderPooler(decoder, pool, dense, is_mean=pooling.modes == ("mean",))


def get_pooled_decoder_config(pooling: PoolingSpec, config: EngineConfig) -> EngineConfig:
    """The settings of a pooled decoder: torch kernels, and no prefix cache if all tokens count.

    Raises UnsupportedModelError for a pooling mode that needs another order of tokens.
    """
    _check_pooled_settings(config)
    if len(pooling.modes) != 1 or pooling.modes[0] not in DECODER_MODES:
        raise UnsupportedModelError(
            f"pooling {', '.join(pooling.modes)} is not supported for decoders; "
            f"{' and '.join(DECODER_MODES)} are"
        )
    is_mean = pooling.modes == ("mean",)
    return replace(
        config,
        kernels="torch",
        max_waiting=max(config.max_waiting, config.pooled.max_waiting),
        prefix_cache=config.prefix_cache and not is_mean,
        pooled=PooledTask(task=pooling.facts.kind),
    )


def get_pooled_max_len(model_len: int, pooling: PoolingSpec, config: EngineConfig) -> int:
    """The most tokens of a text. Raises ValueError for a setting above the model's."""
    own = min(model_len, pooling.max_len or model_len)
    asked = config.max_model_len
    if asked is not None and asked > model_len:
        raise ValueError(f"max_model_len is {asked}; the model has {model_len} positions")
    return asked or own


def _check_pooled_settings(config: EngineConfig) -> None:
    """Raise ValueError for settings that models with vectors do not have."""
    if config.tensor_parallel > 1 or config.weight_dtype == "int8" or config.kernels == "native":
        raise ValueError(
            f"tensor_parallel is {config.tensor_parallel}, weight_dtype {config.weight_dtype} and "
            f"kernels {config.kernels}; a model that is pooled is computed by torch, on one rank "
            "and in its own dtype"
        )


class NoAdapters:
    """The reader of adapters for a model that takes none."""

    max_folder_bytes = 0
    form_name = "none"

    def read(self, folder: Path) -> HostAdapter:
        """Raise AdapterError."""
        raise AdapterError("adapters of encoders are not supported; merge it into the model")

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        """Raise AdapterError."""
        raise AdapterError("an encoder has no adapters")

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        """Raise AdapterError."""
        raise AdapterError("an encoder has no adapters")
