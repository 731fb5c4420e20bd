from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.fleet.copy_user import (
    FIRST_GROUP,
    NEEDED_CAPABILITIES,
    NUM_GROUPS,
    CopyUser,
    FolderMode,
    Seat,
    closed_text,
    closed_to,
    group_number,
    missing_capabilities,
    refusal,
)
from hostelry.fleet.warm_rule import own_home_cause

ALL = (1 << 41) - 1
# What Docker gives root unless told: without CAP_SYS_PTRACE. Source: Docker's documentation,
# "Runtime privilege and Linux capabilities".
DOCKERS = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))


@pytest.mark.parametrize(
    ("uid", "own_uid", "effective", "said"),
    [
        pytest.param(990, 0, ALL, None, id="root may"),
        pytest.param(2**31 - 1, 0, ALL, None, id="the last number"),
        pytest.param(None, 0, ALL, "has no such user; `useradd --system it`", id="a user unknown"),
        pytest.param(0, 0, ALL, "that is root", id="root itself"),
        pytest.param(2**31, 0, ALL, "from 1 to 2147483647", id="a number beyond all users"),
        pytest.param(990, 1000, 0, "this hostelry runs as user 1000", id="a hostelry of a user"),
        # Ambient capabilities would pass to the copy with all they allow.
        pytest.param(990, 1000, ALL, "only root", id="a user with root's capabilities"),
        pytest.param(990, 0, DOCKERS, "it lacks CAP_SYS_PTRACE;", id="a container's root"),
        pytest.param(990, 0, 0, "CAP_CHOWN, CAP_DAC_OVERRIDE", id="a root of nothing"),
    ],
)
def test_who_may_have_copies_of_which_user(
    uid: int | None, own_uid: int, effective: int, said: str | None
) -> None:
    why_not = refusal("it", uid, own_uid, effective)
    assert (why_not is None) == (said is None)
    assert said is None or (said in str(why_not) and "--copy-user it" in str(why_not))


def test_capabilities_are_looked_for_by_the_kernels_numbers() -> None:
    assert missing_capabilities(ALL) == []
    assert missing_capabilities(0) == list(NEEDED_CAPABILITIES)


def folders(*modes: tuple[str, int, int]) -> list[FolderMode]:
    return [FolderMode(path=Path(path), owner=owner, mode=mode) for path, owner, mode in modes]


@pytest.mark.parametrize(
    ("above", "closed"),
    [
        pytest.param([("/", 0, 0o755), ("/srv", 0, 0o711)], None, id="all open"),
        pytest.param([("/", 0, 0o755), ("/root", 0, 0o700)], "/root", id="root's own folder"),
        pytest.param([("/a", 0, 0o700), ("/a/b", 0, 0o700)], "/a", id="the first of two"),
        pytest.param([("/srv", 0, 0o750)], "/srv", id="a group does not count: it is dropped"),
        pytest.param([("/srv", 0, 0o754)], "/srv", id="to read names is not to pass"),
        pytest.param([("/home/it", 990, 0o700)], None, id="its own folder"),
        pytest.param([("/home/it", 990, 0o077)], "/home/it", id="its own, closed to itself"),
        pytest.param([], None, id="nothing above"),
    ],
)
def test_the_first_folder_that_the_user_cannot_pass(
    above: list[tuple[str, int, int]], closed: str | None
) -> None:
    found = closed_to(990, folders(*above))
    assert (found and str(found.path)) == closed


def test_a_closed_folder_is_named_with_the_command_that_mends_it() -> None:
    (root,) = folders(("/root", 0, 0o40700))
    said = closed_text("it", root, Path("/root/.hostelry"))
    assert "/root (mode 0700) to /root/.hostelry" in said
    assert "`chmod o+x /root`" in said


@given(inode=st.integers(min_value=0, max_value=2**64 - 1))
def test_every_folder_has_a_group_that_nobody_else_gives_out(inode: int) -> None:
    assert FIRST_GROUP <= group_number(inode) < FIRST_GROUP + NUM_GROUPS < 2**31


def test_two_folders_of_a_disk_have_two_groups() -> None:
    assert len({group_number(inode) for inode in range(500_000, 501_000)}) == 1000


def test_what_looks_for_the_users_home_finds_the_copys() -> None:
    seat = Seat(user=CopyUser(uid=990, name="it"), gid=FIRST_GROUP, work=Path("/i/c/work"))
    assert seat.variables == {
        "HOME": "/i/c/work",
        "TMPDIR": "/i/c/work",
        "XDG_CACHE_HOME": "/i/c/work/.cache",
        "USER": "it",
        "LOGNAME": "it",
    }


@pytest.mark.parametrize(
    ("environment", "cold"),
    [
        pytest.param({}, False, id="a model of its own folder"),
        pytest.param({"HF_MODEL_ID": "/opt/ml/model"}, False, id="a path"),
        pytest.param({"OPTION_MODEL_ID": "s3://b/p"}, False, id="an artifact"),
        pytest.param({"HF_MODEL_ID": "org/model"}, True, id="a download from the hub"),
    ],
)
def test_with_a_home_of_its_own_only_a_copy_that_downloads_starts_cold(
    environment: dict[str, str], cold: bool
) -> None:
    assert (own_home_cause(environment) is not None) == cold
