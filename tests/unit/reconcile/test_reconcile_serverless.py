"""Serverless variants: environments start, end, are exchanged, and survive every crash."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import IMAGE, SCOPE, Town, deployment, endpoint, variant

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Deployment, EndpointStatus, EndpointVariant
from hostelry.domain.resize import (
    replace_active,
    replace_variant,
    set_environments,
    set_serverless,
)
from hostelry.domain.routes import VariantRoute
from hostelry.domain.serverless import ServerlessConfig


def config(most: int = 4, ready: int = 0, memory_mb: int = 2048) -> ServerlessConfig:
    return ServerlessConfig(
        memory_mb=memory_mb, max_concurrency=most, provisioned_concurrency=ready
    )


def serverless(wanted: ServerlessConfig, generation: int = 1) -> Deployment:
    one = replace(variant(model="m", instance_type=wanted.instance_type), serverless=wanted)
    made = deployment(one, generation=generation)
    (of_it,) = made.variants
    started = replace(of_it, serverless=wanted, environments=max(1, wanted.provisioned_concurrency))
    return replace_variant(made, started)


def only(town: Town) -> EndpointVariant:
    found = town.endpoint
    (one,) = found.active.variants
    return one


def change(town: Town, after: EndpointVariant) -> None:
    """Write the records as a wake, or the end of an idle environment, does."""
    found = town.endpoint
    town.change_endpoint(active=replace_variant(found.active, after))


def update(town: Town, wanted: ServerlessConfig) -> None:
    """Write the records as UpdateEndpointWeightsAndCapacities does."""
    found = town.endpoint
    active = replace_variant(found.active, set_serverless(only(town), wanted))
    after = replace_active(found, active, town.clock.now())
    town.change_endpoint(active=after.active, status=after.status, deadline_at=after.deadline_at)


def route(town: Town) -> VariantRoute:
    found = town.endpoint_route()
    (one,) = found.variants
    return one


def num_ready(town: Town) -> int:
    return len(route(town).copies)


def environments(town: Town) -> list[Copy]:
    return [it.value for it in town.state.copies.list() if not it.value.draining]


def test_it_is_in_service_once_one_environment_has_answered(town: Town) -> None:
    town.add(endpoint(serverless(config())))
    town.turn()
    assert town.status() is EndpointStatus.CREATING
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert route(town).serverless == config()
    (one,) = environments(town)
    needs = one.spec.requirements
    assert needs is not None
    assert (needs.max_memory_bytes, needs.cpus) == (2 * 1024**3, 1.158)
    (host,) = town.instance_records()
    assert (host.instance_type, host.shape) == ("ml.serverless.2048mb", config().shape)


def test_a_model_that_does_not_start_fails_the_creation_with_its_cause(town: Town) -> None:
    town.switches.broken_images[IMAGE] = "it does not start"
    town.add(endpoint(serverless(config())))
    town.settle()
    found = town.endpoint
    assert found.status is EndpointStatus.FAILED
    assert found.failure_reason


@cases(
    "wanted, count, expected",
    case("more run side by side on the one instance", config(), 3, 3),
    case("MaxConcurrency at most", config(), 9, 4),
    case("none at all", config(), 0, 0),
    case("provisioned ones stay", config(ready=2), 0, 2),
)
def test_as_many_run_as_are_desired(
    town: Town, wanted: ServerlessConfig, count: int, expected: int
) -> None:
    town.add(endpoint(serverless(wanted)))
    town.settle()
    change(town, set_environments(only(town), count))
    town.settle()
    assert (num_ready(town), len(environments(town))) == (expected, expected)
    assert len(town.instance_records()) == 1
    assert town.status() is EndpointStatus.IN_SERVICE
    town.check_integrity()


def test_those_that_are_idle_end_and_no_other(town: Town) -> None:
    town.add(endpoint(serverless(config(ready=3))))
    town.settle()
    update(town, config())
    town.settle()
    first, second, third = sorted(it.spec.id for it in environments(town))
    change(town, set_environments(only(town), 1, idle=(first, third)))
    town.settle()
    assert [it.id for it in route(town).copies] == [second]


def test_without_an_environment_the_instance_goes_and_a_wake_brings_both_back(town: Town) -> None:
    town.add(endpoint(serverless(config())))
    town.settle()
    change(town, replace(set_environments(only(town), 0), desired_instance_count=0))
    town.settle()
    assert (town.status(), num_ready(town)) == (EndpointStatus.IN_SERVICE, 0)
    assert (town.instance_records(), town.fleet.machines) == ([], {})
    change(town, set_environments(only(town), 1))
    town.settle()
    assert (town.status(), num_ready(town)) == (EndpointStatus.IN_SERVICE, 1)


@cases(
    "before, after, environments_after",
    case("more are provisioned", config(), config(ready=3), 3),
    case("fewer: idleness ends the others", config(ready=3), config(ready=1), 3),
    case("no more than may be", config(4, 3), config(2, 1), 2),
    case("more may be", config(), config(most=200), 1),
)
def test_its_concurrency_changes_in_place(
    town: Town, before: ServerlessConfig, after: ServerlessConfig, environments_after: int
) -> None:
    town.add(endpoint(serverless(before)))
    town.settle()
    old = {it.spec.id for it in environments(town)}
    update(town, after)
    assert town.status() is EndpointStatus.UPDATING
    town.turn()
    assert old & {it.id for it in route(town).copies}, "it serves all the time"
    town.settle()
    assert (town.status(), num_ready(town)) == (EndpointStatus.IN_SERVICE, environments_after)
    assert (only(town).serverless, only(town).serverless_before) == (after, None)
    assert route(town).serverless == after
    assert town.instance_records()[0].shape == after.shape


def test_provisioned_environments_that_do_not_start_leave_the_old_number(town: Town) -> None:
    town.add(endpoint(serverless(config())))
    town.settle()
    town.switches.broken_images[IMAGE] = "it does not start"
    update(town, config(ready=3))
    town.settle()
    found = town.endpoint
    assert (found.status, only(town).serverless) == (EndpointStatus.IN_SERVICE, config())
    assert found.failure_reason
    assert num_ready(town) == 1


@cases(
    "pending",
    case("another serverless one", lambda: serverless(config(6, 2, 4096), 2)),
    case("instances", lambda: deployment(variant(model="m"), generation=2)),
)
@pytest.mark.parametrize("running", [0, 1, 3])
def test_an_update_takes_over_once_it_is_ready(
    town: Town, pending: Callable[[], Deployment], running: int
) -> None:
    town.add(endpoint(serverless(config())))
    town.settle()
    change(town, set_environments(only(town), running))
    town.settle()
    coming = pending()
    town.change_endpoint(pending=coming, status=EndpointStatus.UPDATING)
    fewest = running
    for _ in range(60):
        town.turn()
        if town.status() is EndpointStatus.UPDATING:
            fewest = min(fewest, num_ready(town))
    assert fewest == running
    found = town.endpoint
    assert (found.status, found.active.generation) == (EndpointStatus.IN_SERVICE, 2)
    assert num_ready(town) == max(1, coming.variants[0].environments)
    town.settle()
    assert len(town.instance_records()) == 1


def test_a_wake_during_an_update_starts_environments_of_what_serves(town: Town) -> None:
    town.add(endpoint(serverless(config())))
    town.settle()
    change(town, set_environments(only(town), 0))
    town.settle()
    town.switches.slow = True
    coming = serverless(config(memory_mb=4096), 2)
    town.change_endpoint(pending=coming, status=EndpointStatus.UPDATING)
    change(town, set_environments(only(town), 2))
    town.turn(3)
    made = [it for it in environments(town) if it.generation == 1]
    assert len(made) == 2


def test_an_environment_that_failed_is_tried_again(town: Town) -> None:
    town.add(endpoint(serverless(config())))
    town.settle()
    town.switches.broken_images[IMAGE] = "it does not start"
    change(town, set_environments(only(town), 2))
    town.settle()
    assert any(it.status.phase is CopyPhase.FAILED for it in environments(town))
    assert (town.status(), num_ready(town)) == (EndpointStatus.IN_SERVICE, 1)
    town.switches.broken_images.clear()
    town.clock.advance(60.0)
    town.settle()
    assert num_ready(town) == 2


def test_deleting_it_ends_everything(town: Town) -> None:
    town.add(endpoint(serverless(config(ready=2))))
    town.settle()
    town.change_endpoint(status=EndpointStatus.DELETING)
    town.settle()
    assert (town.find_endpoint(), town.fleet.machines) == (None, {})
    assert town.state.copies.list(SCOPE) == []


def test_control_may_die_at_any_turn(town: Town) -> None:
    town.add(endpoint(serverless(config(ready=2))))
    for count in (4, 0, 3):
        town.settle()
        change(town, set_environments(only(town), count))
        for _ in range(30):
            town.restart_control()
            town.turn()
    town.settle()
    assert (town.status(), num_ready(town)) == (EndpointStatus.IN_SERVICE, 3)
    assert len(town.running_copies()) == 3
