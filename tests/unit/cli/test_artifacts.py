"""Files of a folder: found, or refused by name."""

import gzip
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import (
    FoundFile,
    ObjectOrder,
    digest_files,
    file_at,
    files_in,
    pack_files,
)
from hostelry.cli.artifacts.upload import PART_BYTES, make_bucket, remove_parts, upload


@cases("target, is_folder", case("a file", "outside.txt", False), case("a folder", "outside", True))
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str, is_folder: bool) -> None:
    outside = tmp_path / target
    outside.mkdir() if is_folder else outside.write_text("secret")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "weights").symlink_to(outside)
    with pytest.raises(TerminalError, match=r"weights is a link to .*outside the folder"):
        files_in(folder, "m")


def test_a_link_inside_is_followed_and_so_is_a_hub_snapshots_to_its_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    blobs = tmp_path / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to(Path("../../blobs/123"))
    (snapshot / "same.json").symlink_to("config.json")
    found = files_in(snapshot, "org/name")
    assert {it.name: it.path for it in found} == {
        "config.json": str(blobs / "123"), "same.json": str(blobs / "123"),
    }  # fmt: skip


def test_a_broken_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(TerminalError, match="gone is no plain file"):
        files_in(tmp_path, "m")
    (tmp_path / "gone").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TerminalError, match="pipe is no plain file"):
        files_in(tmp_path, "m")


@cases(
    "call, text",
    case("a file", "pathlib.Path.open", "m: a/w cannot be read: Permission denied"),
    case("a folder", "os.scandir", "m: .*/a cannot be read: Permission denied"),
)
def test_what_cannot_be_read_is_named(
    call: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "w").write_text("")
    original = os.scandir

    def denied(path: object, *_: object) -> object:
        if Path(str(path)) == tmp_path:
            return original(tmp_path)
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(call, denied)
    with pytest.raises(TerminalError, match=text):
        files_in(tmp_path, "m")


def test_what_other_tools_leave_is_found_where_asked(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/x.pyc", "a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [it.name for it in files_in(tmp_path, "m")] == ["a"]
    every = files_in(tmp_path, "m", with_others=True)
    assert [it.name for it in every] == [".git/config", "__pycache__/x.pyc", "a"]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostelry.cli.artifacts.files.MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    with pytest.raises(TerminalError, match="more than 2 files"):
        files_in(tmp_path, "m")


class Answered:
    """A response's body as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Any:
        yield self._body


class ObjectStore:
    """Objects, and parts of uploads by key. `during` is called before each object is stored."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.buckets: set[str] = set()
        self.during: Callable[[], object] = lambda: None
        self.client = boto3.client(
            "s3",
            region_name="us-east-1",
            endpoint_url="http://store",
            config=Config(
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
            ),
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        self.client.meta.events.register("before-send", lambda request, **_: self._answer(request))

    def _answer(self, request: AWSPreparedRequest) -> AWSResponse:
        url = urlsplit(request.url)
        bucket, _, key = url.path.removeprefix("/").partition("/")
        asked = parse_qs(url.query, keep_blank_values=True)
        if request.method == "HEAD":
            status, body = (200 if bucket in self.buckets else 404), ""
        elif request.method == "GET":
            left = [it for it in self.parts if it.startswith(asked["prefix"][0])]
            rows = [f"<Upload><Key>{it}</Key><UploadId>1</UploadId></Upload>" for it in left]
            status, body = 200, f"<R>{''.join(rows)}</R>"
        else:
            status, body = self._taken(request, bucket, key, asked)
        return AWSResponse(request.url, status, {"etag": "e"}, Answered(body.encode()))

    def _taken(
        self, request: AWSPreparedRequest, bucket: str, key: str, asked: dict[str, list[str]]
    ) -> tuple[int, str]:
        match request.method:
            case "PUT" if not key:
                self.buckets.add(bucket)
            case "PUT" if "partNumber" in asked:
                parts = self.parts.get(key)
                if parts is None:
                    return 404, "<Error><Code>NoSuchUpload</Code></Error>"
                parts[int(asked["partNumber"][0])] = request.body.read()
            case "PUT":
                self.during()
                self.objects[key] = request.body.read()
            case "POST" if "uploads" in asked:
                self.parts.setdefault(key, {})
                self.during()
                return 200, "<R><UploadId>1</UploadId></R>"
            case "POST":
                self.objects[key] = b"".join(it for _, it in sorted(self.parts.pop(key).items()))
            case "DELETE" if "uploadId" in asked:
                self.parts.pop(key, None)
            case "DELETE":
                self.objects.pop(key, None)
        return 200, "<R/>"


def found(path: Path, content: bytes) -> FoundFile:
    path.write_bytes(content)
    return file_at(path, path.name, "m")


def test_files_and_an_archive_are_sent_and_their_bytes_counted(tmp_path: Path) -> None:
    store = ObjectStore()
    make_bucket(store.client, "b")
    make_bucket(store.client, "b")
    one, two = found(tmp_path / "one", b"1" * 10), found(tmp_path / "two", b"2" * 20)
    counted: list[float] = []
    orders = [
        ObjectOrder(key="k/one", files=(one,)),
        ObjectOrder(key="k/both.tar.gz", files=(one, two), packed=True),
    ]
    upload(store.client, "b", orders, counted.append)
    assert store.buckets == {"b"}
    assert store.objects["k/one"] == b"1" * 10
    assert gzip.decompress(store.objects["k/both.tar.gz"]).startswith(b"one\0")
    assert sum(counted) == pytest.approx(40)


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("packs", [False, True], ids=["a file", "a file of an archive"])
@pytest.mark.parametrize("sends", [False, True], ids=["before it is sent", "while it is sent"])
def test_a_file_that_changed_is_refused_and_leaves_no_object(
    packs: bool, sends: bool, tmp_path: Path
) -> None:
    store, path = ObjectStore(), tmp_path / "w"
    order = ObjectOrder(key="k", files=(found(path, b"12"),), packed=packs)
    if sends:
        store.during = lambda: change(path)
    else:
        change(path)
    with pytest.raises(TerminalError, match="w has changed meanwhile: run the command again"):
        upload(store.client, "b", [order], lambda _: None)
    assert store.objects == {}


def test_a_large_file_is_sent_in_parts_and_those_of_a_killed_run_are_removed(
    tmp_path: Path,
) -> None:
    store = ObjectStore()
    store.parts = {"k": {7: b"old"}, "k-2": {}}
    content = b"12345678" * (PART_BYTES // 8 + 1)
    order = ObjectOrder(key="k", files=(found(tmp_path / "w", content),))
    upload(store.client, "b", [order], lambda _: None)
    assert store.objects["k"] == content
    assert store.parts == {"k-2": {}}


def test_parts_that_another_run_removes_are_an_error_of_its_own(tmp_path: Path) -> None:
    store = ObjectStore()
    order = ObjectOrder(key="k", files=(found(tmp_path / "w", bytes(PART_BYTES + 1)),))
    store.during = lambda: remove_parts(store.client, "b", {"k"})
    with pytest.raises(TerminalError, match="another command sends s3://b/k, too"):
        upload(store.client, "b", [order], lambda _: None)


def test_digests_are_of_the_content_and_count_its_bytes(tmp_path: Path) -> None:
    files = [found(tmp_path / it, b"x" * 10) for it in "ab"]
    counted: list[float] = []
    digests = digest_files(files, counted.append)
    assert digests[str(tmp_path / "a")] == digests[str(tmp_path / "b")]
    assert sum(counted) == 20


def test_a_packed_archive_has_the_same_bytes_for_the_same_content(tmp_path: Path) -> None:
    file = found(tmp_path / "adapter_config.json", b"{}")
    one = pack_files([file], tmp_path / "1.tar.gz").read_bytes()
    assert pack_files([file], tmp_path / "2.tar.gz").read_bytes() == one
    with tarfile.open(tmp_path / "1.tar.gz") as archive:
        assert archive.getnames() == ["adapter_config.json"]


def test_a_file_that_became_shorter_cannot_be_packed(tmp_path: Path) -> None:
    file = found(tmp_path / "w", b"1234")
    (tmp_path / "w").write_bytes(b"1")
    with pytest.raises(TerminalError, match="w cannot be packed"):
        pack_files([file], tmp_path / "1.tar.gz")
