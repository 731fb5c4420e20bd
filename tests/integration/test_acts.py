"""Restarts and drains under constant traffic, while control is killed or copies cannot start."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.guardrail_rig import ROLE, Endpoint, Traffic
from tests.integration.platform import Platform, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WITHIN_S = 90.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = Path(tmp_path_factory.mktemp("acts")) / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--gateway-workers", "2", "--audit-invocations") as found:
        yield found


def shared(platform: Platform) -> None:
    """An endpoint with one instance, and a component of two copies on it."""
    sagemaker = platform.boto3("sagemaker")
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.2xlarge"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="shared",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    sagemaker.create_endpoint(EndpointName="shared", EndpointConfigName="shared")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="shared", WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="shared",
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": "echo:1", "Environment": {"ECHO_VERSION": "v1"}},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 128,
                "NumberOfCpuCoresRequired": 0.5,
            },
        },
        RuntimeConfig={"CopyCount": 2},
    )
    until(lambda: len(ready(platform, "shared")) == 2, "two copies serve", WITHIN_S)


def shown(platform: Platform, endpoint: str) -> dict[str, Any]:
    """The endpoint in `hostelry status`. Empty while control does not answer."""
    state = json.loads(platform.cli("status", "--json", code=None).stdout)["state"] or {}
    found = [it for it in state.get("endpoints", []) if it["name"] == endpoint]
    return found[0] if found else {}


def ready(platform: Platform, endpoint: str) -> set[str]:
    copies = shown(platform, endpoint).get("copies", [])
    return {it["id"] for it in copies if it["phase"] == "ready" and not it["draining"]}


def instances(platform: Platform, endpoint: str) -> set[str]:
    return {it["id"] for it in shown(platform, endpoint).get("instances", [])}


def is_replaced(platform: Platform, endpoint: str, before: set[str], count: int) -> bool:
    """Whether the same number of other copies serve, and all old copies are gone."""
    copies = shown(platform, endpoint).get("copies", [])
    there = {it["id"] for it in copies}
    serving = [it for it in copies if it["phase"] == "ready" and not it["draining"]]
    return not before & there and len(serving) == count


def test_a_restart_and_a_drain_fail_no_request_though_control_is_killed(
    platform: Platform,
) -> None:
    shared(platform)
    before = ready(platform, "shared")
    with Traffic(platform, "shared", pause_s=0.2, InferenceComponentName="base") as traffic:
        planned = json.loads(platform.cli("restart", "base", "--json").stdout)
        assert {it["way"] for it in planned["steps"]} == {"beside"}
        refused = platform.cli("restart", "base", code=1).stderr
        assert "nothing was done: add --yes" in refused
        text = platform.cli("restart", "base", "--yes").stdout
        assert "Restart component base of endpoint shared" in text
        platform.back("control", platform.kill("control"))
        until(lambda: is_replaced(platform, "shared", before, 2), "both copies are new", WITHIN_S)
        (old,) = instances(platform, "shared")
        before = ready(platform, "shared")
        text = platform.cli("drain", old, "--yes").stdout
        assert "a new copy comes up on the new instance" in text
        platform.back("control", platform.kill("control"))
        until(lambda: instances(platform, "shared") - {old}, "another instance", WITHIN_S)
        until(lambda: old not in instances(platform, "shared"), "the old one ended", WITHIN_S)
        until(lambda: is_replaced(platform, "shared", before, 2), "both copies moved", WITHIN_S)
        assert traffic.failed() == []
    print(f"{traffic.seen().total()} requests, none failed")
    assert "drain instance" in platform.scaling("timeline", "shared")
    assert_trail(platform, old)


def assert_trail(platform: Platform, drained: str) -> None:
    """The audit log has the acts, the calls and the invocations, and its chain is whole."""
    listed = ("list", "--json", "--limit", "100000", "--by")
    own = json.loads(platform.audit(*listed, "EventSource=hostelry.internal"))
    assert [(it["eventName"], it["requestParameters"]["target"]) for it in own][::-1] == [
        ("restart", "component base"),
        ("drain", f"instance {drained}"),
    ]
    assert all(it["additionalEventData"] == {"outcome": "accepted"} for it in own)
    assert all(it["userIdentity"]["userName"].startswith("user ") for it in own)
    cloudtrail = platform.boto3("cloudtrail")
    wanted = [{"AttributeKey": "EventName", "AttributeValue": "CreateInferenceComponent"}]
    (event,) = cloudtrail.lookup_events(LookupAttributes=wanted)["Events"]
    record = json.loads(event["CloudTrailEvent"])
    assert record["userIdentity"]["accessKeyId"] == platform.credentials.access_key_id
    assert record["sourceIPAddress"] == "127.0.0.1"
    assert "botocore" in record["userAgent"].lower()
    variables = record["requestParameters"]["specification"]["container"]["environment"]
    assert variables == {"ECHO_VERSION": "HIDDEN_DUE_TO_SECURITY_REASONS"}

    def invocations() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            platform.audit(*listed, "EventName=InvokeEndpoint")
        )
        return found

    first = until(invocations, "invocations are recorded", WITHIN_S)[0]
    assert first["requestParameters"]["endpointName"] == "shared"
    assert first["additionalEventData"]["status"] == 200
    assert "No record was changed or removed" in platform.audit("verify")


@pytest.mark.thorough
def test_what_cannot_start_leaves_the_old_copies_and_a_drain_is_cancelled(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "model", 2)
    before, hosts = ready(platform, "model"), instances(platform, "model")
    copy_id, first = sorted(before)[0], sorted(hosts)[0]
    broken = ECHO_IMAGE.replace("command = [", 'command = ["/bin/false", ')
    with Traffic(platform, "model") as traffic:
        platform.home.images.write_text(broken)
        text = platform.cli("restart", copy_id, "--yes").stdout
        assert "another ml.m5.large instance comes up" in text

        def given_up() -> str:
            restarts = [it["restart"] for it in shown(platform, "model").get("copies", [])]
            return next((it["reason"] for it in restarts if it and it["failed"]), "")

        reason = until(given_up, "the restart is given up", WITHIN_S)
        assert "exited with code 1" in reason
        assert f"given up: {reason.splitlines()[0]}" in platform.cli("status").stdout
        until(lambda: instances(platform, "model") == hosts, "the new one ended", WITHIN_S)
        platform.cli("drain", first, "--yes")

        def waits() -> str:
            drains = [it["drain"] for it in shown(platform, "model").get("instances", [])]
            return next((it["reason"] for it in drains if it), "")

        until(lambda: "failed" in waits() or "exited" in waits(), "the drain waits", WITHIN_S)
        assert "draining for " in platform.cli("explain", "--endpoint", "model").stdout
        assert platform.cli("drain", first, "--cancel", "--yes").returncode == 0
        until(lambda: instances(platform, "model") == hosts, "as many as before", WITHIN_S)
        assert ready(platform, "model") == before
        platform.home.images.write_text(ECHO_IMAGE)
        platform.cli("restart", "model", "--yes")
        until(lambda: is_replaced(platform, "model", before, 2), "all copies are new", WITHIN_S)
        assert endpoint.described()["EndpointStatus"] == "InService"
        assert traffic.failed() == []
    print(f"{traffic.seen().total()} requests, none failed")
