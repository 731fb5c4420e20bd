"""One of several processes that hold a model together; run as a program by its test.

python -m tests.unit.engine.parallel_rank FOLDER RANK WORLD_SIZE ACTION
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from tests.unit.engine.paged_steps import CPU, Driver, Scatter, Update, new_pool, scattered

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import shard_weights
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.runner.messages import PlaceMessage
from hostelry.engine.runner.parallel import (
    LeadingDecoder,
    ParallelError,
    Ranks,
    follow,
    join,
    leave,
)

NUM_PAGES, NUM_CACHE_PAGES = 400, 40


class Case:
    """A model, its adapters and the prompts of one comparison, on one rank."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self.job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        self.spec = load_spec(folder)
        shard = ranks.collective.shard
        weights = load_decoder(folder, self.spec, max_len=64, dtype=torch.float32, device=CPU)
        self.decoder = TorchDecoder(shard_weights(weights, shard), ranks.collective)
        self.pool = new_pool(self.spec, NUM_PAGES, world_size=shard.world_size)
        self._shard = shard
        self._updates: dict[str, dict[str, Update]] = {}
        if self.job["adapters"]:
            stored = torch.load(folder / "adapters.pt", weights_only=True)
            self._updates = {
                name: {path: Update(*parts) for path, parts in modules.items()}
                for name, modules in stored.items()
            }

    def place(self, message: PlaceMessage) -> AdapterIndex:
        """This rank's part of an adapter, in its pages; each rank scatters it in its own way."""
        if message.source == "nowhere" and self._shard.rank:
            raise FileNotFoundError("there is no such file")
        scatter = Scatter(self.pool, message.pages, seed=self._shard.rank)
        return scattered(self._updates[message.key], self.spec, scatter, self._shard)


def lead(case: Case, ranks: Ranks, folder: Path) -> None:
    """Rank 0: all prompts through the pool, in chunks; the logits go to a file."""
    leading = LeadingDecoder(case.decoder, ranks.channel)
    indexes: dict[str, AdapterIndex] = {}
    adapters = case.job["adapters"]
    first = NUM_CACHE_PAGES
    for number, name in enumerate(adapters):
        each = (NUM_PAGES - NUM_CACHE_PAGES) // len(adapters)
        pages = list(range(first + number * each, first + (number + 1) * each))
        indexes[name] = case.place(PlaceMessage(name, pages, "file"))
        leading.place(name, indexes[name], pages, "file")
    if adapters:
        try:
            leading.place("more", indexes[adapters[0]], [0], "nowhere")
        except ParallelError as error:
            (folder / "refusal.txt").write_text(str(error), encoding="utf-8")
    driver = Driver(leading, case.pool, range(NUM_CACHE_PAGES))
    for prompt, name in zip(case.job["prompts"], case.job["chosen"], strict=True):
        driver.add(prompt, indexes[name] if name else None)
    torch.save(driver.finish(case.job["chunk"]), folder / "logits.pt")
    for index in indexes.values():
        leading.remove(index)
    leading.stop()


def main() -> None:
    """Take part as the command line says."""
    root, rank, world_size, action = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
    )
    torch.set_num_threads(1)
    ranks = join(f"file://{root}/store", rank, world_size, device=CPU, step_timeout_s=60)
    if action == "die" and rank == 0:
        os._exit(3)
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        case = Case(folder, ranks)
        if rank == 0:
            lead(case, ranks, folder)
        else:
            follow(case.decoder, case.pool, ranks.channel, case.place)
    leave()


if __name__ == "__main__":
    main()
