import asyncio
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.artifacts.protocol import Fetch
from hostelry.fleet.launch.run_as import OpenArtifacts, prepare_run_as
from hostelry.fleet.rules.copy_user import EACH_ITS_OWN, FIRST_NUMBER, CopyUser

SOURCE = ArtifactSource(uri="s3://b/m.tar.gz", kind=SourceKind.ARCHIVE)
WANT = Fetch(source=SOURCE, holder="c-1/model", note=lambda _: None)
# Only root may choose another user. Other users are refused with themselves.
USER = CopyUser(uid=61_234 if os.geteuid() == 0 else os.geteuid(), name="it")


class OnDisk:
    """Artifacts as the cache leaves them under a private umask."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self.calls: list[object] = []

    async def fetch(self, want: Fetch) -> Path:
        self.calls.append(want)
        return self.files

    def retain(self, copy_ids: Collection[str]) -> None:
        self.calls.append(copy_ids)

    def release(self, holder: str) -> None:
        self.calls.append(holder)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    files = tmp_path / "cache" / "KEY" / "files"
    (files / "deep").mkdir(parents=True)
    for path in (files / "config.json", files / "deep" / "weights"):
        path.write_text("x")
        path.chmod(0o400)
    for folder in (files / "deep", files, files.parent, files.parent.parent):
        folder.chmod(0o700)
    return files


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_an_artifact_can_be_read_and_the_cache_not_listed(artifact: Path) -> None:
    inner = OnDisk(artifact)
    there = OpenArtifacts(inner)
    for _ in range(2):
        assert asyncio.run(there.fetch(WANT)) == artifact
    there.retain(["c-1"])
    there.release("c-1")
    assert inner.calls == [WANT, WANT, ["c-1"], "c-1"]
    assert [mode(artifact.parent.parent), mode(artifact.parent)] == [0o701, 0o701]
    assert [mode(artifact), mode(artifact / "deep")] == [0o705, 0o705]
    assert [mode(artifact / "config.json"), mode(artifact / "deep" / "weights")] == [0o404, 0o404]


def test_an_artifact_that_was_half_opened_is_opened_whole(artifact: Path) -> None:
    (artifact / "config.json").chmod(0o404)
    asyncio.run(OpenArtifacts(OnDisk(artifact)).fetch(WANT))
    assert mode(artifact / "deep" / "weights") == 0o404


def copy_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "i-1" / "copies" / "c-1"
    (folder / "model").mkdir(parents=True)
    for path in (folder / "model", folder, folder.parent, folder.parent.parent):
        path.chmod(0o700)
    return folder


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose another user")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may choose another user")
def test_only_root_may_choose_another_user(tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        prepare_run_as(copy_folder(tmp_path), USER)


@needs_root
def test_a_copy_owns_one_folder_and_passes_through_the_others(tmp_path: Path) -> None:
    folder = copy_folder(tmp_path)
    run_as = prepare_run_as(folder, USER)
    assert run_as.gid >= FIRST_NUMBER
    assert (folder.stat().st_uid, folder.stat().st_gid, mode(folder)) == (0, run_as.gid, 0o710)
    assert (run_as.work.stat().st_uid, run_as.work.stat().st_gid) == (USER.uid, run_as.gid)
    assert mode(run_as.work) == 0o700
    assert (folder / "log").stat().st_uid == 0
    assert mode(folder / "log") == 0o620
    assert mode(folder / "model") == 0o755
    assert [mode(folder.parent), mode(folder.parent.parent)] == [0o701, 0o701]


@needs_root
def test_what_a_copy_keeps_outlives_its_restart_and_not_a_change_of_the_user(
    tmp_path: Path,
) -> None:
    folder = copy_folder(tmp_path)
    kept = prepare_run_as(folder, USER).work / "kept"
    kept.touch()
    prepare_run_as(folder, USER)
    assert kept.exists()
    for other in (CopyUser(uid=61_235, name="other"), EACH_ITS_OWN, USER):
        prepare_run_as(folder, other)
        assert not kept.exists()
        kept.touch()


@needs_root
def test_each_copy_has_a_user_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    folder = copy_folder(tmp_path)
    near = folder.with_name("c-2")
    near.mkdir()
    run_as_each = [prepare_run_as(it, EACH_ITS_OWN) for it in (folder, near)]
    assert len({it.uid for it in run_as_each} | {0}) == 3
    for run_as in run_as_each:
        assert (run_as.work.stat().st_uid, run_as.work.stat().st_gid) == (run_as.uid, run_as.gid)
        assert (run_as.uid, mode(run_as.work)) == (run_as.gid, 0o700)
        (run_as.work / "kept").touch()
    assert [prepare_run_as(it, EACH_ITS_OWN) for it in (folder, near)] == run_as_each
    assert all((it.work / "kept").exists() for it in run_as_each)
