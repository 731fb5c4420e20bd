"""What a start of `up` is decided to be: keys, ports and configuration, beside what still runs."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.server.copy_user_option import decided_copy_user, open_home
from hostelry.server.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    save_config,
    save_credentials,
)
from hostelry.server.leftovers import end_services, find_services
from hostelry.server.port_choice import Ports, chosen_ports, wishes
from hostelry.server.ports import is_free
from hostelry.server.pulse import line_path, take_door
from hostelry.server.run_file import RunFile, kind_of, service_path
from hostelry.server.up_options import (
    UpOptions,
    decide_config,
    decide_credentials,
    listening_host,
)

DOOR_GIVEN_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a start is decided to be, and the processes of an earlier one that still live."""

    home: Home
    config: UpConfig
    credentials: Credentials
    ports: Ports
    found: Mapping[str, RunFile]


@contextmanager
def settled(
    home: Home, options: UpOptions, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[Start]:
    """Decide keys, ports and the user of copies, and write all for the other processes to read.

    The ports are this start's own for the block.
    """
    stored = stored_credentials(home)
    credentials = decide_credentials(options, stored, environment)
    user, note = decided_copy_user(options.copy_user, home)
    if note is not None:
        say(note)
    found = find_services(home)
    inherited = inherited_door(home, found)
    if inherited is None:
        # Workers that do not give the socket away would keep its port from their successors.
        end_services(home, ["gateway"], at_once=True)
        found = {name: it for name, it in found.items() if kind_of(name) != "gateway"}
    control, store = found.get("control"), found.get("objectstore")
    before = earlier_config(home)
    door, s3 = wishes(options.port, options.s3_port, before)
    with chosen_ports(
        listening_host(options),
        door,
        s3 if options.embedded_store else None,
        inherited=inherited,
        own_s3=before.s3_port if before and store else None,
    ) as ports:
        control_port = decide_control_port(before, control)
        num_cpus = len(os.sched_getaffinity(0))
        config = decide_config(options, ports, control_port, num_cpus, user)
        if credentials != stored:
            save_credentials(home, credentials)
        if config != before:
            save_config(home, config)
        if user is not None:
            open_home(home)
        yield Start(
            home=home,
            config=config,
            credentials=credentials,
            ports=ports,
            found=found,
        )


def inherited_door(home: Home, found: Mapping[str, RunFile]) -> socket.socket | None:
    """The listening socket of the door, from any gateway worker that lives and answers."""
    for name in found:
        if kind_of(name) == "gateway":
            door = take_door(line_path(service_path(home, name)), DOOR_GIVEN_WITHIN_S)
            if door is not None:
                return door
    return None


def decide_control_port(before: UpConfig | None, living: RunFile | None) -> int:
    """Where control listens: where it did, as workers that live on know, or anywhere else."""
    if living is not None and living.port:
        return living.port
    if before is not None and is_free("127.0.0.1", before.control_port):
        return before.control_port
    return free_port()


def earlier_config(home: Home) -> UpConfig | None:
    """What the last `up` was started with, if that can be read."""
    try:
        return load_config(home)
    except (OSError, msgspec.DecodeError):
        return None


def stored_credentials(home: Home) -> Credentials | None:
    """The keys of earlier starts; raises TerminalError where they cannot be read."""
    try:
        return load_credentials(home)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise TerminalError(
            f"{home.credentials} is damaged ({error}): restore it, or remove it to get new keys"
        ) from None
