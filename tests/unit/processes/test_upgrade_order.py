import pytest

from hostelry.processes.upgrade_order import ControlMember, ControlsThatRun, has_joined, why_later

OLD, NEW = "0.1.0", "0.2.0"


def controls(me: str, **members: str) -> ControlsThatRun:
    """Members by id, of a version each; the first one leads."""
    found = tuple(
        ControlMember(id=name, address=f"http://{name}", version=version, leads=number == 0)
        for number, (name, version) in enumerate(members.items())
    )
    return ControlsThatRun(me=me, members=found)


@pytest.mark.parametrize(
    ("found", "first"),
    [
        pytest.param(ControlsThatRun(), None, id="the only control, as of SQLite"),
        pytest.param(controls("a", a=OLD), None, id="a leader without standbys"),
        pytest.param(controls("b", a=OLD, b=OLD), None, id="a standby, at any time"),
        pytest.param(controls("a", a=OLD, b=NEW), None, id="a leader whose standby is of it"),
        pytest.param(controls("a", a=NEW, b=NEW), None, id="again, for what was left"),
        pytest.param(controls("a", a=OLD, b=OLD), "b at http://b (0.1.0)", id="a leader too soon"),
        pytest.param(
            controls("a", a=OLD, b=NEW, c=OLD), "c at http://c (0.1.0)", id="one of two standbys"
        ),
        pytest.param(controls("a", a=OLD, b=""), "b at http://b (unknown)", id="one that is mute"),
    ],
)
def test_standbys_come_first(found: ControlsThatRun, first: str | None) -> None:
    why = why_later(found, NEW)
    assert (why is None) == (first is None)
    assert first is None or first in str(why)


def test_the_version_before_comes_back_in_the_same_order() -> None:
    assert why_later(controls("a", a=NEW, b=NEW), OLD) is not None
    assert why_later(controls("a", a=NEW, b=OLD), OLD) is None


@pytest.mark.parametrize(
    ("found", "joined"),
    [
        pytest.param(ControlsThatRun(), True, id="the only control"),
        pytest.param(controls("b", a=OLD, b=NEW), True, id="it stands by"),
        pytest.param(controls("a", a=NEW, b=NEW), True, id="it leads"),
        pytest.param(controls("b", a=OLD), False, id="it is not there yet"),
        pytest.param(controls("b", a=OLD, b=OLD), False, id="the old one is"),
        pytest.param(
            ControlsThatRun(me="b", members=(ControlMember(id="b", version=NEW),)),
            False,
            id="an election",
        ),
    ],
)
def test_an_upgrade_is_done_when_its_control_leads_or_stands_by(
    found: ControlsThatRun, joined: bool
) -> None:
    assert has_joined(found, NEW) is joined
