"""Place and record of runtimes."""

from pathlib import Path

import msgspec
from tests.cases import case, cases

from hostelry.base.runtimes import RECORD, SHARED_PLACE, Runtime, find_installed, runtimes_folder

RECORDED = Runtime(
    name="vllm", device="cpu", python="3.11", packages={"vllm": "1"},
    installed_at="2026-01-01T00:00:00+00:00", install_s=1.0, num_bytes=1,
)  # fmt: skip


@cases(
    "env, uid, folder",
    case("named", {"HOSTELRY_RUNTIMES_DIR": "/r", "HOME": "/h"}, 5, Path("/r")),
    case("data folder", {"XDG_DATA_HOME": "/d", "HOME": "/h"}, 0, Path("/d/hostelry/runtimes")),
    case("a user's home", {"HOME": "/h"}, 5, Path("/h/.local/share/hostelry/runtimes")),
    case("root's, for copies of other users", {"HOME": "/root"}, 0, SHARED_PLACE),
)
def test_folder(env: dict[str, str], uid: int, folder: Path) -> None:
    assert runtimes_folder(env, uid) == folder


def test_a_folder_with_a_record_and_an_interpreter_is_a_runtime(tmp_path: Path) -> None:
    there = tmp_path / "vllm"
    assert find_installed(tmp_path, "vllm") is None
    (there / "bin").mkdir(parents=True)
    (there / RECORD).write_bytes(msgspec.json.encode(RECORDED))
    assert find_installed(tmp_path, "vllm") is None
    (there / "bin" / "python").write_text("#!/bin/sh\n")
    (there / "bin" / "python").chmod(0o755)
    assert find_installed(tmp_path, "vllm") == RECORDED
    (there / RECORD).write_text("{")
    assert find_installed(tmp_path, "vllm") is None
