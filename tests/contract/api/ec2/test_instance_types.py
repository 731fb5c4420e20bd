"""EC2's answers about instance types and zones, which come from the declared shapes."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.errors import ServiceError

Call = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("name", "cpus", "memory_mib", "member", "inner"),
    [
        pytest.param("m5.large", 2, 8192, None, {}, id="a type without accelerators"),
        pytest.param(
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
            id="four GPUs",
        ),
        pytest.param(
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
            id="a chip of AWS's",
        ),
        pytest.param(
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
            id="another maker's card",
        ),
    ],
)
def test_an_instance_type_has_its_declared_shape(
    call: Call, name: str, cpus: int, memory_mib: int, member: str | None, inner: Any
) -> None:
    (found,) = call("DescribeInstanceTypes", "ec2", InstanceTypes=[name])["InstanceTypes"]
    assert found["VCpuInfo"]["DefaultVCpus"] == cpus
    assert found["MemoryInfo"]["SizeInMiB"] == memory_mib
    kinds = {"GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo"} & found.keys()
    assert kinds == ({member} if member else set())
    if member:
        assert found[member] == inner


@pytest.mark.parametrize(
    ("operation", "params", "code"),
    [
        pytest.param(
            "DescribeInstanceTypes",
            {"InstanceTypes": ["g5.xlarge", "zz.huge"]},
            "InvalidInstanceType",
            id="an unknown type",
        ),
        pytest.param(
            "DescribeInstanceTypes",
            {"InstanceTypes": ["ml.g5.xlarge"]},
            "InvalidInstanceType",
            id="SageMaker's name of a type",
        ),
        pytest.param(
            "DescribeInstanceTypes",
            {"Filters": [{"Name": "hypervisor", "Values": ["nitro"]}]},
            "InvalidParameterValue",
            id="a filter that is not served",
        ),
        pytest.param("DescribeInstanceTypes", {"DryRun": True}, "DryRunOperation", id="a dry run"),
        pytest.param(
            "DescribeInstanceTypes", {"NextToken": "x"}, "InvalidNextToken", id="a garbled token"
        ),
        pytest.param(
            "DescribeInstanceTypeOfferings",
            {"LocationType": "outpost"},
            "InvalidParameterValue",
            id="a kind of place that is not there",
        ),
        pytest.param(
            "DescribeRegions", {"RegionNames": ["mars"]}, "InvalidParameterValue", id="a region"
        ),
        pytest.param(
            "DescribeAvailabilityZones", {"ZoneNames": ["x"]}, "InvalidParameterValue", id="a zone"
        ),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    call: Call, operation: str, params: dict[str, Any], code: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        call(operation, "ec2", **params)
    assert refused.value.code == code


def test_filters_choose_with_wildcards(call: Call) -> None:
    filters = [{"Name": "instance-type", "Values": ["g5.*", "p4d?24xlarge", "[m]5.large"]}]
    found = call("DescribeInstanceTypes", "ec2", Filters=filters)["InstanceTypes"]
    names = {it["InstanceType"] for it in found}
    assert "p4d.24xlarge" in names
    assert {it.split(".")[0] for it in names} == {"g5", "p4d"}


def test_pages_hold_every_type_once(call: Call) -> None:
    names: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = call("DescribeInstanceTypes", "ec2", MaxResults=37, **token)
        names += [it["InstanceType"] for it in page["InstanceTypes"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert len(names) == len(set(names)) > 100
    offered = call("DescribeInstanceTypeOfferings", "ec2")["InstanceTypeOfferings"]
    assert {it["InstanceType"] for it in offered} == set(names)


def test_the_region_has_three_zones(call: Call) -> None:
    region = call("DescribeRegions", "ec2")["Regions"][0]["RegionName"]
    zones = call("DescribeAvailabilityZones", "ec2")["AvailabilityZones"]
    assert [it["ZoneName"] for it in zones] == [region + letter for letter in "abc"]
    one = call("DescribeAvailabilityZones", "ec2", ZoneIds=[zones[1]["ZoneId"]])
    assert one["AvailabilityZones"] == [zones[1]]
