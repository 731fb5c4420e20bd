"""Several instance types in one variant, and instances that follow copies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.endpoint_config import ScaleInPolicy, ScaleInStrategy, Variant
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
GPU, CPU = "ml.g5.12xlarge", "ml.m5.xlarge"
POOLS = [{"InstanceType": CPU, "Priority": 5}, {"InstanceType": GPU, "Priority": 1}]
SCALED = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4}
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"


def config(call: Call, name: str, **more: Any) -> None:
    variant = {"VariantName": "main", "InitialInstanceCount": 1, **more}
    call(
        "CreateEndpointConfig",
        EndpointConfigName=name,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[variant],
    )


def on_pools(call: Call, **more: Any) -> None:
    config(call, "pooled", InstancePools=POOLS, **more)
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="pooled")


def stored_variant(state: State, scope: Scope, name: str) -> Variant:
    found = state.endpoint_configs.get(scope, name)
    assert found is not None
    (variant,) = found.value.variants
    return variant


def test_pools_are_echoed_as_given_and_kept_by_priority(
    call: Call, state: State, scope: Scope
) -> None:
    more = {"InstancePools": POOLS, "VariantInstanceProvisionTimeoutInSeconds": 900}
    config(call, "c", **more)
    shown = call("DescribeEndpointConfig", EndpointConfigName="c")["ProductionVariants"]
    assert shown == [{"VariantName": "main", "InitialInstanceCount": 1, **more}]
    variant = stored_variant(state, scope, "c")
    assert variant.instance_types == (GPU, CPU)
    assert variant.instance_type == GPU
    assert variant.provision_timeout_s == 900.0


@cases(
    "given, kept",
    case("idle instances go where nothing is said", None, ScaleInPolicy()),
    case(
        "one instance each 20 minutes where only the strategy is said",
        {"Strategy": "CONSOLIDATION"},
        ScaleInPolicy(strategy=ScaleInStrategy.CONSOLIDATION, max_step=1, cooldown_s=1200.0),
    ),
    case(
        "steps and cooldown as said",
        {"Strategy": "IDLE_RELEASE", "MaximumStepSize": 3, "CooldownInMinutes": 5},
        ScaleInPolicy(strategy=ScaleInStrategy.IDLE_RELEASE, max_step=3, cooldown_s=300.0),
    ),
)
def test_a_scale_in_policy_is_echoed_and_kept(
    call: Call, state: State, scope: Scope, given: dict[str, Any] | None, kept: ScaleInPolicy
) -> None:
    scaling = {**SCALED, **({} if given is None else {"ScaleInPolicy": given})}
    config(call, "c", InstanceType=GPU, ManagedInstanceScaling=scaling)
    (shown,) = call("DescribeEndpointConfig", EndpointConfigName="c")["ProductionVariants"]
    assert shown["ManagedInstanceScaling"] == scaling
    stored = stored_variant(state, scope, "c").scaling
    assert stored is not None
    assert (stored.min_instances, stored.scale_in) == (0, kept)


def test_an_endpoint_shows_the_running_instances_of_each_pool(
    call: Call,
    run: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    state: State,
    scope: Scope,
) -> None:
    on_pools(call, ManagedInstanceScaling=SCALED)
    generation = endpoint().active.generation
    for name in ("a", "b", "leaving"):
        run(name, "main", generation, CopyPhase.READY)
    run("of-another-update", "main", generation + 1, CopyPhase.READY)
    leaving = state.instances.get(scope, "i-leaving")
    assert leaving is not None
    gone = replace(leaving.value, state=InstanceState.TERMINATING)
    state.instances.put(scope, "i-leaving", gone, expect=leaving.version)
    (shown,) = call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert shown["InstancePools"] == [
        {"InstanceType": GPU, "CurrentInstanceCount": 0},
        {"InstanceType": CPU, "CurrentInstanceCount": 2},
    ]
    assert shown["CurrentInstanceCount"] == 2
    assert shown["ManagedInstanceScaling"] == SCALED


def test_a_variant_of_one_instance_type_shows_no_pools(call: Call, make: Any) -> None:
    make.endpoint()
    (shown,) = call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert "InstancePools" not in shown


def test_each_pool_of_a_model_may_run_a_model_of_its_own(
    call: Call, make: Any, endpoint: Callable[[], Endpoint]
) -> None:
    make.model()
    call("CreateModel", ModelName="small", PrimaryContainer={"Image": "for-cpu"})
    pools = [{**POOLS[0], "ModelNameOverride": "small"}, POOLS[1]]
    config(call, "c", InstancePools=pools, ModelName="m")
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    call("DeleteModel", ModelName="small")
    (wanted,) = endpoint().active.variants
    names = {it: wanted.model_on(it) for it in (GPU, CPU)}
    assert {key: model and model.name for key, model in names.items()} == {GPU: "m", CPU: "small"}
    (shown,) = call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    images = [it["SpecifiedImage"] for it in shown["DeployedImages"]]
    assert images == [make.image, "for-cpu"]


def test_an_update_to_pools_shows_them_while_it_is_pending(
    call: Call, make: Any, change: Callable[..., None]
) -> None:
    make.endpoint()
    in_service(change)
    config(call, "pooled", InstancePools=POOLS)
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="pooled")
    pending = call("DescribeEndpoint", EndpointName="e")["PendingDeploymentSummary"]
    (variant,) = pending["ProductionVariants"]
    assert [it["InstanceType"] for it in variant["InstancePools"]] == [GPU, CPU]
    assert "InstanceType" not in variant


@cases(
    "live, kept",
    case("no more than the new bounds allow", 9, 4),
    case("as many as there are", 3, 3),
)
def test_an_update_that_retains_counts_keeps_its_own_bounds(
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    live: int,
    kept: int,
) -> None:
    make.endpoint()
    active = endpoint().active
    scaled = (replace(active.variants[0], desired_instance_count=live),)
    in_service(change, active=replace(active, variants=scaled))
    config(call, "scaled", InstanceType=GPU, ManagedInstanceScaling=SCALED)
    retain = {"RetainAllVariantProperties": True}
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="scaled", **retain)
    pending = endpoint().pending
    assert pending is not None
    assert pending.variants[0].desired_instance_count == kept


def test_an_update_that_retains_no_instances_keeps_one_where_nothing_brings_them_back(
    call: Call, make: Any, change: Callable[..., None], endpoint: Callable[[], Endpoint]
) -> None:
    make.endpoint("e", {"ManagedInstanceScaling": SCALED})
    active = endpoint().active
    none = (replace(active.variants[0], desired_instance_count=0),)
    in_service(change, active=replace(active, variants=none))
    config(call, "fixed", InstanceType=GPU)
    retain = {"RetainAllVariantProperties": True}
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="fixed", **retain)
    pending = endpoint().pending
    assert pending is not None
    assert pending.variants[0].desired_instance_count == 1


@cases("timeout_s, more_s", case("less than usual", 300, -300.0), case("more", 3600, 3000.0))
def test_instances_may_take_as_long_as_the_variant_allows(
    call: Call,
    make: Any,
    endpoint: Callable[[], Endpoint],
    component: Callable[[str], Any],
    state: State,
    scope: Scope,
    clock: ManualClock,
    timeout_s: int,
    more_s: float,
) -> None:
    make.endpoint("usual")
    make.component("b", "usual")
    usual = state.endpoints.get(scope, "usual")
    assert usual is not None
    config(call, "c", InstanceType=GPU, VariantInstanceProvisionTimeoutInSeconds=timeout_s)
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    make.component("a")
    assert endpoint().deadline_at == (usual.value.deadline_at or 0.0) + more_s
    assert component("a").deadline_at == component("b").deadline_at + more_s
    assert endpoint().deadline_at == clock.now() + timeout_s


def in_service(change: Callable[..., None], **fields: Any) -> None:
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None, **fields)
