"""Hostile adapter folders: a configuration and a safetensors file are read, or refused."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.fuzz.conftest import Cases, assert_short
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.adapters import reader_of

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.reader import AdapterReader

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 4, 8, 2**31, 2**63, 2**64, 10**400, 0.0, 1.5, -1e308, 1e-320,
    math.nan, math.inf, "", "q_proj", "all-linear", "LORA", "none", "a" * 3_000, "\0", "\ud800",
    [], [0], ["q_proj", "down_proj"], [[]], [1.5], {}, {"q_proj": 4}, {"^q": 1}, {"": 0},
)  # fmt: skip
FIELDS = (
    "r", "lora_alpha", "target_modules", "exclude_modules", "peft_type", "rank_pattern",
    "alpha_pattern", "layers_to_transform", "layers_pattern", "use_rslora", "use_dora", "bias",
    "modules_to_save", "fan_in_fan_out", "lora_bias", "base_model_name_or_path", "task_type", "x",
)  # fmt: skip
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "", None, 7)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reader(model_folder: Path) -> AdapterReader:
    return reader_of(model_folder)


def test_a_folder_is_an_adapter_or_refused(
    cases: Cases, model_folder: Path, reader: AdapterReader, tmp_path: Path
) -> None:
    honest = random_adapter(tmp_path / "honest", model_folder, 2, ("q_proj", "down_proj"))
    config = json.loads((honest / "adapter_config.json").read_text())
    weights = (honest / "adapter_model.safetensors").read_bytes()
    made = tmp_path / "made"
    made.mkdir()
    num_read = 0
    for random in cases(800):
        (made / "adapter_config.json").write_bytes(configured(random, config))
        (made / "adapter_model.safetensors").write_bytes(weighed(random, weights))
        try:
            adapter = reader.read(made)
        except AdapterError as error:
            assert_short(error)
        else:
            num_read += 1
            assert adapter.image.is_finite
        assert {it.name for it in made.iterdir()} == {
            "adapter_config.json",
            "adapter_model.safetensors",
        }
    assert num_read > 0, "not everything is refused at its first byte"


def configured(random: Random, honest: dict[str, Any]) -> bytes:
    """The configuration, with fields of odd values, now and then damaged."""
    fields = dict(honest)
    for name in random.sample(FIELDS, random.choice((0, 0, 1, 1, 2, 4))):
        fields[name] = random.choice(VALUES)
    content = json.dumps(fields).encode()
    if random.random() < 0.1:
        return random.choice((b"", b"[]", b"[" * 20_000, b'{"r":' * 20_000, b"\xff", content[:-9]))
    return content


def weighed(random: Random, honest: bytes) -> bytes:
    """The weights, with another header, or with bytes changed or cut off."""
    kind = random.random()
    if kind < 0.3:
        return honest
    size = int.from_bytes(honest[:8], "little")
    if kind < 0.8:
        header = json.loads(honest[8 : 8 + size])
        for _ in range(random.randint(1, 3)):
            change_header(random, header)
        encoded = json.dumps(header).encode()
        return len(encoded).to_bytes(8, "little") + encoded + honest[8 + size :]
    if kind < 0.85:
        return random.choice((0, 7, 2**31, 2**63)).to_bytes(8, "little") + honest[8:]
    changed = bytearray(honest)
    for _ in range(random.randint(1, 5)):
        changed[random.randrange(random.choice((size, len(changed))))] = random.randrange(256)
    return bytes(changed[: random.randrange(len(changed))] if random.random() < 0.3 else changed)


def change_header(random: Random, header: dict[str, Any]) -> None:
    """Falsify the name, type, shape or place of a tensor in the header."""
    name = random.choice([it for it in header if it != "__metadata__"] or ["x"])
    found = header.get(name)
    entry: dict[str, Any] = found if isinstance(found, dict) else {}
    match random.randrange(6) if entry else 0:
        case 0:
            header[random.choice((name, name + "x", "", "__metadata__", "a.b.lora_A.weight"))] = (
                random.choice(VALUES)
            )
        case 1:
            header[name.replace("q_proj", random.choice(("k_proj", "x", "")))] = header.pop(name)
        case 2:
            entry["dtype"] = random.choice(DTYPES)
        case 3:
            entry["shape"] = random.choice(
                ([], [0], [-1], [2**40, 2**40], [2**63], [1] * 99, entry.get("shape"), "x", [1.5])
            )
        case 4:
            entry["data_offsets"] = random.choice(
                ([0, 0], [-4, 4], [0, 2**63], [8, 0], [1, 5], [0], "x", None, [0, 4, 8])
            )
        case _:
            entry.pop(random.choice(("dtype", "shape", "data_offsets")), None)
