import os
import pwd
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.fleet.rules.copy_user import AUTO, EACH_ITS_OWN, NONE, CopyUser
from hostelry.home import copy_user_option
from hostelry.home.copy_user_option import check_copy_user, decide_copy_user, open_home
from hostelry.home.home import Home, UpConfig, load_config, save_config

ROOT = os.geteuid() == 0
ANYBODYS = "/bin/sh"  # a program that every user can run
NOT_ROOT = f"this hostelry runs as user {os.geteuid()}"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


@pytest.fixture(autouse=True)
def whole_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root here may be a container's, which lacks some rights: those are another test's."""
    monkeypatch.setattr(copy_user_option, "effective_capabilities", lambda: (1 << 41) - 1)


@pytest.fixture
def open_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every folder can be passed, and the trial is a shell's."""
    monkeypatch.setattr(copy_user_option, "folders_above", lambda _: ())
    monkeypatch.setattr(copy_user_option, "DEV", Path("/nowhere"))
    monkeypatch.setattr(sys, "executable", ANYBODYS)
    monkeypatch.setattr(copy_user_option, "TRIAL", "exit 0")


@cases(
    "asked, text",
    case("an unknown name", "no-such-user-here", "no such user"),
    case("no name", "", "no such user"),
    case("a negative number", "-1", "no such user"),
    case("digits that are no number", "\N{SUPERSCRIPT TWO}", "no such user"),
    case("root by name", "root", "that is root"),
    case("root by number", "0", "that is root"),
    case("a number beyond all", "9" * 40, "from 1 to"),
)
def test_a_user_that_copies_cannot_have_is_refused(home: Home, asked: str, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        check_copy_user(asked, home)


def test_a_home_that_the_user_cannot_reach_is_named_with_what_mends_it(
    tmp_path: Path,
) -> None:
    closed = tmp_path.resolve() / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(TerminalError) as refused:
        check_copy_user("61234", Home(closed / "home"))
    # Pytest's own folders above may be closed too: then the first of them is named.
    first = next(it for it in reversed((closed / "x").parents) if not it.stat().st_mode & 0o001)
    assert (f"`chmod o+x {first}` mends it" if ROOT else NOT_ROOT) in str(refused.value)


@pytest.mark.usefixtures("open_machine")
@cases(
    "asked, user",
    case("a number of nobody", "61234", CopyUser(uid=61_234, name="user61234")),
    case("a name", "nobody", CopyUser(uid=pwd.getpwnam("nobody").pw_uid, name="nobody")),
)
def test_a_user_that_can_run_the_code_is_taken(home: Home, asked: str, user: CopyUser) -> None:
    if not ROOT:
        with pytest.raises(TerminalError, match=NOT_ROOT):
            check_copy_user(asked, home)
        return
    assert check_copy_user(asked, home) == user


@pytest.mark.usefixtures("open_machine")
def test_a_user_that_cannot_run_the_code_is_refused_with_its_last_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_user_option, "TRIAL", "echo first >&2; echo no module >&2; exit 3")
    with pytest.raises(TerminalError, match=r"exit code 3\): no module" if ROOT else NOT_ROOT):
        check_copy_user("61234", home)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(TerminalError, match="/nowhere/python" if ROOT else NOT_ROOT):
        check_copy_user("61234", home)


def test_by_default_each_copy_is_a_user_of_its_own_where_that_can_be_had(
    home: Home, request: pytest.FixtureRequest
) -> None:
    user, note = decide_copy_user(AUTO, home)
    assert user is None, "pytest's folders are closed"
    assert note is not None
    assert "copies run as hostelry's own user, not each as one of its own: " in note
    assert ("`chmod o+x " if ROOT else f"{NOT_ROOT}; start it as root") in note
    assert "\n" not in note
    request.getfixturevalue("open_machine")
    user, note = decide_copy_user(AUTO, home)
    assert (user, note is None) == ((EACH_ITS_OWN, True) if ROOT else (None, False))


def test_none_gives_no_note_and_a_named_user_is_taken_or_refused(
    home: Home,
) -> None:
    assert decide_copy_user(NONE, home) == (None, None)
    with pytest.raises(TerminalError, match="chmod o\\+x" if ROOT else NOT_ROOT):
        decide_copy_user("61234", home)


@pytest.mark.usefixtures("open_machine")
def test_an_accelerator_that_is_not_everybodys_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_user_option, "DEV", tmp_path)
    for name, bits in (("nvidia0", 0o666), ("nvidiactl", 0o660), ("null", 0o600)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(bits)
    _, note = decide_copy_user(AUTO, home)
    assert (f"{tmp_path}/nvidiactl (mode 0660)" if ROOT else NOT_ROOT) in str(note)


def test_a_home_is_opened_for_passing_and_its_files_are_closed(home: Home) -> None:
    home.images.write_text("")
    home.actions.write_text("")
    for file in (home.images, home.actions):
        file.chmod(0o644)
    open_home(home)
    assert [it.stat().st_mode & 0o777 for it in (home.images, home.actions)] == [0o600] * 2
    assert [it.stat().st_mode & 0o777 for it in (home.root, home.instances)] == [0o701] * 2
    for private in (home.objects, home.logs, home.run):
        assert private.stat().st_mode & 0o777 == 0o700


def test_the_user_is_kept_and_a_config_from_before_has_none(home: Home) -> None:
    user = CopyUser(uid=990, name="it")
    save_config(home, UpConfig(control_port=1, copy_user=user))
    assert load_config(home).copy_user == user
    save_config(home, UpConfig(control_port=1, copy_user=EACH_ITS_OWN))
    assert load_config(home).copy_user == EACH_ITS_OWN
    home.config.write_text('{"control_port": 1}')
    assert load_config(home).copy_user is None
