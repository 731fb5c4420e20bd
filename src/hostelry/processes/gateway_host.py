"""The start of a host with gateways alone, in a platform whose control is on other hosts.

Its home was created when it joined the platform, and its `config.json` names the controls. It runs
the gateway's workers, the mirror process, the control link, which stands in for control, and the
peers process.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerRole
from hostelry.cluster.start import add_host_address, prepare_certificates
from hostelry.home.home import Home, UpConfig, save_config
from hostelry.home.https_option import add_https
from hostelry.home.port_choice import choose_ports, port_requests
from hostelry.home.run_file import get_service_kind
from hostelry.home.settings import resolve_localhost
from hostelry.home.up_options import UpOptions, choose_workers, configured_settings
from hostelry.processes.leftovers import end_services, find_services
from hostelry.processes.start import (
    StartPlan,
    decide_port,
    inherit_listener,
    load_earlier_config,
    load_earlier_credentials,
)


@contextmanager
def gateway_host_plan(
    home: Home, options: UpOptions, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[StartPlan]:
    """Decide ports and configuration of a joined home, and store them for its processes.

    The gateway's port is reserved for the block. Raises TerminalError if the home has not joined a
    platform.
    """
    before, credentials = load_earlier_config(home), load_earlier_credentials(home)
    if before is None or credentials is None or not before.is_gateway_host:
        raise TerminalError(
            f"{home.root} has joined no platform: name one with --join URL and a token of "
            "`hostelry join-token` there"
        )
    found = find_services(home)
    inherited = inherit_listener(home, found)
    if inherited is None:
        end_services(home, ["gateway"], at_once=True)
        found = {name: it for name, it in found.items() if get_service_kind(name) != "gateway"}
    gateway, _ = port_requests(options.port, None, before)
    with choose_ports(resolve_localhost(options.host), gateway, None, inherited=inherited) as ports:
        config = replace(
            host_config(before, options, len(os.sched_getaffinity(0))),
            gateway_port=ports.gateway_port,
            chosen_gateway_port=ports.chosen_gateway,
            control_port=decide_port(before.control_port, found.get("link")),
            jobs_port=before.jobs_port if "link" in found else decide_port(before.jobs_port, None),
            peer_port=decide_port(before.peer_port, found.get("peers")),
        )
        config = add_host_address(config, options, config.peer_port)
        config = add_https(home, config, options)
        prepare_certificates(home, config, credentials, PeerRole.GATEWAY, SystemClock().now())
        if config != before:
            save_config(home, config)
        yield StartPlan(home=home, config=config, credentials=credentials, ports=ports, found=found)


def host_config(joined: UpConfig, options: UpOptions, num_cpus: int) -> UpConfig:
    """The configuration of the joined platform with the options of this host."""
    return replace(
        joined,
        **configured_settings(options, "gateway"),
        host_id=joined.host_id or secrets.token_hex(8),
        console_port=0,
        insecure_no_auth=False,
        gateway_workers=choose_workers(options, num_cpus),
    )
