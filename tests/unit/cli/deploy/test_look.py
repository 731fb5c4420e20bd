import io
import tarfile
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.deploy.look import look_at_archive, look_at_file, look_at_folder


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
