"""The plan of an option: the machine of each model, and the requests that a copy takes at once."""

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hostelry.advisor.gates import PER_MODEL, fits
from hostelry.advisor.options import HostingOption, get_option_models
from hostelry.advisor.policies import (
    TARGET_SHARE,
    FitScaling,
    QuietHours,
    build_policies,
    get_target,
)
from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import FitMachine, FitMix, FitModel
from hostelry.domain.scaling import Dimension
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.service import MAX_CONCURRENCY, ServiceModel

NO_COST = 1e12  # in place of an unknown price, so that machines with a price come first


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The present deployment, in place of a planned one. It begins warm.

    `policies` are of each model of the plan, or one of the whole endpoint. None of an adapter.
    `loaded` are the places of a multi-model endpoint's models in the order of their calls. A
    serverless endpoint begins with an environment.
    """

    policies: tuple[PolicySet | None, ...]
    min_instances: int = 1
    loaded: tuple[int, ...] = ()


class OptionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An option for models, with the machine of each. Options that share have one machine.

    `quiet` has the quiet hours of each model, or nothing without schedules.
    """

    option: HostingOption
    models: tuple[FitModel, ...]
    machines: tuple[FitMachine, ...]
    standing: Standing | None = None
    quiet: tuple[QuietHours | None, ...] = ()

    @property
    def machine(self) -> FitMachine:
        """The machine of an option that shares."""
        return self.machines[0]


def plan_option(
    option: HostingOption, group: Sequence[FitModel], mix: FitMix, traffic: MixTraffic
) -> OptionPlan:
    """The plan with the machines that are cheapest for the mean load, by arithmetic.

    The gates of the option must be open.
    """
    models = get_option_models(option, group)
    if option in PER_MODEL:
        machines = tuple(_choose(option, [it], mix, traffic) for it in models)
    elif option is HostingOption.SERVERLESS:
        machines = mix.machines[:1]  # environments have their own shape
    else:
        machines = (_choose(option, models, mix, traffic),) * len(models)
    return OptionPlan(option=option, models=models, machines=machines)


def list_plans(option: HostingOption, group: Sequence[FitModel], mix: FitMix) -> list[OptionPlan]:
    """A plan with each machine on which all models fit, for comparing all of them."""
    models = get_option_models(option, group)
    machines = [it for it in mix.machines if fits(option, models, it) is None]
    if option is HostingOption.SERVERLESS:
        machines = list(mix.machines[:1])
    return [
        OptionPlan(option=option, models=models, machines=(machine,) * len(models))
        for machine in machines
    ]


def get_copy_at_once(model: FitModel) -> int:
    """The requests that a copy with its reservation works on at a time."""
    return model.service.max_concurrency


def get_instance_at_once(models: Sequence[FitModel], machine: FitMachine) -> int:
    """The requests that a whole instance works on at a time: as often as their needs fit on it.

    A calibration is of one copy, and does not show more than that copy.
    """
    if any(it.is_calibrated for it in models):
        return min(it.service.max_concurrency for it in models)
    cpus = int(machine.shape.cpus // max(it.cpus for it in models))
    accelerators = max(it.accelerators for it in models)
    times = machine.shape.accelerators // accelerators if accelerators else cpus
    return min(max(1, times) * min(it.service.max_concurrency for it in models), MAX_CONCURRENCY)


def get_instance_service(models: Sequence[FitModel], machine: FitMachine) -> ServiceModel:
    """The service of a whole instance that serves the models. It starts as the slowest of them."""
    first = models[0].service
    return replace(
        first,
        max_concurrency=get_instance_at_once(models, machine),
        cold_start_s=max(it.service.cold_start_s for it in models),
        warm_start_s=max(it.service.warm_start_s for it in models),
        instance_start_s=max(it.service.instance_start_s for it in models),
    )


def get_policies(plan: OptionPlan, place: int) -> PolicySet:
    """The policies of a model's copies or instances: those in force, or the planned ones."""
    if plan.standing is None:
        return build_policies(get_scaling(plan.option, plan, place))
    found = plan.standing.policies[place]
    assert found is not None, "an adapter has no copies"
    return found


def get_scaling(option: HostingOption, plan: OptionPlan, place: int) -> FitScaling:
    """The scaling of a model's copies or instances, or of the whole endpoint's instances."""
    model, machine = plan.models[place], plan.machines[place]
    if option in (HostingOption.COMPONENTS, HostingOption.ADAPTERS):
        room = machine.most * count_on_machine(model, machine)
        return FitScaling(
            dimension=Dimension.COPIES,
            minimum=model.min_copies,
            maximum=max(model.min_copies, 1, room),
            target=get_target(get_copy_at_once(model)),
            quiet=plan.quiet[place] if plan.quiet else None,
        )
    shared = plan.models if option not in PER_MODEL else (model,)
    at_once = get_instance_at_once(shared, machine)
    is_queue = option is HostingOption.ASYNCHRONOUS
    minimum = 0 if is_queue else max(1, *(it.min_copies for it in shared))
    if option is HostingOption.MULTI_MODEL:
        minimum = 1
    return FitScaling(
        dimension=Dimension.INSTANCES,
        minimum=minimum,
        maximum=max(minimum, machine.most),
        target=float(max(1, at_once)) if is_queue else get_target(at_once),
        on_backlog=is_queue,
    )


def count_on_machine(model: FitModel, machine: FitMachine) -> int:
    """The copies of a model that fit on a machine."""
    shape = machine.shape
    counts = [shape.memory_bytes // model.memory_bytes, shape.cpus // model.cpus]
    if model.accelerators:
        counts.append(shape.accelerators // model.accelerators)
    return int(min(counts))


def _choose(
    option: HostingOption, models: Sequence[FitModel], mix: FitMix, traffic: MixTraffic
) -> FitMachine:
    fitting = [it for it in mix.machines if fits(option, models, it) is None]

    def cost(machine: FitMachine) -> tuple[float, float, int]:
        count = _count_instances(option, models, machine, traffic)
        price = NO_COST if machine.price_per_hour is None else machine.price_per_hour
        is_short = float(count > machine.most)
        return (is_short, count * price, machine.shape.memory_bytes)

    return min(fitting, key=cost)


def _count_instances(
    option: HostingOption, models: Sequence[FitModel], machine: FitMachine, traffic: MixTraffic
) -> int:
    """The instances for the mean load."""
    if option not in (HostingOption.COMPONENTS, HostingOption.ADAPTERS):
        load = sum(traffic.rate(it) * traffic.mean_work_s(it) for it in models)
        service = get_instance_service(models, machine)
        return max(1, math.ceil(load / _get_throughput(service)))
    memory = cpus = accelerators = 0.0
    for model in models:
        if model.adapter_of is not None:
            continue
        mine = [it for it in models if model.name in (it.name, it.adapter_of)]
        load = sum(traffic.rate(it) * traffic.mean_work_s(it) for it in mine)
        copies = max(model.min_copies, math.ceil(load / _get_throughput(model.service)))
        memory += copies * model.memory_bytes
        cpus += copies * model.cpus
        accelerators += copies * model.accelerators
    shape = machine.shape
    shares = [memory / shape.memory_bytes, cpus / shape.cpus]
    if accelerators:
        shares.append(accelerators / shape.accelerators)
    return max(1, math.ceil(max(shares) - 1e-9))


def _get_throughput(service: ServiceModel) -> float:
    """Seconds of requests that a copy gets done in a second, at the share aimed at."""
    return TARGET_SHARE * service.max_concurrency / service.slowdowns()[-1]
