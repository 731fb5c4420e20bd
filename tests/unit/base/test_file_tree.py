import pytest

from hostelry.base.files import FileTree, UnsafeFilesError


def test_what_is_implied_is_counted_once() -> None:
    tree = FileTree(max_entries=4)
    for name in ("a/b/c", "a/b/d"):
        tree.enter(name.split("/"), is_folder=False)
    tree.enter(["a", "b"], is_folder=True)
    with pytest.raises(UnsafeFilesError, match="more than 4 files and folders"):
        tree.enter(["e"], is_folder=True)
