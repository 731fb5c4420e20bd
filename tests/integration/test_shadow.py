"""Shadow variants of a real platform: their share, their faults, and effects on production."""

import contextlib
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, names
from tests.integration.platform import until as until_within
from tests.integration.served_models import ROLE

from hostelry.base.clock import SystemClock
from hostelry.gateway.mirroring.messages import SIZES
from hostelry.home.heartbeat import short_name
from hostelry.services.mirror import NICENESS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]
NUM_THREADS = 8
MARK = "ECHO_ROLE"
ON_THE_WAY = ("Creating", "Created", "Starting", "Running", "Updating", "Stopping")


def until(check: Callable[[], Any], what: str, within_s: float = 90.0) -> Any:
    """`until` of the platform, with more time: on a busy machine the mirror process runs last."""
    return until_within(check, what, within_s)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir()
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--gateway-workers", "2") as running:
        create_configs(running, "e", "ok")
        create_configs(running, "broken", "fail")
        sagemaker = running.boto3("sagemaker")
        for name in ("e", "broken"):
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        for name in ("e", "broken"):
            in_service(running, name)
        yield running


def create_configs(platform: Platform, name: str, shadow_mode: str) -> None:
    """Configurations of a production variant with and without a shadow in `shadow_mode`."""
    sagemaker, variants = platform.boto3("sagemaker"), []
    for variant, mode in (("main", "ok"), ("shadow", shadow_mode)):
        environment = {"ECHO_MODE": mode, "ECHO_VERSION": variant, MARK: f"{name}-{variant}"}
        sagemaker.create_model(
            ModelName=f"{name}-{variant}",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": "echo:1", "Environment": environment},
        )
        variants.append(
            {
                "VariantName": variant,
                "ModelName": f"{name}-{variant}",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
                "InitialVariantWeight": 1.0,
            }
        )
    frequent = {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10}
    main, shadow = variants
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[main],
        ShadowProductionVariants=[shadow],
        MetricsConfig=frequent,
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=f"{name}-alone", ProductionVariants=[main], MetricsConfig=frequent
    )


def in_service(platform: Platform, name: str) -> dict[str, Any]:
    """DescribeEndpoint once it is in service."""
    sagemaker = platform.boto3("sagemaker")

    def described() -> dict[str, Any] | None:
        found: dict[str, Any] = sagemaker.describe_endpoint(EndpointName=name)
        assert found["EndpointStatus"] in ("Creating", "Updating", "InService"), found
        return found if found["EndpointStatus"] == "InService" else None

    found: dict[str, Any] = until(described, f"endpoint {name} is in service", 60)
    assert "FailureReason" not in found
    return found


def compared(platform: Platform, outcome: str, body: bytes) -> list[str]:
    """The table of `hostelry compare` when it is complete. Both variants get requests meanwhile."""
    client = platform.boto3("sagemaker-runtime", max_pool_connections=NUM_THREADS)
    options = ("--divergence", "0.1", "--errors", "0.5", "--latency", "50")

    def ask(_: int) -> None:
        client.invoke_endpoint(EndpointName="e", Body=body)["Body"].read()

    def lines() -> list[str] | None:
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(ask, range(80)))
        found = platform.cli("compare", "e", "main", "shadow", *options, code=None).stdout
        return found.splitlines() if f": {outcome}\n" in found else None

    shown: list[str] = until(lines, f"the shadow is {outcome}", 100)
    return shown


def answered(platform: Platform, count: int, endpoint: str = "e") -> int:
    """How many of `count` requests production's copy answers with the echo. Each 4th streams.

    Without retries, so that a failure caused by the shadow shows.
    """
    client = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})

    def ask(number: int) -> bool:
        body = b'{"number": %d}' % number
        if number % 4:
            answer = client.invoke_endpoint(EndpointName=endpoint, Body=body)
            whole: bytes = answer["Body"].read()
        else:
            answer = client.invoke_endpoint_with_response_stream(EndpointName=endpoint, Body=body)
            whole = b"".join(it["PayloadPart"]["Bytes"] for it in answer["Body"])
        return answer["InvokedProductionVariant"] == "main" and body in whole

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return sum(pool.map(ask, range(count)))


def total(
    platform: Platform, metric: str, variant: str, endpoint: str = "e", space: str = "AWS/SageMaker"
) -> float:
    """The sum of a metric so far."""
    now = SystemClock().now()
    found = platform.boto3("cloudwatch").get_metric_statistics(
        Namespace=space,
        MetricName=metric,
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant},
        ],
        StartTime=now - 1800,
        EndTime=now + 60,
        Period=3600,
        Statistics=["Sum"],
    )
    return float(sum(it["Sum"] for it in found["Datapoints"]))


def arrived(platform: Platform, variant: str, endpoint: str = "e") -> float:
    return total(platform, "Arrivals", variant, endpoint, space="Hostelry")


def pid_of(platform: Platform, role: str) -> int:
    """The process of the copy of that role."""
    mark = f"{MARK}={role}\0".encode()
    return int(
        until(
            lambda: next((it for it in platform.processes() if names(it, mark)), None),
            f"a process of {role}",
        )
    )


def test_the_shadow_gets_its_share_and_answers_no_client(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    (shown,) = in_service(platform, "e")["ShadowProductionVariants"]
    assert (shown["VariantName"], shown["CurrentWeight"]) == ("shadow", 1.0)
    assert (shown["CurrentInstanceCount"], shown["DesiredInstanceCount"]) == (1, 1)
    with pytest.raises(ClientError, match="Variant shadow not found on endpoint e"):
        platform.boto3("sagemaker-runtime").invoke_endpoint(
            EndpointName="e", TargetVariant="shadow", Body=b"{}"
        )
    assert answered(platform, 100) == 100
    until(lambda: arrived(platform, "shadow") == 100, "all requests were mirrored")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "shadow", "DesiredWeight": 0.5}],
    )
    (shown,) = in_service(platform, "e")["ShadowProductionVariants"]
    assert shown["DesiredWeight"] == 0.5
    time.sleep(1.0)  # the promise is a second after the change at most
    assert answered(platform, 200) == 200
    until(lambda: arrived(platform, "main") == 300, "all requests were counted")
    until(lambda: total(platform, "Invocations", "main") == 300, "production's own metric")

    looks: list[float] = []

    def has_settled() -> bool:
        """Whether requests have stopped arriving. On a busy machine the last ones are late."""
        looks.append(arrived(platform, "shadow"))
        is_counted = total(platform, "Invocations", "shadow") == looks[-1]
        return is_counted and looks[-1] >= 196 and looks[-10:] == [looks[-1]] * 10

    until(has_settled, "the shadow's own metric")
    assert abs(looks[-1] - 200) <= 4  # two workers share evenly by themselves
    assert total(platform, "MirrorsDropped", "shadow", space="Hostelry") == 0


def test_errors_of_the_shadow_are_its_own(platform: Platform) -> None:
    assert answered(platform, 60, "broken") == 60
    errors = ("InvocationModelErrors", "Invocation5XXErrors")

    def counted(variant: str) -> list[float]:
        return [total(platform, name, variant, "broken") for name in errors]

    def each_is_counted() -> bool:
        """Also those that the mirror process had no copy for yet."""
        mirrored = arrived(platform, "shadow", "broken")
        dropped = total(platform, "MirrorsDropped", "shadow", "broken", "Hostelry")
        return mirrored > 0 and mirrored + dropped == 60 and counted("shadow") == [mirrored] * 2

    until(each_is_counted, "each request is the shadow's error, or dropped")
    assert counted("main") == [0, 0]
    assert in_service(platform, "broken")


def test_a_shadow_whose_answers_differ_is_worse(platform: Platform) -> None:
    lines = compared(platform, "no worse", b'{"same": 1}')
    assert "0.00 % [0.00, " in lines[-2], lines
    lines = compared(platform, "worse", b"version")
    print("\n".join(lines))
    assert lines[-2].startswith("answers differ  of ")
    assert lines[-2].endswith("  worse")


def test_a_shadow_that_hangs_or_dies_costs_production_nothing(platform: Platform) -> None:
    platform.boto3("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "shadow", "DesiredWeight": 1.0}],
    )
    time.sleep(1.0)
    before = arrived(platform, "shadow")
    pid = pid_of(platform, "e-shadow")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert answered(platform, 300) == 300
    finally:
        os.kill(pid, signal.SIGCONT)
    num_dropped = until(
        lambda: total(platform, "MirrorsDropped", "shadow", space="Hostelry"),
        "what a hanging copy cannot take is dropped",
    )
    until(
        lambda: (
            arrived(platform, "shadow")
            - before
            + total(platform, "MirrorsDropped", "shadow", space="Hostelry")
            == 300
        ),
        f"each request was mirrored or dropped, {num_dropped} of them so far",
    )
    os.kill(pid_of(platform, "e-shadow"), signal.SIGKILL)
    assert answered(platform, 100) == 100
    assert in_service(platform, "e")
    assert total(platform, "Invocation5XXErrors", "main") == 0
    before = arrived(platform, "shadow")
    until(
        lambda: answered(platform, 8) == 8 and arrived(platform, "shadow") > before + 8,
        "the copy is back, and mirrored to",
        60,
    )


def dropped(platform: Platform) -> float:
    return total(platform, "MirrorsDropped", "shadow", space="Hostelry")


def mirrored_again(platform: Platform) -> None:
    """Return once the shadow gets copies of all requests again. Production answers all of them."""

    def counts() -> tuple[float, float, float]:
        return arrived(platform, "main"), arrived(platform, "shadow"), dropped(platform)

    def all_arrived() -> bool:
        main, shadow, lost = counts()
        assert answered(platform, 8) == 8
        all_counted = (main + 8, shadow + 8, lost)
        with contextlib.suppress(AssertionError):  # requests in a killed process are not counted
            until(lambda: counts() == all_counted, "eight requests are counted", 20)
        return counts() == all_counted

    until(all_arrived, "requests are mirrored", 100)


@pytest.mark.thorough
def test_a_mirror_process_that_dies_costs_production_nothing(platform: Platform) -> None:
    mirrored_again(platform)
    before = (arrived(platform, "main"), dropped(platform))
    workers, mirror = (
        os.getpriority(os.PRIO_PROCESS, platform.pid(name)) for name in ("gateway-1", "mirror")
    )
    assert mirror == min(workers + NICENESS, 19)
    with SteadyClient(platform, "e") as client:
        pid = platform.back("mirror", platform.kill("mirror"))
        assert answered(platform, 40) == 40
    assert client.failures == []
    num_asked = 40 + len(client.versions)
    until(lambda: arrived(platform, "main") == before[0] + num_asked, "production's are counted")
    assert dropped(platform) > before[1], "what comes meanwhile is dropped"
    mirrored_again(platform)
    assert (platform.pid("mirror"), client.failures) == (pid, [])


@pytest.mark.thorough
def test_a_mirror_process_that_hangs_costs_production_nothing(platform: Platform) -> None:
    before = dropped(platform)
    pid = platform.kill("mirror", signal.SIGSTOP)
    large = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
    assert answered(platform, 400) == 400
    for _ in range(4):  # more than its socket takes
        body = b"x" * 4_000_000
        answer = large.invoke_endpoint(EndpointName="e", Body=body)["Body"].read()
        assert body in answer
    assert answered(platform, 400) == 400
    platform.back("mirror", pid)
    assert dropped(platform) >= before
    mirrored_again(platform)
    assert total(platform, "Invocation5XXErrors", "main") == 0
    assert in_service(platform, "e")


@pytest.mark.thorough
def test_bytes_that_are_no_request_end_their_line_alone(platform: Platform) -> None:
    pid, path = platform.pid("mirror"), platform.home.mirror
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, SIZES.pack(1, 2**32 - 1)):
        with socket.socket(socket.AF_UNIX) as line, short_name(path) as name:
            line.settimeout(20)
            line.connect(name)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(noise)
                assert line.recv(1) == b""
    mirrored_again(platform)
    assert platform.pid("mirror") == pid
    assert not platform.tracebacks()


def test_an_update_takes_the_shadow_away(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="e-alone")
    assert "ShadowProductionVariants" not in in_service(platform, "e")
    time.sleep(1.0)
    before = arrived(platform, "main"), arrived(platform, "shadow")
    assert answered(platform, 40) == 40
    until(lambda: arrived(platform, "main") == before[0] + 40, "production serves")
    assert arrived(platform, "shadow") == before[1]
    mark = f"{MARK}=e-shadow\0".encode()
    until(
        lambda: not any(names(it, mark) for it in platform.processes()),
        "the shadow's copy is ended",
    )


def experiment_variant(name: str, model: str) -> dict[str, Any]:
    return {
        "ModelName": model,
        "VariantName": name,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        },
    }


def experiment_reached(platform: Platform, name: str, status: str) -> dict[str, Any]:
    """DescribeInferenceExperiment once it has that status."""

    def described() -> dict[str, Any] | None:
        found: dict[str, Any] = platform.looker().describe_inference_experiment(Name=name)
        assert found["Status"] in (status, *ON_THE_WAY), found
        return found if found["Status"] == status else None

    def reached() -> dict[str, Any] | None:
        with contextlib.suppress(ClientError, HTTPClientError):  # control is being killed
            return described()
        return None

    found: dict[str, Any] = until(reached, f"experiment {name} is {status}", 60)
    return found


class SteadyClient:
    """Requests the version of the answering model, again and again, without retries."""

    def __init__(self, platform: Platform, endpoint: str) -> None:
        self.versions: list[str] = []
        self.failures: list[str] = []
        self._endpoint = endpoint
        self._client = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            try:
                answer = self._client.invoke_endpoint(EndpointName=self._endpoint, Body=b"version")
                self.versions.append(answer["Body"].read().decode())
            except (BotoCoreError, ClientError) as error:
                self.failures.append(f"{len(self.versions)}: {error}")

    def __enter__(self) -> "SteadyClient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_an_experiment_makes_an_endpoint_and_promotes_its_shadow(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    for version in ("v1", "v2"):
        sagemaker.create_model(
            ModelName=version,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": "echo:1", "Environment": {"ECHO_VERSION": version}},
        )
    mirrored = {"ShadowModelVariantName": "next", "SamplingPercentage": 50}
    sagemaker.create_inference_experiment(
        Name="trial",
        Type="ShadowMode",
        RoleArn=ROLE,
        EndpointName="trial",
        ModelVariants=[experiment_variant("now", "v1"), experiment_variant("next", "v2")],
        ShadowModeConfig={"SourceModelVariantName": "now", "ShadowModelVariants": [mirrored]},
    )
    platform.back("control", platform.kill("control"))
    shown = experiment_reached(platform, "trial", "Running")
    assert [it["Status"] for it in shown["ModelVariants"]] == ["InService", "InService"]
    assert "experiment trial  Running  endpoint trial  50 % of now to next" in (
        platform.cli("status").stdout
    )
    with SteadyClient(platform, "trial") as client:
        until(lambda: arrived(platform, "next", "trial") >= 20, "requests are mirrored")
        shadows = [it for it in platform.processes() if names(it, b"ECHO_VERSION=v2\0")]
        sagemaker.stop_inference_experiment(
            Name="trial",
            ModelVariantActions={"now": "Remove", "next": "Promote"},
            DesiredState="Completed",
            Reason="as fast",
        )
        platform.back("control", platform.kill("control"))
        shown = experiment_reached(platform, "trial", "Completed")
        until(lambda: client.versions[-1] == "v2", "the promoted model answers")
        in_service(platform, "trial")
    assert client.failures == []
    assert set(client.versions) == {"v1", "v2"}
    assert client.versions == sorted(client.versions), "no request goes back"
    now = [it for it in platform.processes() if names(it, b"ECHO_VERSION=v2\0")]
    assert (len(now), now) == (1, shadows), "the shadow's own copy answers"
    assert shown["StatusReason"] == "as fast"
    assert [it["Status"] for it in shown["ModelVariants"]] == ["Deleted", "InService"]


def test_an_experiment_leaves_production_alone(platform: Platform) -> None:
    sagemaker, pid = platform.boto3("sagemaker"), pid_of(platform, "e-main")
    before = in_service(platform, "e")["EndpointConfigName"]
    mirrored = {"ShadowModelVariantName": "next", "SamplingPercentage": 100}
    with SteadyClient(platform, "e") as client:
        sagemaker.create_inference_experiment(
            Name="beside",
            Type="ShadowMode",
            RoleArn=ROLE,
            EndpointName="e",
            ModelVariants=[experiment_variant("next", "e-shadow")],
            ShadowModeConfig={"SourceModelVariantName": "main", "ShadowModelVariants": [mirrored]},
        )
        experiment_reached(platform, "beside", "Running")
        until(lambda: arrived(platform, "next") >= 20, "requests are mirrored")
        sagemaker.update_inference_experiment(
            Name="beside", Schedule={"EndTime": SystemClock().now() + 3}
        )
        shown = experiment_reached(platform, "beside", "Completed")
    assert client.failures == []
    assert pid_of(platform, "e-main") == pid
    assert shown["EndpointMetadata"]["EndpointConfigName"] == before
    assert [it["Status"] for it in shown["ModelVariants"]] == ["Deleted"]
