"""What a request waits longer for its first token when its adapter is not in the pool.

Adapters are brought to where they shall be by use: the one in question is used, then as many others
as push it out. Where it was found is what the engine says, if it can tell, else what was arranged.
"""

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models import random_adapter

from benchmarks.engine_options import engine_config
from benchmarks.load import percentile
from benchmarks.page_cache import evict
from hostelry.engine.engine import Engine
from hostelry.engine.request import Request, SamplingParams

RANK = 16
NO_ADAPTER, JUST_USED, PUSHED_OUT, NEVER_USED = (
    "no adapter",
    "just used",
    "after others pushed it out of the pool",
    "never used, its files not in the page cache",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSetting:
    """How often to measure, and how many other adapters push one out."""

    repeats: int
    num_others: int
    prompt_tokens: int


def measure_tiers(
    model: Path, scratch: Path, options: dict[str, Any], setting: TierSetting, seed: int
) -> list[dict[str, Any]]:
    """A row for each place an adapter may be."""
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
    engine = Engine.load(model, engine_config(options))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    names = list(folders)
    fresh, others = names[: setting.repeats], names[setting.repeats :]
    probe = Probe(engine, setting.prompt_tokens)
    for _ in range(3):
        probe.first_token_s(None)
    taken: dict[str, list[float]] = {NO_ADAPTER: [], JUST_USED: [], PUSHED_OUT: [], NEVER_USED: []}
    found: dict[str, set[str]] = {state: set() for state in taken}
    for name in fresh:
        evict(folders[name].iterdir())
        for state, before in (
            (NEVER_USED, ()),
            (JUST_USED, ()),
            (PUSHED_OUT, others),
            (NO_ADAPTER, ()),
        ):
            probe.use(before)
            adapter = None if state == NO_ADAPTER else name
            found[state].add(place(engine, adapter))
            taken[state].append(probe.first_token_s(adapter))
    return [tier_row(state, times, taken, sorted(found[state])) for state, times in taken.items()]


def tier_row(
    state: str, times: list[float], taken: dict[str, list[float]], found: list[str]
) -> dict[str, Any]:
    """Times of one place, and how much longer they are than in the pool."""
    added_s = statistics.median(times) - statistics.median(taken[JUST_USED])
    return {
        "adapter": state,
        "found in": ", ".join(found),
        "first token p50 ms": statistics.median(times) * 1000,
        "p99 ms": percentile(sorted(times), 0.99) * 1000,
        "added to just used, p50 ms": added_s * 1000,
        "requests": len(times),
    }


def place(engine: Engine, adapter: str | None) -> str:
    """Where the engine says that the adapter is; ``not told`` by an engine that cannot."""
    if adapter is None:
        return "-"
    tell = getattr(engine, "adapter_tier", None)
    return str(getattr(tell(adapter), "value", tell(adapter))) if tell else "not told"


class Probe:
    """Single requests, each with a prompt of its own."""

    def __init__(self, engine: Engine, prompt_tokens: int) -> None:
        self._engine = engine
        self._prompt_tokens = prompt_tokens
        self._num_asked = 0

    def use(self, adapters: Iterable[str]) -> None:
        """A request with each."""
        for adapter in adapters:
            self.first_token_s(adapter)

    def first_token_s(self, adapter: str | None) -> float:
        """How long one token takes with nothing else under way."""
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
