"""A small census: an endpoint for components with an adapter, and an endpoint for models."""

from msgspec.structs import replace
from tests.unit.metrics.sagemaker.load_sample import CHAT, SCOPE

from hostelry.domain.load import LoadKey
from hostelry.metrics.sagemaker.census import (
    Census,
    ComponentCensus,
    CopyUsage,
    InstanceCapacity,
    Resources,
    VariantCensus,
)

GB = 1024**3
ADAPTER = replace(CHAT, component_name="pirate")
HOSTS = replace(CHAT, component_name=None)
MODEL = LoadKey(scope=SCOPE, endpoint_name="models", variant_name="blue")
SHAPE = Resources(cpus=4.0, memory_bytes=16 * GB, accelerators=2)


def census(num_copies: int = 2, num_instances: int = 4, disk_use: float | None = None) -> Census:
    """The census with these numbers of copies of the component, and instances of the model."""
    uses = tuple(
        CopyUsage(
            copy_id=f"c-{number}", instance_id="i-0", cpu_s=10.0, cpu_at=100.0, memory_bytes=GB
        )
        for number in range(num_copies)
    )
    needs = Resources(cpus=0.5, memory_bytes=2 * GB, accelerators=1)
    reserved = Resources(
        cpus=num_copies * 0.5, memory_bytes=num_copies * 2 * GB, accelerators=num_copies
    )
    room = InstanceCapacity(id="i-0", shape=SHAPE, reserved=reserved)
    return Census(
        variants={
            HOSTS: VariantCensus(
                key=HOSTS,
                config_name="config-1",
                takes_components=True,
                instances=(room,),
                copies=uses,
            ),
            MODEL: VariantCensus(
                key=MODEL,
                config_name="config-2",
                takes_components=False,
                instances=tuple(
                    InstanceCapacity(id=f"m-{number}", shape=SHAPE)
                    for number in range(num_instances)
                ),
            ),
        },
        components={
            CHAT: ComponentCensus(key=CHAT, num_copies=num_copies, reserved=needs, copies=uses),
            ADAPTER: ComponentCensus(key=ADAPTER, num_copies=min(1, num_copies), base=CHAT),
        },
        disk_use=disk_use,
    )
