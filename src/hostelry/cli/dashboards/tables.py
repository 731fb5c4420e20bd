"""Panels over the metrics of `/metrics` and `/metrics/copies`, in rows. Pure.

In expressions, MATCH stands for the selected endpoints, and RANGE for the interval of a rate.
"""

from typing import Any

import msgspec

MATCH, RANGE = "MATCH", "RANGE"
BY_NAME, NAME = "(endpoint, component)", "{{endpoint}} {{component}}"
BY_COPY, COPY = "(endpoint, component, copy)", "{{endpoint}} {{component}} {{copy}}"
LATENCY, FIRST = "hostelry_model_latency_seconds", "hostelry_first_chunk_seconds"
ERRORS, FINISHED = "hostelry_request_errors_total", "hostelry_requests_finished_total"
BY = "(account, region, endpoint, component)"
ERROR_RATE = f'sum by {BY} (rate(hostelry_request_errors_total{{kind!="4xx"}}[5m]))'
REFUSED = 'hostelry_request_errors_total{kind="no_capacity"}'
ENDED = f"sum by {BY} (rate(hostelry_requests_finished_total[5m]))"
BUCKETS = "rate(hostelry_model_latency_seconds_bucket[10m]{})"
P99 = f"histogram_quantile(0.99, sum by (le, {BY[1:]} ({BUCKETS}))"
LABELLED = "{{ $labels.endpoint }} {{ $labels.component }}"


class DashboardPanel(msgspec.Struct, frozen=True, kw_only=True):
    """A panel: its queries as (expression, legend), and Grafana's id of the unit."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    words: str


class DashboardRow(msgspec.Struct, frozen=True, kw_only=True):
    """Panels under one title. Rows with `is_open` are shown expanded."""

    title: str
    panels: tuple[DashboardPanel, ...]
    is_open: bool = True


def panel(title: str, unit: str, words: str, *queries: tuple[str, str]) -> DashboardPanel:
    """A panel of these queries."""
    return DashboardPanel(title=title, unit=unit, words=words, queries=queries)


def rate(metric: str, by: str = BY_NAME, match: str = MATCH) -> str:
    """The growth of a counter per second, by some labels."""
    return f"sum by {by} (rate({metric}{{{match}}}[{RANGE}]))"


def quantile(share: float, histogram: str, by: str = BY_NAME) -> str:
    """A quantile of a histogram, by some labels."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', f'(le, {by[1:]}')})"


def gauge(metric: str, by: str = BY_NAME) -> str:
    """A gauge, by some labels."""
    return f"sum by {by} ({metric}{{{MATCH}}})"


def quantiles(title: str, histogram: str, words: str) -> DashboardPanel:
    """A panel with the median and the 99th percentile of a histogram in seconds."""
    return panel(
        title,
        "s",
        words,
        (quantile(0.5, histogram), f"p50 {NAME}"),
        (quantile(0.99, histogram), f"p99 {NAME}"),
    )


FAILED = rate(ERRORS, match=f'{MATCH}, kind!="4xx"')
BUSIEST = rate("hostelry_llm_adapter_generation_tokens_total", "(component, adapter)")
HITS, LOOKUPS = rate("vllm:prefix_cache_hits_total"), rate("vllm:prefix_cache_queries_total")
REQUESTS = DashboardRow(
    title="Requests",
    panels=(
        panel("Requests", "reqps", "That came.", (rate("hostelry_requests_total"), NAME)),
        panel(
            "Errors by kind",
            "reqps",
            "4xx: the client's; model: the model server answered none or an error; no_capacity: "
            "no copy was ready.",
            (rate(ERRORS, "(endpoint, component, kind)"), f"{NAME} {{{{kind}}}}"),
        ),
        panel(
            "Share of errors",
            "percentunit",
            "Of ended requests, without the clients' own.",
            (f"{FAILED} / {rate(FINISHED)}", NAME),
        ),
        quantiles("Latency", LATENCY, "From the choice of a copy to its whole answer."),
        quantiles("First chunk of streams", FIRST, "From the request to its first chunk."),
        panel("In flight", "short", "At once.", (gauge("hostelry_in_flight"), NAME)),
        panel(
            "Queue",
            "short",
            "Requests that wait for a copy now, and how many had to.",
            (gauge("hostelry_held"), f"waiting {NAME}"),
            (rate("hostelry_requests_delayed_total"), f"had to wait/s {NAME}"),
        ),
        panel(
            "Copies that a request needs",
            "short",
            "Time on copies a second: more than the copies there are is a queue in them.",
            (rate("hostelry_service_seconds_total"), NAME),
        ),
    ),
)
CAPACITY = DashboardRow(
    title="Capacity",
    panels=(
        panel("Copies that serve", "short", "By name.", (gauge("hostelry_copies"), NAME)),
        panel(
            "Instances that serve",
            "short",
            "By variant.",
            (gauge("hostelry_instances", "(endpoint, variant)"), "{{endpoint}} {{variant}}"),
        ),
        panel(
            "Alarms",
            "short",
            "CloudWatch alarms by state.",
            ("sum by (state) (hostelry_alarms)", "{{state}}"),
        ),
        panel(
            "Mirrored requests dropped",
            "reqps",
            "That a shadow variant got no copy of.",
            (rate("hostelry_mirrors_dropped_total"), NAME),
        ),
    ),
)
LANGUAGE_MODELS = DashboardRow(
    title="Language models",
    panels=(
        panel(
            "Tokens",
            "short",
            "A second, prompts and answers.",
            (rate("vllm:generation_tokens_total"), f"made {NAME}"),
            (rate("vllm:prompt_tokens_total"), f"of prompts {NAME}"),
        ),
        quantiles("Time to first token", "vllm:time_to_first_token_seconds", "At the server."),
        quantiles("Between tokens", "vllm:inter_token_latency_seconds", "Of one sequence."),
        quantiles("Queue time", "vllm:request_queue_time_seconds", "Until the first step."),
        quantiles("Prefill", "vllm:request_prefill_time_seconds", "From there to the first token."),
        quantiles("Decode", "vllm:request_decode_time_seconds", "From there to the last."),
        panel(
            "Sequences",
            "short",
            "In steps, and waiting for room.",
            (gauge("vllm:num_requests_running"), f"running {NAME}"),
            (gauge("vllm:num_requests_waiting"), f"waiting {NAME}"),
        ),
        panel(
            "KV cache in use",
            "percentunit",
            "Of each copy; at 1 sequences are preempted.",
            (gauge("vllm:kv_cache_usage_perc", BY_COPY), COPY),
        ),
        panel(
            "Prefix cache",
            "percentunit",
            "Prompt tokens that were found.",
            (f"{HITS} / {LOOKUPS}", NAME),
        ),
        panel(
            "Preemptions",
            "short",
            "Sequences that gave way, a second.",
            (rate("vllm:num_preemptions_total"), NAME),
        ),
    ),
)
ADAPTERS = DashboardRow(
    title="Adapters",
    is_open=False,
    panels=(
        panel(
            "Tokens of the busiest adapters",
            "short",
            "A second, the first ten.",
            (
                f"topk(10, {BUSIEST})",
                "{{component}} {{adapter}}",
            ),
        ),
        panel(
            "Adapters by tier",
            "short",
            "In the page pool, and in memory.",
            (gauge("hostelry_llm_adapters_in_pool", BY_COPY), f"pool {COPY}"),
            (gauge("hostelry_llm_adapters_in_host", BY_COPY), f"host {COPY}"),
        ),
        panel(
            "Page pool",
            "short",
            "Pages that are free, of adapters, of the prefix cache.",
            (gauge("hostelry_llm_pool_free_pages", BY_COPY), f"free {COPY}"),
            (gauge("hostelry_llm_pool_adapter_pages", BY_COPY), f"adapters {COPY}"),
            (gauge("hostelry_llm_pool_cached_pages", BY_COPY), f"cache {COPY}"),
        ),
        panel(
            "Adapter loads that failed",
            "short",
            "A second.",
            (rate("hostelry_llm_failed_adapter_loads_total"), NAME),
        ),
    ),
)
FRAMEWORKS = DashboardRow(
    title="Framework servers",
    is_open=False,
    panels=(
        panel(
            "Answers by status",
            "reqps",
            "At the model server.",
            (
                rate("hostelry_model_requests_total", "(endpoint, status)"),
                "{{endpoint}} {{status}}",
            ),
        ),
        quantiles("Time at the server", "hostelry_model_request_seconds", "With its queue."),
        quantiles("Queue at the server", "hostelry_model_queue_seconds", "Until a worker took it."),
    ),
)
PLATFORM = DashboardRow(
    title="Platform",
    is_open=False,
    panels=(
        panel(
            "Gateway reports",
            "short",
            "1 while it does.",
            ("hostelry_gateway_reporting", "gateway"),
            ("hostelry_build_info", "version {{version}}"),
        ),
        panel(
            "Metric store",
            "bytes",
            "Memory, and its budget.",
            ("sum(hostelry_metric_store_bytes)", "in use"),
            ("hostelry_metric_store_budget_bytes", "budget"),
        ),
        panel(
            "Metric store: pressure",
            "short",
            "0 while all is kept as long as on AWS; series given up for lack of memory.",
            ("hostelry_metric_store_pressure", "pressure"),
            (f"rate(hostelry_metric_store_evicted_series_total[{RANGE}])", "series given up/s"),
        ),
        panel(
            "Pages of copies",
            "short",
            "1 where a copy gave its own metrics.",
            (f"min by {BY_COPY} (hostelry_copy_metrics_up{{{MATCH}}})", COPY),
        ),
    ),
)
ROWS = (REQUESTS, CAPACITY, LANGUAGE_MODELS, ADAPTERS, FRAMEWORKS, PLATFORM)


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule. It fires when `expression` has given a series for `for_` without interruption."""

    name: str
    expression: str
    for_: str
    severity: str
    summary: str
    remedy: str


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
        expression=f"{ERROR_RATE} / {ENDED} > 0.05",
        for_="5m",
        severity="critical",
        summary=f"more than 5 % of the requests to {LABELLED} fail",
        remedy="hostelry trace --failed; hostelry status --endpoint {{ $labels.endpoint }}",
    ),
    AlertRule(
        name="HostelryNoCapacity",
        expression=f"sum by {BY} (increase({REFUSED}[5m])) > 0",
        for_="5m",
        severity="critical",
        summary=f"requests to {LABELLED} are refused for want of a copy",
        remedy="hostelry explain --endpoint {{ $labels.endpoint }} says why there is none",
    ),
    AlertRule(
        name="HostelryQueueStands",
        expression=f"min by {BY} (min_over_time(hostelry_held[5m])) > 0",
        for_="1m",
        severity="warning",
        summary=f"requests to {LABELLED} have waited for a copy for five minutes",
        remedy="hostelry scaling status; hostelry explain --endpoint {{ $labels.endpoint }}",
    ),
    AlertRule(
        name="HostelryLatencyDoubled",
        expression=f"{P99.format('')} > 2 * {P99.format(' offset 1h')}",
        for_="10m",
        severity="warning",
        summary=f"the p99 of {LABELLED} is more than twice that of an hour ago",
        remedy="hostelry trace --slowest {{ $labels.endpoint }}; hostelry top --sort latency",
    ),
    AlertRule(
        name="HostelryKvCacheFull",
        expression="vllm:kv_cache_usage_perc > 0.95",
        for_="10m",
        severity="warning",
        summary=f"copy {{{{ $labels.copy }}}} of {LABELLED} has no room for more sequences",
        remedy="more copies (a scaling policy), or a smaller OPTION_MAX_MODEL_LEN",
    ),
    AlertRule(
        name="HostelrySequencesWait",
        expression="min_over_time(vllm:num_requests_waiting[10m]) > 0",
        for_="1m",
        severity="warning",
        summary=f"sequences have waited on copy {{{{ $labels.copy }}}} of {LABELLED} for "
        "ten minutes",
        remedy="more copies: hostelry scaling status",
    ),
    AlertRule(
        name="HostelryAdapterLoadsFail",
        expression="increase(hostelry_llm_failed_adapter_loads_total[10m]) > 0",
        for_="0m",
        severity="warning",
        summary=f"adapters of {LABELLED} do not load",
        remedy="hostelry logs {{ $labels.copy }}",
    ),
    AlertRule(
        name="HostelryCopyMetricsDown",
        expression="hostelry_copy_metrics_up == 0",
        for_="10m",
        severity="warning",
        summary=f"copy {{{{ $labels.copy }}}} of {LABELLED} gives no metrics",
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
    """The rules in the format of a Prometheus rule file."""
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
