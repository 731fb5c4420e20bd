"""Two examples, unchanged, on a Ray cluster of three nodes, which have room for four instances."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.models import tiny_model
from tests.integration.platform import Platform
from tests.models import random_adapter
from tests.ray_rig import ray_cluster

from hostelry.base.ports import free_port

PROGRAM_S = 400  # together some 90 s where the machine has nothing else to do
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(2 * PROGRAM_S + 300),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPE = "ml.g5.12xlarge"
STYLES = ("es", "fr", "pirate")


@pytest.mark.thorough
def test_examples_run_unchanged_on_three_nodes(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    for number, name in enumerate(STYLES):
        random_adapter(tmp_path / "adapters" / name, model, rank=4, seed=number)
    given = ("--model", str(model), "--adapters", str(tmp_path / "adapters"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    rule = [sys.executable, str(EXAMPLES / "echo_server.py"), "--image-rule"]
    printed = subprocess.run(rule, capture_output=True, text=True, check=True)
    (home / "images.toml").write_text(printed.stdout)
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with ray_cluster({TYPE: 2}) as cluster:
        cluster.add({TYPE: 1})
        cluster.add({TYPE: 1})
        flags = ("--fleet", "ray", "--ray-address", cluster.address, "--gateway-workers", "1")
        peers = ("--cluster-host", "127.0.0.1", "--cluster-port", str(free_port()))
        with Platform(home, *flags, *peers, "--pace", "40", environment=path) as platform:
            answered_through_adapters(ran(platform, "many_adapters.py", *given), platform)
            more = ("--release-within", "240")
            shared_four_instances(ran(platform, "shared_fleet.py", *given, *more), platform)


def ran(platform: Platform, name: str, *arguments: str) -> str:
    """The output of the example. Fails the test if its exit code is not 0."""
    program = [sys.executable, str(EXAMPLES / name), *arguments]
    return platform.exec(program, timeout_s=PROGRAM_S).stdout


def answered_through_adapters(output: str, platform: Platform) -> None:
    """Every kind of call was made and measured, and nothing is left."""
    for base in ("smollm2-a", "smollm2-b"):
        assert all(re.search(rf"^  {base} {it} ", output, re.MULTILINE) for it in STYLES), output
        assert f"  {base} all three in one call:" in output
    assert all(f"\n  smollm2-a-{it}: " in output for it in STYLES), output
    *_, table = output.partition("Cleaning up ...")
    assert "Removing endpoint many-adapters" in table, output
    assert re.search(r"three adapter components to InService +[\d.]+ s", table), output
    assert re.search(r"memory, one base with 3 adapters +[1-9]\d* MB", table), output
    assert re.search(r"clean-up +[\d.]+ s\n$", table), output
    assert left(platform) == []


def shared_four_instances(output: str, platform: Platform) -> None:
    """All components answered on every node of the cluster, and an instance was released."""
    assert re.search(r"20 components serve after [\d.]+ s on 4 instances", output), output
    assert "26 components answered" in output
    assert "late-comer: 1 of 1 copy has no place" in output
    assert "one of 4 instances was released" in output
    *_, end = output.partition("Cleaning up ...")
    assert "Removing endpoint shared-fleet" in end, output
    assert left(platform) == []


def left(platform: Platform) -> list[str]:
    """The remaining endpoints, configurations and models."""
    sagemaker = platform.boto3("sagemaker")
    return [
        *(it["EndpointName"] for it in sagemaker.list_endpoints()["Endpoints"]),
        *(it["EndpointConfigName"] for it in sagemaker.list_endpoint_configs()["EndpointConfigs"]),
        *(it["ModelName"] for it in sagemaker.list_models()["Models"]),
    ]
