"""Files of a node's home, as the actor of an instance is sent them."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import instance

from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.certificates import read_facts
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.known_controls import list_known_controls
from hostelry.fleet.ray.messages import NodeOrder
from hostelry.home.home import (
    Home,
    UpConfig,
    load_config,
    load_credentials,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.services.agent import object_keys
from hostelry.services.ray_driver import build_order

CREDENTIALS = new_credentials("111122223333", "us-east-1")
ALONE = UpConfig(control_port=1, s3_port=8788, store_url="postgresql://u:pw@db/h")
CLUSTER = replace(ALONE, host="0.0.0.0", cluster_host="10.0.0.2", cluster_port=7443)


def order(folder: Path, config: UpConfig) -> NodeOrder:
    home = Home(folder / "home")
    home.make()
    save_config(home, config)
    save_credentials(home, CREDENTIALS)
    if config.cluster_host is not None:
        files = HostFiles(TlsFolder(home.tls), CREDENTIALS.cluster_id)
        files.make(PeerRole.CONTROL, config.cluster_host, SystemClock().now())
        home.known_controls.write_text('["https://control@10.0.0.3:7443"]')
    return build_order(home, config, CREDENTIALS, instance("i-1"))


def node_home(folder: Path, sent: NodeOrder) -> Home:
    home = Home(folder / "node")
    home.root.mkdir()
    for name, content in sent.files.items():
        (home.root / name).write_bytes(content)
    return home


def test_a_node_reads_what_it_reaches_and_not_the_database(tmp_path: Path) -> None:
    sent = order(tmp_path, CLUSTER)
    home = node_home(tmp_path, sent)
    read = load_config(home)
    assert read.host == "127.0.0.1"
    assert sent.links == {"gateway": "door_port", "s3": "s3_port"}, "by ports that its actor has"
    assert sent.reachable == ("10.0.0.2", 7443)
    assert read.store_url is None
    both = ("https://control@10.0.0.2:7443", "https://control@10.0.0.3:7443")
    assert list_known_controls(home, read) == both, "for its certificate"


@cases(
    "config, has_account",
    case("the embedded store takes keys that the agent issues", CLUSTER, False),
    case("a store of the operator's knows the account's own",
        replace(CLUSTER, s3_endpoint="https://s3.example"), True),
)  # fmt: skip
def test_a_node_has_the_keys_of_an_agent(
    config: UpConfig, has_account: bool, tmp_path: Path
) -> None:
    sent = order(tmp_path, config)
    everything = b"".join([*sent.files.values(), sent.internal_key.encode()])
    for secret in (CREDENTIALS.internal_key, CREDENTIALS.openai_api_key):
        assert secret.encode() not in everything
    assert (CREDENTIALS.secret_access_key.encode() in everything) is has_account
    keys = load_credentials(node_home(tmp_path, sent))
    assert sent.internal_key == keys.internal_key == CREDENTIALS.agents_key
    assert keys.cluster_id == CREDENTIALS.cluster_id, "which its certificate names"
    made = object_keys(keys, "111122223333", "i-1")
    session = TokenSeal(CREDENTIALS.internal_key).open(made.session_token)
    assert session is not None
    assert session.reads_objects_only


def test_a_certificate_is_of_the_one_instance(tmp_path: Path) -> None:
    sent = order(tmp_path, CLUSTER)
    assert set(sent.tls_files) == {"identity.pem", "ca.pem"}, "and no key of the authority"
    (uri,) = read_facts(sent.tls_files["identity.pem"]).uris
    assert uri == f"spiffe://{CREDENTIALS.cluster_id}/agent/i-1"


@cases(
    "config, host",
    case("on loopback", ALONE, "127.0.0.1"),
    case("on every address", replace(ALONE, host="0.0.0.0"), "127.0.0.1"),
    case("on one address", replace(ALONE, host="10.0.0.9"), "10.0.0.9"),
)
def test_without_other_hosts_nodes_are_on_this_machine(
    config: UpConfig, host: str, tmp_path: Path
) -> None:
    sent = order(tmp_path, config)
    assert (sent.tls_files, sent.links) == ({}, {}), "there is no node proxy"
    assert sent.reachable == (host, 8788)
    assert load_config(node_home(tmp_path, sent)).s3_url == f"http://{host}:8788"


def test_a_host_without_authority_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    save_config(home, CLUSTER)
    with pytest.raises(TerminalError, match="has no authority"):
        build_order(home, CLUSTER, CREDENTIALS, instance("i-1"))


def test_the_store_of_the_operators_is_named_as_it_is(tmp_path: Path) -> None:
    sent = order(tmp_path, replace(CLUSTER, s3_endpoint="https://s3.example"))
    assert sent.reachable == ("s3.example", 443)
    assert sent.links == {"gateway": "door_port"}
    assert msgspec.json.decode(sent.files["config.json"])["s3_endpoint"] == "https://s3.example"
