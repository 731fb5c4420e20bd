"""EC2's answers about instance types and zones, which come from the declared shapes."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError


@cases(
    "name, cpus, memory_mib, member, inner",
    case("a type without accelerators", "m5.large", 2, 8192, None, {}),
    case(
        "four GPUs",
        "g5.12xlarge",
        48,
        196608,
        "GpuInfo",
        {
            "Gpus": [
                {
                    "Name": "A10G",
                    "Manufacturer": "NVIDIA",
                    "Count": 4,
                    "MemoryInfo": {"SizeInMiB": 24576},
                }
            ],
            "TotalGpuMemoryInMiB": 98304,
        },
    ),
    case(
        "a chip of AWS's",
        "inf2.xlarge",
        4,
        16384,
        "NeuronInfo",
        {
            "NeuronDevices": [
                {"Name": "Inferentia2", "Count": 1, "MemoryInfo": {"SizeInMiB": 32768}}
            ],
            "TotalNeuronDeviceMemoryInMiB": 32768,
        },
    ),
    case(
        "another maker's card",
        "dl1.24xlarge",
        96,
        786432,
        "InferenceAcceleratorInfo",
        {
            "Accelerators": [
                {
                    "Name": "Gaudi HL-205",
                    "Manufacturer": "Habana",
                    "Count": 8,
                    "MemoryInfo": {"SizeInMiB": 32768},
                }
            ],
            "TotalInferenceMemoryInMiB": 262144,
        },
    ),
)
def test_an_instance_type_has_its_declared_shape(
    api: Api, name: str, cpus: int, memory_mib: int, member: str | None, inner: Any
) -> None:
    (found,) = api.call("DescribeInstanceTypes", "ec2", InstanceTypes=[name])["InstanceTypes"]
    assert found["VCpuInfo"]["DefaultVCpus"] == cpus
    assert found["MemoryInfo"]["SizeInMiB"] == memory_mib
    kinds = {"GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo"} & found.keys()
    assert kinds == ({member} if member else set())
    if member:
        assert found[member] == inner


@cases(
    "operation, params, code",
    case(
        "an unknown type",
        "DescribeInstanceTypes",
        {"InstanceTypes": ["g5.xlarge", "zz.huge"]},
        "InvalidInstanceType",
    ),
    case(
        "SageMaker's name of a type",
        "DescribeInstanceTypes",
        {"InstanceTypes": ["ml.g5.xlarge"]},
        "InvalidInstanceType",
    ),
    case(
        "a filter that is not served",
        "DescribeInstanceTypes",
        {"Filters": [{"Name": "hypervisor", "Values": ["nitro"]}]},
        "InvalidParameterValue",
    ),
    case("a dry run", "DescribeInstanceTypes", {"DryRun": True}, "DryRunOperation"),
    case("a garbled token", "DescribeInstanceTypes", {"NextToken": "x"}, "InvalidNextToken"),
    case(
        "a kind of place that is not there",
        "DescribeInstanceTypeOfferings",
        {"LocationType": "outpost"},
        "InvalidParameterValue",
    ),
    case("a region", "DescribeRegions", {"RegionNames": ["mars"]}, "InvalidParameterValue"),
    case("a zone", "DescribeAvailabilityZones", {"ZoneNames": ["x"]}, "InvalidParameterValue"),
)
def test_what_is_not_there_is_refused_by_name(
    api: Api, operation: str, params: dict[str, Any], code: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        api.call(operation, "ec2", **params)
    assert refused.value.code == code


def test_filters_choose_with_wildcards(api: Api) -> None:
    filters = [{"Name": "instance-type", "Values": ["g5.*", "p4d?24xlarge", "[m]5.large"]}]
    found = api.call("DescribeInstanceTypes", "ec2", Filters=filters)["InstanceTypes"]
    names = {it["InstanceType"] for it in found}
    assert "p4d.24xlarge" in names
    assert {it.split(".")[0] for it in names} == {"g5", "p4d"}


def test_pages_hold_every_type_once(api: Api) -> None:
    names: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = api.call("DescribeInstanceTypes", "ec2", MaxResults=37, **token)
        names += [it["InstanceType"] for it in page["InstanceTypes"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert len(names) == len(set(names)) > 100
    offered = api.call("DescribeInstanceTypeOfferings", "ec2")["InstanceTypeOfferings"]
    assert {it["InstanceType"] for it in offered} == set(names)


def test_the_region_has_three_zones(api: Api) -> None:
    region = api.call("DescribeRegions", "ec2")["Regions"][0]["RegionName"]
    zones = api.call("DescribeAvailabilityZones", "ec2")["AvailabilityZones"]
    assert [it["ZoneName"] for it in zones] == [region + letter for letter in "abc"]
    one = api.call("DescribeAvailabilityZones", "ec2", ZoneIds=[zones[1]["ZoneId"]])
    assert one["AvailabilityZones"] == [zones[1]]
