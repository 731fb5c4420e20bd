"""Folders of the Python backend: which are removed, and which are left."""

import os
from pathlib import Path

from hostelry.containers.triton.python_environments import (
    environments,
    remove_environments,
    used_by,
)


def test_empty_ones_and_used_ones_are_removed_and_no_others(tmp_path: Path) -> None:
    names = [f"python_env_{it}aaaaa" for it in "abcd"]
    for name in (*names, "python_env_toolong", "other"):
        (tmp_path / name).mkdir()
    for name in names[1:3]:
        (tmp_path / name / "0").mkdir()
    (tmp_path / "python_env_linked").symlink_to(tmp_path / "other")
    assert environments(tmp_path) == set(names)
    remove_environments([*names[:3], "other", "../x"], names[1:2], tmp_path)
    assert environments(tmp_path) == set(names[2:])
    assert (tmp_path / "other").is_dir()


def test_a_process_without_one_uses_none() -> None:
    assert used_by([os.getpid(), 1 << 30]) == set()
