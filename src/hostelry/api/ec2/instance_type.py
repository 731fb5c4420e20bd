"""DescribeInstanceTypes and DescribeInstanceTypeOfferings: the declared shapes.

EC2's name is SageMaker's without ``ml.``. Members that no table declares (network, EBS, ...) are
left out rather than made up.
"""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.ec2.filters import passes, refuse_dry_run
from hostelry.api.ec2.zone import zone_names
from hostelry.api.page import PageTokens, page_of
from hostelry.aws.models import service_model
from hostelry.base.errors import ServiceError
from hostelry.domain.instance_type import Device, InstanceType

MIB = 1024**2
MAX_PAGE_SIZE = 100
NVIDIA, AWS = "NVIDIA", "AWS"


def describe_instance_types(context: CallContext, params: Params) -> Result:
    """DescribeInstanceTypes; raises InvalidInstanceType for a name without a declared shape."""
    refuse_dry_run(params)
    known = known_types(context)
    asked = params.get("InstanceTypes")
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise ServiceError(
            "InvalidInstanceType",
            f"The following supplied instance types do not exist: [{', '.join(unknown)}]",
        )
    rows = []
    for name in asked or known:
        row = instance_type_info(name, known[name])
        values = {
            "instance-type": name,
            "vcpu-info.default-vcpus": str(row["VCpuInfo"]["DefaultVCpus"]),
            "memory-info.size-in-mib": str(row["MemoryInfo"]["SizeInMiB"]),
            "current-generation": "true",
        }
        if passes(params.get("Filters") or (), values):
            rows.append(((name, name), row))
    tokens = PageTokens(context, "DescribeInstanceTypes", params, "InvalidNextToken")
    page, following = page_of(tokens, rows, params.get("MaxResults") or MAX_PAGE_SIZE)
    return {"InstanceTypes": page, **following}


def describe_instance_type_offerings(context: CallContext, params: Params) -> Result:
    """DescribeInstanceTypeOfferings: every declared type in the region and in each zone."""
    refuse_dry_run(params)
    kind = params.get("LocationType") or "region"
    if kind not in ("region", "availability-zone"):
        raise ServiceError(
            "InvalidParameterValue",
            f"LocationType {kind} is not supported by this version of Hostelry; it has region and"
            " availability-zone.",
        )
    places = [context.scope.region] if kind == "region" else zone_names(context.scope)
    rows = []
    for name in known_types(context):
        for place in places:
            if passes(params.get("Filters") or (), {"instance-type": name, "location": place}):
                row = {"InstanceType": name, "LocationType": kind, "Location": place}
                rows.append(((name, place), row))
    tokens = PageTokens(context, "DescribeInstanceTypeOfferings", params, "InvalidNextToken")
    page, following = page_of(tokens, rows, params.get("MaxResults") or 10 * MAX_PAGE_SIZE)
    return {"InstanceTypeOfferings": page, **following}


def known_types(context: CallContext) -> dict[str, InstanceType]:
    """The types with a declared shape that EC2 has, too, by EC2's name."""
    shape = service_model("ec2").shape_for("InstanceType")
    declared = {name.removeprefix("ml."): it for name, it in context.instance_types.items()}
    return {name: declared[name] for name in shape.metadata["enum"] if name in declared}


def instance_type_info(name: str, instance_type: InstanceType) -> Result:
    """The type's InstanceTypeInfo."""
    shape, device = instance_type.shape, instance_type.device
    info: Result = {
        "InstanceType": name,
        "CurrentGeneration": True,
        "VCpuInfo": {"DefaultVCpus": int(shape.cpus)},
        "MemoryInfo": {"SizeInMiB": shape.memory_bytes // MIB},
    }
    if device is not None and shape.accelerators:
        info |= accelerator_info(device, shape.accelerators)
    return info


def accelerator_info(device: Device, count: int) -> Result:
    """GpuInfo for GPUs, NeuronInfo for AWS's own chips, InferenceAcceleratorInfo for others."""
    one = {"Name": device.name, "Manufacturer": device.maker, "Count": count}
    memory_mib = device.memory_bytes // MIB
    memory = {"SizeInMiB": memory_mib}
    if device.maker == NVIDIA:
        gpus = [{**one, "MemoryInfo": memory}]
        return {"GpuInfo": {"Gpus": gpus, "TotalGpuMemoryInMiB": memory_mib * count}}
    if device.maker == AWS:
        chips = [{"Name": device.name, "Count": count, "MemoryInfo": memory}]
        total = memory_mib * count
        return {"NeuronInfo": {"NeuronDevices": chips, "TotalNeuronDeviceMemoryInMiB": total}}
    info = {"Accelerators": [{**one, "MemoryInfo": memory}]}
    return {"InferenceAcceleratorInfo": info | {"TotalInferenceMemoryInMiB": memory_mib * count}}
