"""A decoder with manual steps: sequences with separate pages, and adapters at random places."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch

from hostelry.engine.kernels.batch import (
    MODULES,
    AdapterIndex,
    ForwardBatch,
    Int64,
    LoraSegment,
    WideRows,
)
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.shard import WHOLE, ModuleShare, Shard, share_module
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.models.spec import ModelSpec

CPU = torch.device("cpu")


def new_pool(
    spec: ModelSpec,
    num_pages: int,
    page_tokens: int = 4,
    dtype: torch.dtype = torch.float32,
    world_size: int = 1,
) -> PoolTensor:
    """A pool filled with nan, so that reading unwritten elements shows."""
    layout = PoolLayout(
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads // world_size,
        head_dim=spec.head_dim,
        page_tokens=page_tokens,
        dtype=dtype,
    )
    pool = PoolTensor(layout, num_pages, CPU)
    pool.elements.fill_(float("nan"))
    return pool


@dataclass
class Track:
    tokens: Sequence[int]
    index: AdapterIndex | None
    pages: list[int]
    done: int = 0
    logits: list[torch.Tensor] = field(default_factory=list)


class Driver:
    """Runs sequences step by step and keeps the logits of every row."""

    def __init__(self, decoder: Decoder, pool: PoolTensor, pages: Sequence[int]) -> None:
        self._decoder = decoder
        self._pool = pool
        self._free = list(pages)
        self.sequences: list[Track] = []

    def add(self, tokens: Sequence[int], index: AdapterIndex | None = None) -> None:
        count = -(-len(tokens) // self._pool.layout.page_tokens)
        taken, self._free = self._free[:count], self._free[count:]
        assert len(taken) == count, "the test's pool is too small"
        self.sequences.append(Track(tokens, index, taken))

    def step(self, counts: Sequence[int]) -> None:
        """Compute `counts[b]` more tokens of sequence b."""
        chosen = [
            (it, min(count, len(it.tokens) - it.done))
            for it, count in zip(self.sequences, counts, strict=True)
            if count and it.done < len(it.tokens)
        ]
        if not chosen:
            return
        chosen.sort(key=lambda it: id(it[0].index) if it[0].index else 0)
        logits = self._decoder.forward(build_batch(chosen), self._pool).clone()
        for (sequence, count), part in zip(
            chosen, torch.split(logits, [count for _, count in chosen]), strict=True
        ):
            sequence.done += count
            sequence.logits += list(part)

    def finish(self, chunk: int) -> list[torch.Tensor]:
        """Compute the rest in chunks of this size. Returns logits (L, V) of every sequence."""
        while any(it.done < len(it.tokens) for it in self.sequences):
            self.step([chunk] * len(self.sequences))
        return [torch.stack(it.logits) for it in self.sequences]


def build_batch(chosen: Sequence[tuple[Track, int]]) -> ForwardBatch:
    """The next `count` tokens of each of these sequences. Neighbours share a segment."""
    segments: list[LoraSegment] = []
    starts = [0]
    ids: list[int] = []
    positions: list[int] = []
    for sequence, count in chosen:
        start, stop = starts[-1], starts[-1] + count
        ids += sequence.tokens[sequence.done : sequence.done + count]
        positions += range(sequence.done, sequence.done + count)
        starts.append(stop)
        if sequence.index is None:
            continue
        if segments and segments[-1].index is sequence.index:
            start = segments.pop().row_start
        segments.append(LoraSegment(row_start=start, row_end=stop, index=sequence.index))
    widest = max(len(sequence.pages) for sequence, _ in chosen)
    pages = [it.pages + [-1] * (widest - len(it.pages)) for it, _ in chosen]
    return ForwardBatch(
        token_ids_T=numpy.array(ids, numpy.int32),
        positions_T=numpy.array(positions, numpy.int32),
        row_starts_B1=numpy.array(starts, numpy.int32),
        lengths_B=numpy.array([it.done + count for it, count in chosen], numpy.int32),
        pages_BP=numpy.array(pages, numpy.int32),
        logit_rows_S=numpy.arange(starts[-1], dtype=numpy.int32),
        segments=segments,
    )


def torch_decoder(
    folder: Path, spec: ModelSpec, dtype: torch.dtype = torch.float32
) -> TorchDecoder:
    """The plain torch decoder, for 64 positions."""
    return TorchDecoder(load_decoder(folder, spec, max_len=64, dtype=dtype, device=CPU))


def edit_config(folder: Path, **fields: Any) -> None:
    """Set fields in the folder's config.json."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **fields}), encoding="utf-8")


def all_logits(folder: Path, tokens: Sequence[int] = tuple(range(20, 60))) -> torch.Tensor:
    """Logits (L, V) of every token, from a new decoder."""
    spec = load_spec(folder)
    driver = Driver(torch_decoder(folder, spec), new_pool(spec, 16), range(16))
    driver.add(tokens)
    return driver.finish(64)[0]


@dataclass(frozen=True)
class Update:
    """An adapter's update of one module: `down` (R, I), `up` (O, R)."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float


@torch.inference_mode()
def reference(folder: Path) -> Any:
    """transformers' model in fp32, with eager attention."""
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        return model.eval()


@torch.inference_mode()
def reference_rows(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Logits (L, V) of every token."""
    logits: torch.Tensor = model(input_ids=torch.tensor([list(tokens)])).logits[0]
    return logits


def peft_adapters(model: Any, adapters: Mapping[str, Mapping[str, Any]]) -> Any:
    """The model with random PEFT adapters. `adapters` are the fields of each LoraConfig."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (name, fields) in enumerate(adapters.items()):
            config = LoraConfig(task_type="CAUSAL_LM", **fields)
            if number:
                model.add_adapter(name, config)
            else:
                model = get_peft_model(model, config, name)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def updates_of(model: Any, adapter: str) -> dict[str, Update]:
    """The updates of an adapter, by the module's path in the base model."""
    found = {}
    for name, module in model.named_modules():
        path = name.removeprefix("base_model.model.")
        if adapter in getattr(module, "lora_A", {}):
            down, up = module.lora_A[adapter].weight, module.lora_B[adapter].weight
        elif adapter in getattr(module, "lora_embedding_A", {}):
            down, up = module.lora_embedding_A[adapter], module.lora_embedding_B[adapter]
        else:
            continue
        found[path] = Update(down.data, up.data, module.scaling[adapter])
    return found


class Scatter:
    """Writes rows into pages at random places. No row crosses the end of a page."""

    def __init__(self, pool: PoolTensor, pages: Sequence[int], seed: int) -> None:
        self._elements = pool.elements
        self._size = pool.layout.page_elements
        self._random = numpy.random.default_rng(seed)
        self._starts = {page: page * self._size for page in pages}

    def put(self, rows_RW: torch.Tensor) -> Int64:
        """Write rows, and return the pool index of each row's first element."""
        offsets = numpy.zeros(len(rows_RW), numpy.int64)
        for number in self._random.permutation(len(rows_RW)):
            row = rows_RW[number]
            fitting = [
                page
                for page, start in self._starts.items()
                if start + len(row) <= (page + 1) * self._size
            ]
            page = int(self._random.choice(fitting))
            start = self._starts[page] + int(self._random.integers(0, 2))
            start = min(start, (page + 1) * self._size - len(row))
            self._elements[start : start + len(row)] = row.to(self._elements.dtype)
            self._starts[page] = start + len(row)
            offsets[number] = start
        return offsets


def scattered(
    updates: Mapping[str, Update],
    spec: ModelSpec,
    scatter: Scatter,
    shard: Shard = WHOLE,
) -> AdapterIndex:
    """Write the updates into the pool, and return their places. A shard writes only its part."""
    ranks, scales, firsts = [], [], []
    downs: list[Int64] = []
    ups: list[Int64] = []
    by_end = {path.removeprefix("model.layers."): it for path, it in updates.items()}
    for number in range(spec.num_layers * len(MODULES)):
        layer, name = divmod(number, len(MODULES))
        parent = "mlp" if MODULES[name] in ("gate_proj", "up_proj", "down_proj") else "self_attn"
        update = by_end.get(f"{layer}.{parent}.{MODULES[name]}")
        ranks.append(0 if update is None else len(update.down))
        scales.append(0.0 if update is None else update.scale)
        firsts.append(sum(len(it) for it in downs))
        if update is None:
            continue
        share = share_of(shard, MODULES[name], update)
        offsets = numpy.full(len(update.down), -1, numpy.int64)
        offsets[share.down_rows] = scatter.put(update.down[share.down_rows, share.down_columns])
        downs.append(offsets)
        ups.append(scatter.put(update.up[share.up_rows].T))
    empty = numpy.zeros(0, numpy.int64)
    return AdapterIndex(
        ranks_M=numpy.array(ranks, numpy.int32),
        scales_M=numpy.array(scales, numpy.float32),
        firsts_M=numpy.array(firsts, numpy.int32),
        down_offsets_R=numpy.concatenate([empty, *downs]),
        up_offsets_R=numpy.concatenate([empty, *ups]),
        embedding=_wide("embed_tokens", updates.get("model.embed_tokens"), scatter, shard),
        lm_head=_wide("lm_head", updates.get("lm_head"), scatter, shard),
    )


def share_of(shard: Shard, name: str, update: Update) -> ModuleShare:
    """The part of an update that a rank holds."""
    return share_module(
        shard,
        name,
        rank=len(update.down),
        in_features=update.down.shape[1],
        out_features=len(update.up),
    )


def _wide(name: str, update: Update | None, scatter: Scatter, shard: Shard) -> WideRows | None:
    if update is None:
        return None
    share = share_of(shard, name, update)
    vocab_VR, hidden_RH = update.up, update.down
    vocab_rows, hidden_rows = share.up_rows, share.down_rows
    if name == "embed_tokens":
        vocab_VR, hidden_RH = update.down.T, update.up.T
        vocab_rows, hidden_rows = share.down_columns, slice(None)
    vocab = numpy.full(len(vocab_VR), -1, numpy.int64)
    vocab[vocab_rows] = scatter.put(vocab_VR[vocab_rows])
    hidden = numpy.full(len(hidden_RH), -1, numpy.int64)
    hidden[hidden_rows] = scatter.put(hidden_RH[hidden_rows])
    return WideRows(
        rank=len(hidden_RH), scale=update.scale, vocab_offsets_V=vocab, hidden_offsets_R=hidden
    )
