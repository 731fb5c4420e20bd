"""Models with several containers that run `servers/step_server.py`, over boto3."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform, until
from tests.integration.served_models import ROLE

SERVERS = Path(__file__).parent / "servers"
STEP_IMAGE = f"""
[[image]]
pattern = "step:*"
command = ["{sys.executable}", "{SERVERS / "step_server.py"}"]
[image.probe]
content_type = "application/json"
body = '{{}}'

[[image]]
pattern = "models:*"
command = ["{sys.executable}", "{SERVERS / "models_server.py"}"]
[image.probe]
content_type = "application/json"
body = '1'
"""


def step(name: str, **given: Any) -> dict[str, Any]:
    """A ContainerDefinition of a step server with the name `name`."""
    return {"Image": "step:1", "Environment": {"STEP_NAME": name}, **given}


def create_model(
    platform: Platform, name: str, containers: Sequence[dict[str, Any]], mode: str | None = None
) -> None:
    """CreateModel of these containers."""
    config = {} if mode is None else {"InferenceExecutionConfig": {"Mode": mode}}
    platform.boto3("sagemaker").create_model(
        ModelName=name, ExecutionRoleArn=ROLE, Containers=list(containers), **config
    )


def create_config(platform: Platform, name: str, instances: int = 1, **given: Any) -> None:
    """CreateEndpointConfig with a variant of the model of that name."""
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": instances,
    }
    platform.boto3("sagemaker").create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant], **given
    )


def begin(
    platform: Platform, name: str, containers: Sequence[dict[str, Any]], **given: Any
) -> None:
    """Create model, configuration and endpoint of a name. `given` has `mode` and `instances`."""
    create_model(platform, name, containers, given.pop("mode", None))
    create_config(platform, name, **given)
    platform.boto3("sagemaker").create_endpoint(EndpointName=name, EndpointConfigName=name)


def in_service(platform: Platform, name: str, within_s: float = 60) -> dict[str, Any]:
    """DescribeEndpoint, once the endpoint is InService."""

    def described() -> dict[str, Any] | None:
        found: dict[str, Any] = platform.looker().describe_endpoint(EndpointName=name)
        assert found["EndpointStatus"] in ("Creating", "Updating", "InService"), found
        return found if found["EndpointStatus"] == "InService" else None

    found: dict[str, Any] = until(described, f"endpoint {name} is in service", within_s)
    return found


def copies(platform: Platform, name: str) -> dict[str, dict[str, Any]]:
    """The copies on a single instance by container, from `hostelry status`."""
    state = json.loads(platform.cli("status", "--json").stdout)["state"]
    (endpoint,) = [it for it in state["endpoints"] if it["name"] == name]
    return {it["container"]: it for it in endpoint["copies"]}
