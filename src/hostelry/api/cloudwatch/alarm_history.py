"""DescribeAlarmHistory."""

from collections.abc import Iterator

from hostelry.api.cloudwatch.metric_values import TOKEN_ERROR
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.refusals import refuse_fields
from hostelry.domain.alarm import METRIC_ALARM, AlarmHistory, AlarmHistoryItem
from hostelry.scaling.decide.composite import alarm_name
from hostelry.store.alarm_log import histories as all_histories

PAGE_SIZE = 100


def describe_alarm_history(context: CallContext, params: Params) -> Result:
    """DescribeAlarmHistory: newest first unless ScanBy is given; deleted alarms' too."""
    refuse_fields(params, ("AlarmContributorId",))
    descending = params.get("ScanBy") != "TimestampAscending"
    found = [
        ((it.at, f"{it.alarm_name}/{number:06d}"), it)
        for history in histories(context, params)
        for number, it in enumerate(reversed(history.items))
        if passes(it, params)
    ]
    tokens = PageTokens(context, "DescribeAlarmHistory", params, TOKEN_ERROR)
    size = params.get("MaxRecords") or PAGE_SIZE
    page, following = page_of(tokens, found, size, descending=descending)
    return {"AlarmHistoryItems": [item_members(it) for it in page], **following}


def histories(context: CallContext, params: Params) -> Iterator[AlarmHistory]:
    """The history of the requested alarm, or all."""
    state, scope = context.state, context.scope
    if params.get("AlarmName") is None:
        yield from (history for history, _ in all_histories(state, scope))
        return
    found = state.alarm_histories.get(scope, alarm_name(params["AlarmName"]))
    if found is not None:
        yield found.value


def passes(item: AlarmHistoryItem, params: Params) -> bool:
    """Whether an item meets every filter given."""
    if item.alarm_type not in (params.get("AlarmTypes") or (METRIC_ALARM,)):
        return False
    if params.get("HistoryItemType") not in (None, item.kind):
        return False
    start, end = params.get("StartDate"), params.get("EndDate")
    return (start is None or item.at >= start) and (end is None or item.at <= end)


def item_members(item: AlarmHistoryItem) -> Result:
    """An AlarmHistoryItem of the answer."""
    return {
        "AlarmName": item.alarm_name,
        "AlarmType": item.alarm_type,
        "Timestamp": item.at,
        "HistoryItemType": item.kind,
        "HistorySummary": item.summary,
        "HistoryData": item.data,
    }
