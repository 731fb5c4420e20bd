from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.proc import ProcessIdentity
from hostelry.cluster.targets import ProxyTargets, may_reach
from hostelry.fleet.records import AgentRecord, CopyRecord, InstanceFolder

NAMES = (
    *("control", "jobs", "gateway-peer", "i-1", "c-1", "agent-c-1"),
    *("certificates", "s3", "gateway", "join"),
)


@cases(
    "role, reached",
    case("control reaches all", PeerRole.CONTROL, set(NAMES)),
    case("a gateway control, gateways, agents and copies", PeerRole.GATEWAY, set(NAMES[:7])),
    case("an agent objects, the gateway, certificates", PeerRole.AGENT, set(NAMES[6:9])),
    case("who has no certificate joins", None, {"join"}),
)
def test_names_are_reached_by_role(role: PeerRole | None, reached: set[str]) -> None:
    peer = None if role is None else PeerName("one", role, "i-1")
    assert {it for it in NAMES if may_reach(peer, it)} == reached
    assert role is PeerRole.CONTROL or not may_reach(peer, "")


PROCESS = ProcessIdentity(pid=1, start_ticks=1, boot_id="b")


def test_ports_are_those_of_the_records_as_they_change(tmp_path: Path) -> None:
    services = {"control": ("127.0.0.1", 70), "s3": ("10.0.0.2", 71), "jobs": ("127.0.0.1", 0)}
    targets = ProxyTargets(services, tmp_path / "instances")
    asked = ("control", "s3", "jobs", "c-1", "i-1")
    assert [targets.find_address(it) for it in asked] == [
        ("127.0.0.1", 70),
        ("10.0.0.2", 71),
        None,
        None,
        None,
    ]

    def ports(*names: str) -> list[int | None]:
        found = (targets.find_address(it) for it in names)
        return [None if it is None else it[1] for it in found]

    folder = InstanceFolder(tmp_path / "instances" / "i-1")
    copy = folder.copy("c-1")
    copy.root.mkdir(parents=True)
    copy.save(CopyRecord(spec_digest="", port=81))
    assert ports("c-1", "i-1", "agent-c-1") == [81, None, None]
    folder.agent.write_bytes(msgspec.json.encode(AgentRecord.of(PROCESS, 90)))
    copy.save(CopyRecord(spec_digest="", port=82))  # it was started again
    assert ports("c-1", "i-1", "agent-c-1") == [82, 90, 90]
    copy.remove()
    assert ports("c-1", "agent-c-1") == [None, None]
    other = InstanceFolder(tmp_path / "instances" / "i-2").copy("c-1")
    other.root.mkdir(parents=True)
    other.save(CopyRecord(spec_digest="", port=83))
    assert targets.find_address("c-1") == ("127.0.0.1", 83)


@pytest.mark.parametrize("name", ["", "c-", "c-..", "i-../../etc", "c-a/b", "agent-c-..", "c-\x00"])
def test_names_that_are_no_ids_have_no_port(tmp_path: Path, name: str) -> None:
    (tmp_path / "i-1" / "copies").mkdir(parents=True)
    assert ProxyTargets({}, tmp_path).find_address(name) is None
