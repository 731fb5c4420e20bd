"""A target tracking policy on a weighted expression of the instance types of a variant's pools.

Source: SageMaker developer guide, "Use weighted custom metrics for mixed fleets": the policy is
AWS's example, an average of ConcurrentRequestsPerModel of two types with weights.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.unit.scaling.loop.alarm_rig import Web
from tests.unit.scaling.loop.scaling_town import FakeLoads

from hostelry.base.clock import ManualClock
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.census import (
    Census,
    CopyUsage,
    InstanceCapacity,
    Resources,
    VariantCensus,
)
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.scaling.loop.alarm_actions import Addresses, AlarmActionDeps
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.scaling.loop.scaler import ScalerDeps, TargetScaler

Client = Callable[[str], Any]
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
TYPES = ("ml.g6.2xlarge", "ml.g6e.2xlarge")
M0 = 1_700_000_040.0
LOAD_S = 240


def concurrency(id: str, instance_type: str) -> dict[str, Any]:
    dimensions = {"EndpointName": "e", "VariantName": "main", "InstanceType": instance_type}
    metric = {
        "Namespace": "AWS/SageMaker",
        "MetricName": "ConcurrentRequestsPerModel",
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
    }
    stat = {"Metric": metric, "Stat": "Average"}
    return {"Id": id, "Label": instance_type, "MetricStat": stat, "ReturnData": False}


def place(scope: Scope) -> Census:
    """The variant's two instances: one of each type, or both of the first."""
    key = LoadKey(scope=scope, endpoint_name="e", variant_name="main")
    shape = Resources(cpus=8.0)
    rooms = [InstanceCapacity(id=f"i-{it}", shape=shape, instance_type=it) for it in TYPES]
    copies = [CopyUsage(copy_id=f"c-{it}", instance_id=f"i-{it}", instance_type=it) for it in TYPES]
    variant = VariantCensus(
        key=key,
        config_name="e-config",
        takes_components=False,
        instances=tuple(rooms),
        copies=tuple(copies),
        pools=TYPES,
    )
    return Census(variants={key: variant})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(M0)


@pytest.fixture
def served(api: Api) -> None:
    """Endpoint "e" of a model on two instances of two pools, in service."""
    api.make.model()
    pools = [{"InstanceType": it, "Priority": at} for at, it in enumerate(TYPES, start=1)]
    variant = {
        "VariantName": "main",
        "ModelName": "m",
        "InstancePools": pools,
        "InitialInstanceCount": 2,
    }
    api.make.call(
        "CreateEndpointConfig", EndpointConfigName="e-config", ProductionVariants=[variant]
    )
    api.make.call("CreateEndpoint", EndpointName="e", EndpointConfigName="e-config")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    for name in TYPES:
        api.add_copy(name, "main", api.endpoint().active.generation, CopyPhase.READY)


@cases(
    "expression, target, loads, expected",
    case("20 on average for 10: twice as many", "0.5 * g6 + 0.5 * g6e", 10.0, (30, 10), 4),
    case("the heavier type's load counts for more", "0.7 * g6 + 0.3 * g6e", 10.0, (30, 10), 5),
    case("a type without load counts as zero", "0.5 * g6 + 0.5 * g6e", 10.0, (30, 0), 3),
    case("shares of what each type can take at once", "(FILL(g6, 0) / 12 + FILL(g6e, 0) / 16) / 2",
        0.7, (24, 16), 5),
)  # fmt: skip
def test_load_on_a_variant_with_pools_scales_by_the_weighted_expression(
    served: None,
    client: Client,
    api: Api,
    expression: str,
    target: float,
    loads: tuple[int, int],
    expected: int,
) -> None:
    scaling = client("application-autoscaling")
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=10)
    weighted = {"Id": "weighted_avg", "Expression": expression, "ReturnData": True}
    queries = [*(concurrency(*it) for it in zip(("g6", "g6e"), TYPES, strict=True)), weighted]
    scaling.put_scaling_policy(
        **TARGET,
        PolicyName="weighted-concurrent-requests",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": target,
            "CustomizedMetricSpecification": {"Metrics": queries},
        },
    )
    steady = ManualClock(0.0)
    scaler = TargetScaler(
        ScalerDeps(
            state=api.state,
            aggregator=FakeLoads(),
            clock=api.clock,
            steady=steady,
            refuse_fewer=lambda *_: None,
        )
    )
    actions = AlarmActionDeps(
        state=api.state, clock=api.clock, addresses_of=Addresses(topics={}).of, post=Web().post
    )
    watch = AlarmWatch(
        AlarmWatchDeps(
            state=api.state, metrics=api.metrics, scaler=scaler, clock=api.clock, steady=steady
        ),
        actions,
    )
    there, publication = place(api.scope), Publication()
    (key,) = there.variants
    for second in range(int(M0), int(M0) + LOAD_S):
        busy = SecondLoad(
            key=key,
            second=second,
            in_flight_mean=float(sum(loads)),
            on_copies_min=sum(loads),
            on_copies_max=sum(loads),
            in_flight_max_by_copy={f"c-{it}": num for it, num in zip(TYPES, loads, strict=True)},
        )
        api.metrics.emit(api.scope, [it for _, it in publication.take(second, [busy], there)])
        api.clock.advance(1.0)
        steady.advance(1.0)
        watch.look()
        scaler.tick()
    assert api.endpoint().active.variants[0].desired_instance_count == expected
