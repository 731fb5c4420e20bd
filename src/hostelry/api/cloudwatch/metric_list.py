"""ListMetrics.

Source: ListMetrics in the CloudWatch API reference.
"""

from hostelry.api.cloudwatch.metric_values import TOKEN_ERROR, invalid_value, shown
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.domain.metric import Metric
from hostelry.metrics.protocol import MetricFilter

PAGE_SIZE = 500
TWO_WEEKS_S = 14 * 24 * 3600
RECENTLY_S = 3 * 3600


def list_metrics(context: CallContext, params: Params) -> Result:
    """ListMetrics: matching metrics with data in the last two weeks, or 3 hours; 500 a page."""
    if params.get("OwningAccount") not in (None, context.scope.account):
        raise invalid_value(
            f"The value {params['OwningAccount']} for parameter OwningAccount is invalid: only"
            " metrics of the caller's own account can be listed."
        )
    recent_s = RECENTLY_S if params.get("RecentlyActive") else TWO_WEEKS_S
    wanted = MetricFilter(
        namespace=params.get("Namespace"),
        name=params.get("MetricName"),
        dimensions={it["Name"]: it.get("Value") for it in params.get("Dimensions") or ()},
        since=context.now - recent_s,
    )
    rows = [((0.0, _key(it)), it) for it in context.metrics.find(context.scope, wanted)]
    tokens = PageTokens(context, "ListMetrics", params, TOKEN_ERROR)
    page, following = page_of(tokens, rows, PAGE_SIZE)
    if params.get("IncludeLinkedAccounts"):
        following["OwningAccounts"] = [context.scope.account] * len(page)
    return {"Metrics": [shown(it) for it in page], **following}


def _key(metric: Metric) -> str:
    """A metric as text that sorts as metrics do."""
    parts = (metric.namespace, metric.name, *(text for pair in metric.dimensions for text in pair))
    return "\0".join(parts)
