import io
import tarfile
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.deploy.look import look_at_archive, look_at_file, look_at_folder
from hostelry.cli.deploy.source import (
    Origin,
    adapter_name,
    add_digest,
    default_name,
    read_environment,
    read_source,
    source_name,
)


@cases(
    "text, place, value",
    case("an S3 prefix", "s3://models/a/b", Origin.PREFIX, "s3://models/a/b/"),
    case("in S3", "s3://models/a.tar.gz", Origin.OBJECT, "s3://models/a.tar.gz"),
    case("an id of the hub", "HuggingFaceTB/SmolLM2-135M", Origin.HUB,
        "HuggingFaceTB/SmolLM2-135M"),
    case("hf://", "hf://org/name", Origin.HUB, "org/name"),
    case("local", "localhost/lengths:1", Origin.IMAGE, "localhost/lengths:1"),
    case("a registry", "ghcr.io/me/server", Origin.IMAGE, "ghcr.io/me/server"),
    case("a tag", "lengths:1", Origin.IMAGE, "lengths:1"),
    case("docker://", "docker://lengths", Origin.IMAGE, "lengths"),
)  # fmt: skip
def test_a_text_that_is_no_path(text: str, place: Origin, value: str) -> None:
    found = read_source(text, exists=False, is_folder=False, as_image=False)
    assert (found.place, found.value) == (place, value)


@cases(
    "text, is_folder, place",
    case("a folder comes before the hub", "org/name", True, Origin.FOLDER),
    case("an archive", "m.tar.gz", False, Origin.ARCHIVE),
    case("a file", "m.joblib", False, Origin.FILE),
)
def test_a_path_that_is_there(text: str, is_folder: bool, place: Origin) -> None:
    assert read_source(text, exists=True, is_folder=is_folder, as_image=False).place is place


@cases(
    "text, error",
    case("a missing path", "./smollm2", "is not there: no such file or folder"),
    case("a missing path without a dot", "models/a/b", "is not there"),
    case("a missing file", "model.joblib", "is not there"),
    case("no bucket and prefix", "s3://Bucket", "is not an S3 address"),
    case("another scheme", "https://x/y", "sources are paths, s3://"),
    case("a bare word", "smollm", r"not a path here, .*REGISTRY/NAME:TAG"),
    case("three parts are no id", "hf://a/b/c", "is not a model of the hub"),
)
def test_a_text_that_names_nothing(text: str, error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        read_source(text, exists=False, is_folder=False, as_image=False)


@cases(
    "given, name",
    case("a folder", "/tmp/smollm2/", "smollm2"),
    case("what AWS does not allow", "/tmp/my_model v2.joblib", "my-model-v2"),
    case("an archive", "s3://b/x/model.tar.gz", "model"),
    case("an id of the hub", "org/SmolLM2-1.7B", "SmolLM2-1-7B"),
    case("an image without its tag", "localhost:5000/lengths:1.2", "lengths"),
    case("an umlaut", "/tmp/mödel", "model"),
    case("an umlaut in two characters", "/tmp/mo\u0308del.joblib", "model"),
    case("letters without marks", "Größe Ærø Łódź", "Grosse-AEro-Lodz"),
    case("nothing is left", "___", "model"),
    case("too long", "a" * 80, "a" * 63),
)
def test_the_name_of_a_source(given: str, name: str) -> None:
    assert default_name(given) == name


@pytest.mark.parametrize("given", ["/tmp/模型", "модель.joblib", "s3://b/a-模"])
def test_a_source_whose_letters_names_cannot_have_needs_a_name(given: str) -> None:
    with pytest.raises(UsageError, match="has letters that SageMaker's names cannot have: give"):
        default_name(given)
    assert source_name(given) != source_name(given + "x")
    assert adapter_name("base", "模") != adapter_name("base", "型")


def test_names_with_digests_are_within_the_limit_and_follow_from_their_parts() -> None:
    assert add_digest("a", "x", "y") == add_digest("a", "x", "y") != add_digest("a", "xy")
    assert len(add_digest("a" * 63, "x")) == 63
    assert adapter_name("base", "my adapter") == "base-my-adapter"
    assert len(adapter_name("b" * 60, "adapter")) <= 63
    assert adapter_name("b" * 60, "one-adapter") != adapter_name("b" * 60, "two-adapter")


@cases(
    "given, error",
    case("no value", "NAME", "is not NAME=VALUE"),
    case("a name that begins with a digit", "1A=b", "is not NAME=VALUE"),
    case("too long", "A=" + "b" * 1025, "A has 1025 characters"),
)
def test_a_variable_that_sagemaker_does_not_allow(given: str, error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        read_environment([given])


def test_a_variable_may_be_empty_and_have_equals_signs() -> None:
    assert read_environment(["A=", "B=c=d"]) == {"A": "", "B": "c=d"}


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
    with pytest.raises(TerminalError, match=r"is not a readable .tar.gz"):
        look_at_archive(tmp_path / "m.tar.gz", "m.tar.gz")
