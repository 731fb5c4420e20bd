"""Examples that were killed at some moment can run again, whatever state they left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.models import tiny_model
from tests.integration.platform import CLI, Platform
from tests.models import random_adapter
from tests.selection import runs_all

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUN_TIMEOUT_S = 200
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(3 * RUN_TIMEOUT_S)]


@dataclass(frozen=True)
class Stage:
    """A platform with everything that the examples need."""

    platform: Platform
    model: Path
    adapters: Path

    @property
    def report(self) -> Path:
        """The list of AWS calls of the example that ended last."""
        return self.adapters / "calls.json"

    def program(self, name: str, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        given = [it.format(model=self.model, adapters=self.adapters) for it in arguments]
        return subprocess.Popen(
            [
                *(*CLI, "exec", "--home", str(self.platform.home.root)),
                *("--report-file", str(self.report), "--"),
                *(sys.executable, "-u", str(EXAMPLES / name), *given),
            ],
            env=self.platform.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def killed_at(self, moment: str, name: str, arguments: Sequence[str]) -> str:
        """Run until the output has `moment`, kill the example, and return its output."""
        with self.program(name, arguments) as running:
            assert running.stdout is not None
            output = []
            for line in running.stdout:
                output.append(line)
                if line.startswith(moment):
                    break
            running.kill()
        assert output[-1].startswith(moment), "".join(output)
        return "".join(output)

    def whole(self, name: str, arguments: Sequence[str]) -> str:
        """Run to the end, and return the output."""
        with self.program(name, arguments) as running:
            output, _ = running.communicate(timeout=RUN_TIMEOUT_S)
        assert running.returncode == 0, output
        calls = json.loads(self.report.read_text())
        assert calls["calls"]
        assert calls["unserved"] == []
        return output


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("again")
    model = tiny_model(folder / "model")
    for number, name in enumerate(("es", "fr", "pirate")):
        random_adapter(folder / "adapters" / name, model, rank=4, seed=number)
    home = folder / "home"
    home.mkdir(mode=0o700)
    rule = [sys.executable, str(EXAMPLES / "echo_server.py"), "--image-rule"]
    output = subprocess.run(rule, capture_output=True, text=True, check=True)
    (home / "images.toml").write_text(output.stdout)
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with Platform(home, "--pace", "40", environment=path) as platform:
        yield Stage(platform=platform, model=model, adapters=folder / "adapters")


def left(stage: Stage) -> list[str]:
    """The remaining endpoints, configurations, components and models."""
    sagemaker = stage.platform.boto3("sagemaker")
    return [
        *(it["EndpointName"] for it in sagemaker.list_endpoints()["Endpoints"]),
        *(it["EndpointConfigName"] for it in sagemaker.list_endpoint_configs()["EndpointConfigs"]),
        *(it["ModelName"] for it in sagemaker.list_models()["Models"]),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "moments", "whole"),
    [
        pytest.param(
            "many_adapters.py",
            ("--model", "{model}", "--adapters", "{adapters}"),
            (
                "Uploading",
                "Creating the endpoint",
                "Creating two base",
                "Adding three adapters",
                "Adapters as inference components",
                "Cleaning up",
                "Removing inference component smollm2-a-es",
                "Removing inference component smollm2-a,",
                "Removing endpoint many-adapters",
            ),
            True,
            id="many adapters",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "openai_batch.py",
            ("--model", "{model}", "--adapters", "{adapters}"),
            ("Deploying", "Batch batch_", "Cleaning up"),
            True,
            id="a batch of OpenAI's API",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "autoscaling.py",
            ("--model", "{model}", "--only", "variant"),
            ("registered", "  alarm", "registered"),
            False,
            id="auto scaling of a variant",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "autoscaling.py",
            ("--model", "{model}", "--only", "component"),
            ("registered", "  alarm", "registered"),
            False,
            id="auto scaling of a component",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "shared_fleet.py",
            ("--model", "{model}", "--adapters", "{adapters}"),
            ("Creating 20", "20 components serve", "Scaled out in", "--- one more that fits"),
            False,  # the next test begins with the state that this test leaves
            id="a shared fleet",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_an_example_that_was_killed_runs_again(
    stage: Stage,
    pytestconfig: pytest.Config,
    name: str,
    arguments: tuple[str, ...],
    moments: tuple[str, ...],
    whole: bool,
) -> None:
    """Each run begins with the state that the run before leaves."""
    for moment in moments if runs_all(pytestconfig) else moments[4::5]:
        stage.killed_at(moment, name, arguments)
    if whole:
        assert "Removing endpoint" in stage.whole(name, arguments)
        assert left(stage) == []


@pytest.mark.thorough
def test_an_example_leaves_alone_what_is_not_its_own(stage: Stage) -> None:
    arguments = ("--model", "{model}", "--adapters", "{adapters}")
    stage.killed_at("20 components serve", "shared_fleet.py", arguments)
    stage.platform.boto3("sagemaker").create_inference_component(
        InferenceComponentName="of-somebody-else",
        EndpointName="shared-fleet",
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": "763104351884.dkr.ecr.us-west-2.amazonaws.com/x:1"},
            "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128},
        },
        RuntimeConfig={"CopyCount": 1},
    )
    with stage.program("shared_fleet.py", arguments) as running:
        output, _ = running.communicate(timeout=RUN_TIMEOUT_S)
    assert running.returncode == 1
    assert (
        "component of-somebody-else on endpoint shared-fleet belongs to another program" in output
    )
    listed = stage.platform.boto3("sagemaker").list_inference_components(
        EndpointNameEquals="shared-fleet", NameContains="vision"
    )
    assert len(listed["InferenceComponents"]) == 2
