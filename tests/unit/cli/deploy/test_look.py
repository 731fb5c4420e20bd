import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.deploy.deployment import ObjectOrder
from hostelry.cli.deploy.found import FoundFile
from hostelry.cli.deploy.look import look_at_archive, look_at_file, look_at_folder
from hostelry.cli.deploy.upload import digests_of, packed, remove_parts


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_folder_is_listed_without_what_other_tools_leave(tmp_path: Path) -> None:
    written(tmp_path, inference_dot_py="import torch", code__x_dot_py="1")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("1")
    (tmp_path / ".env").write_text("SECRET=1")
    found = look_at_folder(tmp_path, "m")
    assert found.names == ("code/x.py", "inference.py")
    assert found.texts == {"inference.py": "import torch"}
    assert [it.name for it in found.left_out] == [".env"]


def test_other_forms_of_the_same_weights_are_left_out(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"):
        (tmp_path / name).write_text("{}")
    found = look_at_folder(tmp_path, "m")
    assert found.names == ("config.json", "model.safetensors")
    assert [it.name for it in found.left_out] == ["pytorch_model.bin", "tf_model.h5"]


@pytest.mark.parametrize(
    ("target", "is_folder"),
    [
        pytest.param("outside.txt", False, id="a file"),
        pytest.param("outside", True, id="a folder"),
    ],
)
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str, is_folder: bool) -> None:
    outside = tmp_path / target
    outside.mkdir() if is_folder else outside.write_text("secret")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "weights").symlink_to(outside)
    with pytest.raises(TerminalError, match=r"weights is a link to .*outside the folder"):
        look_at_folder(folder, "m")


def test_a_link_inside_is_followed_and_so_is_a_hub_snapshots_to_its_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    blobs = tmp_path / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to(Path("../../blobs/123"))
    (snapshot / "same.json").symlink_to("config.json")
    found = look_at_folder(snapshot, "org/name")
    assert {it.name: it.path for it in found.files} == {
        "config.json": str(blobs / "123"), "same.json": str(blobs / "123"),
    }  # fmt: skip


def test_a_broken_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(TerminalError, match="gone is no plain file"):
        look_at_folder(tmp_path, "m")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostelry.cli.deploy.look.MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    with pytest.raises(TerminalError, match="more than 2 files"):
        look_at_folder(tmp_path, "m")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.joblib").write_bytes(b"")
    with pytest.raises(TerminalError, match=r"m.joblib is empty"):
        look_at_file(tmp_path / "m.joblib", "m.joblib")


def test_an_archive_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "m.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("./code/inference.py", b"import os"), ("m.pkl", b"\x80\x04.")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    found = look_at_archive(path, "m.tar.gz")
    assert found.names == ("code/inference.py", "m.pkl")
    assert found.texts == {"code/inference.py": "import os"}
    assert found.heads == {"m.pkl": b"\x80\x04."}
    assert found.archive is not None
    assert found.archive.size_bytes == path.stat().st_size


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08torn"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.tar.gz").write_bytes(content)
    with pytest.raises(TerminalError, match=r"is no .tar.gz that can be read"):
        look_at_archive(tmp_path / "m.tar.gz", "m.tar.gz")


def test_digests_are_of_the_content_and_count_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "b").write_bytes(b"x" * 10)
    files = [FoundFile(name=it, size_bytes=10, path=str(tmp_path / it)) for it in "ab"]
    counted: list[int] = []
    found = digests_of(files, counted.append)
    assert found[str(tmp_path / "a")] == found[str(tmp_path / "b")]
    assert sum(counted) == 20


def test_a_packed_archive_has_the_same_bytes_for_the_same_content(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    it = FoundFile(
        name="adapter_config.json", size_bytes=2, path=str(tmp_path / "adapter_config.json")
    )
    order = ObjectOrder(key="k", files=(it,), packed=True)
    one = packed(order, tmp_path / "1.tar.gz").read_bytes()
    assert packed(order, tmp_path / "2.tar.gz").read_bytes() == one
    with tarfile.open(tmp_path / "1.tar.gz") as archive:
        assert archive.getnames() == ["adapter_config.json"]


class HalfSent:
    """An object store with parts that a killed upload left."""

    def __init__(self, *keys: str) -> None:
        self.left = list(keys)

    def list_multipart_uploads(self, Bucket: str, Prefix: str) -> dict[str, Any]:
        found = [it for it in self.left if it.startswith(Prefix)]
        return {"Uploads": [{"Key": it, "UploadId": it} for it in found]}

    def abort_multipart_upload(self, Bucket: str, Key: str, UploadId: str) -> None:
        self.left.remove(Key)


def test_parts_of_a_killed_upload_are_removed_and_no_other() -> None:
    store = HalfSent("deploy/1/model", "deploy/1/model-2", "other")
    remove_parts(store, "bucket", {"deploy/1/model"})
    assert store.left == ["deploy/1/model-2", "other"]
