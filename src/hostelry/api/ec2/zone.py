"""DescribeRegions and DescribeAvailabilityZones: the caller's region, and its three zones."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.ec2.filters import passes, refuse_dry_run
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import ZONE_LETTERS, Scope


def describe_regions(context: CallContext, params: Params) -> Result:
    """DescribeRegions: one."""
    refuse_dry_run(params)
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
    return {"Regions": [row] if passes(params.get("Filters") or (), values) else []}


def zone_names(scope: Scope) -> list[str]:
    """The region's zones by name, as DescribeInferenceComponent and placement have them."""
    return [scope.region + letter for letter in ZONE_LETTERS]


def describe_availability_zones(context: CallContext, params: Params) -> Result:
    """DescribeAvailabilityZones: three names; instances on one machine share all of it."""
    refuse_dry_run(params)
    region = context.scope.region
    asked = params.get("ZoneNames") or zone_names(context.scope)
    unknown = [name for name in asked if name not in zone_names(context.scope)]
    if unknown:
        raise ServiceError("InvalidParameterValue", f"Invalid availability zones: {unknown}")
    rows = []
    for number, name in enumerate(zone_names(context.scope), start=1):
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
        if chosen and passes(params.get("Filters") or (), values):
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
