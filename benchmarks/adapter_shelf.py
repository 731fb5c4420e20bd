"""Thousands of adapters on disk at the price of a few: many folders share a few files of weights.

Every folder links to one of the files of its rank and has its own configuration with another scale.
So no two adapters are the same to the engine, while weights are stored once.
"""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.models import random_adapter

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FILES_PER_RANK = 8
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Adapters by name, with the rank of each. Ranks are dealt out in turn."""

    folders: dict[str, Path]
    ranks: dict[str, int]

    def names_of_rank(self, rank: int) -> list[str]:
        """Adapters of that rank, in order."""
        return [name for name, its in self.ranks.items() if its == rank]

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights, as if each folder had its own file."""
        return sum((folder / WEIGHTS).stat().st_size for folder in self.folders.values())


def make_shelf(
    folder: Path,
    model: Path,
    ranks: Sequence[int],
    count: int,
    seed: int,
    files_per_rank: int = FILES_PER_RANK,
    targets: Sequence[str] = ATTENTION,
) -> Shelf:
    """Write `count` adapters for the products `targets` below `folder`. Reuse existing ones."""
    files = {
        rank: [
            _write_weights(folder / f"weights-r{rank}-{place}", model, rank, seed + place, targets)
            for place in range(files_per_rank)
        ]
        for rank in set(ranks)
    }
    folders: dict[str, Path] = {}
    ranks_by_name: dict[str, int] = {}
    for number in range(count):
        rank = ranks[number % len(ranks)]
        source = files[rank][number // len(ranks) % files_per_rank]
        name = f"adapter-{number:04}"
        folders[name] = _link_adapter(folder / name, source, number)
        ranks_by_name[name] = rank
    return Shelf(folders=folders, ranks=ranks_by_name)


def _write_weights(folder: Path, model: Path, rank: int, seed: int, targets: Sequence[str]) -> Path:
    if not (folder / CONFIG).exists():
        random_adapter(folder, model, rank, targets, seed=seed, std=0.02, dtype="bfloat16")
    return folder


def _link_adapter(folder: Path, source: Path, number: int) -> Path:
    if (folder / CONFIG).exists():
        return folder
    folder.mkdir(parents=True)
    os.link(source / WEIGHTS, folder / WEIGHTS)
    config = json.loads((source / CONFIG).read_text())
    config["lora_alpha"] += number / 1024
    (folder / CONFIG).write_text(json.dumps(config))
    return folder


class Popularity:
    """Draws adapters: first the rank, evenly, then an adapter of that rank, by popularity.

    So the ranks of a trace's requests do not depend on how many adapters there are. An `exponent`
    of 0 is uniform, and 1 is Zipf's law.
    """

    def __init__(self, shelf: Shelf, exponent: float) -> None:
        self._ranks = sorted(set(shelf.ranks.values()))
        self._names = {rank: shelf.names_of_rank(rank) for rank in self._ranks}
        self._weights = {
            rank: [1 / place**exponent for place in range(1, len(names) + 1)]
            for rank, names in self._names.items()
        }

    def draw(self, ranks: random.Random, names: random.Random) -> str:
        """One adapter."""
        rank = ranks.choice(self._ranks)
        return names.choices(self._names[rank], self._weights[rank])[0]
