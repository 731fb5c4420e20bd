"""Content ids that are used again while an adapter's files stay as they are."""

import os
from pathlib import Path

import pytest
import torch
from tests.models import random_adapter, tiny_llama

from hostelry.engine.lora.content_ids import ContentIds, mark_files
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_spec

WEIGHTS = "adapter_model.safetensors"


class Hasher:
    """Returns the content of the weights' file, and counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.ids = ContentIds()
        self.num_calls = 0
        self._folder = folder

    def read(self) -> str:
        return self.ids.get(self._folder, mark_files(self._folder), self._compute)

    def _compute(self) -> str:
        self.num_calls += 1
        return (self._folder / WEIGHTS).read_text()


@pytest.fixture
def hasher(tmp_path: Path) -> Hasher:
    (tmp_path / WEIGHTS).write_text("first")
    (tmp_path / "adapter_config.json").write_text("{}")
    return Hasher(tmp_path)


def test_unchanged_files_are_hashed_twice(hasher: Hasher) -> None:
    assert [hasher.read() for _ in range(5)] == ["first"] * 5
    assert hasher.num_calls == 2


@pytest.mark.parametrize("name", [WEIGHTS, "adapter_config.json"])
def test_changed_files_are_hashed_again(hasher: Hasher, tmp_path: Path, name: str) -> None:
    for _ in range(3):
        hasher.read()
    other = tmp_path / "other"
    other.write_text((tmp_path / name).read_text())
    other.rename(tmp_path / name)
    hasher.read()
    assert hasher.num_calls == 3


def test_a_write_within_one_tick_of_the_clock_is_noticed(hasher: Hasher, tmp_path: Path) -> None:
    marks = mark_files(tmp_path)
    assert hasher.ids.get(tmp_path, marks, lambda: "first") == "first"
    assert hasher.ids.get(tmp_path, marks, lambda: "other") == "other"
    assert hasher.ids.get(tmp_path, marks, lambda: "other") == "other"
    assert hasher.ids.get(tmp_path, marks, lambda: "unread") == "other"


def test_files_that_change_while_they_are_read_are_hashed(hasher: Hasher, tmp_path: Path) -> None:
    marks = mark_files(tmp_path)
    for _ in range(3):
        hasher.read()
    os.utime(tmp_path / WEIGHTS, (1, 1))
    assert hasher.ids.get(tmp_path, marks, lambda: "new") == "new"


def test_a_reader_gives_an_adapter_the_same_id_in_each_read(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model")
    form = PageForm(page_elements=512, dtype=torch.float32)
    base = BaseModel(targets=decoder_targets(load_spec(model)))
    reader = AdapterReader(base, AdapterRules(), form)
    first, other = (
        random_adapter(tmp_path / name, model, 4, seed=seed) for seed, name in enumerate("ab")
    )
    found = [reader.read(first).content_id for _ in range(4)]
    assert len(set(found)) == 1
    assert reader.read(other).content_id != found[0]
