"""Panels over the metrics of `/metrics` and `/metrics/copies`, in rows. Pure.

In expressions MATCH stands for the selected endpoints, RANGE for the interval of a rate.
"""

from dataclasses import dataclass

MATCH, RANGE = "MATCH", "RANGE"
BY_NAME, NAME = "(endpoint, component)", "{{endpoint}} {{component}}"
BY_COPY, COPY = "(endpoint, component, copy)", "{{endpoint}} {{component}} {{copy}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPanel:
    """A panel: its queries as (expression, legend), and the unit by Grafana's id of it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardRow:
    """Panels under one title; `is_open` rows show at once."""

    title: str
    panels: tuple[DashboardPanel, ...]
    is_open: bool = True


def panel(title: str, unit: str, words: str, *queries: tuple[str, str]) -> DashboardPanel:
    """A panel of these queries."""
    return DashboardPanel(title=title, unit=unit, words=words, queries=queries)


def rate(metric: str, by: str = BY_NAME, match: str = MATCH) -> str:
    """The growth of a counter a second, by some labels."""
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


LATENCY, FIRST = "hostelry_model_latency_seconds", "hostelry_first_chunk_seconds"
ERRORS, FINISHED = "hostelry_request_errors_total", "hostelry_requests_finished_total"
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
