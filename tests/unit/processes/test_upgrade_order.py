from tests.cases import case, cases

from hostelry.processes.upgrade_order import ControlMember, ControlsThatRun, has_joined, why_later

OLD, NEW = "0.1.0", "0.2.0"


def controls(me: str, **members: str) -> ControlsThatRun:
    """Members by id, with one version each. The first one leads."""
    found = tuple(
        ControlMember(id=name, address=f"http://{name}", version=version, leads=number == 0)
        for number, (name, version) in enumerate(members.items())
    )
    return ControlsThatRun(me=me, members=found)


@cases(
    "found, first",
    case("the only control, as of SQLite", ControlsThatRun(), None),
    case("a leader without standbys", controls("a", a=OLD), None),
    case("a standby, at any time", controls("b", a=OLD, b=OLD), None),
    case("a leader whose standby is of it", controls("a", a=OLD, b=NEW), None),
    case("again, for what was left", controls("a", a=NEW, b=NEW), None),
    case("a leader too soon", controls("a", a=OLD, b=OLD), "b at http://b (0.1.0)"),
    case("one of two standbys", controls("a", a=OLD, b=NEW, c=OLD), "c at http://c (0.1.0)"),
    case("one that is mute", controls("a", a=OLD, b=""), "b at http://b (unknown)"),
)
def test_standbys_come_first(found: ControlsThatRun, first: str | None) -> None:
    why = why_later(found, NEW)
    assert (why is None) == (first is None)
    assert first is None or first in str(why)


def test_the_version_before_comes_back_in_the_same_order() -> None:
    assert why_later(controls("a", a=NEW, b=NEW), OLD) is not None
    assert why_later(controls("a", a=NEW, b=OLD), OLD) is None


@cases(
    "found, joined",
    case("the only control", ControlsThatRun(), True),
    case("it stands by", controls("b", a=OLD, b=NEW), True),
    case("it leads", controls("a", a=NEW, b=NEW), True),
    case("it is not there yet", controls("b", a=OLD), False),
    case("the old one is", controls("b", a=OLD, b=OLD), False),
    case(
        "an election", ControlsThatRun(me="b", members=(ControlMember(id="b", version=NEW),)), False
    ),
)
def test_an_upgrade_is_done_when_its_control_leads_or_stands_by(
    found: ControlsThatRun, joined: bool
) -> None:
    assert has_joined(found, NEW) is joined
