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
from tests.cases import case, cases
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


@cases(
    "header, size, message",
    case("a huge header", b"{", 1 << 40, "header has 1099511627776 bytes by its own"),
    case("the hugest header", b"", (1 << 64) - 1, "by its own account; at most 8"),
    case("a header cut short", b"{", None, "its header is not JSON"),
    case("a header of no text", b"\xff\xfe", None, "its header is not JSON"),
    case("a header too deep", b"[" * 100_000, None, "its header is not JSON"),
    case("a list", b"[]", None, "its header is no JSON object"),
    case("a name twice", b'{"x": 1, "x": 2}', None, "its header is not JSON"),
    case("a number for a tensor", b'{"x": 1}', None, "tensor x has no description"),
    case("a shape past all memory", one(shape=[1 << 60]), None, "has no usable shape"),
    case("a product past 64 bits", one(shape=[1 << 40, 1 << 40]), None, "in 8 bytes"),
    case("a shape too large", one(shape=[3]), None, r"has shape \(3,\) in 8 bytes"),
    case("too many dimensions", one(shape=[1] * 9 + [2]), None, "no usable shape"),
    case("a negative shape", one(shape=[-2]), None, "no usable shape"),
    case("a shape of fractions", one(shape=[2.0]), None, "no usable shape"),
    case("a shape of truth", one(shape=[True, 2]), None, "no usable shape"),
    case("no shape", one(shape=None), None, "no usable shape"),
    case("past the end", one(data_offsets=[0, 80]), None, "in 8 bytes of tensors"),
    case("backwards", one(data_offsets=[8, 0]), None, "lies at"),
    case("one offset", one(data_offsets=[0]), None, "lies at"),
    case("a type nobody knows", one(dtype="Q4"), None, "x has dtype Q4"),
    case("a type that is a list", one(dtype=["F32"]), None, "x has dtype"),
    case("sound, but of nothing known", one(), None, "lora_A.weight is missing"),
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


@cases(
    "change, message",
    case("no weights", lambda _: None, "there is neither"),
    case("a pickle with code", hostile_bin, "code in it is never run"),
    case("a zipped pickle with code", hostile_zip, "code in it is never run"),
    case("a pickled list", list_bin, "holds no table of tensors"),
    case("a pickle that unpacks large", compressed_bin, "holds compressed entries"),
    case("a sparse tensor", sparse_bin, "has no plain values"),
    case("a tensor of one number", expanded_bin, r"has shape \(33554432, 33554432\)"),
    case("a damaged bin", write("adapter_model.bin", b"PK\x03\x04nonsense"), "bin"),
    case("a pipe of weights", pipe("adapter_model.safetensors"), "no regular file"),
    case("a pipe of fields", pipe("adapter_config.json"), "no regular file"),
    case("a folder of fields", directory("adapter_config.json"), "no regular file"),
    case("a folder of weights", directory("adapter_model.bin"), "no regular file"),
    case("a broken link", broken_link("adapter_model.safetensors"), "is a link to nothing"),
    case("a link to itself", circle, "cannot be read"),
    case("an endless file", gigabytes, "has 1099511627776 bytes; at most"),
    case(
        "a configuration too long",
        write("adapter_config.json", b" " * (1 << 20) + b"{}"),
        "adapter_config.json has 1048578 bytes; at most",
    ),
    case("fields cut short", write("adapter_config.json", b"{"), "is not JSON"),
    case("a list of fields", write("adapter_config.json", b"[]"), "no JSON object"),
    case("fields of no text", write("adapter_config.json", b"\xff"), "is not JSON"),
    case("fields too deep", write("adapter_config.json", b"[" * 100_000), "is not JSON"),
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
