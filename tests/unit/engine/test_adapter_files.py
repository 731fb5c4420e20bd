"""The files of adapters: formats by hand, files cut short, hostile and odd ones."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.adapters import Tensors, check_refused, reader_of


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tied"), num_hidden_layers=3)


Q_UP = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


def test_the_content_is_what_is_computed_whatever_the_files(tied: Path, tmp_path: Path) -> None:
    first = random_adapter(tmp_path / "a", tied, 4)
    reader = reader_of(tied)
    wanted = reader.read(first).content_id
    others = [
        random_adapter(tmp_path / "bin", tied, 4, file="adapter_model.bin"),
        random_adapter(tmp_path / "fields", tied, 4, lora_dropout=0.3, revision="v3"),
        random_adapter(tmp_path / "linear", tied, 4, target_modules="all-linear"),
        random_adapter(tmp_path / "alpha", tied, 4, lora_alpha=1, alpha_pattern={".*": 8}),
    ]
    for folder in others:
        assert reader.read(folder).content_id == wanted
    reordered = load_file(first / "adapter_model.safetensors")
    write_safetensors(
        first / "adapter_model.safetensors", dict(reversed(list(reordered.items()))), padding=3
    )
    assert reader.read(first).content_id == wanted
    for different in (
        random_adapter(tmp_path / "scale", tied, 4, lora_alpha=9),
        random_adapter(tmp_path / "seed", tied, 4, seed=1),
        random_adapter(tmp_path / "dtype", tied, 4, dtype="bfloat16"),
    ):
        assert reader.read(different).content_id != wanted


def write_safetensors(path: Path, tensors: Tensors, *, padding: int = 0) -> None:
    """The format by hand: in the order given, with a header of any length."""
    header: dict[str, Any] = {}
    data = b""
    for name, tensor in tensors.items():
        content = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        data += content
    write_raw(path, json.dumps(header).encode() + b" " * padding, data)


def write_raw(path: Path, header: bytes, data: bytes = b"", size: int | None = None) -> None:
    length = len(header) if size is None else size
    path.write_bytes(length.to_bytes(8, "little") + header + data)


def one(**entry: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}
    return json.dumps({"x": entry}).encode()


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        pytest.param(
            b"{", 1 << 40, "header has 1099511627776 bytes by its own", id="a huge header"
        ),
        pytest.param(b"", (1 << 64) - 1, "by its own account; at most 8", id="the hugest header"),
        pytest.param(b"{", None, "its header is not JSON", id="a header cut short"),
        pytest.param(b"\xff\xfe", None, "its header is not JSON", id="a header of no text"),
        pytest.param(b"[" * 100_000, None, "its header is not JSON", id="a header too deep"),
        pytest.param(b"[]", None, "its header is no JSON object", id="a list"),
        pytest.param(b'{"x": 1, "x": 2}', None, "its header is not JSON", id="a name twice"),
        pytest.param(b'{"x": 1}', None, "tensor x has no description", id="a number for a tensor"),
        pytest.param(
            one(shape=[1 << 60]), None, "has no usable shape", id="a shape past all memory"
        ),
        pytest.param(
            one(shape=[1 << 40, 1 << 40]), None, "in 8 bytes", id="a product past 64 bits"
        ),
        pytest.param(one(shape=[3]), None, r"has shape \(3,\) in 8 bytes", id="a shape too large"),
        pytest.param(one(shape=[1] * 9 + [2]), None, "no usable shape", id="too many dimensions"),
        pytest.param(one(shape=[-2]), None, "no usable shape", id="a negative shape"),
        pytest.param(one(shape=[2.0]), None, "no usable shape", id="a shape of fractions"),
        pytest.param(one(shape=[True, 2]), None, "no usable shape", id="a shape of truth"),
        pytest.param(one(shape=None), None, "no usable shape", id="no shape"),
        pytest.param(one(data_offsets=[0, 80]), None, "in 8 bytes of tensors", id="past the end"),
        pytest.param(one(data_offsets=[8, 0]), None, "lies at", id="backwards"),
        pytest.param(one(data_offsets=[0]), None, "lies at", id="one offset"),
        pytest.param(one(dtype="Q4"), None, "x has dtype Q4", id="a type nobody knows"),
        pytest.param(one(dtype=["F32"]), None, "x has dtype", id="a type that is a list"),
        pytest.param(one(), None, "lora_A.weight is missing", id="sound, but of nothing known"),
    ],
)
def test_refused_safetensors(
    header: bytes, size: int | None, message: str, tied: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, tied, 8)
    write_raw(folder / "adapter_model.safetensors", header, bytes(8), size)
    check_refused(tied, folder, message)


@pytest.mark.parametrize("num_bytes", [0, 5, 100, 20_000])
def test_files_cut_short(num_bytes: int, tied: Path, tmp_path: Path) -> None:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        folder = random_adapter(tmp_path / name, tied, 8, file=name)
        with (folder / name).open("r+b") as file:
            file.truncate(num_bytes)
        check_refused(
            tied, folder, f"{name} (cannot be read|holds more than tensors, or is damaged)"
        )


class Hostile:
    """Runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def hostile_bin(folder: Path) -> None:
    with (folder / "adapter_model.bin").open("wb") as file:
        pickle.dump({"a": Hostile(folder / "ran")}, file, protocol=2)


def hostile_zip(folder: Path) -> None:
    torch.save({"a": Hostile(folder / "ran")}, folder / "adapter_model.bin")


def list_bin(folder: Path) -> None:
    torch.save([1, 2], folder / "adapter_model.bin")


def compressed_bin(folder: Path) -> None:
    """Half a gigabyte of zeros in half a megabyte."""
    torch.save({"x": torch.zeros(2)}, folder / "plain")
    with (
        zipfile.ZipFile(folder / "plain") as plain,
        zipfile.ZipFile(folder / "adapter_model.bin", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry))


def sparse_bin(folder: Path) -> None:
    tensors = load_file(folder / "old.safetensors")
    torch.save({**tensors, Q_UP: tensors[Q_UP].to_sparse()}, folder / "adapter_model.bin")


def expanded_bin(folder: Path) -> None:
    """A tensor of 2**50 numbers that takes four bytes in the file."""
    tensors = load_file(folder / "old.safetensors")
    tensors[Q_UP] = torch.zeros(1).expand(1 << 25, 1 << 25)
    torch.save(tensors, folder / "adapter_model.bin")


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return make


def pipe(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make


def directory(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return make


def broken_link(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(folder / "nowhere")

    return make


def circle(folder: Path) -> None:
    (folder / "adapter_model.safetensors").symlink_to(folder / "adapter_model.safetensors")


def gigabytes(folder: Path) -> None:
    with (folder / "adapter_model.safetensors").open("wb") as file:
        file.truncate(1 << 40)  # takes no room


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda _: None, "there is neither", id="no weights"),
        pytest.param(hostile_bin, "code in it is never run", id="a pickle with code"),
        pytest.param(hostile_zip, "code in it is never run", id="a zipped pickle with code"),
        pytest.param(list_bin, "holds no table of tensors", id="a pickled list"),
        pytest.param(compressed_bin, "holds compressed entries", id="a pickle that unpacks large"),
        pytest.param(sparse_bin, "has no plain values", id="a sparse tensor"),
        pytest.param(
            expanded_bin, r"has shape \(33554432, 33554432\)", id="a tensor of one number"
        ),
        pytest.param(write("adapter_model.bin", b"PK\x03\x04nonsense"), "bin", id="a damaged bin"),
        pytest.param(pipe("adapter_model.safetensors"), "no regular file", id="a pipe of weights"),
        pytest.param(pipe("adapter_config.json"), "no regular file", id="a pipe of fields"),
        pytest.param(directory("adapter_config.json"), "no regular file", id="a folder of fields"),
        pytest.param(directory("adapter_model.bin"), "no regular file", id="a folder of weights"),
        pytest.param(
            broken_link("adapter_model.safetensors"), "is a link to nothing", id="a broken link"
        ),
        pytest.param(circle, "cannot be read", id="a link to itself"),
        pytest.param(gigabytes, "has 1099511627776 bytes; at most", id="an endless file"),
        pytest.param(
            write("adapter_config.json", b" " * (1 << 20) + b"{}"),
            "adapter_config.json has 1048578 bytes; at most",
            id="a configuration too long",
        ),
        pytest.param(write("adapter_config.json", b"{"), "is not JSON", id="fields cut short"),
        pytest.param(write("adapter_config.json", b"[]"), "no JSON object", id="a list of fields"),
        pytest.param(write("adapter_config.json", b"\xff"), "is not JSON", id="fields of no text"),
        pytest.param(
            write("adapter_config.json", b"[" * 100_000), "is not JSON", id="fields too deep"
        ),
    ],
)
def test_refused_files(
    change: Callable[[Path], None], message: str, tied: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, tied, 8)
    (folder / "adapter_model.safetensors").rename(folder / "old.safetensors")
    change(folder)
    check_refused(tied, folder, message)
    assert not (folder / "ran").exists()


def test_a_folder_without_configuration(tied: Path, tmp_path: Path) -> None:
    check_refused(tied, tmp_path, r"there is no adapter_config\.json")
    check_refused(tied, tmp_path / "nowhere", r"there is no adapter_config\.json")


def test_links_to_files_are_followed_as_the_hubs_cache_has_them(tied: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path / "blobs", tied, 8)
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    reader = reader_of(tied)
    assert reader.read(linked).content_id == reader.read(folder).content_id


def test_the_summary_describes_the_files(tied: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path, tied, 4, targets=("v_proj", "q_proj"))
    adapter = reader_of(tied).read(folder)
    summary = adapter.summary
    assert summary.rank == 4
    assert summary.target_modules == ("q_proj", "v_proj")
    num_parameters = 3 * 4 * (64 + 64 + 64 + 32)
    assert summary.num_bytes == adapter.num_bytes >= 4 * num_parameters
    assert summary.num_pages == adapter.layout.num_pages
    assert summary.content_id == adapter.content_id


def test_adapters_of_the_same_ranks_share_a_layout(tied: Path, tmp_path: Path) -> None:
    reader = reader_of(tied)
    first, second = (
        reader.read(random_adapter(tmp_path / str(seed), tied, 4, seed=seed)) for seed in (1, 2)
    )
    assert first.layout is second.layout
    assert reader.read(random_adapter(tmp_path / "3", tied, 5)).layout is not first.layout
