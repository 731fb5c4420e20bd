"""Selection of the modules that an adapter changes, with rank and scale, as PEFT selects them.

Source: PEFT 0.21, module matching and weight tying of its LoRA tuner.
"""

import msgspec
import numpy

from hostelry.engine.lora.config import AdapterConfig
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.layout import AdapterRanks, AdapterScales
from hostelry.engine.lora.targets import TargetModule, TargetModules

_LARGEST_SCALE = float(numpy.finfo(numpy.float32).max)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The targeted modules' ranks and scales.

    `ties_vocabulary`: lm_head has the embedding's A and B, transposed and exchanged.
    """

    ranks: AdapterRanks
    scales: AdapterScales
    ties_vocabulary: bool


def select(config: AdapterConfig, targets: TargetModules, *, max_rank: int) -> Selection:
    """The modules that `config` targets.

    Raises AdapterError without any module, for a rank above `max_rank`, and for a scale that does
    not fit in fp32.
    """
    ties = config.ensure_weight_tying and targets.is_tied and config.names_vocabulary
    wide = not config.targets_all_linear  # which leaves out the embedding and lm_head
    has_embedding = wide and config.targets(targets.embedding.path)
    has_lm_head = wide and config.targets(targets.lm_head.path)
    if ties:
        _check_tie(config, targets)
        has_embedding = has_lm_head = True
    ranks = AdapterRanks(
        linears=tuple(
            _check_rank(config, target, max_rank) if config.targets(target.path) else 0
            for target in targets.linears
        ),
        embedding=_check_rank(config, targets.embedding, max_rank) if has_embedding else 0,
        lm_head=_check_rank(config, targets.lm_head, max_rank) if has_lm_head else 0,
    )
    if not ranks.largest:
        raise AdapterError(
            f"target_modules is {config.target_modules.text}, which names no module of the base"
        )
    return Selection(
        ranks=ranks, scales=_compute_scales(config, targets, ranks), ties_vocabulary=ties
    )


def _check_tie(config: AdapterConfig, targets: TargetModules) -> None:
    """Raise AdapterError if PEFT would fail, or its result would depend on the load order."""
    embedding, lm_head = targets.embedding.path, targets.lm_head.path
    if config.excludes(embedding):
        raise AdapterError(f"exclude_modules includes {embedding}, which ensure_weight_tying needs")
    ranks = config.get_rank(embedding), config.get_rank(lm_head)
    if ranks[0] != ranks[1]:
        raise AdapterError(
            f"r is {ranks[0]} at {embedding} and {ranks[1]} at {lm_head}; ensure_weight_tying asks "
            "for one"
        )


def _check_rank(config: AdapterConfig, target: TargetModule, max_rank: int) -> int:
    rank = config.get_rank(target.path)
    if rank > max_rank:
        raise AdapterError(f"r is {rank} at {target.path}; max_lora_rank is {max_rank}")
    return rank


def _compute_scales(
    config: AdapterConfig, targets: TargetModules, ranks: AdapterRanks
) -> AdapterScales:
    return AdapterScales(
        linears=tuple(
            _compute_scale(config, target) if rank else 0.0
            for target, rank in zip(targets.linears, ranks.linears, strict=True)
        ),
        embedding=_compute_scale(config, targets.embedding) if ranks.embedding else 0.0,
        lm_head=_compute_scale(config, targets.lm_head) if ranks.lm_head else 0.0,
    )


def _compute_scale(config: AdapterConfig, target: TargetModule) -> float:
    scale = config.get_scale(target.path)
    if abs(scale) > _LARGEST_SCALE:
        raise AdapterError(
            f"lora_alpha makes the scale of {target.path} {scale:g}; that is no fp32"
        )
    return scale
