"""Many copies of one instance start and end, and an agent is killed meanwhile."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.control_rig import (
    ROLE,
    ControlUnderTest,
    create_config,
    endpoint_status,
)

pytestmark = pytest.mark.integration

NUM_COPIES = 40
NEEDS = {"NumberOfCpuCoresRequired": 0.25, "MinMemoryRequiredInMb": 128}


class TimedControl(ControlUnderTest):
    """Control and agents that note their slow steps."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.slow_steps", "--home", str(self.home.root)]


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "slow-steps"
    path.touch()
    monkeypatch.setenv("SLOW_STEPS", str(path))
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(__file__).parents[2]))
    return path


@pytest.fixture
def control(tmp_path: Path, steps: Path) -> Iterator[TimedControl]:
    made = TimedControl(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop_everything()


def states(sagemaker: Any) -> Counter[str]:
    pages = sagemaker.get_paginator("list_inference_components").paginate()
    found = (it for page in pages for it in page["InferenceComponents"])
    return Counter(it["InferenceComponentStatus"] for it in found)


def create_endpoint(control: TimedControl, sagemaker: Any) -> None:
    """An endpoint with one instance, which has room for all components."""
    container = {"Image": "echo:1"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    create_config(sagemaker, "e", "ml.m5.24xlarge")
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="e")
    control.until(lambda: endpoint_status(sagemaker, "e") == "InService", "the endpoint serves")


def declare(sagemaker: Any) -> list[str]:
    """Components of the endpoint, by name."""
    names = [f"c-{number}" for number in range(NUM_COPIES)]
    for name in names:
        sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName="e",
            VariantName="AllTraffic",
            Specification={"ModelName": "m", "ComputeResourceRequirements": NEEDS},
            RuntimeConfig={"CopyCount": 1},
        )
    return names


def ready_pids(control: TimedControl) -> dict[str, int]:
    (endpoint,) = control.state()["endpoints"]
    ready = (it for it in endpoint["copies"] if it["phase"] == "ready")
    return {it["id"]: it["pid"] for it in ready}


def test_no_step_of_an_event_loop_computes_for_long_while_many_copies_start_and_end(
    control: TimedControl, steps: Path
) -> None:
    sagemaker = control.client()
    create_endpoint(control, sagemaker)
    steps.write_text("")  # control and agent have started
    names = declare(sagemaker)
    control.until(lambda: states(sagemaker) == {"InService": NUM_COPIES}, "all copies serve")
    for name in names:
        sagemaker.delete_inference_component(InferenceComponentName=name)
    control.until(lambda: not states(sagemaker), "all copies are gone")
    assert steps.read_text() == ""


@pytest.mark.thorough
def test_copies_that_serve_outlive_the_agent_that_is_killed_while_others_start(
    control: TimedControl,
) -> None:
    sagemaker = control.client()
    create_endpoint(control, sagemaker)
    declare(sagemaker)
    control.until(lambda: ready_pids(control), "the first copies serve")
    ((_, agent),) = control.agents().items()
    os.kill(agent, signal.SIGKILL)
    before = ready_pids(control)
    control.until(lambda: states(sagemaker) == {"InService": NUM_COPIES}, "all copies serve")
    after = ready_pids(control)
    assert {name: after[name] for name in before} == before
