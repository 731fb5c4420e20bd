"""Updates of model endpoints in steps and in batches under constant traffic: good and broken."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.guardrail_rig import (
    NUM_THREADS,
    ROUTED_S,
    Endpoint,
    Traffic,
    canary,
    linear,
    measured,
    report,
    share,
)
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import SHORT_WAITS
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.clock import SystemClock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = Path(tmp_path_factory.mktemp("guardrails")) / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--gateway-workers", "2") as found:
        yield found


@pytest.mark.thorough
def test_a_linear_update_moves_the_traffic_in_steps_though_control_is_killed(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "steps", 3)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.update("v2", linear(1, 15), alarm, bake_s=3)
        endpoint.at_step(1, 3)
        answers = measured(traffic, 4.0)
        report(print, "step 1 of 3", answers)
        assert share(answers) == pytest.approx(1 / 3, abs=0.03)
        since = SystemClock().now()
        platform.back("control", platform.kill("control"))
        endpoint.at_step(2, 3)
        after_the_kill = traffic.seen(since, endpoint.step_began() - 1.0)
        report(print, "step 1, control killed", after_the_kill)
        assert share(after_the_kill) == pytest.approx(1 / 3, abs=0.05)
        with ThreadPoolExecutor(1) as pool:
            shown = pool.submit(lambda: platform.cli("status").stdout)
            answers = measured(traffic, 3.0)
            status = shown.result()
        report(print, "step 2 of 3", answers)
        assert share(answers) == pytest.approx(2 / 3, abs=0.03)
        assert "steps-v1 -> steps-v2" in status
        assert "update: step 2 of 3: 67 % of traffic; baking " in status
        assert f"alarms watched: {alarm}" in status
        endpoint.at_step(3, 3)
        answers = measured(traffic, 2.0)
        assert set(answers) == {"v2"}
        described = endpoint.in_service()
        time.sleep(1.0)
        assert traffic.failed() == []
    assert described["EndpointConfigName"] == "steps-v2"
    assert "FailureReason" not in described
    assert "PendingDeploymentSummary" not in described
    print(f"{traffic.seen().total()} requests, none failed")


def test_a_broken_canary_is_taken_back_by_the_alarm_on_its_own_errors(platform: Platform) -> None:
    endpoint = Endpoint(platform, "broken", 1)
    endpoint.configure("v2", mode="fail")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.update("v2", canary(10, 300), alarm)
        endpoint.at_step(1, 2)
        began = SystemClock().now()
        until(lambda: traffic.failed(), "a request fails")
        described = until(
            lambda: (found := endpoint.described())["EndpointStatus"] == "InService" and found,
            "rolled back",
            60,
        )
        took_s = SystemClock().now() - began
        during = traffic.seen(began, began + took_s)
        failed = len([it for it in during.elements() if it != "v1"])
        print(
            f"rolled back {took_s:.1f} s after the canary began; {failed} of {during.total()}"
            f" requests failed, {failed / during.total():.3f}"
        )
        assert failed / during.total() <= 0.12
        assert all("500" in it for it in traffic.failed()), traffic.failed()[:3]
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 2.0)
        assert traffic.failed(since) == [], "at once all traffic is back"
        assert set(traffic.seen(since)) == {"v1"}
    assert described["EndpointConfigName"] == "broken-v1"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]
    assert described["LastDeploymentConfig"]["BlueGreenUpdatePolicy"][
        "TrafficRoutingConfiguration"
    ] == canary(10, 300)


@pytest.mark.thorough
def test_a_verdict_takes_back_a_broken_canary_and_lets_a_good_one_go_on(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "decided", 1)
    endpoint.configure("v2", mode="fail")
    endpoint.configure("v3")
    endpoint.decide_by_verdict("errors=0.05 latency=4.0")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.update("v2", canary(10, 500), None)
        endpoint.at_step(1, 2)
        began = endpoint.step_began()
        described = endpoint.in_service()
        print(f"taken back within {SystemClock().now() - began:.1f} s of the step's begin")
        print(described["FailureReason"])
        assert described["EndpointConfigName"] == "decided-v1"
        assert "variant AllTraffic is worse than the old one: errors " in described["FailureReason"]
        failed = len(traffic.failed())
        print(f"{failed} of {traffic.seen(began).total()} requests failed")
        endpoint.update("v3", canary(25, 500), None, bake_s=90)
        endpoint.at_step(1, 2)
        began = endpoint.step_began()
        assert "; verdict: undecided after " in endpoint.variant_status()["StatusMessage"]
        assert "; verdict: undecided after " in platform.cli("status").stdout
        endpoint.at_step(2, 2, within_s=120.0)
        print(f"all traffic {endpoint.step_began() - began:.1f} s after the first step began")
        described = endpoint.in_service()
        print(f"complete {SystemClock().now() - began:.1f} s after it")
        assert len(traffic.failed()) == failed, "of the good version none"
    assert described["EndpointConfigName"] == "decided-v3"
    assert "FailureReason" not in described


@pytest.mark.thorough
def test_a_good_canary_gets_its_share_and_then_all(platform: Platform) -> None:
    endpoint = Endpoint(platform, "canary", 1)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.update("v2", canary(10, 10), alarm, bake_s=2)
        endpoint.at_step(1, 2)
        answers = measured(traffic, 7.0)
        report(print, "canary of 10 %", answers)
        assert share(answers) == pytest.approx(0.1, abs=0.015)
        endpoint.at_step(2, 2)
        endpoint.in_service()
        time.sleep(1.0)
        assert traffic.failed() == []
    assert endpoint.described()["EndpointConfigName"] == "canary-v2"
    num_asked = traffic.seen().total()
    until(lambda: invocations(endpoint, None) == num_asked, "every request is counted")
    counted = {it: invocations(endpoint, it) for it in (None, "v1", "v2")}
    print(f"Invocations: {counted}")
    assert 0 < counted["v2"] < counted[None]
    assert counted["v1"] + counted["v2"] == pytest.approx(counted[None], rel=0.02)
    each = {it: invocations(endpoint, it, "InvocationsPerInstance") for it in (None, "v2")}
    assert each["v2"] == pytest.approx(counted["v2"], rel=0.02), "by its one instance"
    assert counted[None] / 2 < each[None] < counted[None] - 10, "by two while both serve"


def invocations(endpoint: Endpoint, version: str | None, name: str = "Invocations") -> float:
    """The sum of the metric, of both versions or of one alone."""
    now = SystemClock().now()
    names = {"EndpointName": endpoint.name, "VariantName": "AllTraffic"}
    if version is not None:
        names["EndpointConfigName"] = endpoint.config(version)
    found = endpoint.cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName=name,
        Dimensions=[{"Name": it, "Value": value} for it, value in names.items()],
        StartTime=now - 600,
        EndTime=now + 60,
        Period=60,
        Statistics=["Sum"],
    )
    return float(sum(it["Sum"] for it in found["Datapoints"]))


@pytest.mark.thorough
def test_a_rolling_update_replaces_a_fleet_and_comes_back_though_control_is_killed(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "rolling", 3)
    endpoint.configure("v2")
    endpoint.configure("v3")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.roll("v2", 10, alarm)
        endpoint.bakes(1, 3)
        answers = measured(traffic, 3.0)
        report(print, "batch 1 of 3", answers)
        assert share(answers) == pytest.approx(1 / 3, abs=0.05)
        endpoint.kill_control()
        endpoint.bakes(2, 3)
        answers = measured(traffic, 3.0)
        report(print, "batch 2 of 3", answers)
        assert share(answers) == pytest.approx(2 / 3, abs=0.05)
        described = endpoint.in_service()
        assert (described["EndpointConfigName"], traffic.failed()) == ("rolling-v2", [])
        until(lambda: "VariantStatus" not in endpoint.described()["ProductionVariants"][0], "gone")

        one = {"Type": "INSTANCE_COUNT", "Value": 1}
        endpoint.roll("v3", 12, alarm, RollbackMaximumBatchSize=one)
        endpoint.bakes(1, 3)
        endpoint.kill_control()
        endpoint.bakes(2, 3)
        began = SystemClock().now()
        endpoint.cloudwatch.set_alarm_state(
            AlarmName=alarm, StateValue="ALARM", StateReason="a person saw it"
        )
        until(lambda: endpoint.variant_status().get("Status") == "Updating", "it goes back")
        endpoint.kill_control()
        described = endpoint.in_service()
        print(f"an old instance back {SystemClock().now() - began:.1f} s after the alarm")
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 1.0)
        assert set(traffic.seen(since)) == {"v2"}
        assert traffic.failed() == []
    assert described["EndpointConfigName"] == "rolling-v2"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]
    print(f"{traffic.seen().total()} requests, none failed")


@pytest.mark.thorough
def test_a_broken_batch_is_taken_back_by_the_alarm_on_its_own_errors(platform: Platform) -> None:
    endpoint = Endpoint(platform, "broken-batch", 3)
    endpoint.configure("v2", mode="fail")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.roll("v2", 300, alarm)
        endpoint.bakes(1, 3)
        began = SystemClock().now()
        described = endpoint.in_service()
        took_s = SystemClock().now() - began
        during = traffic.seen(began, began + took_s)
        failed = len([it for it in during.elements() if it != "v1"])
        print(f"rolled back {took_s:.1f} s later; {failed} of {during.total()} requests failed")
        assert 0 < failed / during.total() <= 1 / 3 + 0.05
        assert all("500" in it for it in traffic.failed()), traffic.failed()[:3]
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 1.0)
        assert set(traffic.seen(since)) == {"v1"}, "at once all traffic is back"
    assert described["EndpointConfigName"] == "broken-batch-v1"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]


@pytest.mark.thorough
def test_a_new_copy_that_is_killed_takes_the_traffic_back(platform: Platform) -> None:
    endpoint = Endpoint(platform, "killed", 2)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(platform, endpoint.name) as traffic:
        endpoint.update("v2", linear(1, 60), alarm)
        endpoint.at_step(1, 2)
        time.sleep(ROUTED_S)
        pid = endpoint.new_copies()[0]["pid"]
        began = SystemClock().now()
        os.kill(pid, signal.SIGKILL)
        described = endpoint.in_service()
        took_s = SystemClock().now() - began
        time.sleep(ROUTED_S + 1.0)
        failed = traffic.failed()
        print(f"rolled back {took_s:.1f} s after the kill; {len(failed)} requests failed")
        assert len(failed) <= NUM_THREADS, failed
        assert set(traffic.seen(SystemClock().now() - 1.0)) == {"v1"}
    assert described["EndpointConfigName"] == "killed-v1"
    assert "no longer serves on all new instances: " in described["FailureReason"]


def test_requests_of_a_queue_are_split_too(platform: Platform) -> None:
    s3 = platform.boto3("s3", max_pool_connections=NUM_THREADS)
    s3.create_bucket(Bucket="queue")
    s3.put_object(Bucket="queue", Key="in", Body=b"version")
    queued = {
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 2},
        "OutputConfig": {"S3OutputPath": "s3://queue/out"},
    }
    endpoint = Endpoint(platform, "queued", 1, AsyncInferenceConfig=queued)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    endpoint.update("v2", canary(25, 300), alarm)
    endpoint.at_step(1, 2)
    time.sleep(ROUTED_S)
    runtime = platform.boto3("sagemaker-runtime", max_pool_connections=NUM_THREADS)

    def submit(_: int) -> str:
        answer = runtime.invoke_endpoint_async(
            EndpointName="queued", InputLocation="s3://queue/in", ContentType="text/plain"
        )
        return str(answer["OutputLocation"]).removeprefix("s3://queue/")

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        keys = list(pool.map(submit, range(100)))

        def num_outputs() -> bool:
            found = s3.list_objects_v2(Bucket="queue", Prefix="out").get("Contents", [])
            return len(found) == len(keys)

        until(num_outputs, "every request has its output", 40)
        bodies = pool.map(lambda it: s3.get_object(Bucket="queue", Key=it)["Body"].read(), keys)
        answers = Counter(it.decode() for it in bodies)
    report(print, "a queue's canary of 25 %", answers)
    assert share(answers) == pytest.approx(0.25, abs=0.03)
    assert answers.total() == answers["v1"] + answers["v2"]
    endpoint.client.delete_endpoint(EndpointName="queued")


@pytest.mark.slow
@pytest.mark.thorough
def test_the_sdks_own_classes_begin_an_update_in_steps_and_read_its_progress(
    platform: Platform,
) -> None:
    python = virtual_environment("sdk3-core", "sagemaker-core==2.27.0") / "python"
    program = Path(__file__).parent / "sdk_programs" / "v3" / "guardrails.py"
    text = platform.exec([str(python), str(program)], SHORT_WAITS).stdout
    found = json.loads(text.splitlines()[-1])
    assert (found["status"], found["config"], found["size"]) == ("InService", "sdk-v2", 25)
    assert found["seen"] == ["Creating", "ActivatingTraffic", "Baking"]
