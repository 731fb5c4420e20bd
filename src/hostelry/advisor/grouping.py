"""Groups of models that may share endpoints and instances. PURE.

rule              models of one group
----------------  --------------------------------------------------------------------------------
always            have one hardware, latency class and isolation label. An adapter is with its base
with a split      also have one framework, and sizes that differ by a factor of 10 at most. Then
                  they are divided so that a group fits on one instance. Models whose traffic peaks
                  at different times come together
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from hostelry.advisor.plans import get_instance_at_once
from hostelry.advisor.policies import TARGET_SHARE
from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import FitMachine, FitMix, FitModel
from hostelry.fleet.agent.models.copy_models import MODEL_SHARE
from hostelry.sim.trace import FloatArray

MAX_SIZE_RATIO = 10.0


class ModelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Models that may share an endpoint with this `name`. `why` lists common properties.

    `peak` is the largest number of requests in progress in any five minutes, `sum_of_peaks` the
    same if all models peaked at once. Both are means over the five minutes.
    """

    name: str
    why: str
    models: tuple[FitModel, ...]
    peak: float = 0.0
    sum_of_peaks: float = 0.0


def group_models(mix: FitMix, traffic: MixTraffic, *, splits: bool = False) -> list[ModelGroup]:
    """The groups of a mix, in the order of the file. The first has the mix's name."""
    parts = list(_divide(mix.models, _get_key))
    if splits:
        parts = [it for one in parts for it in _split(one, mix, traffic)]
    groups = []
    for place, part in enumerate(parts):
        loads = [_get_loads(it, traffic) for it in part.models]
        groups.append(
            replace(
                part,
                name=mix.name if not place else f"{mix.name}-{place + 1}",
                peak=float(np.sum(loads, axis=0).max()),
                sum_of_peaks=float(sum(it.max() for it in loads)),
            )
        )
    return groups


def _divide(
    models: Sequence[FitModel], get_key: Callable[[FitModel], tuple[str, ...]], why: str = ""
) -> Iterator[ModelGroup]:
    """Groups of models with equal keys. Adapters have the key of their base."""
    by_name = {it.name: it for it in models}
    found: dict[tuple[str, ...], list[FitModel]] = {}
    for model in models:
        base = by_name[model.adapter_of] if model.adapter_of is not None else model
        found.setdefault(get_key(base), []).append(model)
    for key, mine in found.items():
        parts = [it for it in (why, *key) if it]
        yield ModelGroup(name="", why=", ".join(parts), models=tuple(mine))


def _get_key(model: FitModel) -> tuple[str, ...]:
    label = f"isolation {model.isolation_label}" if model.isolation_label else ""
    return (model.hardware.value, model.latency_class.value, label)


def _split(group: ModelGroup, mix: FitMix, traffic: MixTraffic) -> Iterator[ModelGroup]:
    """Parts of a group by framework and size, then by the room of one instance."""
    classes = _get_size_classes(group.models)
    for part in _divide(group.models, lambda it: (it.framework, classes[it.name]), group.why):
        if any(it.adapter_of is not None for it in part.models):
            yield part  # a base and its adapters stay together
        else:
            packed = _pack(part.models, mix, traffic)
            yield from (replace(part, models=tuple(it)) for it in packed)


def _get_size_classes(models: Sequence[FitModel]) -> Mapping[str, str]:
    """The class of each model: the smallest starts a class, and ten times its size the next one."""
    found: dict[str, str] = {}
    smallest, number = 0, 0
    for model in sorted(models, key=lambda it: it.memory_bytes):
        if not smallest or model.memory_bytes > MAX_SIZE_RATIO * smallest:
            smallest, number = model.memory_bytes, number + 1
        found[model.name] = f"size class {number}"
    return found if number > 1 else dict.fromkeys(found, "")


def _pack(models: Sequence[FitModel], mix: FitMix, traffic: MixTraffic) -> list[list[FitModel]]:
    """Divide models into as few parts as fit on an instance each, with least peaks.

    The model with the highest peak comes first. Each goes to the part whose peak then is least.
    """
    machine = max(mix.machines, key=lambda it: it.shape.memory_bytes)
    room, capacity = machine.shape.memory_bytes * MODEL_SHARE, _get_capacity(models, machine)
    loads = {it.name: _get_loads(it, traffic) for it in models}
    total = np.sum(list(loads.values()), axis=0)
    memory = sum(it.memory_bytes for it in models)
    num = max(1, math.ceil(memory / room), math.ceil(float(total.max()) / capacity))
    parts: list[list[FitModel]] = [[] for _ in range(num)]
    sums = [np.zeros_like(total) for _ in range(num)]
    for model in sorted(models, key=lambda it: (-float(loads[it.name].max()), it.name)):
        fitting = [it for it in range(len(parts)) if _get_memory(parts[it], model) <= room]
        if not fitting:
            parts.append([])
            sums.append(np.zeros_like(total))
            fitting = [len(parts) - 1]
        peaks = [(float((sums[it] + loads[model.name]).max()), it) for it in fitting]
        _, place = min(peaks)
        parts[place].append(model)
        sums[place] = sums[place] + loads[model.name]
    return [it for it in parts if it]


def _get_memory(part: Sequence[FitModel], more: FitModel) -> int:
    return sum(it.memory_bytes for it in part) + more.memory_bytes


def _get_capacity(models: Sequence[FitModel], machine: FitMachine) -> float:
    """The requests in progress that an instance is planned for."""
    return TARGET_SHARE * get_instance_at_once(models, machine)


def _get_loads(model: FitModel, traffic: MixTraffic) -> FloatArray:
    """The requests in progress in each five minutes, on average."""
    return traffic.by_slot(model) * traffic.mean_work_s(model)
