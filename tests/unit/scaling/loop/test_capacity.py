"""A target's capacity: reading it, changing it only in time, and writing it."""

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE, deployment, endpoint, variant

from hostelry.base.errors import TerminalError
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.resize import replace_variant, set_environments
from hostelry.domain.scaling import Dimension, ScalableTarget
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.shape import Shape
from hostelry.scaling.loop.capacity import (
    Capacities,
    Gone,
    Unscalable,
    build_variant_id,
    parse_names,
)
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

RESOURCE = build_variant_id("ep", "AllTraffic")


class Variants:
    """An endpoint with one variant of two instances, all there."""

    def __init__(self, *, model: str | None = None, refusal: str | None = None) -> None:
        self.state = open_state(MemoryStore())
        max_instances = None
        host = endpoint(
            deployment(variant(model=model, count=2, max_instances=max_instances)),
            EndpointStatus.IN_SERVICE,
        )
        self.state.endpoints.put(SCOPE, "ep", host, expect=None)
        for number in range(2):
            instance = Instance(
                id=f"i-{number}",
                scope=SCOPE,
                endpoint_name="ep",
                variant_name="AllTraffic",
                generation=1,
                instance_type="ml.big",
                shape=Shape(cpus=4, memory_bytes=1 << 30),
                state=InstanceState.RUNNING,
                created_at=NOW,
            )
            self.state.instances.put(SCOPE, instance.id, instance, expect=None)
        self.capacities = Capacities(self.state, lambda *_: refusal)

    def change(self, **changes: object) -> None:
        found = self.state.endpoints.get(SCOPE, "ep")
        assert found is not None
        after = replace(found.value, **changes)  # fields by name
        self.state.endpoints.put(SCOPE, "ep", after, expect=found.version)

    @property
    def desired(self) -> int:
        found = self.state.endpoints.get(SCOPE, "ep")
        assert found is not None
        return found.value.active.variants[0].desired_instance_count


TARGET = ScalableTarget(
    scope=SCOPE,
    resource_id=RESOURCE,
    dimension=Dimension.INSTANCES,
    arn="arn:target",
    min_capacity=1,
    max_capacity=9,
    role_arn="arn:role",
    created_at=NOW,
)


def test_a_variant_s_number_is_that_of_its_instances() -> None:
    town = Variants()
    found = town.capacities.find(SCOPE, RESOURCE, Dimension.INSTANCES)
    assert found is not None
    assert (found.desired, found.serving, found.is_settled) == (2, 2, True)


def test_instances_of_a_model_count_once_their_model_server_is_ready() -> None:
    town = Variants(model="m")
    found = town.capacities.find(SCOPE, RESOURCE, Dimension.INSTANCES)
    assert found is not None
    assert (found.desired, found.serving) == (2, 0)


def test_another_number_is_written_as_update_endpoint_weights_and_capacities_does() -> None:
    # Source: UpdateEndpointWeightsAndCapacities in the SageMaker API reference.
    town = Variants()
    town.capacities.set(TARGET, 4, NOW)
    assert town.desired == 4
    stored = town.state.endpoints.get(SCOPE, "ep")
    assert stored is not None
    assert stored.value.status is EndpointStatus.UPDATING
    assert stored.value.deadline_at is not None


def test_while_instances_come_up_more_may_be_wanted_and_fewer_may_not() -> None:
    town = Variants()
    town.capacities.set(TARGET, 4, NOW)
    town.capacities.set(TARGET, 5, NOW)
    assert town.desired == 5
    with pytest.raises(Unscalable, match="takes 3 once it is InService"):
        town.capacities.set(TARGET, 3, NOW)


def test_while_another_configuration_comes_up_no_number_is_set() -> None:
    # Source: "Update endpoints that use auto scaling" in the SageMaker developer guide.
    town = Variants()
    town.change(status=EndpointStatus.UPDATING, pending=deployment(variant(count=2), generation=2))
    for wanted in (1, 5):
        with pytest.raises(Unscalable, match="Updating"):
            town.capacities.set(TARGET, wanted, NOW)
    assert town.desired == 2


def test_fewer_instances_than_components_need_are_refused_for_now() -> None:
    town = Variants(refusal="2 copies would have no place")
    with pytest.raises(Unscalable, match="2 copies would have no place"):
        town.capacities.set(TARGET, 1, NOW)
    town.capacities.set(TARGET, 3, NOW)
    assert town.desired == 3


@cases(
    "wanted, why",
    case("none at all", 0, "at least 1 instance is needed"),
    case("more than any machine keeps", 1001, "at most 1000 are possible"),
)
def test_a_number_that_is_never_possible_is_refused_for_good(wanted: int, why: str) -> None:
    town = Variants()
    with pytest.raises(TerminalError, match=why):
        town.capacities.set(TARGET, wanted, NOW)


@pytest.mark.parametrize("status", [EndpointStatus.DELETING, EndpointStatus.FAILED])
def test_what_is_on_its_way_out_is_gone(status: EndpointStatus) -> None:
    town = Variants()
    town.change(status=status)
    with pytest.raises(Gone):
        town.capacities.set(TARGET, 4, NOW)


@cases(
    "resource_id, dimension",
    case("no such endpoint", "endpoint/none/variant/V", Dimension.INSTANCES),
    case("no such variant", "endpoint/ep/variant/none", Dimension.INSTANCES),
    case("no such component", "inference-component/none", Dimension.COPIES),
    case("the wrong dimension", "inference-component/ep", Dimension.INSTANCES),
    case("nothing serverless is here", RESOURCE, Dimension.PROVISIONED_CONCURRENCY),
)
def test_nothing_is_found_for(resource_id: str, dimension: Dimension) -> None:
    assert Variants().capacities.find(SCOPE, resource_id, dimension) is None


def test_names_in_a_resource_id() -> None:
    assert parse_names(RESOURCE) == ("ep", "AllTraffic")
    assert parse_names("inference-component/base") == ("base",)


PROVISIONED = replace(TARGET, dimension=Dimension.PROVISIONED_CONCURRENCY)


def serverless(ready: int = 2) -> Variants:
    town = Variants(model="m")
    config = ServerlessConfig(memory_mb=1024, max_concurrency=4, provisioned_concurrency=ready)
    found = town.state.endpoints.get(SCOPE, "ep")
    assert found is not None
    active = found.value.active
    changed = set_environments(replace(active.variants[0], serverless=config), ready)
    town.change(active=replace_variant(active, changed))
    return town


def test_provisioned_concurrency_is_a_serverless_variant_s_only_number() -> None:
    town = serverless()
    found = town.capacities.find(SCOPE, RESOURCE, Dimension.PROVISIONED_CONCURRENCY)
    assert found is not None
    assert (found.desired, found.serving, found.is_settled) == (2, 0, True)
    assert town.capacities.find(SCOPE, RESOURCE, Dimension.INSTANCES) is None


def test_other_provisioned_concurrency_is_written_with_its_environments() -> None:
    town = serverless()
    town.capacities.set(PROVISIONED, 4, NOW)
    stored = town.state.endpoints.get(SCOPE, "ep")
    assert stored is not None
    (after,) = stored.value.active.variants
    assert stored.value.status is EndpointStatus.UPDATING
    assert after.serverless is not None
    assert (after.serverless.provisioned_concurrency, after.environments) == (4, 4)


def test_provisioned_concurrency_is_never_more_than_may_be() -> None:
    with pytest.raises(TerminalError, match="cannot be more than MaxConcurrency, which is 4"):
        serverless().capacities.set(PROVISIONED, 5, NOW)
    with pytest.raises(Gone):
        Variants(model="m").capacities.set(PROVISIONED, 1, NOW)
