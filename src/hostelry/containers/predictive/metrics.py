"""Counts and times of a framework model server, for Prometheus."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class PredictiveMetrics:
    """The server's own counts; `page` is what GET /metrics answers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "hostelry_model_requests", "Answered requests.", ["status"], registry=self._registry
        )
        self._seconds = Histogram(
            "hostelry_model_request_seconds",
            "From arrival to the answer.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._queued = Histogram(
            "hostelry_model_queue_seconds",
            "From arrival until a worker took the request.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._batches = Histogram(
            "hostelry_model_batch_size",
            "Requests of a batch.",
            buckets=SIZES,
            registry=self._registry,
        )
        self._workers = Gauge(
            "hostelry_model_workers", "Workers that serve.", registry=self._registry
        )

        self._models = Gauge("hostelry_model_loaded", "Models loaded.", registry=self._registry)
        self._loads = Histogram(
            "hostelry_model_load_seconds",
            "From the order to load a model until it serves.",
            buckets=SECONDS,
            registry=self._registry,
        )

    def models(self, count: int) -> None:
        """Show how many models are loaded."""
        self._models.set(count)

    def model_loaded(self, load_s: float) -> None:
        """Count a load of a model."""
        self._loads.observe(max(0.0, load_s))

    def began(self, queued_s: Sequence[float]) -> None:
        """Count a batch whose requests waited so long."""
        self._batches.observe(len(queued_s))
        for each in queued_s:
            self._queued.observe(max(0.0, each))

    def answered(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        self._requests.labels(status=str(status)).inc()
        self._seconds.observe(max(0.0, whole_s))

    def watch_workers(self, count: Callable[[], int]) -> None:
        """Show what `count` gives when the page is asked for."""
        self._workers.set_function(count)

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)
