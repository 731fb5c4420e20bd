"""A host with only a control: settings from the platform that it joined, and its needs."""

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.cluster_rig import NOW

from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.start import service_addresses
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.home.platform_processes import list_platform_names
from hostelry.home.up_options import UpOptions
from hostelry.processes.control_host import control_plan
from hostelry.processes.fleets import stop_fleet
from hostelry.processes.services import control_services, proxy_service
from hostelry.store.leaders import ControlProcess, Leadership
from hostelry.store.sqlite import SqliteFile

CREDENTIALS = new_credentials("1" * 12, "us-east-1")
JOINED = UpConfig(
    control_port=4242,
    jobs_port=4243,
    gateway_workers=0,
    store_url="postgresql://u@db/h",
    host_id="a1b2",
    host_name="second",
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that has joined on the first host's machine."""
    made = Home(tmp_path / "home")
    made.make()
    made.instances.rmdir()
    made.instances.symlink_to(tmp_path)
    made.root_key.write_text("00" * 32)
    save_config(made, JOINED)
    save_credentials(made, CREDENTIALS)
    HostFiles(TlsFolder(made.tls), "one").make(PeerRole.CONTROL, "second", NOW)
    return made


def options(home: Home, **more: Any) -> UpOptions:
    return UpOptions(home=home.root, **{"cluster_host": "127.0.0.9", **more})


def test_control_jobs_and_the_node_proxy_run_there(home: Home) -> None:
    plan = control_plan(home, options(home))
    config = plan.config
    assert config.control_address == "https://control@127.0.0.9:7443"
    assert (config.host_id, config.host_name) == ("a1b2", "second")
    names = [it.name for it in [*control_services(plan, {}), proxy_service(plan, {})]]
    assert list_platform_names(home, config) == ["up", *names] == ["up", "control", "jobs", "proxy"]
    ports = {name: port for name, (_, port) in service_addresses(config).items() if port}
    assert ports == {"control": config.control_port, "jobs": config.jobs_port}
    again = control_plan(home, options(home, cluster_host=None))
    assert again.config == config, "a later start needs none of the options"


@cases(
    "config, text",
    case("records in a file", {"store_url": None}, "--store postgresql://"),
    case("of gateways", {"controls": ("https://c@h:1",)}, "as a host of control"),
    case("a file of the first", {"fleet": "ray", "ray_runtime_env": "/gone.yaml"}, "/gone.yaml"),
)
def test_configurations_that_are_refused(home: Home, config: dict[str, Any], text: str) -> None:
    save_config(home, replace(JOINED, **config))
    with pytest.raises(TerminalError, match=text):
        control_plan(home, options(home))


@cases(
    "missing, text",
    case("the configuration", "config.json", "has joined no platform"),
    case("the keys", "credentials.json", "has joined no platform"),
    case("the key of keys", "kms.key", "kms.key is missing"),
    case("the authority", "tls/authority.json", "join again, by --join URL"),
)
def test_files_that_must_be_there(home: Home, missing: str, text: str) -> None:
    (home.root / missing).unlink()
    with pytest.raises(TerminalError, match=text):
        control_plan(home, options(home))


def test_instances_of_another_machine_are_refused(home: Home) -> None:
    home.instances.unlink()
    home.make()
    with pytest.raises(TerminalError, match="processes of the first host"):
        control_plan(home, options(home))


def test_a_joined_control_has_an_address(home: Home) -> None:
    with pytest.raises(TerminalError, match="--cluster-host ADDRESS"):
        control_plan(home, options(home, cluster_host=None))


@pytest.mark.parametrize("host", [JOINED, replace(JOINED, controls=("https://control@h:1",))])
def test_its_end_ends_no_instance(
    home: Home, host: UpConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Path] = []
    monkeypatch.setattr("hostelry.fleet.local.fleet.stop_everything", ended.append)
    save_config(home, host)
    assert stop_fleet(home) is None
    assert ended == []
    save_config(home, UpConfig(control_port=1))
    stop_fleet(home)
    assert ended == [home.instances], "the first host's does"


class Health(BaseHTTPRequestHandler):
    """A control of another host that answers."""

    def do_GET(self) -> None:
        status = 200 if self.headers["X-Hostelry-Key"] == CREDENTIALS.internal_key else 403
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_end_of_the_first_host_leaves_instances_to_a_control_that_answers(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Path] = []
    server = HTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever).start()
    config = replace(JOINED, gateway_workers=1)
    own, other = config.control_url, f"http://127.0.0.1:{server.server_address[1]}"
    known = [ControlProcess(id=it, address=it, version="1", started_at=0.0) for it in (own, other)]
    monkeypatch.setattr(
        "hostelry.store.leaders.read_leadership", lambda _: Leadership(controls=tuple(known))
    )
    monkeypatch.setattr(
        "hostelry.home.platform_store.platform_database", lambda *_: SqliteFile(home.state)
    )
    monkeypatch.setattr("hostelry.fleet.local.fleet.stop_everything", ended.append)
    save_config(home, config)
    try:
        assert stop_fleet(home) is None
        assert ended == []
    finally:
        server.shutdown()
        server.server_close()
    stop_fleet(home)
    assert ended == [home.instances], "the other one is gone, though the database has it still"
