"""A host with only gateways: settings from the platform that it joined, and its needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.cluster.known_controls import list_known_controls
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.routes import RouteSnapshot
from hostelry.home.home import (
    Home,
    UpConfig,
    load_config,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.home.platform_processes import list_platform_names
from hostelry.home.up_options import UpOptions
from hostelry.processes.gateway_host import gateway_host_plan, host_config
from hostelry.processes.services import list_services
from hostelry.processes.start import StartPlan
from hostelry.services.control_link import jobs_beside
from hostelry.services.gateway import why_unhealthy

JOINED = UpConfig(
    control_port=4242,
    console_port=4243,
    max_body_bytes=7_000_000,
    insecure_no_auth=True,
    controls=("https://control@10.0.0.2:7443",),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


@contextmanager
def planned(home: Home) -> Iterator[StartPlan]:
    options = UpOptions(home=home.root, gateway_only=True, port=free_port(), drain_s=3.0)
    with gateway_host_plan(home, options, {}, print) as plan:
        yield plan


def test_its_configuration_is_the_platforms_with_its_own_options(tmp_path: Path) -> None:
    options = UpOptions(home=tmp_path, host="127.0.0.9", gateway_workers=3, drain_s=9.0)
    config = host_config(JOINED, options, num_cpus=64)
    assert (config.host, config.gateway_workers, config.drain_s) == ("127.0.0.9", 3, 9.0)
    assert (config.max_body_bytes, config.controls) == (7_000_000, JOINED.controls)
    assert (config.console_port, config.insecure_no_auth) == (0, False)
    assert len(config.host_id) == 16
    assert host_config(config, options, num_cpus=64).host_id == config.host_id, "it is kept"


def test_a_home_that_has_joined_no_platform_is_refused(home: Home) -> None:
    for config in (None, UpConfig(control_port=4242)):  # no configuration, and a platform's home
        if config is not None:
            save_config(home, config)
            save_credentials(home, new_credentials("1" * 12, "us-east-1"))
        with pytest.raises(TerminalError, match="has joined no platform"), planned(home):
            pass


def test_the_processes_of_such_a_host(home: Home) -> None:
    save_config(home, JOINED)
    save_credentials(home, new_credentials("1" * 12, "us-east-1"))
    with planned(home) as plan:
        config = plan.config
        assert load_config(home) == config
        assert len({config.gateway_port, config.control_port, config.jobs_port}) == 3
        assert config.peer_port
        names = [it.name for it in list_services(plan, {})]
        assert sorted(names) == ["link", "mirror", "peers"]
        shown = set(list_platform_names(home, config))
        assert {"up", "gateway-1", *names} <= shown
        assert not shown & {"control", "jobs", "objectstore", "console"}
    with planned(home) as again:
        assert again.config.host_id == config.host_id
        assert again.config.peer_port == config.peer_port


@cases(
    "kept, known",
    case("at the first start those that it joined by", None, JOINED.controls),
    case("the last", b'["https://control@b:1"]', ("https://control@b:1", *JOINED.controls)),
    case("not what is none", b'["https://a@b:1", "http://b:1"]', JOINED.controls),
    case("a damaged file", b"{half", JOINED.controls),
)
def test_the_controls_that_a_link_asks(
    kept: bytes | None, known: tuple[str, ...], home: Home
) -> None:
    if kept is not None:
        home.known_controls.write_bytes(kept)
    assert list_known_controls(home, JOINED) == known


def test_the_process_for_jobs_is_on_the_leaders_host() -> None:
    assert jobs_beside("https://control@10.0.0.2:7443") == "https://jobs@10.0.0.2:7443"


@cases(
    "version, is_draining, reason",
    case("it has routes", "v1", False, None),
    case("control has not published any", "", False, "no routes yet"),
    case("it is to stop", "v1", True, "draining"),
)
def test_when_a_load_balancer_should_send_requests(
    version: str, is_draining: bool, reason: str | None
) -> None:
    routes = FixedRoutes(RouteSnapshot(version=version, endpoints=()))
    found = why_unhealthy(routes, is_draining)
    assert found is None if reason is None else found is not None and found.startswith(reason)
