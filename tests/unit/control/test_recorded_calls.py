"""AWS calls have records in the audit trail. A change that cannot be recorded is not made."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, FailingFiles, opened_trail
from tests.unit.control.test_app import CONFIG, open_app

from hostelry.api.context import CallContext
from hostelry.audit.file_writer import TrailFiles
from hostelry.audit.lookup import TrailFilter
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.control.events import perform_call
from hostelry.domain.principal import AccessKey, User
from hostelry.domain.scope import Scope
from hostelry.domain.shape import NO_RESOURCES
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.schedules.targets import TargetCall
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

CLIENT = {
    "X-Hostelry-Access-Key-Id": "AKIAEXAMPLE",
    "X-Hostelry-Client-Address": "10.1.2.3",
    "User-Agent": "Boto3/1.40",
}


class TroubledFiles(FailingFiles):
    """Files that report `trouble` before a call. Apart from that, they fail while `is_full`."""

    trouble: str | None = None

    def find_trouble(self) -> str | None:
        return self.trouble


def events(trail: AuditTrail) -> list[dict[str, Any]]:
    """The events, oldest first."""
    found = trail.find(TrailFilter(), 100).lines
    return [msgspec.json.decode(bytes(it.event)) for it in found][::-1]


async def test_a_call_is_recorded_with_its_caller_and_its_result(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        async with open_app(trail) as app:
            assert (await app.aws("CreateEndpointConfig", CONFIG, **CLIENT)).status_code == 200
            await app.aws("DescribeEndpointConfig", {"EndpointConfigName": "c"})
        made, read = events(trail)
    assert made["userIdentity"]["arn"] == "arn:aws:iam::111122223333:root"
    assert made["userIdentity"]["accessKeyId"] == "AKIAEXAMPLE"
    assert (made["sourceIPAddress"], made["userAgent"]) == ("10.1.2.3", "Boto3/1.40")
    assert (made["requestID"], made["awsRegion"]) == ("rid-7", "us-west-2")
    assert made["requestParameters"]["endpointConfigName"] == "c"
    arn = "arn:aws:sagemaker:us-west-2:111122223333:endpoint-config/c"
    assert made["responseElements"] == {"endpointConfigArn": arn}
    assert made["resources"][0] == {
        "ARN": arn,
        "accountId": "111122223333",
        "type": "AWS::SageMaker::EndpointConfig",
    }
    assert made["additionalEventData"] == {"decision": "allowed"}
    assert read["userIdentity"]["invokedBy"] == "hostelry.internal", "it has no access key"
    assert (read["readOnly"], read["responseElements"]) == (True, None)


async def test_a_denial_is_recorded_with_the_statement_that_decided(tmp_path: Path) -> None:
    denies = {"Sid": "NoLists", "Effect": "Deny", "Action": "sagemaker:List*", "Resource": "*"}
    document = msgspec.json.encode({"Version": "2012-10-17", "Statement": [denies]}).decode()
    user = User(
        account="111122223333",
        name="ada",
        id="AIDA1",
        created_at=1.0,
        inline_policies={"Limits": document},
        access_keys=(AccessKey(id="AKIAADA", created_at=1.0),),
    )
    with opened_trail(tmp_path) as trail:
        async with open_app(trail) as app:
            users = open_state(app.store).users
            users.put(Scope(user.account, "aws-global"), user.name, user, expect=None)
            keys = {"X-Hostelry-Access-Key-Id": "AKIAADA", "X-Hostelry-User": "ada"}
            assert (await app.aws("ListModels", {}, **keys)).status_code == 403
            keys["X-Hostelry-User"] = "gone"
            assert (await app.aws("ListModels", {}, **keys)).status_code == 403
        denied, unknown = events(trail)
    assert denied["userIdentity"]["userName"] == "ada"
    assert denied["errorCode"] == "AccessDeniedException"
    data = denied["additionalEventData"]
    assert (data["decision"], data["statement"]["sid"]) == ("denied", "NoLists")
    assert unknown["userIdentity"] == {
        "type": "Unknown",
        "accountId": "111122223333",
        "accessKeyId": "AKIAADA",
    }
    assert unknown["errorCode"] == "UnrecognizedClientException"


@cases(
    "operation, params, error",
    case(
        "an unknown resource", "DescribeEndpoint", {"EndpointName": "none"}, "ValidationException"
    ),
    case("an invalid parameter", "DescribeEndpoint", {"EndpointName": 5}, "SerializationException"),
    case("an operation that is not served", "CreateTrainingJob", {}, "UnknownOperationException"),
)
async def test_a_refused_call_is_recorded_with_its_error(
    tmp_path: Path, operation: str, params: dict[str, Any], error: str
) -> None:
    with opened_trail(tmp_path) as trail:
        async with open_app(trail) as app:
            assert (await app.aws(operation, params)).status_code == 400
        (found,) = events(trail)
    assert (found["eventName"], found["errorCode"]) == (operation, error)


async def test_a_request_without_an_operation_is_not_recorded(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        async with open_app(trail) as app:
            assert (await app.aws("Nothing", {})).status_code == 400
        assert trail.head.number == 0


async def test_on_a_full_disk_changes_are_refused_and_reads_are_counted(tmp_path: Path) -> None:
    files = TroubledFiles(tmp_path / "audit", KEY)
    with opened_trail(tmp_path, writer=files) as trail:
        async with open_app(trail) as app:
            files.is_full, files.trouble = True, "No space left on device"
            revision = app.store.revision()
            refused = await app.aws("CreateEndpointConfig", CONFIG)
            assert refused.status_code == 503
            message = refused.json()["message"]
            assert "CreateEndpointConfig was not done" in message
            assert "No space left on device. Free some space" in message
            assert app.store.revision() == revision
            assert (await app.aws("ListEndpointConfigs", {})).status_code == 200
            files.is_full, files.trouble = False, None
            assert (await app.aws("CreateEndpointConfig", CONFIG)).status_code == 200
        lost, made = events(trail)
    assert lost["serviceEventDetails"] == {"count": 2}
    assert made["eventName"] == "CreateEndpointConfig"


async def test_a_change_whose_record_is_lost_is_not_acknowledged(tmp_path: Path) -> None:
    files = TroubledFiles(tmp_path / "audit", KEY)
    with opened_trail(tmp_path, writer=files) as trail:
        async with open_app(trail) as app:
            files.is_full = True
            answer = await app.aws("CreateEndpointConfig", CONFIG)
            assert answer.status_code == 503
            assert "was done, but no record of it" in answer.json()["message"]
            files.is_full = False
            await app.aws("ListEndpointConfigs", {})
        assert events(trail)[0]["serviceEventDetails"] == {"count": 1}


def context(trail: AuditTrail) -> CallContext:
    clock = ManualClock()
    return CallContext(
        scope=Scope("111122223333", "us-west-2"),
        state=open_state(MemoryStore()),
        now=clock.now(),
        get_shape=lambda _: NO_RESOURCES,
        role_arn="arn:aws:iam::111122223333:role/R",
        role_name="R",
        metrics=MemoryMetrics(clock),
        trail=trail,
    )


def test_a_call_of_a_schedule_is_recorded_as_the_services(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        called = context(trail)
        for operation in ("CreateEndpointConfig", "DeleteEndpoint"):
            params = CONFIG if operation == "CreateEndpointConfig" else {"EndpointName": "none"}
            call = TargetCall(service="sagemaker", operation=operation, params=params)
            if operation == "DeleteEndpoint":
                with pytest.raises(ServiceError):
                    perform_call(called, call, "scheduler.amazonaws.com")
            else:
                perform_call(called, call, "scheduler.amazonaws.com")
        made, failed = events(trail)
    assert made["userIdentity"]["invokedBy"] == "scheduler.amazonaws.com"
    assert made["sourceIPAddress"] == "scheduler.amazonaws.com"
    assert (failed["eventName"], failed["errorCode"]) == ("DeleteEndpoint", "ValidationException")


def test_a_call_of_a_schedule_is_not_made_without_a_record(tmp_path: Path) -> None:
    files = TroubledFiles(tmp_path / "audit", KEY)
    with opened_trail(tmp_path, writer=files) as trail:
        files.trouble = "No space left on device"
        called = context(trail)
        call = TargetCall(service="sagemaker", operation="CreateEndpointConfig", params=CONFIG)
        with pytest.raises(ServiceError, match="was not done"):
            perform_call(called, call, "scheduler.amazonaws.com")
        assert called.state.store.revision() == 0
    assert isinstance(files, TrailFiles)
