"""One of several processes that hold a model together; run as a program by its test.

python -m tests.unit.engine.parallel_rank FOLDER RANK WORLD_SIZE ACTION
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from tests.unit.engine.paged_steps import CPU, Driver, new_pool

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import shard_weights
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.share import share_pages
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.runner.messages import PlaceMessage
from hostelry.engine.runner.parallel import (
    LeadingDecoder,
    ParallelError,
    Ranks,
    SharePlacer,
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
        self.targets = decoder_targets(self.spec)
        shard = ranks.collective.shard
        weights = load_decoder(folder, self.spec, max_len=64, dtype=torch.float32, device=CPU)
        self.decoder = TorchDecoder(shard_weights(weights, shard), ranks.collective)
        self.pool = new_pool(self.spec, NUM_PAGES, world_size=shard.world_size)
        tables = {"lm_head": weights.lm_head_VH, "model.embed_tokens": weights.embedding_VH}
        self.reader = AdapterReader(
            BaseModel(targets=self.targets, vocabulary=tables.__getitem__),
            AdapterRules(),
            PageForm(page_elements=self.pool.layout.page_elements, dtype=torch.float32),
        )
        self.place = SharePlacer(self.reader, self.targets, shard, self.pool)


def lead(case: Case, ranks: Ranks, folder: Path) -> None:
    """Rank 0: all prompts through the pool, in chunks; the logits go to a file."""
    leading = LeadingDecoder(case.decoder, ranks.channel)
    indexes: dict[str, AdapterIndex] = {}
    free = list(range(NUM_CACHE_PAGES, NUM_PAGES))
    for name in case.job["adapters"]:
        adapter = case.reader.read(folder / name)
        world_size, size = ranks.collective.shard.world_size, case.pool.layout.page_elements
        count = share_pages(case.targets, adapter.layout.ranks, world_size, size)
        pages = [free.pop(number % len(free)) for number in range(0, 7 * count, 7)]
        told = PlaceMessage(0, adapter.content_id, pages, str(folder / name))
        indexes[name] = case.place(told)
        leading.place(told.key, indexes[name], told.pages, told.source)
    refuse(case, leading, folder, free)
    driver = Driver(leading, case.pool, range(NUM_CACHE_PAGES))
    for prompt, name in zip(case.job["prompts"], case.job["chosen"], strict=True):
        driver.add(prompt, indexes[name] if name else None)
    torch.save(driver.finish(case.job["chunk"]), folder / "logits.pt")
    for index in indexes.values():
        leading.remove(index)
    leading.stop()


def refuse(case: Case, leading: LeadingDecoder, folder: Path, free: list[int]) -> None:
    """Adapters that rank 1 cannot place; the reasons go to a file."""
    reasons = []
    for name in case.job["adapters"][:1]:
        good = case.reader.read(folder / name).content_id
        for key, pages, source in (
            (good, free, folder / "nowhere"),
            ("0123", free, folder / name),
            (good, free[:1], folder / name),
        ):
            index = case.place(PlaceMessage(0, good, free, str(folder / name)))
            try:
                leading.place(key, index, pages, str(source))
            except ParallelError as error:
                reasons.append(str(error))
    (folder / "refusals.json").write_text(json.dumps(reasons), encoding="utf-8")


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
