"""Chooses an instance for a model of a multi-model endpoint, and another to copy the model to."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

# Costs that differ by less than this share of a load, or of a service time, count as equal.
TIE_SHARE = 0.1
COPY_SHARE = 0.5  # another copy gets this share of the coming requests
WINDOW_S = 60.0  # another copy must pay off within this time


class InstanceView(NamedTuple):
    """The state of one instance for a request for a model.

    It is a tuple, which is cheap, because each request makes several.

    Args:
        name: the instance's id, which never changes.
        outstanding: requests in flight on the instance, for all models.
        service_ms: milliseconds that each request in flight adds to the next one's answer.
        load_ms: milliseconds until the model can serve. 0 if it is loaded, the rest of the load if
            it is being loaded. Otherwise the load, and the download if its files are missing.
        is_home: whether the model is loaded or being loaded.
        displaced_ms: expected milliseconds, within WINDOW_S, to reload the models that this load
            evicts.
    """

    name: str
    outstanding: int
    service_ms: float
    load_ms: float = 0.0
    is_home: bool = True
    displaced_ms: float = 0.0

    @property
    def wait_ms(self) -> float:
        """Expected time of an answer once the model can serve."""
        return (self.outstanding + 1) * self.service_ms

    @property
    def cost_ms(self) -> float:
        """Cost of one request here, for itself and for the models that it evicts."""
        return self.wait_ms + self.load_ms + self.displaced_ms


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The `index` of the instance that gets the request, and the instance to copy the model to.

    `loads` says that the request makes the instance load the model. `copy_to` is the index of an
    instance that should load it in the background, or None. `costs_ms` are the costs of all
    instances, if the caller has noted them.
    """

    index: int
    loads: bool
    copy_to: int | None
    reason: str
    costs_ms: tuple[float, ...] = ()


def choose_for_model(
    model: str, instances: Sequence[InstanceView], expected_requests: float
) -> ModelChoice:
    """Choose the instance on which a request for `model` costs least.

    A home is an instance on which the model is loaded or being loaded.

    the model has                        the request goes to
    a home                               the home with the least wait, including the rest of a load
    a home, but waiting there costs      the other instance with the least cost of wait, load and
    more than a load elsewhere           reloads of evicted models
    no home                              the instance with the least such cost

    Rendezvous hashing decides among equals, so that gateways that know nothing of each other choose
    the same instance.

    The model is also copied if that saves more waiting than the copy costs. The costs are the load
    and the reloads of evicted models. The savings count half of the expected requests, which the
    copy would get. While the model is being loaded, no other load of it starts, unless that load
    would end sooner.

    Args:
        model: its TargetModel.
        instances: the instances that can take requests, at least one. Lost instances are left out.
        expected_requests: number of requests for this model within WINDOW_S.

    Source: SageMaker's developer guide, multi-model endpoints, for the preference for instances
    that have the model; rendezvous hashing, Thaler and Ravishankar 1998.
    """
    homes = [index for index, view in enumerate(instances) if view.is_home]
    others = [index for index, view in enumerate(instances) if not view.is_home]
    if not homes:
        index = _cheapest(model, instances, others)
        return ModelChoice(index=index, loads=True, copy_to=None, reason="no instance has it")
    home = _cheapest(model, instances, homes)
    if not others:
        return ModelChoice(index=home, loads=False, copy_to=None, reason="every instance has it")
    away = _cheapest(model, instances, others)
    here = instances[home]
    there = instances[away]
    loading = any(instances[index].load_ms > 0 for index in homes)
    spills = not loading or there.load_ms < here.load_ms
    if spills and there.cost_ms < here.cost_ms:
        reason = (
            f"{here.cost_ms:.0f} ms are expected where it is loaded; {there.cost_ms:.0f} ms on "
            f"{there.name}, the load and what it evicts included"
        )
        return ModelChoice(index=away, loads=True, copy_to=None, reason=reason)
    saved_ms = here.wait_ms - there.wait_ms
    gain_ms = COPY_SHARE * expected_requests * saved_ms
    if loading or saved_ms < here.service_ms or gain_ms <= there.load_ms + there.displaced_ms:
        return ModelChoice(index=home, loads=False, copy_to=None, reason="it is loaded")
    reason = (
        f"it is loaded; a copy on {there.name} saves {gain_ms:.0f} ms of waiting for "
        f"{there.load_ms + there.displaced_ms:.0f} ms of loading"
    )
    return ModelChoice(index=home, loads=False, copy_to=away, reason=reason)


def _cheapest(model: str, instances: Sequence[InstanceView], among: Sequence[int]) -> int:
    costs_ms = [instances[index].cost_ms for index in among]
    least_ms = min(costs_ms)
    equal = [
        index
        for index, cost_ms in zip(among, costs_ms, strict=True)
        if cost_ms == least_ms or cost_ms - least_ms <= _tolerance_ms(instances[index])
    ]
    if len(equal) == 1:
        return equal[0]
    return min(equal, key=lambda index: _rank(model, instances[index].name))


def _tolerance_ms(instance: InstanceView) -> float:
    return TIE_SHARE * max(instance.load_ms, instance.service_ms)


def _rank(model: str, name: str) -> tuple[bytes, str]:
    return blake2b(f"{model}\0{name}".encode(), digest_size=8).digest(), name
