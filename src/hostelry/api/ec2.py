"""EC2, read only: SageMaker's instance types under EC2's names (without ``ml.``), region and zones.

Members without a declared value (network, EBS, ...) are left out.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import ListPaging
from hostelry.aws.models import service_model
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import ZONE_LETTERS, Scope
from hostelry.domain.shape import Device, InstanceType

MIB = 1024**2
LISTS = ListPaging(page_size=100, error_code="InvalidNextToken")
OFFERING_LISTS = ListPaging(page_size=1000, error_code="InvalidNextToken")
NVIDIA, AWS = "NVIDIA", "AWS"


def _passes(filters: Sequence[Mapping[str, Any]], values: Mapping[str, str]) -> bool:
    """True if `values` (by filter name) match one value of every filter, with `*` and `?`.

    Raises InvalidParameterValue for a filter without a value.
    """
    for given in filters:
        name = given.get("Name", "")
        if name not in values:
            raise ServiceError(
                "InvalidParameterValue",
                f"The filter '{name}' is not supported by this version of Hostelry; there are "
                + ", ".join(sorted(values)),
            )
        # EC2 has no brackets as wildcards.
        patterns = [str(it).replace("[", "[[]") for it in given.get("Values") or ()]
        if not any(fnmatchcase(values[name], pattern) for pattern in patterns):
            return False
    return True


def _refuse_dry_run(params: Mapping[str, Any]) -> None:
    if params.get("DryRun"):
        raise ServiceError(
            "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
        )


def describe_instance_types(context: CallContext, params: Params) -> Result:
    """DescribeInstanceTypes. Raises InvalidInstanceType for a name without a declared shape."""
    _refuse_dry_run(params)
    known = _known_types(context)
    asked = params.get("InstanceTypes")
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise ServiceError(
            "InvalidInstanceType",
            f"The following supplied instance types do not exist: [{', '.join(unknown)}]",
        )
    rows = []
    for name in asked or known:
        row = _describe_type(name, known[name])
        values = {
            "instance-type": name,
            "vcpu-info.default-vcpus": str(row["VCpuInfo"]["DefaultVCpus"]),
            "memory-info.size-in-mib": str(row["MemoryInfo"]["SizeInMiB"]),
            "current-generation": "true",
        }
        if _passes(params.get("Filters") or (), values):
            rows.append(((name, name), row))
    return LISTS.answer(context, "DescribeInstanceTypes", params, "InstanceTypes", rows)


def describe_instance_type_offerings(context: CallContext, params: Params) -> Result:
    """DescribeInstanceTypeOfferings: every declared type in the region and in each zone."""
    _refuse_dry_run(params)
    kind = params.get("LocationType") or "region"
    if kind not in ("region", "availability-zone"):
        raise ServiceError(
            "InvalidParameterValue",
            f"LocationType {kind} is not supported by this version of Hostelry; it has region and"
            " availability-zone.",
        )
    places = [context.scope.region] if kind == "region" else _zone_names(context.scope)
    rows = []
    for name in _known_types(context):
        for place in places:
            if _passes(params.get("Filters") or (), {"instance-type": name, "location": place}):
                row = {"InstanceType": name, "LocationType": kind, "Location": place}
                rows.append(((name, place), row))
    lists, operation = OFFERING_LISTS, "DescribeInstanceTypeOfferings"
    return lists.answer(context, operation, params, "InstanceTypeOfferings", rows)


def _known_types(context: CallContext) -> dict[str, InstanceType]:
    """The types with a declared shape that EC2 has, too, by EC2's names."""
    shape = service_model("ec2").shape_for("InstanceType")
    declared = {name.removeprefix("ml."): it for name, it in context.instance_types.items()}
    return {name: declared[name] for name in shape.metadata["enum"] if name in declared}


def _describe_type(name: str, instance_type: InstanceType) -> Result:
    shape, device = instance_type.shape, instance_type.device
    info: Result = {
        "InstanceType": name,
        "CurrentGeneration": True,
        "VCpuInfo": {"DefaultVCpus": int(shape.cpus)},
        "MemoryInfo": {"SizeInMiB": shape.memory_bytes // MIB},
    }
    if device is not None and shape.accelerators:
        info |= _describe_accelerators(device, shape.accelerators)
    return info


def _describe_accelerators(device: Device, count: int) -> Result:
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


def describe_regions(context: CallContext, params: Params) -> Result:
    """DescribeRegions: only the platform's region."""
    _refuse_dry_run(params)
    region = context.scope.region
    unknown = [name for name in params.get("RegionNames") or () if name != region]
    if unknown:
        raise ServiceError(
            "InvalidParameterValue", f"Invalid region names: {unknown}. There is {region}."
        )
    row = {
        "RegionName": region,
        "Endpoint": f"ec2.{region}.amazonaws.com",
        "OptInStatus": "opt-in-not-required",
    }
    values = {
        "region-name": region,
        "endpoint": row["Endpoint"],
        "opt-in-status": row["OptInStatus"],
    }
    return {"Regions": [row] if _passes(params.get("Filters") or (), values) else []}


def _zone_names(scope: Scope) -> list[str]:
    """The names of the region's zones, as in DescribeInferenceComponent and placement."""
    return [scope.region + letter for letter in ZONE_LETTERS]


def describe_availability_zones(context: CallContext, params: Params) -> Result:
    """DescribeAvailabilityZones: three names. All instances share one machine."""
    _refuse_dry_run(params)
    region = context.scope.region
    asked = params.get("ZoneNames") or _zone_names(context.scope)
    unknown = [name for name in asked if name not in _zone_names(context.scope)]
    if unknown:
        raise ServiceError("InvalidParameterValue", f"Invalid availability zones: {unknown}")
    rows = []
    for number, name in enumerate(_zone_names(context.scope), start=1):
        zone_id = f"{region}-az{number}"
        values = {
            "zone-name": name,
            "zone-id": zone_id,
            "region-name": region,
            "state": "available",
            "zone-type": "availability-zone",
            "opt-in-status": "opt-in-not-required",
        }
        chosen = name in asked and zone_id in (params.get("ZoneIds") or (zone_id,))
        if chosen and _passes(params.get("Filters") or (), values):
            rows.append(
                {
                    "ZoneName": name,
                    "ZoneId": zone_id,
                    "RegionName": region,
                    "State": "available",
                    "ZoneType": "availability-zone",
                    "OptInStatus": "opt-in-not-required",
                    "GroupName": region,
                }
            )
    return {"AvailabilityZones": rows}
