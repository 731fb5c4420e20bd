"""PutEvents: events of programs."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.events.bus import check_bus
from hostelry.api.events.refusals import invalid
from hostelry.base.errors import ServiceError
from hostelry.events.call_rows import TooManyCallsError
from hostelry.events.calls import calls_of_bus

MAX_BYTES = 1024 * 1024  # of all entries of a call
NEEDED = ("Source", "DetailType", "Detail")


def put_events(context: CallContext, params: Params) -> Result:
    """PutEvents: each entry is taken, durably, or refused with its reason."""
    if params.get("EndpointId"):
        raise invalid("EndpointId is not supported here: there is one region.")
    entries = params["Entries"]
    if sum(len(str(it)) for entry in entries for it in entry.values()) > MAX_BYTES:
        raise invalid(f"Total size of the entries in the request is over {MAX_BYTES} bytes.")
    rules = [it.value for it in context.state.event_rules.list(context.scope)]
    results = []
    for entry in entries:
        try:
            event = event_of(context, entry)
            at = float(entry.get("Time", context.now))
            calls = calls_of_bus(event, at, rules, context.now, check=context.check_time)
            context.event_calls.accept(event["id"], calls, context.now)
            results.append({"EventId": event["id"]})
        except ServiceError as error:
            results.append({"ErrorCode": error.code, "ErrorMessage": error.message})
        except TooManyCallsError as error:
            results.append({"ErrorCode": "ThrottlingException", "ErrorMessage": f"{error}."})
    return {"FailedEntryCount": sum("ErrorCode" in it for it in results), "Entries": results}


def event_of(context: CallContext, entry: Params) -> dict[str, Any]:
    """The event of an entry; raises ServiceError with the code that its result has."""
    check_bus(context, entry.get("EventBusName"))
    missing = [name for name in NEEDED if not entry.get(name)]
    if missing:
        message = f"Parameter {missing[0]} is not valid. Reason: {missing[0]} is a required."
        raise ServiceError("InvalidArgument", message)
    if entry["Source"].startswith("aws."):
        message = "Not authorized for the source: those that begin with aws. are the platform's."
        raise ServiceError("NotAuthorizedForSourceException", message)
    try:
        detail = json.loads(entry["Detail"])
    except (ValueError, RecursionError):
        detail = None
    if not isinstance(detail, dict):
        raise ServiceError("MalformedDetail", "Detail is malformed: it must be a JSON object.")
    at = datetime.fromtimestamp(float(entry.get("Time", context.now)), UTC)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": entry["DetailType"],
        "source": entry["Source"],
        "account": context.scope.account,
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": context.scope.region,
        "resources": list(entry.get("Resources") or ()),
        "detail": detail,
    }
