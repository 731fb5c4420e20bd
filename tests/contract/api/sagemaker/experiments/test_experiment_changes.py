"""Inference experiments are started, updated, stopped and deleted, if their status allows it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.contract.api.sagemaker.experiments.requests import (
    ARN,
    DAY_S,
    NEXT,
    STORAGE,
    Call,
    error,
    mirrors,
    variant,
)

from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import ExperimentStatus


def test_one_that_is_not_there(api: Api) -> None:
    actions = {"ModelVariantActions": {"main": "Retain"}}
    for operation in ("Describe", "Start", "Stop", "Update", "Delete"):
        more = actions if operation == "Stop" else {}
        code, text = error(api, f"{operation}InferenceExperiment", Name="trial", **more)
        assert (code, text) == ("ResourceNotFound", f'Could not find inference experiment "{ARN}".')


STATUSES = [it.value for it in ExperimentStatus]


@cases(
    "operation, allowed, more",
    case("start", "Start", {"Created"}, {}),
    case(
        "stop",
        "Stop",
        {"Created", "Starting", "Running"},
        {"ModelVariantActions": {"main": "Retain"}},
    ),
    case("update", "Update", {"Created", "Running"}, {"Description": "d"}),
    case("delete", "Delete", {"Completed", "Cancelled"}, {}),
)
@pytest.mark.parametrize("status", STATUSES)
def test_the_statuses_that_allow_a_call(
    models: None,
    api: Api,
    create: Call,
    turn: Callable[..., None],
    operation: str,
    allowed: set[str],
    more: dict[str, Any],
    status: str,
) -> None:
    create()
    started_at = None if status in ("Creating", "Created") else api.clock.now()
    turn(status=ExperimentStatus(status), started_at=started_at)
    named = f"{operation}InferenceExperiment"
    if status in allowed:
        assert api.call(named, Name="trial", **more) == {"InferenceExperimentArn": ARN}
        return
    code, text = error(api, named, Name="trial", **more)
    assert code == "ConflictException"
    assert f'experiment "{ARN}" is {status}, and cannot be' in text


@pytest.mark.usefixtures("models")
def test_started_before_its_time(
    api: Api, create: Call, describe: Call, look: Callable[..., None]
) -> None:
    later = api.clock.now() + 20 * DAY_S
    create(Schedule={"StartTime": later, "EndTime": later + 30 * DAY_S})
    look()
    api.call("StartInferenceExperiment", Name="trial")
    shown, now = describe(), api.clock.now()
    assert shown["Status"] == "Starting"
    assert shown["Schedule"] == {"StartTime": now, "EndTime": now + 30 * DAY_S}


@pytest.mark.usefixtures("models")
def test_everything_may_change_before_the_start(
    api: Api, create: Call, describe: Call, look: Callable[..., None]
) -> None:
    start_at = api.clock.now() + DAY_S
    create(Schedule={"StartTime": start_at, "EndTime": start_at + DAY_S})
    look()
    made_at = api.clock.now()
    api.clock.advance(5)
    api.call(
        "UpdateInferenceExperiment",
        Name="trial",
        Description="other",
        Schedule={"EndTime": start_at + 3 * DAY_S},
        ModelVariants=[variant("third", "v3", 2)],
        ShadowModeConfig=mirrors(5, "third"),
        DataStorageConfig={"Destination": "s3://there"},
    )
    shown = describe()
    assert shown["Status"] == "Updating"
    look()
    shown = describe()
    assert (shown["Status"], shown["CreationTime"]) == ("Created", made_at)
    assert shown["Schedule"] == {"StartTime": start_at, "EndTime": start_at + 3 * DAY_S}
    assert [it["VariantName"] for it in shown["ModelVariants"]] == ["main", "third"]
    assert shown["ShadowModeConfig"] == mirrors(5, "third")
    assert shown["DataStorageConfig"] == {"Destination": "s3://there"}
    assert shown["Description"] == "other"
    code, text = error(
        api, "UpdateInferenceExperiment", Name="trial", ModelVariants=[variant("third", "v9")]
    )
    assert (code, "Could not find model" in text) == ("ValidationException", True)


@pytest.mark.usefixtures("running")
def test_a_running_one_takes_another_share_end_and_description(
    api: Api, describe: Call, look: Callable[..., None]
) -> None:
    end_at = api.clock.now() + DAY_S
    api.call(
        "UpdateInferenceExperiment",
        Name="trial",
        Description="less",
        Schedule={"EndTime": end_at},
        ModelVariants=[NEXT],
        ShadowModeConfig=mirrors(10),
    )
    assert describe()["Status"] == "Updating"
    look()
    (shadow,) = api.call("DescribeEndpoint", EndpointName="e")["ShadowProductionVariants"]
    assert shadow["DesiredWeight"] == 0.1
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    look()
    shown = describe()
    assert (shown["Status"], shown["Description"]) == ("Running", "less")
    assert shown["Schedule"]["EndTime"] == end_at
    assert shown["ShadowModeConfig"] == mirrors(10)


@cases(
    "more, code, text",
    case(
        "instances",
        {"ModelVariants": [variant("next", "v2", 2)]},
        "ConflictException",
        "ModelVariants cannot be changed any more",
    ),
    case(
        "the capture",
        {"DataStorageConfig": STORAGE},
        "ConflictException",
        "DataStorageConfig cannot be changed",
    ),
    case(
        "the start",
        {"Schedule": {"StartTime": 5e9}},
        "ConflictException",
        "Schedule.StartTime cannot be changed",
    ),
    case(
        "another source",
        {"ShadowModeConfig": mirrors(source="other", shadow="next")},
        "ValidationException",
        'uses "other" and "next" only',
    ),
    case(
        "the variants exchanged",
        {"ShadowModeConfig": mirrors(source="next", shadow="main")},
        "ConflictException",
        "the variants of ShadowModeConfig cannot be changed",
    ),
    case("the past", {"Schedule": {"EndTime": 1.0}}, "ValidationException", "EndTime must be"),
    case("too long", {"Schedule": {"EndTime": 5e9}}, "ValidationException", "at most 30 days"),
)
def test_a_running_one_takes_nothing_else(
    running: None, api: Api, more: dict[str, Any], code: str, text: str
) -> None:
    found = error(api, "UpdateInferenceExperiment", Name="trial", **more)
    assert (found[0], text in found[1]) == (code, True), found[1]


@pytest.mark.usefixtures("running")
def test_a_stop_by_default_cancels_and_removes_the_shadow(
    api: Api, describe: Call, look: Callable[..., None]
) -> None:
    api.call(
        "StopInferenceExperiment",
        Name="trial",
        ModelVariantActions={"main": "Retain"},
        Reason="seen enough",
    )
    shown = describe()
    assert shown["Status"] == "Stopping"
    assert [it["Status"] for it in shown["ModelVariants"]] == ["InService", "Deleting"]
    look()
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    look()
    shown = describe()
    assert (shown["Status"], shown["StatusReason"]) == ("Cancelled", "seen enough")
    assert [it["Status"] for it in shown["ModelVariants"]] == ["InService", "Deleted"]
    assert shown["EndpointMetadata"]["EndpointConfigName"] == "e-config"
    assert shown["CompletionTime"] == shown["Schedule"]["EndTime"]


@pytest.mark.usefixtures("running")
def test_a_stop_that_promotes(api: Api, describe: Call, look: Callable[..., None]) -> None:
    api.call(
        "StopInferenceExperiment",
        Name="trial",
        ModelVariantActions={"main": "Remove", "next": "Promote"},
        DesiredModelVariants=[variant("next", "v2", 3)],
        DesiredState="Completed",
    )
    assert [it["Status"] for it in describe()["ModelVariants"]] == ["Deleting", "Updating"]
    look()
    endpoint = api.call("DescribeEndpoint", EndpointName="e")
    (coming,) = endpoint["PendingDeploymentSummary"]["ProductionVariants"]
    assert (coming["VariantName"], coming["DesiredInstanceCount"]) == ("next", 3)
    assert "ShadowProductionVariants" not in endpoint["PendingDeploymentSummary"]
    name = endpoint["PendingDeploymentSummary"]["EndpointConfigName"]
    (shown,) = api.call("DescribeEndpointConfig", EndpointConfigName=name)["ProductionVariants"]
    assert (shown["ModelName"], shown["InitialInstanceCount"]) == ("v2", 3)


@pytest.mark.usefixtures("running")
def test_a_stop_that_keeps_both(api: Api, describe: Call, look: Callable[..., None]) -> None:
    api.call(
        "StopInferenceExperiment",
        Name="trial",
        ModelVariantActions={"next": "Retain"},
        DesiredState="Completed",
    )
    look()
    shown = describe()
    assert shown["Status"] == "Completed"
    assert [it["Status"] for it in shown["ModelVariants"]] == ["InService", "InService"]
    assert len(api.call("DescribeEndpoint", EndpointName="e")["ShadowProductionVariants"]) == 1


@pytest.mark.parametrize(
    ("more", "text"),
    [
        pytest.param(
            {"ModelVariantActions": {"other": "Retain"}},
            '"other" is no variant of inference experiment',
            id="another variant",
        ),
        *(
            pytest.param(
                {"ModelVariantActions": {"main": production, "next": shadow}},
                "do not leave one production variant",
                id=f"{production} and {shadow}",
            )
            for production, shadow in (
                ("Remove", "Remove"),
                ("Remove", "Retain"),
                ("Retain", "Promote"),
                ("Promote", "Remove"),
            )
        ),
        pytest.param(
            {
                "ModelVariantActions": {"main": "Retain"},
                "DesiredModelVariants": [variant("next", "v2")],
            },
            "DesiredModelVariants has next; by ModelVariantActions main must be",
            id="a variant that is removed",
        ),
        pytest.param(
            {
                "ModelVariantActions": {"next": "Promote"},
                "DesiredModelVariants": [variant("next", "v3")],
            },
            'variant "next" has model "v2", not "v3"',
            id="another model",
        ),
    ],
)
def test_a_stop_that_is_refused(running: None, api: Api, more: dict[str, Any], text: str) -> None:
    assert text in api.refusal("StopInferenceExperiment", Name="trial", **more)


@pytest.mark.usefixtures("running")
def test_a_stop_removes_no_scalable_target(api: Api) -> None:
    api.scaling(
        "RegisterScalableTarget",
        ResourceId="endpoint/e/variant/main",
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        MinCapacity=1,
        MaxCapacity=2,
    )
    actions = {"main": "Remove", "next": "Promote"}
    text = api.refusal("StopInferenceExperiment", Name="trial", ModelVariantActions=actions)
    assert "is registered as a scalable target" in text
    api.call("StopInferenceExperiment", Name="trial", ModelVariantActions={"next": "Remove"})


@pytest.mark.usefixtures("models")
def test_one_that_has_not_started_promotes_nothing(
    api: Api, create: Call, describe: Call, look: Callable[..., None]
) -> None:
    create(Schedule={"StartTime": api.clock.now() + 60})
    look()
    given = {"Name": "trial", "ModelVariantActions": {"next": "Promote"}}
    code, text = error(api, "StopInferenceExperiment", **given)
    assert (code, "no shadow serves yet" in text) == ("ConflictException", True)
    api.call("StopInferenceExperiment", Name="trial", ModelVariantActions={"main": "Retain"})
    shown = describe()
    assert shown["Status"] == "Cancelled"
    assert [it["Status"] for it in shown["ModelVariants"]] == ["Deleted", "Deleted"]


@pytest.mark.usefixtures("running")
def test_a_delete_forgets_the_experiment_alone(
    api: Api, look: Callable[..., None], turn: Callable[..., None]
) -> None:
    api.call("AddTags", ResourceArn=ARN, Tags=[{"Key": "team", "Value": "a"}])
    turn(status=ExperimentStatus.COMPLETED)
    api.call("DeleteInferenceExperiment", Name="trial")
    assert error(api, "DescribeInferenceExperiment", Name="trial")[0] == "ResourceNotFound"
    assert len(api.call("DescribeEndpoint", EndpointName="e")["ShadowProductionVariants"]) == 1
    assert "Could not find inference experiment" in error(api, "ListTags", ResourceArn=ARN)[1]


@cases(
    "operation, more, statuses",
    case("deleted", "DeleteEndpoint", {}, ["Deleting", "Deleting"]),
    case(
        "updated", "UpdateEndpoint", {"EndpointConfigName": "e-config"}, ["InService", "Deleting"]
    ),
)
def test_an_endpoint_that_a_client_changes_cancels_the_experiment(
    running: None,
    api: Api,
    describe: Call,
    look: Callable[..., None],
    operation: str,
    more: dict[str, Any],
    statuses: list[str],
) -> None:
    api.call(operation, EndpointName="e", **more)
    look()
    shown = describe()
    assert (shown["Status"], "The endpoint was" in shown["StatusReason"]) == ("Cancelled", True)
    assert [it["Status"] for it in shown["ModelVariants"]] == statuses
