"""A platform on a Ray cluster of three nodes: deaths of control, `up`, a proxy, a node and a host.

Instances are reached, and reach the object store and the gateway, as on other machines: through
node proxies.
"""

import io
import os
import signal
import tarfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError, EventStreamError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.joined_host import JoinedHost, health_of, kill_host
from tests.integration.platform import Platform, until
from tests.postgres_rig import postgres_database
from tests.ray_rig import RayCluster, ray_cluster

from hostelry.base.address import Address
from hostelry.base.clock import monotonic_s
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.ports import free_port
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Home, load_config
from hostelry.processes.fleets import AGENT_MODULE, PROXY_MODULE

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
STREAMS, CALLERS = 6, 2
STREAM_S = 12
WHOLE_S = 180.0
KEY = "model.tar.gz"


def copies(platform: Platform) -> dict[str, dict[str, Any]]:
    """The ready copies by id."""
    answer = httpx.get(
        f"{platform.config.control_url}/internal/state",
        headers={INTERNAL_KEY_HEADER: platform.credentials.internal_key},
        trust_env=False,
        timeout=30,
    )
    (endpoint,) = answer.raise_for_status().json()["endpoints"]
    return {it["id"]: it for it in endpoint["copies"] if it["phase"] == "ready"}


def pids(platform: Platform) -> set[int]:
    return {it["pid"] for it in copies(platform).values()}


def adopted(platform: Platform) -> set[int]:
    """The same, of a control that may not lead yet."""
    try:
        return pids(platform)
    except httpx.HTTPError:
        return set()


def all_answer(platform: Platform, component: str = "base") -> bool:
    """Whether calls are answered, enough of them that each copy has its part."""
    runtime = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
    asked = {"EndpointName": "ep", "InferenceComponentName": component, "Body": b"hello"}
    return {outcome(lambda: runtime.invoke_endpoint(**asked)) for _ in range(8)} == {"ok"}


def deploy(platform: Platform) -> None:
    """An endpoint of two instances with a copy on each, whose model is in the object store."""
    platform.boto3("s3").create_bucket(Bucket="models")
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint_config(
        EndpointConfigName="c",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 2,
                # At random all streams may come to one copy.
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="c")
    add_component(platform, "base", KEY, 2)
    until(lambda: len(copies(platform)) == 2, "two copies are ready", WHOLE_S)


def add_component(platform: Platform, name: str, key: str, num_copies: int) -> None:
    """A component of which a copy fills an instance, and its model, named `key`."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        packed.addfile(tarfile.TarInfo("model"))
    platform.boto3("s3").put_object(Bucket="models", Key=key, Body=archive.getvalue())
    platform.boto3("sagemaker").create_inference_component(
        InferenceComponentName=name,
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": "echo:1", "ArtifactUrl": f"s3://models/{key}"},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 1024,
                "NumberOfCpuCoresRequired": 2,
            },
        },
        RuntimeConfig={"CopyCount": num_copies},
    )


def reached_by_links(platform: Platform, cluster: RayCluster, node: str) -> None:
    """The answers that an instance on the node gets through its own signed ports."""
    (path,) = (cluster.folder / node).glob("*/*/*/*/config.json")
    config = load_config(Home(path.parent))
    own = {platform.config.gateway_port, platform.config.s3_port}
    assert config.host == "127.0.0.1"
    assert {config.gateway_port, config.s3_port}.isdisjoint(own)
    keys = b"".join(it.read_bytes() for it in path.parent.glob("*.json"))
    own_keys = platform.credentials
    for secret in (own_keys.internal_key, own_keys.secret_access_key, own_keys.openai_api_key):
        assert secret.encode() not in keys
    for service in ("s3", "sagemaker"):
        client = aws_client(service, config, platform.credentials)
        with closing(client):
            if service == "s3":
                client.head_object(Bucket="models", Key=KEY)
            else:
                client.describe_endpoint(EndpointName="ep")


class Calls:
    """Long streams, and clients that send requests without pause, with their outcomes."""

    def __init__(self, platform: Platform) -> None:
        self.streams: list[str] = []
        self.answers: list[str] = []
        self.done = threading.Event()
        self.begun = 0  # streams whose first part has come
        self._platform = platform
        self._threads = [threading.Thread(target=self._stream) for _ in range(STREAMS)]
        self._threads += [threading.Thread(target=self._ask) for _ in range(CALLERS)]

    def __enter__(self) -> "Calls":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join()

    def _runtime(self) -> Any:
        return self._platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})

    def _stream(self) -> None:
        runtime = self._runtime()

        def read() -> None:
            answer = runtime.invoke_endpoint_with_response_stream(
                EndpointName="ep", InferenceComponentName="base", Body=b"drip %d" % STREAM_S
            )
            with closing(answer["Body"]) as events:  # a cut one is not at its end
                parts: list[bytes] = []
                for event in events:
                    self.begun += not parts
                    parts.append(event["PayloadPart"]["Bytes"])
            assert b"".join(parts).endswith(b"end\n"), "no part is lost"

        self.streams.append(outcome(read))

    def _ask(self) -> None:
        runtime = self._runtime()
        while not self.done.is_set():
            self.answers.append(
                outcome(
                    lambda: runtime.invoke_endpoint(
                        EndpointName="ep", InferenceComponentName="base", Body=b"hello"
                    )
                )
            )


def outcome(call: Callable[[], object]) -> str:
    """The outcome of a call: "ok", or the code of a modelled error. Raises any other error."""
    try:
        call()
    except (ClientError, EventStreamError) as error:
        return str(error.response["Error"]["Code"])
    return "ok"


@pytest.mark.thorough
def test_copies_outlive_control_and_up_and_come_back_from_a_dead_node(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    with ray_cluster({}) as cluster, ExitStack() as stack:
        first = cluster.add({"ml.m5.large": 1}, "--labels", "hostelry.zone=us-east-1a")
        second = cluster.add({"ml.m5.large": 2}, "--labels", "hostelry.zone=us-east-1b")
        flags = ("--fleet", "ray", "--ray-address", cluster.address, "--gateway-workers", "1")
        peers = ("--cluster-host", "127.0.0.1", "--cluster-port", str(free_port()))
        store = ("--store", stack.enter_context(postgres_database()))
        with Platform(home.root, *flags, *peers, *store) as platform:
            deploy(platform)
            before = pids(platform)
            on_first = before & set(cluster.processes(first))
            assert len(on_first) == 1, "each zone has an instance, each node a copy"
            assert before - on_first <= set(cluster.processes(second))
            hosts = {Address.parse(it["address"]).host for it in copies(platform).values()}
            assert hosts == {first, second}, "each is reached on its node's own address"
            reached_by_links(platform, cluster, first)

            (proxy,) = cluster.running(first, PROXY_MODULE)
            os.kill(proxy, signal.SIGKILL)
            until(
                lambda: cluster.running(first, PROXY_MODULE) not in ([], [proxy]),
                "its proxy is started again",
                WHOLE_S,
            )
            until(lambda: all_answer(platform), "both copies answer", WHOLE_S)
            assert pids(platform) == before
            reached_by_links(platform, cluster, first)
            platform.back("control", platform.kill("control"))
            until(lambda: adopted(platform) == before, "control adopts the copies", WHOLE_S)
            platform.back("up", platform.kill("up"))
            until(lambda: adopted(platform) == before, "`up` adopts what runs", WHOLE_S)

            with Calls(platform) as calls:
                until(lambda: calls.begun == STREAMS and calls.answers, "all ask", WHOLE_S)
                killed_at, asked = monotonic_s(), len(calls.answers)
                cluster.kill(first)
                until(lambda: on_first.isdisjoint(pids(platform)), "routes are without it", WHOLE_S)
                gone_s = monotonic_s() - killed_at
                until(lambda: len(copies(platform)) == 2, "two copies again", WHOLE_S)
                whole_s = monotonic_s() - killed_at
            assert pids(platform) <= set(cluster.processes(second)), "on the other node"
            cut = [it for it in calls.streams if it != "ok"]
            failed = [it for it in calls.answers if it != "ok"]
            print(f"gone from the routes {gone_s:.1f} s, whole {whole_s:.1f} s after the death")
            print(f"of {STREAMS} streams {cut} were cut, of {len(calls.answers)} calls {failed}")
            assert 0 < len(cut) < STREAMS, "those of the dead copy, and no others"
            assert len(failed) <= CALLERS, "at most those that were in progress"
            assert len(calls.answers) > asked
            with (
                JoinedHost(platform, "control") as further,
                JoinedHost(platform, "gateway", "--gateway-workers", "1") as gateways,
            ):
                another_control_leads(platform, further, gateways, (cluster, second))
        assert not [it for it in cluster.processes(second) if it in before], "down ends copies"


def another_control_leads(
    first: Platform, further: Platform, gateways: Platform, node: tuple[RayCluster, str]
) -> None:
    """The new leader does the work of the first host's control, and no copy restarts."""
    before, (cluster, address) = pids(first), node
    until(lambda: all_answer(gateways), "the further host serves", WHOLE_S)
    kill_host(first, "gateway-1", "objectstore", "s3door", "proxy")
    until(lambda: health_of(further.home).get("ready"), "the other control leads", WHOLE_S)
    until(lambda: pids(further) == before, "it adopts the copies", WHOLE_S)
    assert all_answer(gateways)

    sagemaker = gateways.boto3("sagemaker", retries={"total_max_attempts": 5})
    sagemaker.update_inference_component_runtime_config(
        InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": 1}
    )
    until(lambda: len(pids(further)) == 1, "one copy is ended", WHOLE_S)
    (kept,) = pids(further)
    assert kept in before
    proxies = set(cluster.running(address, PROXY_MODULE))
    for proxy in proxies:  # with their connections to the first host, which are of its time
        os.kill(proxy, signal.SIGKILL)
    until(
        lambda: len(set(cluster.running(address, PROXY_MODULE)) - proxies) == len(proxies),
        "the instances' proxies are started again",
        WHOLE_S,
    )
    add_component(gateways, "late", "late.tar.gz", 1)
    until(lambda: len(pids(further)) == 2, "its model comes from the first host's store", WHOLE_S)
    (late,) = pids(further) - {kept}
    until(lambda: all_answer(gateways, "late"), "it answers", WHOLE_S)

    kill_host(first)
    assert all_answer(gateways, "late")
    sagemaker.delete_inference_component(InferenceComponentName="base")
    until(lambda: pids(further) == {late}, "only the other is left", WHOLE_S)
    weights = {"VariantName": "AllTraffic", "DesiredInstanceCount": 1}
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="ep", DesiredWeightsAndCapacities=[weights]
    )
    until(lambda: len(cluster.running(address, AGENT_MODULE)) == 1, "an instance ended", WHOLE_S)
    assert pids(further) == {late}
    assert all_answer(gateways, "late")
