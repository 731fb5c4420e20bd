from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.fleet.launch.warm_rules import find_home_cause
from hostelry.fleet.rules.copy_user import (
    EACH_ITS_OWN,
    FIRST_NUMBER,
    NEEDED_CAPABILITIES,
    NUM_NUMBERS,
    CopyUser,
    FolderMode,
    RunAs,
    choose_number,
    describe_closed_device,
    describe_closed_folder,
    find_closed_device,
    find_closed_folder,
    find_refusal,
    missing_capabilities,
)

ALL = (1 << 41) - 1
# Docker's default for root: without CAP_SYS_PTRACE. Source: Docker's documentation,
# "Runtime privilege and Linux capabilities".
DOCKERS = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))


@pytest.mark.parametrize(
    ("uid", "own_uid", "effective", "reason"),
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
    uid: int | None, own_uid: int, effective: int, reason: str | None
) -> None:
    why_not = find_refusal("it", uid, own_uid, effective)
    assert (why_not is None) == (reason is None)
    assert reason is None or (reason in str(why_not) and "--copy-user it" in str(why_not))


def test_capabilities_are_looked_for_by_the_kernels_numbers() -> None:
    assert missing_capabilities(ALL) == []
    assert missing_capabilities(0) == list(NEEDED_CAPABILITIES)


def folders(*modes: tuple[str, int, int]) -> list[FolderMode]:
    return [FolderMode(path=Path(path), owner=owner, mode=mode) for path, owner, mode in modes]


@cases(
    "above, closed",
    case("all open", [("/", 0, 0o755), ("/srv", 0, 0o711)], None),
    case("root's own folder", [("/", 0, 0o755), ("/root", 0, 0o700)], "/root"),
    case("the first of two", [("/a", 0, 0o700), ("/a/b", 0, 0o700)], "/a"),
    case("a group does not count: it is dropped", [("/srv", 0, 0o750)], "/srv"),
    case("to read names is not to pass", [("/srv", 0, 0o754)], "/srv"),
    case("its own folder", [("/home/it", 990, 0o700)], None),
    case("its own, closed to itself", [("/home/it", 990, 0o077)], "/home/it"),
    case("nothing above", [], None),
)
def test_the_first_folder_that_the_user_cannot_pass(
    above: list[tuple[str, int, int]], closed: str | None
) -> None:
    found = find_closed_folder(990, folders(*above))
    assert (found and str(found.path)) == closed


def test_a_closed_folder_is_named_with_the_command_that_mends_it() -> None:
    (root,) = folders(("/root", 0, 0o40700))
    reason = describe_closed_folder("it", root, Path("/root/.hostelry"))
    assert "/root (mode 0700) to /root/.hostelry" in reason
    assert "`chmod o+x /root`" in reason


@cases(
    "mode, closed",
    case("a driver's default", 0o20666, False),
    case("a group's", 0o20660, True),
    case("everybody's to read", 0o20664, True),
)
def test_an_accelerator_is_everybodys_or_named(mode: int, closed: bool) -> None:
    devices = folders(("/dev/nvidia0", 0, 0o20666), ("/dev/nvidia1", 0, mode))
    found = find_closed_device(devices)
    assert found == (devices[1] if closed else None)
    assert found is None or "`chmod o+rw /dev/nvidia1`" in describe_closed_device("auto", found)


@given(drawn=st.integers(min_value=0, max_value=NUM_NUMBERS - 1))
def test_every_copy_has_an_id_that_no_other_program_assigns(drawn: int) -> None:
    number = choose_number(0, (), lambda _: drawn)
    assert FIRST_NUMBER <= number < FIRST_NUMBER + NUM_NUMBERS < 2**31
    assert choose_number(number, {number}, lambda _: 0) == number, "it keeps it when started again"


def test_no_two_copies_have_one_number() -> None:
    numbers = iter((5, 5, 6, 6, 5, 7))
    taken: set[int] = set()
    for _ in range(3):
        taken.add(choose_number(0, taken, lambda _: next(numbers)))
    assert taken == {FIRST_NUMBER + 5, FIRST_NUMBER + 6, FIRST_NUMBER + 7}


HUB = {"HF_HOME": "/o/hf", "HF_HUB_CACHE": "/o/hub", "HF_TOKEN_PATH": "/o/token", "HF_TOKEN": "t"}


@cases(
    "user, more, kept",
    case("what it downloads is its own", EACH_ITS_OWN, {}, {"HF_TOKEN"}),
    case("not offline", EACH_ITS_OWN, {"HF_HUB_OFFLINE": "0"}, {"HF_TOKEN"}),
    case("it only reads", EACH_ITS_OWN, {"HF_HUB_OFFLINE": "true"}, set(HUB)),
    case("the user who was asked for", CopyUser(uid=990, name="it"), {}, set(HUB)),
)
def test_whose_folder_of_downloads_a_copy_uses(
    user: CopyUser, more: dict[str, str], kept: set[str]
) -> None:
    run_as = RunAs(user=user, gid=FIRST_NUMBER, work=Path("/w"))
    given = run_as.environment({**HUB, **more})
    assert {name for name in HUB if name in given} == kept


@cases(
    "user, uid",
    case("of its own: its group's number", EACH_ITS_OWN, FIRST_NUMBER + 3),
    case("one for all", CopyUser(uid=990, name="it"), 990),
)
def test_which_user_a_copy_is(user: CopyUser, uid: int) -> None:
    assert RunAs(user=user, gid=FIRST_NUMBER + 3, work=Path("/w")).uid == uid


def test_what_looks_for_the_users_home_finds_the_copys() -> None:
    run_as = RunAs(user=CopyUser(uid=990, name="it"), gid=FIRST_NUMBER, work=Path("/i/c/work"))
    assert run_as.environment({"HOME": "/root", "PATH": "/bin"}) == {
        "PATH": "/bin",
        "HOME": "/i/c/work",
        "TMPDIR": "/i/c/work",
        "XDG_CACHE_HOME": "/i/c/work/.cache",
        "USER": "it",
        "LOGNAME": "it",
    }


@cases(
    "environment, cold",
    case("a model of its own folder", {}, False),
    case("a path", {"HF_MODEL_ID": "/opt/ml/model"}, False),
    case("an artifact", {"OPTION_MODEL_ID": "s3://b/p"}, False),
    case("a download from the hub", {"HF_MODEL_ID": "org/model"}, True),
)
def test_with_a_home_of_its_own_only_a_copy_that_downloads_starts_cold(
    environment: dict[str, str], cold: bool
) -> None:
    assert (find_home_cause(environment) is not None) == cold
