"""The files of a LoRA adapter, packed as an archive."""

import io
import tarfile
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.models.adapters import adapter_archive

CONFIG = b'{"peft_type": "LORA", "r": 4}'


def adapter(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, content in {"adapter_config.json": CONFIG, **files}.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def packed(folder: Path, scratch: Path) -> bytes:
    return Path(adapter_archive(folder, scratch).path).read_bytes()


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_a_folder_is_packed_without_what_no_server_reads(tmp_path: Path) -> None:
    weights = {"adapter_model__safetensors": b"w", "adapter_model__bin": b"old"}
    folder = adapter(tmp_path / "a", **weights, optimizer__pt=b"large", README__md=b"")
    first = packed(folder, tmp_path)
    assert first == packed(folder, tmp_path), "the same files are the same archive"
    assert names_in(first) == ["adapter_config.json", "adapter_model.safetensors"]
    archive = tmp_path / "b.tar.gz"
    archive.write_bytes(first)
    found = adapter_archive(archive, tmp_path)
    assert (found.path, found.size_bytes) == (str(archive), len(first)), "it is taken as it is"


def test_weights_that_are_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    folder = adapter(tmp_path / "a")
    (folder / "adapter_model.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(TerminalError, match="outside the folder"):
        adapter_archive(folder, tmp_path)


def test_other_weights_are_another_archive(tmp_path: Path) -> None:
    one = adapter(tmp_path / "a", adapter_model__bin=b"1")
    two = adapter(tmp_path / "b", adapter_model__bin=b"2")
    assert packed(one, tmp_path) != packed(two, tmp_path)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        pytest.param({}, "has no adapter_model.safetensors nor", id="no weights"),
        pytest.param({"adapter_config__json": b"{"}, "has no adapter_model", id="weights first"),
        pytest.param(
            {"adapter_config__json": b"{", "adapter_model__bin": b""}, "is no JSON", id="no JSON"
        ),
        pytest.param(
            {"adapter_config__json": b"[" * 100_000, "adapter_model__bin": b""},
            "is no JSON",
            id="deep nesting",
        ),
        pytest.param(
            {"adapter_config__json": b'{"peft_type": "IA3"}', "adapter_model__bin": b""},
            "peft_type of its adapter_config.json is 'IA3'",
            id="another kind of adapter",
        ),
        pytest.param(
            {"adapter_config__json": b"[]", "adapter_model__bin": b""}, "is None", id="a list"
        ),
    ],
)
def test_what_is_no_adapter_is_refused(files: dict[str, bytes], text: str, tmp_path: Path) -> None:
    given = {name.replace("__", "."): content for name, content in files.items()}
    folder = tmp_path / "a"
    folder.mkdir()
    for name, content in {"adapter_config.json": CONFIG, **given}.items():
        (folder / name).write_bytes(content)
    with pytest.raises(TerminalError, match=text):
        adapter_archive(folder, tmp_path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"hello", "is no archive that can be read", id="no archive"),
        pytest.param(b"", "is no archive that can be read", id="an empty file"),
        pytest.param(None, "it has no adapter_config.json", id="an archive of something else"),
    ],
)
def test_archives_that_are_refused(content: bytes | None, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    if content is None:
        with tarfile.open(path, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("other"))
    else:
        path.write_bytes(content)
    with pytest.raises(TerminalError, match=text):
        adapter_archive(path, tmp_path)
