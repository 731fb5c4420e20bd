"""Records the usage of instances and of the object store, from which costs are computed."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hostelry.base.clock import Clock
from hostelry.cost.holding import HeldInstance
from hostelry.domain.metric import OWN_NAMESPACE, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricStore
from hostelry.metrics.sagemaker.load_metrics import by_scope
from hostelry.metrics.sagemaker.usage import (
    GRAIN_S,
    THROUGH,
    sample_instances,
    sample_recorded,
)

# A gap of at most this length, such as a restart of control, counts as used. The platform may have
# been down during a longer one, so that it has no records.
MAX_GAP_S = 300.0
MEASURE_STORE_S = 60.0
MAX_FILES = 100_000


class UsageRecorder:
    """Writes the instance time since the last record.

    The metrics say how far the records go, so that a restarted control counts no time twice.

    Args:
        owner: the scope of the records on the object store, and on the recorded time.
        metrics: takes the samples.
        held: lists the instances that run now.
        objects: the folder of the object store, or None if the store is elsewhere.
        clock: the time.
    """

    def __init__(
        self,
        owner: Scope,
        metrics: MetricStore,
        held: Callable[[], Sequence[HeldInstance]],
        objects: Path | None,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._metrics = metrics
        self._held = held
        self._objects = objects
        self._clock = clock
        self._through: float | None = None
        self._measured_at = -math.inf
        self._stored_bytes: int | None = None

    def record(self) -> None:
        """Record the time since the last call, or since the records of an earlier control."""
        now = self._clock.now()
        if self._through is None:
            self._through = self._find_through(now)
        since = find_start(self._through, now)
        if since is None:
            return
        if self._objects is not None and now - self._measured_at >= MEASURE_STORE_S:
            self._measured_at, self._stored_bytes = now, measure_folder(self._objects)
        found = [
            *sample_instances(self._held(), since, now),
            *sample_recorded(self._owner, self._stored_bytes, since, now),
        ]
        scopes = by_scope(found)
        # The owner's samples have the end of the records, so they are the last ones.
        for scope in sorted(scopes, key=lambda it: it == self._owner):
            self._metrics.emit(scope, scopes[scope])
        self._through = now

    def _find_through(self, now: float) -> float:
        metric = Metric(namespace=OWN_NAMESPACE, name=THROUGH)
        stat = MetricStat(metric=metric, period_s=GRAIN_S, statistic="Maximum")
        until = now + MAX_GAP_S
        found = self._metrics.datapoints(self._owner, stat, now - MAX_GAP_S - GRAIN_S, until)
        return max((it.value for it in found), default=now)


def find_start(through: float, now: float) -> float | None:
    """The instant from which to record at `now`. None if the time is recorded already.

    `through` is the end of the records. It is later than `now` if the clock was set back. After too
    long a gap, and after a large step of the clock, records begin at `now`.
    """
    if abs(now - through) > MAX_GAP_S:
        return now
    return through if through < now else None


def measure_folder(folder: Path) -> int | None:
    """The bytes of all files below a folder. None if it cannot be read or has too many files."""
    total, num, waiting = 0, 0, [str(folder)]
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    num += 1
                    if num > MAX_FILES:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        total += entry.stat(follow_symlinks=False).st_size
    except OSError:  # a file was removed meanwhile, or the folder is not ours
        return None
    return total
