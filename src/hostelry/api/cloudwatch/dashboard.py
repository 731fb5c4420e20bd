"""PutDashboard, GetDashboard, ListDashboards and DeleteDashboards.

A dashboard is kept and listed, not drawn: that is a console's work.

Source: these operations in the CloudWatch API reference.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from hostelry.api.cloudwatch.dashboard_body import Remark, errors_in, warnings_in
from hostelry.api.cloudwatch.metric_values import invalid_value
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.tags import tags_of, write_tags
from hostelry.base.errors import ServiceError
from hostelry.base.json import nests_deeper
from hostelry.domain.dashboard import Dashboard, dashboard_arn, everywhere
from hostelry.store.records import Versioned

MAX_DASHBOARDS = 5000
MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_REMARKS = 100  # shown of one body
PAGE_SIZE = 1000
_NAME = re.compile(r"[0-9A-Za-z_-]{1,255}")


def put_dashboard(context: CallContext, params: Params) -> Result:
    """PutDashboard: creates, or replaces the body; tags count for a new one only."""
    name, text = params["DashboardName"], params["DashboardBody"]
    if not _NAME.fullmatch(name):
        raise invalid_input(
            f"The field DashboardName is {name[:300]!r}; it must have 1 to 255 characters, of"
            " letters, digits, - and _."
        )
    body = body_of(text)
    errors = list(errors_in(body))
    if errors:
        raise invalid_body(errors)
    scope, records = everywhere(context.scope), context.state.dashboards
    found = records.get(scope, name)
    if found is None:
        if len(records.list(scope)) >= MAX_DASHBOARDS:
            raise invalid_input(f"There are {MAX_DASHBOARDS} dashboards; more are not possible.")
        tags = tags_of(params.get("Tags"))
        if tags:
            write_tags(context, dashboard_arn(scope, name), tags)
    value = Dashboard(scope=scope, name=name, body=text, modified_at=context.now)
    records.put(scope, name, value, expect=None if found is None else found.version)
    return {"DashboardValidationMessages": shown(warnings_in(body))}


def get_dashboard(context: CallContext, params: Params) -> Result:
    """GetDashboard: the body as it was put; raises ResourceNotFound."""
    dashboard = existing(context, params["DashboardName"]).value
    return {
        "DashboardArn": dashboard.arn,
        "DashboardBody": dashboard.body,
        "DashboardName": dashboard.name,
    }


def list_dashboards(context: CallContext, params: Params) -> Result:
    """ListDashboards: those whose names begin with a prefix, in order of name; 1,000 a page."""
    prefix = params.get("DashboardNamePrefix") or ""
    every = [it.value for it in context.state.dashboards.list(everywhere(context.scope))]
    rows = [((0.0, it.name), entry(it)) for it in every if it.name.startswith(prefix)]
    tokens = PageTokens(context, "ListDashboards", params, "InvalidParameterValue")
    page, following = page_of(tokens, rows, PAGE_SIZE)
    return {"DashboardEntries": page, **following}


def delete_dashboards(context: CallContext, params: Params) -> Result:
    """DeleteDashboards: all or, where one does not exist, none."""
    names = dict.fromkeys(params["DashboardNames"])
    if not names:
        raise invalid_value("The parameter DashboardNames must have at least one name.")
    found = [existing(context, name) for name in names]
    for stored in found:
        dashboard = stored.value
        write_tags(context, dashboard.arn, {})
        context.state.dashboards.delete(dashboard.scope, dashboard.name, expect=stored.version)
    return {}


def existing(context: CallContext, name: str) -> Versioned[Dashboard]:
    """The dashboard's record; raises ResourceNotFound."""
    found = context.state.dashboards.get(everywhere(context.scope), name)
    if found is None:
        raise ServiceError("ResourceNotFound", f"Dashboard {name:.300} does not exist", 404)
    return found


def body_of(text: str) -> dict[str, Any]:
    """The parsed body; raises InvalidParameterInput where it is no JSON object, or too large."""
    if len(text.encode()) > MAX_BODY_BYTES:
        raise invalid_input(
            f"The field DashboardBody has {len(text.encode())} bytes; it has at most"
            f" {MAX_BODY_BYTES}."
        )
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise invalid_input("The field DashboardBody must be a valid JSON object")
    if nests_deeper(body, MAX_DEPTH):
        raise invalid_input(f"The field DashboardBody is nested deeper than {MAX_DEPTH} levels.")
    return body


def entry(dashboard: Dashboard) -> Result:
    """A dashboard's entry of a list."""
    return {
        "DashboardName": dashboard.name,
        "DashboardArn": dashboard.arn,
        "LastModified": dashboard.modified_at,
        "Size": len(dashboard.body.encode()),
    }


def shown(remarks: Iterable[Remark]) -> list[Result]:
    """The remarks that an answer has, in order of place."""
    ordered = sorted(remarks, key=lambda it: (it.path, it.message))
    return [{"DataPath": it.path, "Message": it.message} for it in ordered[:MAX_REMARKS]]


def invalid_input(message: str) -> ServiceError:
    """DashboardInvalidInputError, by the code that it has on the wire."""
    return ServiceError("InvalidParameterInput", message)


def invalid_body(errors: list[Remark]) -> ServiceError:
    """The error for a body, with each place that is wrong."""
    places = [{"dataPath": it.path, "message": it.message} for it in errors[:MAX_REMARKS]]
    text = json.dumps(places, indent=2)
    return ServiceError(
        "InvalidParameterInput",
        f"The dashboard body is invalid, there are {len(errors)} validation errors:\n{text}",
        members={"dashboardValidationMessages": shown(errors)},
    )
