"""Small mixes for the tests of the advisor."""

from typing import Any

from msgspec.structs import replace

from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import (
    GIB,
    MIB,
    AxisAnchors,
    FitAxis,
    FitMachine,
    FitMix,
    FitModel,
    ModelTraffic,
)
from hostelry.domain.shape import Shape
from hostelry.sim.service import ServiceModel

SERVICE = ServiceModel(
    prefill_s=0.05,
    prefill_s_per_token=0.0,
    token_s=0.0,
    max_concurrency=1,
    cold_start_s=4.0,
    warm_start_s=1.0,
    instance_start_s=2.0,
    origin="measured 2026-11-22",
)
MACHINE = FitMachine(
    type="ml.m5.xlarge", shape=Shape(cpus=4, memory_bytes=16 * GIB), price_per_hour=0.2, most=30
)
AXES = {
    FitAxis.LATENCY: AxisAnchors(unacceptable=0.9, target=0.99),
    FitAxis.COST: AxisAnchors(unacceptable=10.0, target=0.1),
    FitAxis.ISOLATION: AxisAnchors(unacceptable=0.0, target=3.0),
    FitAxis.SCALABILITY: AxisAnchors(unacceptable=300.0, target=20.0),
    FitAxis.OPERATIONS: AxisAnchors(unacceptable=100.0, target=5.0),
}
TRAFFIC = ModelTraffic(per_hour=600.0)


def build_model(name: str = "one", **changes: Any) -> FitModel:
    """A scikit-learn model of 200 MB that gets ten calls a minute."""
    usual: dict[str, Any] = {
        "framework": "sklearn",
        "memory_bytes": 200 * MIB,
        "disk_bytes": 50 * MIB,
        "target_p99_s": 0.5,
        "max_s": 10.0,
        "service": SERVICE,
        "service_origin": SERVICE.origin,
        "is_measured": True,
        "load_s": 0.3,
        "download_s": 0.2,
        "traffic": TRAFFIC,
        "image": "image",
        "artifact": f"s3://models/all/{name}.tar.gz",
    }
    return FitModel(name=name, **usual | changes)


def build_models(num: int, **changes: Any) -> tuple[FitModel, ...]:
    """Several such models."""
    return tuple(build_model(f"m-{place}", **changes) for place in range(num))


def build_mix(*models: FitModel, **changes: Any) -> FitMix:
    """A mix of six minutes on one type of machine."""
    mix = FitMix(name="mix", models=models, machines=(MACHINE,), axes=AXES, hours=0.1)
    return replace(mix, **changes)


def build_traffic(mix: FitMix) -> MixTraffic:
    """The traffic of a mix without traces."""
    return MixTraffic(mix, {})
