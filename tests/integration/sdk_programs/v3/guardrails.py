"""A canary update by the SDK's resource classes. Prints the observed states as a line of JSON."""

import json
import time

from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import (
    BlueGreenUpdatePolicy,
    CapacitySize,
    ContainerDefinition,
    DeploymentConfig,
    ProductionVariant,
    TrafficRoutingConfig,
)

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"


def configured(version: str) -> str:
    """Create a configuration for this version of the echo server, and return its name."""
    name = f"sdk-{version}"
    container = ContainerDefinition(image="echo:1", environment={"ECHO_VERSION": version})
    Model.create(model_name=name, primary_container=container, execution_role_arn=ROLE)
    variant = ProductionVariant(
        variant_name="AllTraffic",
        model_name=name,
        instance_type="ml.m5.large",
        initial_instance_count=1,
    )
    EndpointConfig.create(endpoint_config_name=name, production_variants=[variant])
    return name


endpoint = Endpoint.create(endpoint_name="sdk", endpoint_config_name=configured("v1"))
endpoint.wait_for_status("InService")
endpoint.endpoint_config_name = configured("v2")
traffic = TrafficRoutingConfig(
    type="CANARY",
    wait_interval_in_seconds=6,
    canary_size=CapacitySize(type="CAPACITY_PERCENT", value=25),
)
policy = BlueGreenUpdatePolicy(
    traffic_routing_configuration=traffic,
    termination_wait_in_seconds=2,
    maximum_execution_timeout_in_seconds=600,
)
endpoint.update(deployment_config=DeploymentConfig(blue_green_update_policy=policy))
seen: list[str] = []
while endpoint.refresh().endpoint_status == "Updating":
    summary = endpoint.pending_deployment_summary
    status = getattr(summary, "production_variants", None)
    if status:
        text = status[0].variant_status[0].status
        seen += [text] if text not in seen else []
    time.sleep(0.2)
last = endpoint.last_deployment_config.blue_green_update_policy.traffic_routing_configuration
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "status": endpoint.endpoint_status,
            "config": endpoint.endpoint_config_name,
            "seen": seen,
            "size": last.canary_size.value,
        }
    )
)
endpoint.delete()
