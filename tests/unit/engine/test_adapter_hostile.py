"""Untrusted adapters with any files are read or refused, and have no other effect."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.adapters import reader_of

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.hub import parse_hub_uri
from hostelry.engine.lora.reader import AdapterReader
from hostelry.engine.lora.sources import parse_source

QUIET = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reader(model_folder: Path) -> AdapterReader:
    return reader_of(model_folder)


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    return random_adapter(tmp_path, model_folder, 2, ("q_proj", "down_proj"))


def is_read(reader: AdapterReader, folder: Path) -> bool:
    """Whether the adapter is accepted. Any error but a refusal fails the test."""
    try:
        adapter = reader.read(folder)
    except AdapterError:
        return False
    assert adapter.image.is_finite
    return True


def fields_of(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    return fields


@QUIET
@given(data=st.data())
def test_any_value_in_any_field(data: st.DataObject, reader: AdapterReader, folder: Path) -> None:
    original = fields_of(folder)
    known = [
        *original,
        "rank_pattern",
        "alpha_pattern",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "use_rslora",
        "ensure_weight_tying",
        "modules_to_save",
    ]
    changes = data.draw(st.dictionaries(st.sampled_from(known), JSON, min_size=1, max_size=3))
    try:
        (folder / "adapter_config.json").write_text(json.dumps({**original, **changes}))
        is_read(reader, folder)
    finally:
        (folder / "adapter_config.json").write_text(json.dumps(original))


@QUIET
@given(
    name=st.sampled_from(["adapter_config.json", "adapter_model.safetensors"]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    is_near_start=st.booleans(),
    kept=st.floats(0, 1) | st.just(1.0),
)
def test_any_damage_to_the_files(
    name: str,
    changes: list[tuple[float, int]],
    is_near_start: bool,
    kept: float,
    reader: AdapterReader,
    folder: Path,
) -> None:
    original = (folder / name).read_bytes()
    content = bytearray(original)
    reach = min(1500, len(content)) if is_near_start else len(content)
    for place, value in changes:
        content[int(place * (reach - 1))] = value
    try:
        (folder / name).write_bytes(content[: round(kept * len(content))])
        is_accepted = is_read(reader, folder)
        assert is_accepted or bytes(content) != original or kept < 1
    finally:
        (folder / name).write_bytes(original)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@QUIET
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
    is_zip=st.booleans(),
)
def test_any_damage_to_a_pickle(
    changes: list[tuple[float, int]], is_zip: bool, reader: AdapterReader, folder: Path
) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    path = folder / "part" / "adapter_model.bin"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(folder / "adapter_config.json", path.parent)
    torch.save(tensors, path, _use_new_zipfile_serialization=is_zip)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[int(place * (min(4000, len(content)) - 1))] = value
    path.write_bytes(content)
    is_read(reader, path.parent)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@QUIET
@given(content=st.binary(max_size=300), name=st.sampled_from(["safetensors", "bin"]))
def test_any_bytes_for_weights(
    content: bytes, name: str, reader: AdapterReader, folder: Path
) -> None:
    (folder / "adapter_model.safetensors").unlink(missing_ok=True)
    (folder / f"adapter_model.{name}").write_bytes(content)
    try:
        assert not is_read(reader, folder)
    finally:
        (folder / f"adapter_model.{name}").unlink()


@QUIET
@given(place=st.text(max_size=40) | st.text(max_size=30).map(lambda it: f"hf://{it}"))
def test_any_text_for_a_place(place: str) -> None:
    for parse in (parse_source, parse_hub_uri):
        with suppress(AdapterError):
            assert parse(place)
