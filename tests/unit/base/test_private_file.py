import os
import stat
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.files import write_whole


@cases(
    "durable, synced",
    case("a power cut loses neither content nor name", True, ["file", "folder"]),
    case("what can be made again waits for no disk", False, []),
)
def test_a_file_is_whole_and_its_owners(
    durable: bool, synced: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append("folder" if is_folder else "file")
        assert (tmp_path / "keys").exists() == is_folder, "the folder once the name is there"

    monkeypatch.setattr(os, "fsync", sync)
    write_whole(tmp_path / "keys", b"secret", durable=durable)
    assert seen == synced
    assert [it.name for it in tmp_path.iterdir()] == ["keys"]
    assert (tmp_path / "keys").read_bytes() == b"secret"
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
