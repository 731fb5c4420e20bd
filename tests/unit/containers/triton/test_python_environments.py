"""Folders of the Python backend: which are removed, and which are left."""

import os
from pathlib import Path

from hostelry.containers.triton.triton_process import (
    list_environments,
    list_used,
    remove_environments,
)


def test_empty_ones_and_used_ones_are_removed_and_no_others(tmp_path: Path) -> None:
    names = [f"python_env_{it}aaaaa" for it in "abcd"]
    for name in (*names, "python_env_toolong", "other"):
        (tmp_path / name).mkdir()
    for name in names[1:3]:
        (tmp_path / name / "0").mkdir()
    (tmp_path / "python_env_linked").symlink_to(tmp_path / "other")
    assert list_environments(tmp_path) == set(names)
    remove_environments([*names[:3], "other", "../x"], names[1:2], tmp_path)
    assert list_environments(tmp_path) == set(names[2:])
    assert (tmp_path / "other").is_dir()


def test_a_process_without_one_uses_none() -> None:
    assert list_used([os.getpid(), 1 << 30]) == set()
