"""Backups of a home are whole or refused, whatever damages them. Restores need an empty home."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases

from hostelry import __version__
from hostelry.backup.cut import make_cut, one_backup, remove_leftovers
from hostelry.backup.manifest import (
    DATA,
    MANIFEST,
    UNFINISHED,
    BackedUpFile,
    BackupManifest,
    encode_manifest,
)
from hostelry.backup.read import read_manifest, restore, verify
from hostelry.backup.write import back_up, check_room, disk_errors
from hostelry.base.errors import TerminalError
from hostelry.domain.scope import Scope
from hostelry.home.cut_off_copy import refuse_marked
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.home.run_file import run_path, save_run_file
from hostelry.store.database import open_database
from hostelry.store.protocol import Key
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteSnapshot

CONFIG = UpConfig(control_port=1)
KEYS = new_credentials("111122223333", "us-east-1")
KEY = Key(kind="model", scope=Scope("111122223333", "us-east-1"), name="m")
# The files of a home besides its databases. Some exist only while it runs.
FILES = {
    "objects/data/load_1.dat": b"needle" * 50_000,
    "objects/data/load_1.idx": b"i" * 4096,
    "objects/data/filerldb2/00/000001.log": b"log",
    "files/file-1": b"line\n",
    "metrics/segment-0000000001.log": b"frames",
    "tls/ca.pem": b"ca",
    "kms.key": b"k" * 32,
    "audit.jsonl": b"{}\n",
    "audit.1.jsonl": b"{}\n",
    "audit/000000000001.jsonl": b"{}\n",
    "topics/alerts.jsonl": b"{}\n",
    "images.toml": b"",
    "prices.toml": b"",
}
PER_RUN = {
    "objects/data/m9333/log": b"election",
    "objects/data/mini.options": b"flags",
    "objects/identities.json": b"{}",
    "run/control.json": b"{}",
    "routes.json": b"{}",
    "audit/lock": b"",
    "audit/reserve": b"0" * 100,
    "instances/i-1/cache/weights": b"w",
    "logs/control.log": b"words",
}


def a_home(root: Path) -> Home:
    """A home that `up` has made, with a record."""
    home = Home(root)
    home.make()
    save_credentials(home, KEYS)
    save_config(home, CONFIG)
    for name, body in {**FILES, **PER_RUN}.items():
        path = home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    with closing(SqlStore(open_database(home.state))) as store:
        store.put(KEY, b"{}", expect=None)
    return home


def nothing(*_: object) -> None:
    """Ignore a report."""


def backed_up(home: Home, folder: Path) -> BackupManifest:
    return back_up(home, CONFIG, folder, nothing, 1_700_000_000.0, lambda _: None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home and a backup of it, which tests get copies of."""
    place = tmp_path_factory.mktemp("made")
    backed_up(a_home(place / "home"), place / "backup")
    return place


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Home:
    return Home(Path(shutil.copytree(made / "home", tmp_path / "home")))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "backup", tmp_path / "backup"))


def contents(root: Path) -> dict[str, bytes]:
    paths = (it for it in root.rglob("*") if it.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def test_a_backup_has_the_state_of_a_home_for_its_owner_alone(home: Home, folder: Path) -> None:
    manifest = verify(folder, nothing)
    named = {it.path for it in manifest.files}
    assert named == {*FILES, "state.db", "config.json", "credentials.json"}
    assert {name: contents(folder / DATA)[name] for name in FILES} == FILES
    modes = {it.stat().st_mode & 0o777 for it in folder.rglob("*") if it.is_file()}
    folders = {it.stat().st_mode & 0o777 for it in (folder, *folder.rglob("*")) if it.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})
    assert not (folder / UNFINISHED).exists()
    assert not home.backup_cut.exists()


def test_a_restored_home_has_what_was_backed_up(folder: Path, tmp_path: Path) -> None:
    other = Home(tmp_path / "other" / "home")
    restore(folder, other.root, nothing)
    found = contents(other.root)
    kept = contents(folder / DATA)
    assert {name: found[name] for name in kept} == kept
    assert other.root.stat().st_mode & 0o777 == 0o700
    refuse_marked(other)
    with closing(SqlStore(open_database(other.state))) as store:
        record = store.get(KEY)
    assert record is not None
    assert record.body == b"{}"


def rewritten(folder: Path, **changes: Any) -> None:
    """Another manifest, with a digest that fits."""
    manifest = read_manifest(folder)
    values = {name: getattr(manifest, name) for name in manifest.__struct_fields__} | changes
    (folder / MANIFEST).write_bytes(encode_manifest(BackupManifest(**values)))


def with_file(path: str) -> Callable[[Path], object]:
    file = BackedUpFile(path=path, num_bytes=1, sha256="0" * 64)
    return lambda folder: rewritten(folder, files=(*read_manifest(folder).files, file))


def pipe_for_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


DAT = Path(DATA, "objects/data/load_1.dat")


@cases(
    "change, reason",
    case("a file with another byte",
        lambda it: (it / DAT).write_bytes(b"N" + FILES["objects/data/load_1.dat"][1:]),
        "objects/data/load_1.dat was changed"),
    case("a file that was cut", lambda it: os.truncate(it / DAT, 7),
        "objects/data/load_1.dat has 7 bytes, not 300000"),
    case("a file that is gone", lambda it: (it / DATA / "state.db").unlink(),
        "state.db is missing"),
    case("a file too many", lambda it: (it / DATA / "files" / "more").write_bytes(b""),
        "files/more is not one of its files"),
    case("a link in place of a file",
        lambda it: ((it / DAT).unlink(), (it / DAT).symlink_to("/etc/hostname")),
        "objects/data/load_1.dat is no file"),
    case("no manifest", lambda it: (it / MANIFEST).unlink(), "it has no manifest.json"),
    case("a manifest that was cut", lambda it: os.truncate(it / MANIFEST, 100),
        "manifest.json was changed or cut"),
    case("a manifest with another size", lambda it: (it / MANIFEST).write_bytes(
        (it / MANIFEST).read_bytes().replace(b"300000", b"300001")),
        "manifest.json was changed: its digest"),
    case("a newer version", lambda it: rewritten(it, version="999.0.0"),
        f"is of Hostelry 999.0.0 (format 1), and this is {__version__} (format 1)"),
    case("a newer format", lambda it: rewritten(it, format=2),
        f"is of Hostelry {__version__} (format 2), and this is {__version__} (format 1)"),
    case("a path out of the folder", with_file("../run/up.lock"),
        "'../run/up.lock', which no backup has"),
    case("an absolute path", with_file("/etc/passwd"), "'/etc/passwd', which no backup has"),
    case("a file that is no state", with_file("run/up.json"), "'run/up.json', which no backup has"),
    case("a file twice", with_file("state.db"), "names 'state.db' twice"),
    case("a path with a NUL", with_file("files/a\0b"), "which no backup has"),
    case("a path that clears the terminal", with_file("files/a\x1b[2J"),
        r"'files/a\x1b[2J', which no backup has"),
    case("a file that clears the terminal",
        lambda it: (it / DATA / "files" / "a\x1b[2J").write_bytes(b""),
        r"'files/a\x1b[2J' is not one of its files"),
    case("a version that clears the terminal", lambda it: rewritten(it, version="0.0.1\x1b[2J"),
        "its version is no version"),
    case("a time after all times", lambda it: rewritten(it, created_at=1e300),
        "a time or a size that no backup"),
    case("a pipe, which nothing writes, for a manifest", pipe_for_manifest,
        "manifest.json is no file"),
    case("no folder", lambda it: shutil.rmtree(it), "is not a folder"),
)  # fmt: skip
def test_a_backup_that_is_not_as_it_was_written_is_refused_and_restored_by_no_one(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    change(folder)
    with pytest.raises(TerminalError) as refused:
        verify(folder, nothing)
    assert reason in str(refused.value)
    other = Home(tmp_path / "other")
    with pytest.raises(TerminalError) as refused:
        restore(folder, other.root, nothing)
    assert reason in str(refused.value)
    assert not other.credentials.exists()
    assert not any((other.root / name).exists() for name in FILES)
    refuse_marked(other)  # it is an empty home again


@cases(
    "config, reason",
    case("records in PostgreSQL", {"store_url": "postgresql://u:secret@db.example/h"},
        "in PostgreSQL, " "postgresql://db.example/h: back up that database with pg_dump"),
    case("a host with gateways alone", {"controls": ("http://c:1",)}, "is a further host's home"),
    case("a further control", {"host_name": "b"}, "is a further host's home"),
)  # fmt: skip
def test_a_home_whose_state_is_elsewhere_is_not_backed_up(
    home: Home, tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TerminalError) as refused:
        back_up(home, replace(CONFIG, **config), tmp_path / "b", nothing, 0.0, lambda _: None)
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "b").exists()


@cases(
    "place, reason",
    case("a folder in the home", "home/backup", "are in one another"),
    case("a folder that has the home", "", "are in one another"),
    case("a folder with files", "full", "is not empty"),
    case("a folder with a backup", "backup", "has a backup already"),
    case("a file", "file", "is not a folder"),
    case("a link", "link", "is not a folder"),
    case(
        "a folder of another user",
        "theirs",
        "is another user's",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a folder away"),
    ),
)
def test_a_folder_that_cannot_have_a_backup_is_left_alone(
    home: Home, folder: Path, tmp_path: Path, place: str, reason: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "theirs").mkdir()
    if place == "theirs":
        os.chown(tmp_path / "theirs", 12_345, 12_345)
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    before = contents(tmp_path)
    with pytest.raises(TerminalError) as refused:
        backed_up(home, tmp_path / place)
    assert reason in str(refused.value)
    assert {it: body for it, body in contents(tmp_path).items() if "/run/" not in it} == {
        it: body for it, body in before.items() if "/run/" not in it
    }


def test_a_home_that_has_state_is_not_overwritten(home: Home, folder: Path) -> None:
    before = contents(home.root)
    with pytest.raises(TerminalError) as refused:
        restore(folder, home.root, nothing)
    assert "is not an empty home: it has audit, audit.1.jsonl" in str(refused.value)
    assert {name: contents(home.root)[name] for name in before} == before


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=r"bytes free, and 4611686018427387904 are needed"):
        check_room(tmp_path, 2**62)
    with (
        pytest.raises(TerminalError, match=r"the disk of .* is full: free some space"),
        disk_errors(tmp_path),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


# Makes a backup, or restores one, and is killed as it reports on the Nth file.
KILLED = """
import json, os, sys
from pathlib import Path
from hostelry.backup.read import restore
from hostelry.backup.write import back_up
from hostelry.home.home import Home, UpConfig
act, first, second, left = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])

def report(*_):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)

if act == "backup":
    back_up(Home(first), UpConfig(control_port=1), second, report, 0.0, lambda _: None)
else:
    restore(first, second, report)
"""


def killed(act: str, first: Path, second: Path, number: int) -> None:
    command = [sys.executable, "-c", KILLED, act, str(first), str(second), str(number)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


def test_a_backup_that_is_killed_looks_like_none_and_can_be_made_again(
    home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    killed("backup", home.root, folder, 6)
    assert (folder / DATA / "state.db").exists()
    assert home.backup_cut.exists()
    remove_leftovers(home)  # as the next start does
    assert not home.backup_cut.exists()
    with pytest.raises(TerminalError, match=r"it has no manifest.json, which is written last"):
        verify(folder, nothing)
    backed_up(home, folder)
    verify(folder, nothing)
    assert not home.backup_cut.exists()


def test_one_backup_is_made_at_a_time_and_its_links_are_left_alone(
    home: Home, tmp_path: Path
) -> None:
    with one_backup(home):
        home.backup_cut.mkdir()
        with pytest.raises(TerminalError, match=r"another backup of .* is being made"):
            backed_up(home, tmp_path / "b")
        remove_leftovers(home)
        assert home.backup_cut.exists()


def test_a_restore_that_is_killed_leaves_a_home_that_is_refused_until_it_is_restored_again(
    folder: Path, tmp_path: Path
) -> None:
    other = Home(tmp_path / "other")
    killed("restore", folder, other.root, 6)
    with pytest.raises(TerminalError, match="has part of a backup: `hostelry up --from`"):
        refuse_marked(other)
    with pytest.raises(TerminalError, match="has part of a backup"):
        backed_up(other, tmp_path / "c")
    restore(folder, other.root, nothing)
    refuse_marked(other)
    assert other.credentials.read_bytes() == (folder / DATA / "credentials.json").read_bytes()


def test_a_snapshot_is_one_state_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    with closing(SqlStore(open_database(tmp_path / "a.db"))) as store:
        record = store.put(KEY, b"before", expect=None)
        snapshot = SqliteSnapshot(tmp_path / "a.db")
        store.put(KEY, b"after", expect=record.version)
        snapshot.copy_to(tmp_path / "b.db", lambda _: None)
        snapshot.close()
    with closing(SqlStore(open_database(tmp_path / "b.db"))) as copy:
        found = copy.get(KEY)
    assert found is not None
    assert found.body == b"before"


WRITER = """
import sys
first, second = (open(path, "ab", buffering=0) for path in sys.argv[1:])
print("ready", flush=True)
while True:
    first.write(b"x")
    second.write(b"x")
"""


def test_the_object_store_stands_still_for_the_cut_and_goes_on_after_it(home: Home) -> None:
    data = home.objects / "data"
    shutil.rmtree(data)
    data.mkdir()
    paths = [data / "a", data / "b"]
    command = [sys.executable, "-c", WRITER, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            save_run_file(home, "objectstore", writer.pid, 0)
            for _ in range(20):
                with make_cut(home, time.sleep) as files:
                    sizes = {it.path: it.num_bytes for it in files}
                    ahead = sizes["objects/data/a"] - sizes["objects/data/b"]
                    assert ahead in (0, 1), "the second follows the first at once"
                    before = paths[0].stat().st_size
                    while paths[0].stat().st_size == before:
                        time.sleep(0.001)
        finally:
            writer.kill()
    run_path(home, "objectstore").unlink()


def test_what_is_shown_of_a_backup_is_no_key(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    keys = [it for it in msgspec.structs.asdict(KEYS).values() if it and len(it) > 12]
    assert not [it for it in keys if it in text]
    assert json.loads(text)["version"] == __version__
