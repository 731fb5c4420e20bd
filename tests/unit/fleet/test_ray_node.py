"""The home of an instance on a Ray node, and messages on their way there."""

import stat
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.integration.agent_rig import instance

from hostelry.base.errors import CapacityError, InstanceLostError, RetryableError, TerminalError
from hostelry.fleet.ray.instance_actor import operator_environment
from hostelry.fleet.ray.messages import Failure, NodeOrder
from hostelry.fleet.ray.node_home import find_left_over, make_home, write_files


def order(folder: Path, instance_id: str = "i-1") -> NodeOrder:
    return NodeOrder(
        instance=instance(instance_id),
        cluster_id="hostelry-1",
        agent_module="m",
        internal_key="k",
        files={"config.json": b"plain"},
        root_files={},
        node_dir=str(folder / "nodes"),
        reachable=("127.0.0.1", 1),
    )


def test_agents_get_nothing_of_rays() -> None:
    worker = {
        "RAY_AUTH_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "3",
        "NO_PROXY": "corp",
    }
    given = operator_environment(worker)
    assert set(given) == {"CUDA_VISIBLE_DEVICES", "NO_PROXY", "no_proxy", "PYTHONUNBUFFERED"}
    assert given["NO_PROXY"] == "corp,127.0.0.1,localhost"


def test_a_home_is_private_and_of_one_actor(tmp_path: Path) -> None:
    first, second = make_home(order(tmp_path), "n" * 56), make_home(order(tmp_path), "n" * 56)
    assert first.root != second.root, "a killed actor's copies may still be ending in the first"
    write_files(first, replace(order(tmp_path), tls_files={"identity.pem": b"key"}), {})
    assert stat.S_IMODE(first.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((first.root / "config.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(first.tls.stat().st_mode) == 0o700
    assert stat.S_IMODE((first.tls / "identity.pem").stat().st_mode) == 0o600
    assert list(find_left_over(order(tmp_path))) == [], "their actor, this process, lives"


def test_a_home_names_the_ports_of_its_own_links(tmp_path: Path) -> None:
    home = make_home(order(tmp_path), "n" * 56)
    sent = replace(
        order(tmp_path),
        files={"config.json": b'{"door_port": 1, "s3_port": 2, "host": "127.0.0.1"}'},
        links={"gateway": "door_port", "s3": "s3_port"},
    )
    write_files(home, sent, {"gateway": 11, "s3": 12})
    written = msgspec.json.decode((home.root / "config.json").read_bytes())
    assert written == {"door_port": 11, "s3_port": 12, "host": "127.0.0.1"}


def test_the_home_of_a_dead_actor_is_left_over(tmp_path: Path) -> None:
    home = make_home(order(tmp_path), "n" * 56)
    actor = msgspec.json.decode(home.actor.read_bytes())
    home.actor.write_bytes(msgspec.json.encode(actor | {"start_ticks": 1}))
    assert list(find_left_over(order(tmp_path))) == [home]
    home.actor.write_bytes(msgspec.json.encode(actor | {"start_ticks": 1, "boot_id": "other"}))
    assert list(find_left_over(order(tmp_path))) == [], "another machine's, on a shared disk"


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes").chmod(0o777)
    with pytest.raises(TerminalError, match="no other user can write"):
        make_home(order(tmp_path), "n")


@cases(
    "error",
    case("a lost instance", InstanceLostError("x")),
    case("no room", CapacityError("x")),
    case("what no retry helps", TerminalError("x")),
    case("what may pass", RetryableError("x")),
)
def test_errors_keep_their_class_on_the_way(error: CapacityError) -> None:
    assert type(Failure.of(error).error()) is type(error)


def test_an_order_survives_its_way(tmp_path: Path) -> None:
    sent = order(tmp_path)
    got = msgspec.json.decode(msgspec.json.encode(sent), type=NodeOrder)
    assert got.instance == sent.instance
    assert got.files == sent.files
