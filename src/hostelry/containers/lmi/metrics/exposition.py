"""The page of metrics for Prometheus, with vLLM's names (which dashboards know) and our own names.

Source: vLLM documentation (Production Metrics), Prometheus documentation (Exposition formats).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from hostelry.containers.lmi.engine.backend import BackendStats
from hostelry.containers.lmi.metrics.measurements import Measurements

LABELS = ("model_name", "engine")
REASONS = ("stop", "length", "abort", "error")
HISTOGRAMS = (
    ("vllm:time_to_first_token_seconds", "From arrival to the first token.", "first_token_s"),
    ("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", "between_tokens_s"),
    (
        "vllm:request_time_per_output_token_seconds",
        "Mean time between a sequence's tokens.",
        "mean_token_s",
    ),
    ("vllm:e2e_request_latency_seconds", "From arrival to the last token.", "whole_s"),
    ("vllm:request_queue_time_seconds", "From arrival to the first computed row.", "queued_s"),
    ("vllm:request_inference_time_seconds", "From then to the last token.", "computed_s"),
    ("vllm:request_prefill_time_seconds", "From then to the first token.", "prefill_s"),
    ("vllm:request_decode_time_seconds", "From the first token to the last.", "decode_s"),
    ("vllm:request_prompt_tokens", "Tokens of a prompt.", "prompt_lengths"),
    ("vllm:request_generation_tokens", "Generated tokens of a sequence.", "generated_lengths"),
    ("vllm:request_params_max_tokens", "The most tokens that a sequence may have.", "most_tokens"),
    ("vllm:request_params_n", "Sequences of a request.", "sequences"),
)
STATS_GAUGES = (
    ("hostelry_llm_pool_pages", "Pages of the pool.", "total_pages"),
    ("hostelry_llm_pool_free_pages", "Pages that a request could take.", "free_pages"),
    ("hostelry_llm_pool_pinned_pages", "Pages of pinned adapters.", "pinned_pages"),
    ("hostelry_llm_pool_adapter_pages", "Pages of adapters.", "adapter_pages"),
    ("hostelry_llm_pool_cached_pages", "Pages of cached prefixes.", "cached_pages"),
    ("hostelry_llm_pool_bytes", "Bytes of the pool.", "pool_bytes"),
    ("hostelry_llm_merged_bytes", "Bytes of the merged adapter's weights.", "merged_bytes"),
    ("hostelry_llm_adapters_in_pool", "Adapters in the pool.", "adapters_in_pool"),
    ("hostelry_llm_adapters_in_host", "Adapters in host memory.", "adapters_in_host"),
    ("hostelry_llm_adapter_host_bytes", "Bytes of adapters in host memory.", "host_bytes"),
    ("hostelry_llm_adapter_disk_bytes", "Bytes of adapters on disk.", "disk_bytes"),
)
STATS_COUNTERS = (
    ("vllm:num_preemptions", "Requests sent back to wait.", "preemptions"),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up in the cache.", "prompt_tokens"),
    ("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", "cached_tokens"),
    ("hostelry_llm_steps", "Steps of the engine.", "steps"),
    ("hostelry_llm_expired_requests", "Requests dropped at their deadline.", "expired_requests"),
    (
        "hostelry_llm_failed_adapter_loads",
        "Adapters that could not be read.",
        "adapter_loads_failed",
    ),
)
ADAPTER_COUNTERS = (
    ("hostelry_llm_adapter_requests", "Sequences by adapter.", "requests"),
    ("hostelry_llm_adapter_prompt_tokens", "Prompt tokens by adapter.", "prompt_tokens"),
    ("hostelry_llm_adapter_generation_tokens", "Tokens by adapter.", "generated_tokens"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scrape(Collector):
    """The values of the page at one time, `now`, in seconds since the epoch."""

    model_name: str
    measured: Measurements
    stats: BackendStats
    in_flight: int
    max_loras: int | None
    now: float

    def text(self) -> bytes:
        """The page in Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are not reserved."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every metric family with its samples."""
        yield from self._load()
        yield from self._requests()
        yield from self._engine()
        yield from self._adapters()

    @property
    def _labels(self) -> tuple[str, str]:
        return self.model_name, "0"

    def _gauge(self, name: str, words: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, words, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, words: str, value: float) -> Metric:
        family = CounterMetricFamily(name, words, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _load(self) -> Iterator[Metric]:
        stats = self.stats
        used = 1 - stats.free_pages / stats.total_pages if stats.total_pages else 0.0
        running, waiting = stats.running_requests, stats.waiting_requests
        yield self._gauge("vllm:num_requests_running", "Sequences that run.", running)
        yield self._gauge("vllm:num_requests_waiting", "Sequences that wait.", waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Used part of the pool, 0 to 1.", used)
        yield self._gauge(
            "hostelry_llm_requests_in_flight", "Requests before their last byte.", self.in_flight
        )

    def _requests(self) -> Iterator[Metric]:
        measured = self.measured
        yield self._counter("vllm:prompt_tokens", "Tokens of prompts.", measured.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens.", measured.generated_tokens)
        finished = CounterMetricFamily(
            "vllm:request_success", "Ended sequences.", labels=(*LABELS, "finished_reason")
        )
        for reason in REASONS:
            finished.add_metric((*self._labels, reason), measured.finished[reason])
        yield finished
        refused = CounterMetricFamily(
            "hostelry_llm_refused_requests", "Refused requests.", labels=(*LABELS, "status")
        )
        for status, count in sorted(measured.refused.items()):
            refused.add_metric((*self._labels, str(status)), count)
        yield refused
        for name, words, member in HISTOGRAMS:
            seen = getattr(measured, member)
            family = HistogramMetricFamily(name, words, labels=LABELS)
            family.add_metric(self._labels, seen.buckets(), seen.sum)
            yield family

    def _engine(self) -> Iterator[Metric]:
        for name, words, member in STATS_GAUGES:
            yield self._gauge(name, words, getattr(self.stats, member))
        for name, words, member in STATS_COUNTERS:
            yield self._counter(name, words, getattr(self.stats, member))

    def _adapters(self) -> Iterator[Metric]:
        counts = sorted(self.measured.adapters.items())
        for name, words, member in ADAPTER_COUNTERS:
            family = CounterMetricFamily(name, words, labels=(*LABELS, "adapter"))
            for adapter, each in counts:
                family.add_metric((*self._labels, adapter), getattr(each, member))
            yield family
        info = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "Adapters with requests; the value is the time of the look.",
            labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
        )
        running = ",".join(name for name, each in counts if each.running)
        waiting = ",".join(name for name, each in counts if each.waiting)
        info.add_metric((str(self.max_loras or 0), running, waiting), self.now)
        yield info
