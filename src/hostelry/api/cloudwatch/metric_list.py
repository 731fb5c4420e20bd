"""ListMetrics.

Source: ListMetrics in the CloudWatch API reference.
"""

from hostelry.api.cloudwatch.metric_query import read_next
from hostelry.api.cloudwatch.metric_values import invalid_value, shown
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import request_digest, write_token
from hostelry.domain.metric import Metric
from hostelry.metrics.protocol import MetricFilter

PAGE_SIZE = 500
TWO_WEEKS_S = 14 * 24 * 3600
RECENTLY_S = 3 * 3600


def list_metrics(context: CallContext, params: Params) -> Result:
    """The metrics with data in the last two weeks, or three hours, that fit; 500 a page."""
    if params.get("OwningAccount") not in (None, context.scope.account):
        raise invalid_value(
            f"The value {params['OwningAccount']} for parameter OwningAccount is invalid: only"
            " metrics of the caller's own account can be listed."
        )
    digest = request_digest(context, "ListMetrics", params)
    last = read_next(params, digest)
    recent_s = RECENTLY_S if params.get("RecentlyActive") else TWO_WEEKS_S
    wanted = MetricFilter(
        namespace=params.get("Namespace"),
        name=params.get("MetricName"),
        dimensions={it["Name"]: it.get("Value") for it in params.get("Dimensions") or ()},
        since=context.now - recent_s,
    )
    found = context.metrics.find(context.scope, wanted)
    if last is not None:
        found = [it for it in found if _key(it) > last[1]]
    page = found[:PAGE_SIZE]
    following: Result = {}
    if len(found) > PAGE_SIZE:
        following = {"NextToken": write_token((0.0, _key(page[-1])), digest)}
    if params.get("IncludeLinkedAccounts"):
        following["OwningAccounts"] = [context.scope.account] * len(page)
    return {"Metrics": [shown(it) for it in page], **following}


def _key(metric: Metric) -> str:
    """Where a metric stands in the list, as text of the same order."""
    parts = (metric.namespace, metric.name, *(text for pair in metric.dimensions for text in pair))
    return "\0".join(parts)
