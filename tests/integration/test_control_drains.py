"""Drains: a stream outlives the stop of the copy that sends it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.control_rig import (
    ControlUnderTest,
    create_endpoint,
    endpoint_status,
    is_running,
)
from tests.selection import first_alone

from hostelry.reconcile.plan.drains import CONNECTION_REPORT_S

pytestmark = pytest.mark.integration

STREAM_S = 12.0  # beyond every wait that does not look at connections


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path)
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


class Stream:
    """A stream from one copy, read by a separate thread."""

    def __init__(self, address: str) -> None:
        self.text = ""
        self.fault: Exception | None = None
        self.begun = threading.Event()
        self._url = f"{address}/drip?s={STREAM_S:g}"
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            with httpx.stream("GET", self._url, timeout=30) as answer:
                for piece in answer.iter_text():
                    self.text += piece
                    self.begun.set()
        except httpx.HTTPError as error:
            self.fault = error

    def end(self) -> None:
        self._thread.join(40)
        assert self.fault is None
        assert self.text.endswith("end\n")


def component(control: ControlUnderTest) -> dict[str, Any]:
    found: dict[str, Any] = control.state()["endpoints"][0]
    return found


@pytest.mark.parametrize(
    "kill_agent",
    first_alone(
        [
            pytest.param(True, id="and its agent is killed"),
            pytest.param(False, id="and nothing else happens"),
        ]
    ),
)
def test_a_stream_ends_whole_although_its_copy_is_scaled_in(
    control: ControlUnderTest, kill_agent: bool
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "ep")
    control.until(lambda: endpoint_status(sagemaker, "ep") == "InService", "the endpoint serves")
    sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": "echo:1"},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 128,
                "NumberOfCpuCoresRequired": 0.25,
            },
        },
        RuntimeConfig={"CopyCount": 2},
    )

    def status() -> str:
        answer = sagemaker.describe_inference_component(InferenceComponentName="base")
        return str(answer["InferenceComponentStatus"])

    control.until(lambda: status() == "InService", "both copies serve")
    copies = component(control)["copies"]
    streams = [Stream(it["address"]) for it in copies]
    for stream in streams:
        assert stream.begun.wait(10)
    sagemaker.update_inference_component_runtime_config(
        InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": 1}
    )
    control.until(lambda: status() == "InService", "one copy is wanted")
    if kill_agent:
        time.sleep(CONNECTION_REPORT_S)  # from here on a copy without a report would be stopped
        (agent,) = control.agents().values()
        os.kill(agent, signal.SIGKILL)
    for stream in streams:
        stream.end()
    control.until(lambda: len(component(control)["copies"]) == 1, "the other copy is gone")
    (left,) = component(control)["copies"]
    (gone,) = [it for it in copies if it["id"] != left["id"]]
    control.until(lambda: not is_running(gone["pid"]), "its process has ended")
    assert is_running(left["pid"])
