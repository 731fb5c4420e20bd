"""Simulations of an option: which models share a replay, on which instances, by which rules."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.advisor.gates import get_serverless_memory_mb
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, get_instance_service, get_policies
from hostelry.advisor.values import FitMachine, FitMix, FitModel
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.shape import Requirements
from hostelry.fleet.agent.models.copy_models import MAX_DISK_BYTES, MODEL_SHARE
from hostelry.scaling.loop.environments import EMPTY_S
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.multi_model import HeldModel, ModelRoom
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.replay import ReplayedModel, ReplaySetup

ASYNC_HOLD_S, ASYNC_MAX_HELD = 21_600.0, 1_000_000  # RequestTTLSeconds, requests in the queue
ENDPOINT = "endpoint"
MAX_ENDPOINTS = 300  # with an instance or more each


class OptionRun(msgspec.Struct, frozen=True, kw_only=True):
    """One replay: models under their names in the trace, and the setup.

    Serverless environments have `memory_mb` and no `machine`.
    """

    models: Sequence[FitModel]
    names: Sequence[str]
    setup: ReplaySetup
    machine: FitMachine | None
    memory_mb: int = 0
    notes: tuple[str, ...] = msgspec.field(default_factory=tuple)


def find_obstacle(plan: OptionPlan) -> str | None:
    """The reason why an option cannot be simulated honestly, or None."""
    shares = plan.option in (HostingOption.MULTI_MODEL, HostingOption.MULTI_CONTAINER)
    calibrated = [it.name for it in plan.models if it.is_calibrated]
    if shares and calibrated:
        return (
            f"the calibration of {calibrated[0]} is of a copy with an instance's part to itself, "
            "and shows nothing about containers that share it; give seconds instead"
        )
    if plan.option in (HostingOption.DEDICATED, HostingOption.ASYNCHRONOUS):
        return _find_excess(plan)
    return None


def _find_excess(plan: OptionPlan) -> str | None:
    """Why a plan has too many endpoints to simulate, with their least cost, or None."""
    num = len(plan.models)
    if num <= MAX_ENDPOINTS:
        return None
    found = (
        f"it has {num:,} endpoints, and at most {MAX_ENDPOINTS} are simulated, because the time of "
        "a simulation grows with the square of their number"
    )
    prices = [it.price_per_hour for it in plan.machines]
    known = [it for it in prices if it is not None]
    if plan.option is HostingOption.DEDICATED and len(known) == num:
        found += f"; they cost at least {sum(known):,.4g} an hour"
    return f"{found}. Divide the models over several files"


def list_runs(plan: OptionPlan, mix: FitMix, seed: int) -> Iterator[OptionRun]:
    """The replays of an option. Their figures add up."""
    match plan.option:
        case HostingOption.DEDICATED | HostingOption.ASYNCHRONOUS:
            yield from _list_dedicated(plan, seed)
        case HostingOption.COMPONENTS:
            yield _build_components(plan, seed)
        case HostingOption.ADAPTERS:
            yield _build_adapters(plan, seed)
        case HostingOption.MULTI_MODEL | HostingOption.MULTI_CONTAINER:
            yield _build_shared(plan, seed)
        case HostingOption.SERVERLESS:
            yield from (_build_serverless(it, plan, mix, seed) for it in plan.models)
        case HostingOption.BATCH:
            return


def _list_dedicated(plan: OptionPlan, seed: int) -> Iterator[OptionRun]:
    """One replay for each machine type, with an endpoint for each model."""
    is_queued = plan.option is HostingOption.ASYNCHRONOUS
    for machine in dict.fromkeys(plan.machines):
        places = [it for it, known in enumerate(plan.machines) if known == machine]
        models = [plan.models[it] for it in places]
        deployment = _deployment(machine, one_copy_an_instance=True)
        if is_queued:
            deployment = replace(deployment, hold_s=ASYNC_HOLD_S, max_held=ASYNC_MAX_HELD)
        yield OptionRun(
            models=models,
            names=[it.name for it in models],
            setup=_setup(
                deployment,
                {
                    plan.models[place].name: ReplayedModel(
                        service=get_instance_service([plan.models[place]], machine),
                        policies=get_policies(plan, place),
                    )
                    for place in places
                },
                seed,
                is_queued=is_queued,
            ),
            machine=machine,
        )


def _build_components(plan: OptionPlan, seed: int) -> OptionRun:
    names = [it.name for it in plan.models]
    given = {it.name: _component(plan, place) for place, it in enumerate(plan.models)}
    deployment = _deployment(plan.machine, min_instances=_get_min_instances(plan))
    return OptionRun(
        models=plan.models,
        names=names,
        setup=_setup(deployment, given, seed),
        machine=plan.machine,
    )


def _build_adapters(plan: OptionPlan, seed: int) -> OptionRun:
    names = [
        model.name if model.adapter_of is None else f"{model.adapter_of}/{model.name}"
        for model in plan.models
    ]
    given = {}
    for place, (name, model) in enumerate(zip(names, plan.models, strict=True)):
        is_base = model.adapter_of is None
        given[name] = _component(plan, place) if is_base else ReplayedModel(service=model.service)
    deployment = _deployment(plan.machine, min_instances=_get_min_instances(plan))
    return OptionRun(
        models=plan.models,
        names=names,
        setup=_setup(deployment, given, seed),
        machine=plan.machine,
    )


def _get_min_instances(plan: OptionPlan) -> int:
    return 1 if plan.standing is None else plan.standing.min_instances


def _component(plan: OptionPlan, place: int) -> ReplayedModel:
    model = plan.models[place]
    return ReplayedModel(
        service=model.service,
        requirements=Requirements(
            min_memory_bytes=model.memory_bytes,
            cpus=model.cpus,
            accelerators=float(model.accelerators),
        ),
        policies=get_policies(plan, place),
    )


def _build_shared(plan: OptionPlan, seed: int) -> OptionRun:
    """One endpoint whose instances serve all models. The names let its component serve them."""
    names = [f"{ENDPOINT}/{it.name}" for it in plan.models]
    given = {
        name: ReplayedModel(service=it.service) for name, it in zip(names, plan.models, strict=True)
    }
    given[ENDPOINT] = ReplayedModel(
        service=get_instance_service(plan.models, plan.machine),
        policies=get_policies(plan, 0),
    )
    has_room = plan.option is HostingOption.MULTI_MODEL
    setup = _setup(_deployment(plan.machine, one_copy_an_instance=True), given, seed)
    return OptionRun(
        models=plan.models,
        names=names,
        setup=replace(setup, room=_build_room(plan) if has_room else None),
        machine=plan.machine,
    )


def _build_room(plan: OptionPlan) -> ModelRoom:
    machine = plan.machine
    has_devices = any(it.accelerators for it in plan.models)
    devices = machine.device_memory_bytes * machine.shape.accelerators
    return ModelRoom(
        memory_bytes=int(machine.shape.memory_bytes * MODEL_SHARE),
        accelerator_bytes=devices if has_devices else None,
        disk_bytes=MAX_DISK_BYTES,
        models=[
            HeldModel(
                name=model.name,
                memory_bytes=model.held_bytes,
                accelerator_bytes=model.accelerator_memory_bytes,
                disk_bytes=model.disk_bytes,
                download_s=model.download_s,
                load_s=model.load_s,
                at_once=model.service.max_concurrency,
            )
            for model in plan.models
        ],
        loaded=() if plan.standing is None else plan.standing.loaded,
    )


def _build_serverless(model: FitModel, plan: OptionPlan, mix: FitMix, seed: int) -> OptionRun:
    config = ServerlessConfig(
        memory_mb=get_serverless_memory_mb(model), max_concurrency=mix.serverless_concurrency
    )
    deployment = SimulatedDeployment(
        instance_type=config.instance_type,
        shape=config.shape,
        requirements=config.environment,
        max_instances=1,
        initial_copies=0 if plan.standing is None else 1,
        idle_release_s=EMPTY_S,
    )
    service = replace(model.service, max_concurrency=1, slowdown=((1, 1.0),))
    policies = PolicySet(name="serverless", minimum=0, maximum=config.max_concurrency)
    given = {model.name: ReplayedModel(service=service, policies=policies)}
    return OptionRun(
        models=[model],
        names=[model.name],
        setup=replace(_setup(deployment, given, seed), serverless=config),
        machine=None,
        memory_mb=config.memory_mb,
    )


def _deployment(
    machine: FitMachine, *, one_copy_an_instance: bool = False, min_instances: int = 0
) -> SimulatedDeployment:
    return SimulatedDeployment(
        instance_type=machine.type,
        shape=machine.shape,
        one_copy_an_instance=one_copy_an_instance,
        min_instances=min_instances,
        max_instances=machine.most,
        placement=PlacementStrategy.BINPACK,
    )


def _setup(
    deployment: SimulatedDeployment,
    given: Mapping[str, ReplayedModel],
    seed: int,
    *,
    is_queued: bool = False,
) -> ReplaySetup:
    first = next(it for it in given.values() if it.policies is not None)
    assert first.service is not None, "the model with policies has copies"
    assert first.policies is not None
    return ReplaySetup(
        policies=first.policies,
        deployment=deployment,
        service=first.service,
        seed=seed,
        models=given,
        is_queued=is_queued,
    )
