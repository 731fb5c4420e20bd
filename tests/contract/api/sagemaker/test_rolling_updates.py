"""DeploymentConfig of UpdateInferenceComponent: batches, waits and time-outs."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.component import (
    CapacitySize,
    CapacityUnit,
    ComponentStatus,
    InferenceComponent,
    RollingUpdate,
    Rollout,
)

NEW = {"Container": {"Image": "new"}}
COPIES = 20


def batch(value: int, unit: str = "COPY_COUNT") -> dict[str, Any]:
    return {"Type": unit, "Value": value}


def percent(value: int) -> dict[str, Any]:
    return batch(value, "CAPACITY_PERCENT")


def deployment(size: dict[str, Any], wait_s: int = 0, **more: Any) -> dict[str, Any]:
    policy = {"MaximumBatchSize": size, "WaitIntervalInSeconds": wait_s, **more}
    return {"RollingUpdatePolicy": policy}


@pytest.fixture
def base(api: Api) -> None:
    """A component "base" of 20 copies and its adapter "es", in service."""
    api.make.endpoint()
    api.make.component(RuntimeConfig={"CopyCount": COPIES})
    api.make.adapter("es")
    for name in ("base", "es"):
        api.change_component(name, status=ComponentStatus.IN_SERVICE, deadline_at=None)


def update(api: Api, config: dict[str, Any] | None, **more: Any) -> None:
    params = {"Specification": NEW, **({"DeploymentConfig": config} if config else {}), **more}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", **params)


def rollout_of(component: InferenceComponent) -> Rollout:
    assert component.rollout is not None
    return component.rollout


@pytest.mark.usefixtures("base")
def test_a_rolling_update_is_kept_and_shown(api: Api) -> None:
    config = deployment(
        batch(4),
        60,
        MaximumExecutionTimeoutInSeconds=900,
        RollbackMaximumBatchSize=percent(25),
    )
    update(api, config)
    rollout = rollout_of(api.component("base"))
    assert rollout.policy == RollingUpdate(
        max_batch=CapacitySize(unit=CapacityUnit.COPY_COUNT, value=4),
        wait_s=60.0,
        max_execution_s=900.0,
        rollback_batch=CapacitySize(unit=CapacityUnit.CAPACITY_PERCENT, value=25),
    )
    assert (rollout.started_at, rollout.new_copies, rollout.failure) == (api.clock.now(), 0, None)
    assert api.component("base").deadline_at == api.clock.now() + 900.0
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("base")
def test_an_update_without_a_policy_has_no_batches_and_forgets_the_last_ones(api: Api) -> None:
    update(api, deployment(batch(4)))
    for more in ({}, {"Specification": None, "RuntimeConfig": {"CopyCount": 2}}):
        api.change_component("base", status=ComponentStatus.IN_SERVICE)
        given = {"Specification": NEW, **more}
        params = {name: value for name, value in given.items() if value is not None}
        api.call("UpdateInferenceComponent", InferenceComponentName="base", **params)
        assert api.component("base").rollout is None
        shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
        assert "LastDeploymentConfig" not in shown


@pytest.mark.usefixtures("base")
def test_a_new_copy_count_keeps_what_the_last_update_was_done_by(api: Api) -> None:
    update(api, deployment(batch(4)))
    api.change_component("base", status=ComponentStatus.IN_SERVICE)
    api.call(
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName="base",
        DesiredRuntimeConfig={"CopyCount": 0},
    )
    assert (api.component("base").rollout, api.component("base").desired_copies) == (None, 0)
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["LastDeploymentConfig"] == deployment(batch(4))


@pytest.mark.usefixtures("base")
@cases(
    "copies, size, message",
    case("half of the copies", 20, batch(10), None),
    case("more than half", 20, batch(11), "is 11; it must be 1 to 10 of 20 copies"),
    case("half rounds down", 21, batch(11), "it must be 2 to 10 of 21 copies"),
    case("a twentieth", 100, batch(5), None),
    case("less than that", 100, batch(4), "is 4; it must be 5 to 50 of 100 copies"),
    case("the only copy", 1, batch(1), None),
    case("no copy at all", 0, batch(1), None),
    case("more than there are", 1, batch(2), "is 2; it must be 1 to 1 of 1 copies"),
    case("the least share", 20, percent(5), None),
    case("the largest share, of one copy", 1, percent(50), None),
    case("too small a share", 20, percent(4), "it must be 5 to 50 per cent"),
    case("too large a share", 20, percent(51), "it must be 5 to 50 per cent"),
)
def test_a_batch_is_5_to_50_per_cent_of_the_copies_the_update_wants(
    api: Api, copies: int, size: dict[str, Any], message: str | None
) -> None:
    params = {
        "InferenceComponentName": "base",
        "Specification": NEW,
        "RuntimeConfig": {"CopyCount": copies},
        "DeploymentConfig": deployment(size),
    }
    if message is None:
        api.call("UpdateInferenceComponent", **params)
        assert rollout_of(api.component("base")).policy.max_batch.value == size["Value"]
        return
    before = api.component("base")
    assert message in api.refusal("UpdateInferenceComponent", **params)
    assert api.component("base") == before


@pytest.mark.usefixtures("base")
@cases(
    "size, kept",
    case("nothing said goes back in one step", None, None),
    case("all of it is one step", percent(100), None),
    case("a share", percent(99), CapacitySize(unit=CapacityUnit.CAPACITY_PERCENT, value=99)),
    case("a count", batch(500), CapacitySize(unit=CapacityUnit.COPY_COUNT, value=500)),
)
def test_what_a_rollback_goes_by(
    api: Api, size: dict[str, Any] | None, kept: CapacitySize | None
) -> None:
    more: dict[str, Any] = {} if size is None else {"RollbackMaximumBatchSize": size}
    update(api, deployment(batch(2), 0, **more))
    assert rollout_of(api.component("base")).policy.rollback_batch == kept


@pytest.mark.usefixtures("base")
@cases(
    "name, params, message",
    case(
        "an alarm that nothing would raise",
        "base",
        {
            "DeploymentConfig": {
                **deployment(batch(2)),
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "too-many-5xx"}]},
            }
        },
        'AutoRollbackConfiguration.Alarms: there is no alarm "too-many-5xx".',
    ),
    case(
        "waits that take longer than any update",
        "base",
        {"DeploymentConfig": deployment(batch(1), 3600)},
        "20 batches that wait 3600 s each take 72000 s, and the whole update may take 28800 s",
    ),
    case(
        "waits that take as long as this update may",
        "base",
        {"DeploymentConfig": deployment(batch(2), 60, MaximumExecutionTimeoutInSeconds=600)},
        "10 batches that wait 60 s each take 600 s, and the whole update may take 600 s",
    ),
    case(
        "more than everything back",
        "base",
        {"DeploymentConfig": deployment(batch(2), RollbackMaximumBatchSize=percent(101))},
        "RollbackMaximumBatchSize is 101 per cent",
    ),
    case(
        "batches of an adapter",
        "es",
        {
            "Specification": {"Container": {"ArtifactUrl": "s3://b/k.tar.gz"}},
            "DeploymentConfig": deployment(batch(1)),
        },
        "DeploymentConfig cannot be given for an update of an adapter",
    ),
)
def test_a_rolling_update_that_cannot_be_is_refused(
    api: Api, name: str, params: dict[str, Any], message: str
) -> None:
    before = api.component(name)
    given = {"InferenceComponentName": name, "Specification": NEW, **params}
    assert message in api.refusal("UpdateInferenceComponent", **given)
    assert api.component(name) == before


@pytest.mark.usefixtures("base")
def test_a_rolling_update_without_a_time_out_may_take_8_hours(api: Api) -> None:
    update(api, deployment(batch(10)))
    assert rollout_of(api.component("base")).policy.max_execution_s == 28_800.0
    assert api.component("base").deadline_at == api.clock.now() + 28_800.0


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    "status",
    [pytest.param(it, id=it.value) for it in ComponentStatus if it is not ComponentStatus.DELETING],
)
def test_a_delete_ends_a_rolling_update(api: Api, status: ComponentStatus) -> None:
    api.call("DeleteInferenceComponent", InferenceComponentName="es")
    update(api, deployment(batch(4)))
    api.change_component("base", status=status, placement_note="no room for the next batch")
    api.call("DeleteInferenceComponent", InferenceComponentName="base")
    after = api.component("base")
    assert (after.status, after.rollout) == (ComponentStatus.DELETING, None)
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert "FailureReason" not in shown


@pytest.mark.usefixtures("base")
def test_an_update_waits_for_the_one_before(api: Api) -> None:
    update(api, deployment(batch(4)))
    for operation, params in (
        ("UpdateInferenceComponent", {"Specification": NEW}),
        ("UpdateInferenceComponentRuntimeConfig", {"DesiredRuntimeConfig": {"CopyCount": 1}}),
    ):
        assert "in-progress" in api.refusal(operation, InferenceComponentName="base", **params)


@cases(
    "operation",
    case("at the creation", "CreateInferenceComponent"),
    case("by an update", "UpdateInferenceComponent"),
    case("by its own call", "UpdateInferenceComponentRuntimeConfig"),
)
@pytest.mark.usefixtures("base")
def test_more_copies_than_any_machine_keeps_are_refused(api: Api, operation: str) -> None:
    count = {"CopyCount": 1_000_000_000}
    specification = {"Container": {"Image": "i"}, "ComputeResourceRequirements": api.make.needs}
    params: dict[str, dict[str, Any]] = {
        "CreateInferenceComponent": {
            "InferenceComponentName": "other",
            "EndpointName": "e",
            "Specification": specification,
            "RuntimeConfig": count,
        },
        "UpdateInferenceComponent": {"InferenceComponentName": "base", "RuntimeConfig": count},
        "UpdateInferenceComponentRuntimeConfig": {
            "InferenceComponentName": "base",
            "DesiredRuntimeConfig": count,
        },
    }
    with pytest.raises(ServiceError, match="is 1000000000; at most 1000") as caught:
        api.call(operation, **params[operation])
    assert (caught.value.code, caught.value.http_status) == ("ResourceLimitExceeded", 400)
    assert api.component("base").desired_copies == COPIES
