"""DescribeEventBus and ListEventBuses: of the one bus, `default`."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.events.refusals import absent
from hostelry.domain.event_rule import DEFAULT_BUS, bus_arn


def describe_event_bus(context: CallContext, params: Params) -> Result:
    """DescribeEventBus."""
    check_bus(context, params.get("Name"))
    return _summary(context)


def list_event_buses(context: CallContext, params: Params) -> Result:
    """ListEventBuses."""
    is_listed = DEFAULT_BUS.startswith(params.get("NamePrefix", ""))
    return {"EventBuses": [_summary(context)] if is_listed else []}


def check_bus(context: CallContext, name: str | None) -> None:
    """Raise ResourceNotFoundException for another bus than the default one."""
    if name not in (None, DEFAULT_BUS, bus_arn(context.scope)):
        raise absent(
            f"Event bus {name} does not exist. There is the bus {DEFAULT_BUS}, and no other."
        )


def _summary(context: CallContext) -> Result:
    return {"Name": DEFAULT_BUS, "Arn": bus_arn(context.scope)}
