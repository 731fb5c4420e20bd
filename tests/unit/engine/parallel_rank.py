"""One of several processes that hold a model together. A test runs it as a program.

python -m tests.unit.engine.parallel_rank FOLDER RANK WORLD_SIZE ACTION
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from tests.unit.engine.paged_steps import CPU, Driver

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.lora.share import count_share_pages
from hostelry.engine.runner.follower import FollowerJob, load_part
from hostelry.engine.runner.parallel import (
    LeadingDecoder,
    ParallelError,
    PlaceMessage,
    RankConnections,
    follow,
    join,
    leave,
)

NUM_PAGES, NUM_CACHE_PAGES = 400, 40


class Case:
    """A model, its adapters and prompts for one comparison, on one rank."""

    def __init__(self, folder: Path, ranks: RankConnections) -> None:
        self.job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        part = load_part(
            FollowerJob(
                folder=str(folder),
                dtype="fp32",
                max_len=64,
                page_tokens=4,
                num_pages=NUM_PAGES,
                init_method="",
                rank=ranks.collective.shard.rank,
                world_size=ranks.collective.shard.world_size,
                kernels=self.job["kernels"],
            ),
            ranks.collective,
        )
        part.pool.elements.fill_(float("nan"))  # so that reading unwritten elements shows
        self.decoder, self.pool, self.place = part.decoder, part.pool, part.place
        self.targets, self.reader = part.targets, part.reader


def lead(case: Case, ranks: RankConnections, folder: Path) -> None:
    """Rank 0: run all prompts through the pool in chunks, and write the logits to a file."""
    leading = LeadingDecoder(case.decoder, ranks.channel)
    indexes: dict[str, AdapterIndex] = {}
    free = list(range(NUM_CACHE_PAGES, NUM_PAGES))
    for name in case.job["adapters"]:
        adapter = case.reader.read(folder / name)
        world_size, size = ranks.collective.shard.world_size, case.pool.layout.page_elements
        count = count_share_pages(case.targets, adapter.layout.ranks, world_size, size)
        pages = [free.pop(number % len(free)) for number in range(0, 7 * count, 7)]
        image = image_folder(folder, name)
        case.reader.save(adapter, image)
        message = PlaceMessage(0, adapter.content_id, pages, str(image))
        indexes[name] = case.place(message)
        leading.place(message.key, indexes[name], message.pages, message.source)
    refuse(case, leading, folder, free)
    driver = Driver(leading, case.pool, range(NUM_CACHE_PAGES))
    for prompt, name in zip(case.job["prompts"], case.job["chosen"], strict=True):
        driver.add(prompt, indexes[name] if name else None)
    torch.save(driver.finish(case.job["chunk"]), folder / "logits.pt")
    for index in indexes.values():
        leading.remove(index)
    leading.stop()


def image_folder(folder: Path, name: str) -> Path:
    """The folder of the adapter's image that ranks read."""
    image = folder / f"{name}-image"
    image.mkdir(exist_ok=True)
    return image


def refuse(case: Case, leading: LeadingDecoder, folder: Path, free: list[int]) -> None:
    """Load adapters that rank 1 cannot place, and write the reasons to a file."""
    reasons = []
    for name in case.job["adapters"][:1]:
        image = image_folder(folder, name)
        good = case.reader.read(folder / name).content_id
        for key, pages, source in (
            (good, free, folder / "nowhere"),
            ("0123", free, image),
            (good, free[:1], image),
        ):
            index = case.place(PlaceMessage(0, good, free, str(image)))
            try:
                leading.place(key, index, pages, str(source))
            except ParallelError as error:
                reasons.append(str(error))
    (folder / "refusals.json").write_text(json.dumps(reasons), encoding="utf-8")


def main() -> None:
    """Take part as the arguments say."""
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
