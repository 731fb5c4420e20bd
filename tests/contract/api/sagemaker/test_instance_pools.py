"""Several instance types in one variant, and instances that follow copies."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.endpoint_config import ScaleInPolicy, ScaleInStrategy, Variant
from hostelry.domain.scope import Scope
from hostelry.store.records import State

GPU, CPU = "ml.g5.12xlarge", "ml.m5.xlarge"
POOLS = [{"InstanceType": CPU, "Priority": 5}, {"InstanceType": GPU, "Priority": 1}]
SCALED = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4}
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"


def config(api: Api, name: str, **more: Any) -> None:
    variant = {"VariantName": "main", "InitialInstanceCount": 1, **more}
    api.call(
        "CreateEndpointConfig",
        EndpointConfigName=name,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[variant],
    )


def on_pools(api: Api, **more: Any) -> None:
    config(api, "pooled", InstancePools=POOLS, **more)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="pooled")


def stored_variant(state: State, scope: Scope, name: str) -> Variant:
    found = state.endpoint_configs.get(scope, name)
    assert found is not None
    (variant,) = found.value.variants
    return variant


def test_pools_are_echoed_as_given_and_kept_by_priority(api: Api) -> None:
    more = {"InstancePools": POOLS, "VariantInstanceProvisionTimeoutInSeconds": 900}
    config(api, "c", **more)
    shown = api.call("DescribeEndpointConfig", EndpointConfigName="c")["ProductionVariants"]
    assert shown == [{"VariantName": "main", "InitialInstanceCount": 1, **more}]
    variant = stored_variant(api.state, api.scope, "c")
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
    api: Api, given: dict[str, Any] | None, kept: ScaleInPolicy
) -> None:
    scaling = {**SCALED, **({} if given is None else {"ScaleInPolicy": given})}
    config(api, "c", InstanceType=GPU, ManagedInstanceScaling=scaling)
    (shown,) = api.call("DescribeEndpointConfig", EndpointConfigName="c")["ProductionVariants"]
    assert shown["ManagedInstanceScaling"] == scaling
    stored = stored_variant(api.state, api.scope, "c").scaling
    assert stored is not None
    assert (stored.min_instances, stored.scale_in) == (0, kept)


def test_an_endpoint_shows_the_running_instances_of_each_pool(api: Api) -> None:
    on_pools(api, ManagedInstanceScaling=SCALED)
    generation = api.endpoint().active.generation
    for name in ("a", "b", "leaving"):
        api.add_copy(name, "main", generation, CopyPhase.READY)
    api.add_copy("of-another-update", "main", generation + 1, CopyPhase.READY)
    leaving = api.state.instances.get(api.scope, "i-leaving")
    assert leaving is not None
    gone = replace(leaving.value, state=InstanceState.TERMINATING)
    api.state.instances.put(api.scope, "i-leaving", gone, expect=leaving.version)
    (shown,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert shown["InstancePools"] == [
        {"InstanceType": GPU, "CurrentInstanceCount": 0},
        {"InstanceType": CPU, "CurrentInstanceCount": 2},
    ]
    assert shown["CurrentInstanceCount"] == 2
    assert shown["ManagedInstanceScaling"] == SCALED


def test_a_variant_of_one_instance_type_shows_no_pools(api: Api) -> None:
    api.make.endpoint()
    (shown,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert "InstancePools" not in shown


def test_each_pool_of_a_model_may_run_a_model_of_its_own(api: Api) -> None:
    api.make.model()
    api.call("CreateModel", ModelName="small", PrimaryContainer={"Image": "for-cpu"})
    pools = [{**POOLS[0], "ModelNameOverride": "small"}, POOLS[1]]
    config(api, "c", InstancePools=pools, ModelName="m")
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.call("DeleteModel", ModelName="small")
    (wanted,) = api.endpoint().active.variants
    names = {it: wanted.model_on(it) for it in (GPU, CPU)}
    assert {key: model and model.name for key, model in names.items()} == {GPU: "m", CPU: "small"}
    (shown,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    images = [it["SpecifiedImage"] for it in shown["DeployedImages"]]
    assert images == [api.make.image, "for-cpu"]


def test_an_update_to_pools_shows_them_while_it_is_pending(api: Api) -> None:
    api.make.endpoint()
    in_service(api)
    config(api, "pooled", InstancePools=POOLS)
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="pooled")
    pending = api.call("DescribeEndpoint", EndpointName="e")["PendingDeploymentSummary"]
    (variant,) = pending["ProductionVariants"]
    assert [it["InstanceType"] for it in variant["InstancePools"]] == [GPU, CPU]
    assert "InstanceType" not in variant


@cases(
    "live, kept",
    case("no more than the new bounds allow", 9, 4),
    case("as many as there are", 3, 3),
)
def test_an_update_that_retains_counts_keeps_its_own_bounds(api: Api, live: int, kept: int) -> None:
    api.make.endpoint()
    active = api.endpoint().active
    scaled = (replace(active.variants[0], desired_instance_count=live),)
    in_service(api, active=replace(active, variants=scaled))
    config(api, "scaled", InstanceType=GPU, ManagedInstanceScaling=SCALED)
    retain = {"RetainAllVariantProperties": True}
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="scaled", **retain)
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.variants[0].desired_instance_count == kept


def test_an_update_that_retains_no_instances_keeps_one_where_nothing_brings_them_back(
    api: Api,
) -> None:
    api.make.endpoint("e", {"ManagedInstanceScaling": SCALED})
    active = api.endpoint().active
    none = (replace(active.variants[0], desired_instance_count=0),)
    in_service(api, active=replace(active, variants=none))
    config(api, "fixed", InstanceType=GPU)
    retain = {"RetainAllVariantProperties": True}
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="fixed", **retain)
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.variants[0].desired_instance_count == 1


@cases("timeout_s, more_s", case("less than usual", 300, -300.0), case("more", 3600, 3000.0))
def test_instances_may_take_as_long_as_the_variant_allows(
    api: Api, timeout_s: int, more_s: float
) -> None:
    api.make.endpoint("usual")
    api.make.component("b", "usual")
    usual = api.state.endpoints.get(api.scope, "usual")
    assert usual is not None
    assert usual.value.deadline_at is not None
    config(api, "c", InstanceType=GPU, VariantInstanceProvisionTimeoutInSeconds=timeout_s)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.make.component("a")
    assert api.endpoint().deadline_at == usual.value.deadline_at + more_s
    deadline_at = api.component("b").deadline_at
    assert deadline_at is not None
    assert api.component("a").deadline_at == deadline_at + more_s
    assert api.endpoint().deadline_at == api.clock.now() + timeout_s


def in_service(api: Api, **fields: Any) -> None:
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None, **fields)
