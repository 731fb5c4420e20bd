"""EC2's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.ec2.instance_type import describe_instance_type_offerings, describe_instance_types
from hostelry.api.ec2.zone import describe_availability_zones, describe_regions

OPERATIONS: Mapping[str, Operation] = {
    "DescribeInstanceTypes": describe_instance_types,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
    "DescribeAvailabilityZones": describe_availability_zones,
    "DescribeRegions": describe_regions,
}
