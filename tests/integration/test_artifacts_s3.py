"""Artifacts from a real SeaweedFS: every kind, every fault, and one fetch for all callers."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import ObjectStore, object_store
from tests.integration.fake_hub import fake_hub
from tests.unit.base.tars import Member, targz

from hostelry.base.archive import ArchiveLimits
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.hub import HubModels
from hostelry.fleet.artifacts.objects import PART_BYTES, ObjectFacts, S3Objects, build_client
from hostelry.fleet.artifacts.protocol import ArtifactError, ArtifactUnavailableError, Fetch
from hostelry.fleet.artifacts.store import ArtifactStore

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


class Notes(list[str]):
    """The progress lines of one fetch."""

    def downloads(self) -> int:
        return sum("100%" in line for line in self)


def artifact_store(s3: ObjectStore, folder: Path, max_bytes: int = 10**9) -> ArtifactStore:
    return ArtifactStore(
        S3Objects(s3.client), ArtifactCache(folder / "cache", max_bytes), ArchiveLimits()
    )


def want(uri: str, kind: SourceKind, notes: Notes, holder: str = "c-1/model") -> Fetch:
    return Fetch(source=ArtifactSource(uri=uri, kind=kind), holder=holder, note=notes.append)


def fetched(store: ArtifactStore, uri: str, kind: SourceKind) -> Path:
    return asyncio.run(store.fetch(want(uri, kind, Notes())))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in (folder / "cache").iterdir() if path.name != "leases"]


def test_an_archive_is_unpacked(s3: ObjectStore, tmp_path: Path) -> None:
    uri = s3.put("a/model.tar.gz", targz([Member(name="./config.json", body=b"{}")]))
    folder = fetched(artifact_store(s3, tmp_path), uri, SourceKind.ARCHIVE)
    assert files_of(folder) == {"config.json": b"{}"}


def test_a_prefix_keeps_its_paths(s3: ObjectStore, tmp_path: Path) -> None:
    s3.put("p/config.json", b"{}")
    s3.put("p/deep/er/weights", b"w")
    s3.put("p/empty", b"")
    s3.put("pq/other", b"not ours")
    folder = fetched(artifact_store(s3, tmp_path), "s3://models/p", SourceKind.PREFIX)
    assert files_of(folder) == {"config.json": b"{}", "deep/er/weights": b"w", "empty": b""}


@cases(
    "token, error",
    case("a model with its folders, and no notes of the client", "right", None),
    case("a gated model without the right token", "wrong", ArtifactError),
    case("a hub that is away", "away", ArtifactUnavailableError),
)
def test_a_model_of_the_hub(token: str, error: type[Exception] | None, tmp_path: Path) -> None:
    model = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "a.safetensors": b"w"}
    for name, body in model.items():
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(body)
    with fake_hub("org/m", tmp_path / "model", token="right") as hub:
        client = HubModels("http://127.0.0.1:9" if token == "away" else hub.url)
        store = ArtifactStore(S3Objects(None), ArtifactCache(tmp_path / "cache"), hub=client)
        wanted = replace(want("hf://org/m", SourceKind.PREFIX, Notes()), token=token)
        if error is None:
            assert files_of(asyncio.run(store.fetch(wanted))) == model
        else:
            with pytest.raises(error, match="hf://org/m"):
                asyncio.run(store.fetch(wanted))
        store.close()


def test_one_object_keeps_its_name(s3: ObjectStore, tmp_path: Path) -> None:
    uri = s3.put("o/some where/wäights.bin", b"w")
    folder = fetched(artifact_store(s3, tmp_path), uri, SourceKind.OBJECT)
    assert files_of(folder) == {"wäights.bin": b"w"}


def test_a_large_object_comes_in_parts_with_progress(s3: ObjectStore, tmp_path: Path) -> None:
    body = os.urandom(1024) * (3 * PART_BYTES // 1024) + b"the end"
    uri = s3.put("large", body)
    notes = Notes()
    store = artifact_store(s3, tmp_path)
    folder = asyncio.run(store.fetch(want(uri, SourceKind.OBJECT, notes)))
    assert (folder / "large").read_bytes() == body
    assert len(notes) >= 2
    assert notes.downloads() == 1
    assert "100%" in notes[-1]
    assert "48.0 of 48.0 MiB" in notes[-1]


@cases(
    "uri, kind, output",
    case(
        "a missing object",
        "s3://models/none.tar.gz",
        SourceKind.ARCHIVE,
        ["NoSuchKey", '"models"', '"none.tar.gz"'],
    ),
    case(
        "a missing bucket",
        "s3://no-bucket/a.tar.gz",
        SourceKind.ARCHIVE,
        ["NoSuchBucket", '"no-bucket"'],
    ),
    case(
        "a prefix without objects",
        "s3://models/nothing-here/",
        SourceKind.PREFIX,
        ["NoSuchKey", '"models"', '"nothing-here/"'],
    ),
    case("a prefix, no bucket", "s3://no-bucket/p/", SourceKind.PREFIX, ["NoSuchBucket"]),
    case("a bucket alone", "s3://models/", SourceKind.OBJECT, ["no object in it"]),
    case("another scheme", "https://x/y", SourceKind.ARCHIVE, ["is not an S3 URI"]),
    case("no bucket at all", "s3:///key", SourceKind.ARCHIVE, ["is not an S3 URI"]),
)
def test_what_is_not_there_is_named(
    s3: ObjectStore, tmp_path: Path, uri: str, kind: SourceKind, output: list[str]
) -> None:
    with pytest.raises(ArtifactError) as caught:
        fetched(artifact_store(s3, tmp_path), uri, kind)
    assert [text for text in output if text not in str(caught.value)] == []
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("marker", [False, True], ids=["nothing", "a folder's marker alone"])
def test_a_prefix_that_may_be_empty_is_an_empty_folder(
    s3: ObjectStore, tmp_path: Path, marker: bool
) -> None:
    if marker:
        s3.put("marked/", b"")
    notes, uri = Notes(), f"s3://models/{'marked' if marker else 'unmarked'}/"
    allowed = replace(want(uri, SourceKind.PREFIX, notes), may_be_empty=True)
    store = artifact_store(s3, tmp_path)
    assert list(asyncio.run(store.fetch(allowed)).iterdir()) == []
    assert "the model folder is empty" in notes[0]
    other = want(uri, SourceKind.PREFIX, Notes(), "c-2/model")
    with pytest.raises(ArtifactError, match="NoSuchKey"):
        asyncio.run(store.fetch(other))
    s3.put(f"{uri.removeprefix('s3://models/')}config.json", b"{}")
    allowed = replace(allowed, holder="c-3/model")
    assert files_of(asyncio.run(store.fetch(allowed))) == {"config.json": b"{}"}


def test_a_prefix_that_may_be_empty_needs_its_bucket(s3: ObjectStore, tmp_path: Path) -> None:
    allowed = replace(want("s3://no-bucket/p/", SourceKind.PREFIX, Notes()), may_be_empty=True)
    with pytest.raises(ArtifactError, match="NoSuchBucket"):
        asyncio.run(artifact_store(s3, tmp_path).fetch(allowed))


def test_a_bad_archive_is_refused_and_leaves_nothing(s3: ObjectStore, tmp_path: Path) -> None:
    uri = s3.put("bad.tar.gz", targz([Member(name="ok"), Member(name="../evil", body=b"x")]))
    with pytest.raises(ArtifactError, match=r"'\.\./evil' leaves"):
        fetched(artifact_store(s3, tmp_path), uri, SourceKind.ARCHIVE)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("key", ["k/../../evil", "k/" + 300 * "x", "k//x", "k/./x"])
def test_keys_that_are_no_paths_are_refused(tmp_path: Path, key: str) -> None:
    class Hostile(S3Objects):
        def list(self, uri: str) -> list[ObjectFacts]:
            return [ObjectFacts(bucket="b", key=key, size_bytes=1, etag='"1"')]

    store = ArtifactStore(Hostile(None), ArtifactCache(tmp_path / "cache"))
    with pytest.raises(ArtifactError, match=r"a path|too long a name"):
        fetched(store, "s3://b/k/", SourceKind.PREFIX)
    assert leftovers(tmp_path) == []


def test_wrong_keys_are_reported(s3: ObjectStore, tmp_path: Path) -> None:
    uri = s3.put("mine", b"x")
    unrelated = build_client(s3.url, "AKIATEST", "a wrong secret", "us-west-2")
    store = ArtifactStore(S3Objects(unrelated), ArtifactCache(tmp_path / "cache"))
    with pytest.raises(ArtifactError, match="AccessDenied"):
        fetched(store, uri, SourceKind.OBJECT)
    unrelated.close()


def test_a_store_that_is_away_may_be_asked_again(tmp_path: Path) -> None:
    absent = build_client("http://127.0.0.1:9", "AKIATEST", "secret", "us-west-2")
    store = ArtifactStore(S3Objects(absent), ArtifactCache(tmp_path / "cache"))
    with pytest.raises(ArtifactUnavailableError, match="s3://models/x"):
        fetched(store, "s3://models/x", SourceKind.OBJECT)
    absent.close()


def test_an_object_replaced_while_it_is_read_is_never_mixed(
    s3: ObjectStore, tmp_path: Path
) -> None:
    class Meddler(S3Objects):
        def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
            if start > 0:
                first_part_read.wait(10)
                s3.put("moving", b"new")
            yield from super().read(facts, start, end)
            first_part_read.set()

    first_part_read = threading.Event()
    uri = s3.put("moving", b"o" * (PART_BYTES + 1))
    store = ArtifactStore(Meddler(s3.client), ArtifactCache(tmp_path / "cache"))
    with pytest.raises(ArtifactUnavailableError, match="PreconditionFailed"):
        fetched(store, uri, SourceKind.OBJECT)
    assert leftovers(tmp_path) == []
    assert files_of(fetched(store, uri, SourceKind.OBJECT)) == {"moving": b"new"}


def test_damage_on_the_way_is_noticed(s3: ObjectStore, tmp_path: Path) -> None:
    class Noise(S3Objects):
        def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
            for block in super().read(facts, start, end):
                yield b"?" + block[1:]

    class Short(S3Objects):
        def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
            yield from super().read(facts, start, end - 1)

    uri = s3.put("clean", b"weights")
    for objects, output in ((Noise(s3.client), "arrived damaged"), (Short(s3.client), "6 of 7")):
        store = ArtifactStore(objects, ArtifactCache(tmp_path / "cache"))
        with pytest.raises(ArtifactUnavailableError, match=output):
            fetched(store, uri, SourceKind.OBJECT)
        assert leftovers(tmp_path) == []


async def test_many_who_want_the_same_share_one_download(s3: ObjectStore, tmp_path: Path) -> None:
    uri, notes, store = s3.put("shared", os.urandom(2**20)), Notes(), artifact_store(s3, tmp_path)
    wants = [want(uri, SourceKind.OBJECT, notes, f"c-{n}/model") for n in range(12)]
    folders = await asyncio.gather(*(store.fetch(it) for it in wants))
    assert len(set(folders)) == 1
    assert notes.downloads() == 1
    await store.fetch(want(uri, SourceKind.OBJECT, notes, "c-late/model"))
    assert notes.downloads() == 1


def test_new_content_under_the_same_key_is_another_artifact(
    s3: ObjectStore, tmp_path: Path
) -> None:
    store = artifact_store(s3, tmp_path)
    old = fetched(store, s3.put("again", b"old"), SourceKind.OBJECT)
    uri = s3.put("again", b"new")
    assert fetched(store, uri, SourceKind.OBJECT) == old, "a holder keeps what it has"
    other = asyncio.run(store.fetch(want(uri, SourceKind.OBJECT, Notes(), "c-2/model")))
    assert (files_of(old), files_of(other)) == ({"again": b"old"}, {"again": b"new"})


def test_a_fetch_without_a_waiting_copy_is_given_up(s3: ObjectStore, tmp_path: Path) -> None:
    class Endless(S3Objects):
        def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
            started.set()
            while not over.is_set():
                yield b""

    async def work() -> None:
        one, two = (
            asyncio.create_task(store.fetch(want(uri, SourceKind.OBJECT, Notes(), f"c-{n}/model")))
            for n in range(2)
        )
        await asyncio.to_thread(started.wait, 10)
        one.cancel()
        await asyncio.wait([one])
        assert not two.done(), "the other one still waits"
        two.cancel()
        await asyncio.wait([two])

    started, over = threading.Event(), threading.Event()
    uri = s3.put("endless", b"x")
    store = ArtifactStore(Endless(s3.client), ArtifactCache(tmp_path / "cache"))
    try:
        asyncio.run(work())
        store.close()
        assert leftovers(tmp_path) == []
    finally:
        over.set()


def test_a_full_cache_names_what_it_needs(s3: ObjectStore, tmp_path: Path) -> None:
    uri = s3.put("big", b"x" * 2000)
    with pytest.raises(ArtifactError, match="needs 2000 bytes; the artifact cache may hold 1000"):
        fetched(artifact_store(s3, tmp_path, max_bytes=1000), uri, SourceKind.OBJECT)


def test_an_archive_that_unpacks_to_more_than_the_cache_is_given_up_at_the_bound(
    s3: ObjectStore, tmp_path: Path
) -> None:
    packed = targz([Member(name="zeros", body=b"\0" * 2_000_000)])
    store = artifact_store(s3, tmp_path, max_bytes=1_000_000)
    with pytest.raises(ArtifactError, match=r"more than 1000000 bytes, .*artifact cache may hold"):
        fetched(store, s3.put("zeros.tar.gz", packed), SourceKind.ARCHIVE)
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_named_and_harms_nothing(s3: ObjectStore, tmp_path: Path) -> None:
    class Full(S3Objects):
        def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
            raise OSError(28, "No space left on device")

    cache = ArtifactCache(tmp_path / "cache")
    kept = fetched(
        ArtifactStore(S3Objects(s3.client), cache), s3.put("kept", b"k"), SourceKind.OBJECT
    )
    with pytest.raises(ArtifactError, match="the disk is full"):
        fetched(ArtifactStore(Full(s3.client), cache), s3.put("no", b"n"), SourceKind.OBJECT)
    assert files_of(kept) == {"kept": b"k"}
    assert len(leftovers(tmp_path)) == 1
