"""Our engine without its server, so that the difference shows HTTP's share of a request."""

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.engine_options import engine_config
from benchmarks.peers.contestant import Answer, Ask, Outcome
from benchmarks.peers.worker import Answering, Setup, work
from hostelry.engine.engine import Engine
from hostelry.engine.request import Request, SamplingParams


def prepare(setup: Setup) -> Answering:
    """The engine with its model and adapters."""
    config = engine_config({**setup.options, "num_threads": setup.num_threads})
    engine = Engine.load(Path(setup.model), config)
    for name, folder in setup.adapters.items():
        engine.load_adapter(name, Path(folder))
    engine.await_fused()

    def answer(asks: Sequence[Ask]) -> Outcome:
        return run(engine, asks)

    return answer


def run(engine: Engine, asks: Sequence[Ask]) -> Outcome:
    """Add all of `asks` at once, and step the engine until all have ended."""
    arrivals_s: list[list[float]] = [[] for _ in asks]
    tokens: list[list[int]] = [[] for _ in asks]
    start_s = time.perf_counter()
    for number, ask in enumerate(asks):
        engine.add(request(str(number), ask))
    while engine.has_work:
        outputs = engine.step()
        now_s = time.perf_counter() - start_s
        for output in outputs:
            if output.token_id is None:
                raise RuntimeError(f"request {output.request_id}: {output.error}")
            arrivals_s[int(output.request_id)].append(now_s)
            tokens[int(output.request_id)].append(output.token_id)
    wall_s = time.perf_counter() - start_s
    answers = tuple(
        Answer(num_tokens=len(ids), arrivals_s=tuple(times), text=" ".join(map(str, ids)))
        for ids, times in zip(tokens, arrivals_s, strict=True)
    )
    return Outcome(wall_s=wall_s, answers=answers)


def request(name: str, ask: Ask) -> Request:
    """`ask` as a request of the engine."""
    return Request(
        id=name,
        prompt_token_ids=ask.prompt,
        sampling=SamplingParams(
            max_new_tokens=ask.max_tokens, ignore_eos=True, temperature=ask.temperature
        ),
        adapter=ask.adapter,
    )


if __name__ == "__main__":
    work(prepare)
