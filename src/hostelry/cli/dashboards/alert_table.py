"""Prometheus' alert rules over the same metrics. Pure.

Source: Prometheus documentation, Alerting rules.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """A rule: it fires once `expression` gave a series for `for_` without a break."""

    name: str
    expression: str
    for_: str
    severity: str
    summary: str
    remedy: str


BY = "(account, region, endpoint, component)"
ERRORS = f'sum by {BY} (rate(hostelry_request_errors_total{{kind!="4xx"}}[5m]))'
REFUSED = 'hostelry_request_errors_total{kind="no_capacity"}'
ENDED = f"sum by {BY} (rate(hostelry_requests_finished_total[5m]))"
BUCKETS = "rate(hostelry_model_latency_seconds_bucket[10m]{})"
P99 = f"histogram_quantile(0.99, sum by (le, {BY[1:]} ({BUCKETS}))"
NAME = "{{ $labels.endpoint }} {{ $labels.component }}"
RULES = (
    AlertRule(
        name="HostelryAway",
        expression="absent(hostelry_build_info)",
        for_="2m",
        severity="critical",
        summary="Prometheus gets no metrics of hostelry",
        remedy="hostelry status; is the key of the scrape right?",
    ),
    AlertRule(
        name="HostelryGatewaySilent",
        expression="hostelry_gateway_reporting == 0",
        for_="1m",
        severity="critical",
        summary="no gateway worker reports its load: nothing scales",
        remedy="hostelry status; hostelry logs gateway",
    ),
    AlertRule(
        name="HostelryErrors",
        expression=f"{ERRORS} / {ENDED} > 0.05",
        for_="5m",
        severity="critical",
        summary=f"more than 5 % of the requests to {NAME} fail",
        remedy="hostelry trace --failed; hostelry status --endpoint {{ $labels.endpoint }}",
    ),
    AlertRule(
        name="HostelryNoCapacity",
        expression=f"sum by {BY} (increase({REFUSED}[5m])) > 0",
        for_="5m",
        severity="critical",
        summary=f"requests to {NAME} are refused for want of a copy",
        remedy="hostelry explain --endpoint {{ $labels.endpoint }} says why there is none",
    ),
    AlertRule(
        name="HostelryQueueStands",
        expression=f"min by {BY} (min_over_time(hostelry_held[5m])) > 0",
        for_="1m",
        severity="warning",
        summary=f"requests to {NAME} have waited for a copy for five minutes",
        remedy="hostelry scaling status; hostelry explain --endpoint {{ $labels.endpoint }}",
    ),
    AlertRule(
        name="HostelryLatencyDoubled",
        expression=f"{P99.format('')} > 2 * {P99.format(' offset 1h')}",
        for_="10m",
        severity="warning",
        summary=f"the p99 of {NAME} is more than twice that of an hour ago",
        remedy="hostelry trace --slowest {{ $labels.endpoint }}; hostelry top --sort latency",
    ),
    AlertRule(
        name="HostelryKvCacheFull",
        expression="vllm:kv_cache_usage_perc > 0.95",
        for_="10m",
        severity="warning",
        summary=f"copy {{{{ $labels.copy }}}} of {NAME} has no room for more sequences",
        remedy="more copies (a scaling policy), or a smaller OPTION_MAX_MODEL_LEN",
    ),
    AlertRule(
        name="HostelrySequencesWait",
        expression="min_over_time(vllm:num_requests_waiting[10m]) > 0",
        for_="1m",
        severity="warning",
        summary=f"sequences have waited on copy {{{{ $labels.copy }}}} of {NAME} for ten minutes",
        remedy="more copies: hostelry scaling status",
    ),
    AlertRule(
        name="HostelryAdapterLoadsFail",
        expression="increase(hostelry_llm_failed_adapter_loads_total[10m]) > 0",
        for_="0m",
        severity="warning",
        summary=f"adapters of {NAME} do not load",
        remedy="hostelry logs {{ $labels.copy }}",
    ),
    AlertRule(
        name="HostelryCopyMetricsDown",
        expression="hostelry_copy_metrics_up == 0",
        for_="10m",
        severity="warning",
        summary=f"copy {{{{ $labels.copy }}}} of {NAME} gives no metrics",
        remedy="hostelry logs {{ $labels.copy }}",
    ),
    AlertRule(
        name="HostelryMetricsRefused",
        expression="hostelry_metric_store_journal_up == 0",
        for_="1m",
        severity="critical",
        summary="the disk takes no metrics; PutMetricData is refused",
        remedy="hostelry doctor; free space at the home",
    ),
    AlertRule(
        name="HostelryMetricsUnkept",
        expression="hostelry_metric_store_unkept == 1",
        for_="10m",
        severity="warning",
        summary="metrics of the last minutes are in memory only",
        remedy="hostelry logs control; free space at the home",
    ),
    AlertRule(
        name="HostelryMetricsGivenUp",
        expression="hostelry_metric_store_pressure > 3 or "
        "increase(hostelry_metric_store_evicted_series_total[1h]) > 0",
        for_="0m",
        severity="warning",
        summary="old metrics are dropped before their time, for want of memory",
        remedy="hostelry up --metrics-mb N, or fewer dimensions",
    ),
    AlertRule(
        name="HostelryAlarm",
        expression='sum by (account, region) (hostelry_alarms{state="ALARM"}) > 0',
        for_="0m",
        severity="info",
        summary="{{ $value }} CloudWatch alarms are in state ALARM",
        remedy="aws cloudwatch describe-alarms --state-value ALARM",
    ),
)


def rule_file(rules: tuple[AlertRule, ...] = RULES) -> dict[str, Any]:
    """The rules as Prometheus' rule file."""
    return {
        "groups": [
            {
                "name": "hostelry",
                "rules": [
                    {
                        "alert": rule.name,
                        "expr": rule.expression,
                        "for": rule.for_,
                        "labels": {"severity": rule.severity},
                        "annotations": {"summary": rule.summary, "description": rule.remedy},
                    }
                    for rule in rules
                ],
            }
        ]
    }
