"""Added time to first token of requests whose adapter is not in the pool.

Two engines have pools for a few adapters only. One keeps all adapters in host memory, the other
hardly any. To put an adapter into a tier, it is used, and then as many others as push it out. The
result also says where the engine then found the adapter.
"""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.models import random_adapter

from benchmarks.engine_options import engine_config
from benchmarks.page_cache import evict
from hostelry.engine.engine import Engine
from hostelry.engine.request import Request, SamplingParams
from hostelry.loadtest.tally import percentile

RANK = 16
MAX_MODEL_LEN = 256
NUM_IN_POOL = 6  # about as many adapters as fit next to the KV cache
GIB = 1 << 30
POOL_REST_BYTES = 16 << 20  # of the KV cache, for short requests
NO_ADAPTER, JUST_USED = "no adapter", "just used"
FROM_HOST = "pushed out of the pool, kept in host memory"
FROM_DISK = "kept in files only, in the page cache"
FROM_COLD_DISK = "kept in files only, not in the page cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSetting:
    """How often to measure, and how many other adapters push out an adapter."""

    repeats: int
    num_others: int
    prompt_tokens: int


def measure_tiers(
    model: Path, scratch: Path, options: dict[str, Any], setting: TierSetting, seed: int
) -> list[dict[str, Any]]:
    """A row for each place where an adapter may be."""
    folders = {
        f"adapter-{number:03}": random_adapter(
            scratch / f"adapter-{number:03}",
            model,
            RANK,
            seed=seed + number,
            std=0.02,
            dtype="bfloat16",
        )
        for number in range(setting.num_others + setting.repeats)
    }
    taken: dict[str, Taken] = {}
    keeping = limit_tiers(options, folders, adapter_host_bytes=GIB)
    measure_on(model, keeping, folders, setting, (NO_ADAPTER, JUST_USED, FROM_HOST), taken)
    forgetting = limit_tiers(options, folders, adapter_host_bytes=2 * file_bytes(folders))
    measure_on(model, forgetting, folders, setting, (FROM_DISK, FROM_COLD_DISK), taken)
    in_pool_s = statistics.median(taken[JUST_USED].times_s)
    return [tier_row(state, each, in_pool_s) for state, each in taken.items()]


@dataclass(frozen=True, slots=True)
class Taken:
    """Times to the first token, and where the engine found the adapters."""

    times_s: list[float] = field(default_factory=list)
    places: set[str] = field(default_factory=set)


def limit_tiers(
    options: dict[str, Any], folders: dict[str, Path], *, adapter_host_bytes: int
) -> dict[str, Any]:
    """Settings with a pool for a few adapters, and with that much host memory for adapters."""
    return {
        "max_model_len": MAX_MODEL_LEN,
        "max_batch_size": 2,
        "pool_bytes": NUM_IN_POOL * file_bytes(folders) + POOL_REST_BYTES,
        "adapter_host_bytes": adapter_host_bytes,
        **options,
    }


def file_bytes(folders: dict[str, Path]) -> int:
    """Bytes of one adapter. All adapters have the same size."""
    return sum(file.stat().st_size for file in next(iter(folders.values())).iterdir())


def measure_on(
    model: Path,
    options: dict[str, Any],
    folders: dict[str, Path],
    setting: TierSetting,
    states: Sequence[str],
    taken: dict[str, Taken],
) -> None:
    """Measure an engine with `options` in each of `states`, and add the times to `taken`."""
    engine = Engine.load(model, engine_config(options))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    names = list(folders)
    probed, others = names[: setting.repeats], names[setting.repeats :]
    probe = Probe(engine, setting.prompt_tokens)
    probe.use([None, probed[0], None])
    for name in probed:
        for state in states:
            probe.use([name] if state == JUST_USED else [name, *others])
            if state == FROM_COLD_DISK:
                evict(folders[name].iterdir())
            adapter = None if state == NO_ADAPTER else name
            found = taken.setdefault(state, Taken())
            found.places.add(engine.adapter_tier(adapter).value if adapter else "-")
            found.times_s.append(probe.first_token_s(adapter))


def tier_row(state: str, taken: Taken, in_pool_s: float) -> dict[str, Any]:
    """Times of one place, and how much longer they are than with the adapter in the pool."""
    middle_s = statistics.median(taken.times_s)
    return {
        "adapter": state,
        "found in": ", ".join(sorted(taken.places)),
        "first token p50 ms": middle_s * 1000,
        "p99 ms": percentile(sorted(taken.times_s), 0.99) * 1000,
        "added to just used, p50 ms": (middle_s - in_pool_s) * 1000,
        "requests": len(taken.times_s),
    }


class Probe:
    """Single requests, each with a different prompt."""

    def __init__(self, engine: Engine, prompt_tokens: int) -> None:
        self._engine = engine
        self._prompt_tokens = prompt_tokens
        self._num_asked = 0

    def use(self, adapters: Iterable[str | None]) -> None:
        """Send one request with each adapter."""
        for adapter in adapters:
            self.first_token_s(adapter)

    def first_token_s(self, adapter: str | None) -> float:
        """Seconds until the first token, while the engine does nothing else."""
        self._num_asked += 1
        size = self._engine.model.vocab_size
        prompt = tuple(
            3 + (self._num_asked * 7919 + place * 104729) % (size - 3)
            for place in range(self._prompt_tokens)
        )
        sampling = SamplingParams(max_new_tokens=1, ignore_eos=True)
        request = Request(
            id=str(self._num_asked), prompt_token_ids=prompt, sampling=sampling, adapter=adapter
        )
        start_s = time.perf_counter()
        self._engine.add(request)
        while True:
            for output in self._engine.step():
                if output.token_id is None:
                    raise RuntimeError(f"adapter {adapter}: {output.error}")
                return time.perf_counter() - start_s
