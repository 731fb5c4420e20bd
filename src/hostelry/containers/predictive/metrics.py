"""Counts and times of a framework model server, for Prometheus."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class PredictiveMetrics:
    """Counts and times of a framework model server, for Prometheus."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "hostelry_model_requests", "Answered requests.", ["status"], registry=registry
        )
        self._seconds = Histogram(
            "hostelry_model_request_seconds",
            "From arrival to the answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self._queued = Histogram(
            "hostelry_model_queue_seconds",
            "From arrival until a worker took the request.",
            buckets=SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "hostelry_model_batch_size", "Requests of a batch.", buckets=SIZES, registry=registry
        )
        self._workers = Gauge("hostelry_model_workers", "Workers that serve.", registry=registry)
        self._models = Gauge("hostelry_model_loaded", "Models loaded.", registry=registry)
        self._loads = Histogram(
            "hostelry_model_load_seconds",
            "From the order to load a model until it serves.",
            buckets=SECONDS,
            registry=registry,
        )

    def count_models(self, count: int) -> None:
        """Set the number of loaded models."""
        self._models.set(count)

    def count_load(self, load_s: float) -> None:
        """Count a load of a model."""
        self._loads.observe(max(0.0, load_s))

    def count_batch(self, queued_s: Sequence[float]) -> None:
        """Count a batch, with the time in the queue of each request."""
        self._batches.observe(len(queued_s))
        for seconds in queued_s:
            self._queued.observe(max(0.0, seconds))

    def count_answer(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        self._requests.labels(status=str(status)).inc()
        self._seconds.observe(max(0.0, whole_s))

    def watch_workers(self, count: Callable[[], int]) -> None:
        """Call `count` for the number of workers whenever the page is requested."""
        self._workers.set_function(count)

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)
