"""Loading of a model folder into the dependencies of an engine."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.engine.config import EngineConfig, computing_dtype
from hostelry.engine.deps import EngineDeps
from hostelry.engine.fused_adapter import Merge, MergedDecoder
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.native.decoder import NativeDecoder
from hostelry.engine.kernels.native.library import why_unavailable
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import check_divides
from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.disk_cache import DiskCache
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.layout import AdapterRanks, plan_layout
from hostelry.engine.lora.loader import AdapterLoader, FolderReader
from hostelry.engine.lora.merge import AdapterMerge
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.share import count_share_pages
from hostelry.engine.lora.sources import Fetcher
from hostelry.engine.lora.store import AdapterStore, StoreLimits
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.lora.uploads import Placer, PoolUploader
from hostelry.engine.models.pooling_files import PoolingSpec, read_pooling, to_decoder_config
from hostelry.engine.models.registry import load_decoder, load_spec, parse_spec, read_config
from hostelry.engine.models.spec import TORCH_DTYPES, ModelSpec
from hostelry.engine.pooled_loading import (
    build_decoder_pooler,
    get_pooled_decoder_config,
    get_pooled_max_len,
    load_encoder_deps,
)
from hostelry.engine.runner.follower import FollowerJob
from hostelry.engine.runner.graphs import (
    GraphedDecoder,
    GraphLimits,
    build_cuda_decoder,
    choose_cuda_kernels,
)
from hostelry.engine.runner.leader import Leader, start_leader
from hostelry.engine.sampling.structure_compiler import StructureCompiler
from hostelry.engine.scheduler.decisions import SchedulerLimits

_CPU_POOL_SHARE = 1 / 8
_GPU_POOL_SHARE = 0.85  # of the memory left by the weights. The rest is for activations
_HOST_SHARE = 1 / 32
_MAX_SCORED_BYTES = 128 << 20  # of the logits of scored rows in one step


class _ComputeDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The decoder, its pool and the reader of its adapters. `leader` is set with several ranks."""

    decoder: Decoder
    pool: PoolTensor
    reader: FolderReader
    placer: Placer
    leader: Leader | None = None
    merge: Merge | None = None


def load_deps(
    folder: Path, config: EngineConfig, fetchers: Mapping[str, Fetcher], clock: Clock
) -> EngineDeps:
    """Load the model in `folder` as `config` asks.

    Raises UnsupportedModelError or ValueError, and ParallelError if another rank cannot load its
    part.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    raw = read_config(folder)
    pooling = read_pooling(folder, raw, config.pooled)
    if pooling is not None and config.fuse_adapter is not None:
        raise ValueError(
            f"fuse_adapter is {config.fuse_adapter}, and the model gives vectors; adapters are "
            "merged where text is generated: leave it out"
        )
    if pooling is not None and pooling.family is not None:
        return load_encoder_deps(folder, raw, pooling, pooling.family, config, clock)
    if pooling is not None:
        config = get_pooled_decoder_config(pooling, config)
    stored = load_spec(folder) if pooling is None else parse_spec(to_decoder_config(raw), {})
    dtype_name, dtype_warning = computing_dtype(
        config.dtype,
        stored.dtype,
        on_cpu=device.type == "cpu",
        has_fast_bf16=bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    )
    dtype = TORCH_DTYPES[dtype_name]
    spec = replace(stored, dtype=dtype_name, max_model_len=_get_max_len(stored, config, pooling))
    kernels, kernels_warning = _choose_kernels(config, device)
    layout = PoolLayout(
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        page_tokens=config.page_tokens,
        dtype=dtype,
    )
    if config.tensor_parallel > 1:
        core = _load_shared_core(folder, spec, config, layout, device, kernels)
    else:
        facts = None if pooling is None else pooling.facts
        with torch.inference_mode():
            weights = load_decoder(
                folder,
                spec,
                max_len=spec.max_model_len,
                dtype=dtype,
                device=device,
                pooling=facts,
            )
        core = _load_core(folder, spec, weights, config, layout, kernels, clock)
    try:
        return EngineDeps(
            spec=spec,
            decoder=core.decoder,
            pool=core.pool,
            store=_build_store(core, config, fetchers, clock),
            placer=core.placer,
            min_adapter_pages=_count_padded_pages(spec, config, core.pool.layout),
            structures=StructureCompiler(
                folder, vocab_size=spec.vocab_size, end_token_ids=spec.eos_token_ids
            ),
            kernels=kernels,
            warnings=tuple(it for it in (dtype_warning, kernels_warning) if it is not None),
            leader=core.leader,
            pooling=None if pooling is None else pooling.facts,
            pooler=None
            if pooling is None
            else build_decoder_pooler(core.decoder, core.pool, pooling),
            config=config,
            merge=core.merge,
        )
    except BaseException:
        if core.leader is not None:
            core.leader.close()
        raise


def _load_core(
    folder: Path,
    spec: ModelSpec,
    weights: DecoderWeights,
    config: EngineConfig,
    layout: PoolLayout,
    kernels: str,
    clock: Clock,
) -> _ComputeDeps:
    """The whole model in this process."""
    device = weights.embedding_VH.device
    is_fused = config.fuse_adapter is not None
    with torch.inference_mode():
        if is_fused and kernels != "native":  # read once, so that unchanged layers are shared
            layers = [weights.layer(index) for index in range(weights.num_layers)]
            weights = replace(weights, layer=layers.__getitem__)
        decoder = _build_decoder(weights, config, kernels, clock)
    reserved_bytes = _count_merged_bytes(spec, layout.dtype) if is_fused else 0
    if isinstance(decoder, GraphedDecoder):
        reserved_bytes += decoder.max_graph_bytes
    share_bytes = _pool_share(device, reserved_bytes)
    pool = PoolTensor(layout, _count_pages(spec, config, layout, share_bytes), device)
    if isinstance(decoder, GraphedDecoder):
        decoder.prepare(pool)
    reader = _build_adapter_reader(folder, spec, weights, config, layout)

    def merge(adapter: HostAdapter) -> MergedDecoder:
        merging = AdapterMerge(weights, adapter)
        merged = merging.weights()
        if isinstance(decoder, NativeDecoder):
            native = decoder.derive(merged, merging.changed)
            return MergedDecoder(native, native.num_bytes)
        return MergedDecoder(_build_decoder(merged, config, kernels, clock), merging.num_bytes)

    return _ComputeDeps(
        decoder=decoder,
        pool=pool,
        reader=reader,
        placer=PoolUploader(pool),
        merge=merge if is_fused else None,
    )


def _count_merged_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Bytes of all weights that an adapter can change."""
    targets = decoder_targets(spec)
    modules = (*targets.linears, targets.embedding, targets.lm_head)
    return sum(it.in_features * it.out_features for it in modules) * dtype.itemsize


def _load_shared_core(
    folder: Path,
    spec: ModelSpec,
    config: EngineConfig,
    layout: PoolLayout,
    device: torch.device,
    kernels: str,
) -> _ComputeDeps:
    """Load this process' part of the model, and start the processes that load the others."""
    world_size = config.tensor_parallel
    check_divides(
        world_size,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        intermediate_size=spec.intermediate_size,
    )
    num_threads = max(1, (config.num_threads or len(os.sched_getaffinity(0))) // world_size)
    job = FollowerJob(
        folder=str(folder.absolute()),
        dtype=spec.dtype,
        max_len=spec.max_model_len,
        page_tokens=config.page_tokens,
        num_pages=_count_pages(
            spec, config, layout, _shared_pool_share(folder, layout, device, world_size)
        ),
        init_method="",
        rank=0,
        world_size=world_size,
        adapters=_get_adapter_rules(config),
        base_names=config.base_names or _read_stored_names(folder),
        num_threads=num_threads,
        kernels=kernels,
    )
    torch.set_num_threads(num_threads)
    leader = start_leader(job, _list_devices(device, world_size))
    return _ComputeDeps(
        decoder=leader, pool=leader.pool, reader=leader.reader, placer=leader, leader=leader
    )


def _list_devices(device: torch.device, world_size: int) -> list[str]:
    """A device for each rank. Raises ValueError if there are too few GPUs."""
    if device.type == "cpu":
        return ["cpu"] * world_size
    if torch.cuda.device_count() < world_size:
        raise ValueError(
            f"tensor_parallel is {world_size}; this machine has {torch.cuda.device_count()} GPUs, "
            "and each rank needs one"
        )
    return [f"cuda:{rank}" for rank in range(world_size)]


def _choose_kernels(config: EngineConfig, device: torch.device) -> tuple[str, str | None]:
    """Choose the kernels. Returns their name, and a warning if faster ones are missing.

    Raises ValueError for kernels that the settings name and that are not available.

        device  tensor_parallel > 1  kernels      native built  result
        ------  -------------------  -----------  ------------  -------------------------------
        cpu     no                   auto         yes           native
        cpu     no                   auto, torch  no            torch, with a warning
        cpu     no                   torch        yes           torch
        cpu     -                    native       no            ValueError
        cpu     yes                  auto, torch  -             torch, with a warning
        cuda    no                   auto         -             triton, or torch with a warning
        cuda    no                   torch        -             torch
        cuda    yes                  auto         -             the same, with a warning
        cuda    yes                  torch        -             torch
        cuda    -                    native       -             ValueError

    Weights of int8 need native kernels: ValueError with torch's on one rank, and on CUDA.
    """
    if device.type != "cpu":
        if config.kernels == "native" or config.weight_dtype == "int8":
            raise ValueError(
                f"kernels is {config.kernels} and weight_dtype {config.weight_dtype}; native "
                f"kernels and int8 weights are for CPUs, this engine computes on {device.type}"
            )
        if config.kernels == "torch":
            return "torch", None
        kernels, warning = choose_cuda_kernels(device)
        if config.tensor_parallel > 1 and kernels == "triton":
            warning = "steps of several ranks are launched kernel by kernel, without graphs"
        return kernels, warning
    reason = why_unavailable()
    if config.kernels == "native" and reason is not None:
        raise ValueError(f"kernels is native, but {reason}")
    if config.tensor_parallel > 1:
        return "torch", (
            f"steps are computed by torch, several times slower, as tensor_parallel is "
            f"{config.tensor_parallel} and native kernels are for one rank"
        )
    if config.kernels == "torch" or reason is not None:
        if config.weight_dtype == "int8":
            raise ValueError(
                f"weight_dtype is int8, which needs native kernels; {reason or 'kernels is torch'}"
            )
        warning = (
            None
            if reason is None
            else f"steps are computed by torch, several times slower: {reason}"
        )
        return "torch", warning
    return "native", None


def _build_decoder(
    weights: DecoderWeights, config: EngineConfig, kernels: str, clock: Clock
) -> Decoder:
    if weights.embedding_VH.device.type == "cuda":
        limits = GraphLimits(
            max_batch_size=config.max_batch_size, max_lora_rank=config.max_lora_rank
        )
        return build_cuda_decoder(weights, kernels, limits=limits, clock=clock)
    if kernels == "torch":
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        return TorchDecoder(weights)
    cpus = len(os.sched_getaffinity(0))
    num_threads = min(config.num_threads or cpus, cpus)
    torch.set_num_threads(num_threads)
    return NativeDecoder(
        weights,
        max_rows=max(config.step_tokens, config.max_batch_size),
        num_threads=num_threads,
        pin_threads=num_threads == cpus,
        weight_kind="int8" if config.weight_dtype == "int8" else "auto",
    )


def _get_max_len(spec: ModelSpec, config: EngineConfig, pooling: PoolingSpec | None) -> int:
    if pooling is not None:
        return get_pooled_max_len(spec.max_model_len, pooling, config) + 1
    if config.max_model_len is None:
        return spec.max_model_len
    if config.max_model_len > spec.max_model_len:
        raise ValueError(
            f"max_model_len is {config.max_model_len}; the model has {spec.max_model_len} positions"
        )
    return config.max_model_len


def _count_pages(
    spec: ModelSpec, config: EngineConfig, layout: PoolLayout, share_bytes: int
) -> int:
    """Pages that fit into `pool_bytes`.

    Without that setting, pages that full batches and as much again for adapters can use, within
    `share_bytes`.
    """
    longest = -(-spec.max_model_len // config.page_tokens)
    budget = config.pool_bytes
    if budget is None:
        budget = min(share_bytes, 2 * config.max_batch_size * longest * layout.page_bytes)
    num_pages = budget // layout.page_bytes
    if num_pages < 1:
        raise ValueError(
            f"pool_bytes is {budget}; one page of {config.page_tokens} tokens needs "
            f"{layout.page_bytes}"
        )
    return num_pages


def _pool_share(device: torch.device, reserved_bytes: int = 0) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int((free - reserved_bytes) * _GPU_POOL_SHARE)
    return int(_physical_bytes() * _CPU_POOL_SHARE)


def _shared_pool_share(
    folder: Path, layout: PoolLayout, device: torch.device, world_size: int
) -> int:
    """The pool's share of memory over all ranks, before their weights are loaded."""
    if device.type != "cuda":
        return _pool_share(device)
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    weights = stored * layout.dtype.itemsize // 2  # most are stored in 16 bits
    free = min(torch.cuda.mem_get_info(rank)[0] for rank in range(world_size))
    return int((free - weights // world_size) * _GPU_POOL_SHARE) * world_size


def _get_host_bytes(config: EngineConfig) -> int:
    if config.adapter_host_bytes is not None:
        return config.adapter_host_bytes
    return int(_physical_bytes() * _HOST_SHARE)


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _build_store(
    core: _ComputeDeps, config: EngineConfig, fetchers: Mapping[str, Fetcher], clock: Clock
) -> AdapterStore:
    cache = None
    if config.adapter_cache_folder is not None:
        cache = DiskCache(config.adapter_cache_folder, config.adapter_cache_bytes)
    loader = AdapterLoader(core.reader, clock, fetchers=fetchers, cache=cache)
    return AdapterStore(loader, core.placer, clock, StoreLimits(host_bytes=_get_host_bytes(config)))


def _count_padded_pages(spec: ModelSpec, config: EngineConfig, layout: PoolLayout) -> int:
    """The minimum pages of an adapter: 0 without `padded_lora_rank`."""
    if config.padded_lora_rank is None:
        return 0
    targets = decoder_targets(spec)
    ranks = AdapterRanks(linears=(config.padded_lora_rank,) * len(targets.linears))
    if config.tensor_parallel > 1:
        return count_share_pages(targets, ranks, config.tensor_parallel, layout.page_elements)
    return plan_layout(targets, ranks, layout.page_elements).num_pages


def _read_stored_names(folder: Path) -> tuple[str, ...]:
    """The model's name in its config.json. Most have none."""
    name = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("_name_or_path")
    return (name,) if isinstance(name, str) and name else ()


def _build_adapter_reader(
    folder: Path, spec: ModelSpec, weights: DecoderWeights, config: EngineConfig, layout: PoolLayout
) -> AdapterReader:
    def vocabulary(path: str) -> torch.Tensor:
        return weights.lm_head_VH if path == "lm_head" else weights.embedding_VH

    base = BaseModel(
        targets=decoder_targets(spec),
        identity=BaseIdentity(names=config.base_names or _read_stored_names(folder)),
        vocabulary=vocabulary,
        has_lm_head=config.pooled.task not in ("embed", "classify"),
    )
    form = PageForm(
        page_elements=layout.page_elements,
        dtype=layout.dtype,
        is_pinned=weights.embedding_VH.device.type == "cuda",
    )
    return AdapterReader(base, _get_adapter_rules(config), form)


def _get_adapter_rules(config: EngineConfig) -> AdapterRules:
    return AdapterRules(
        max_rank=config.max_lora_rank,
        allow_zero_effect=config.allow_zero_effect_adapters,
        strict_base=config.strict_base,
    )


def get_scheduler_limits(config: EngineConfig, vocab_size: int) -> SchedulerLimits:
    """The scheduler's budgets by the settings. The size of their logits limits scored rows."""
    return SchedulerLimits(
        max_batch_size=config.max_batch_size,
        max_batched_tokens=max(config.step_tokens, config.max_batch_size),
        max_scored_tokens=max(1, _MAX_SCORED_BYTES // (4 * vocab_size)),
        page_tokens=config.page_tokens,
        max_adapters=config.max_loras,
        max_waiting=config.max_waiting,
        max_wait_s=config.max_wait_s,
    )
