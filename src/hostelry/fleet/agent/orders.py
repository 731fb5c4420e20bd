"""Launch orders of copies by their image's rule: a program with its variables, or a container."""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.base.operator_secrets import SecretPurpose
from hostelry.base.ports import free_port, free_range
from hostelry.containers.triton.program import find_own_server
from hostelry.domain.copy import CopySpec
from hostelry.domain.isolation import VARIABLE as ISOLATION
from hostelry.domain.model import ArtifactSource, Container
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.artifacts.sources import HUB_MODEL, find_hub_source, hub_variables
from hostelry.fleet.launch.container_order import (
    build_container_environment,
    build_container_order,
    find_refused_names,
)
from hostelry.fleet.launch.environment import CopyPlace, build_program_environment
from hostelry.fleet.launch.launcher import LaunchOrder
from hostelry.fleet.records import CopyFolder
from hostelry.fleet.rules.copy_user import is_offline
from hostelry.fleet.rules.devices import CAPACITY, EACH_MODEL, parse_accelerator_memory
from hostelry.fleet.rules.frameworks import why_no_runtime, why_not_trusted
from hostelry.fleet.rules.given_variables import find_left_out
from hostelry.fleet.rules.images import (
    PROBE_BODY,
    PROBE_CONTENT_TYPE,
    ImageRule,
    ImageRules,
    apply_own_probe,
    build_multi_model_rule,
    describe_unknown_image,
)
from hostelry.fleet.rules.limits import DISK_VARIABLE, num_sharing, reserved_cpus

KEY_BYTES = 32
NUM_SAFE_PORTS = 16


def resolve_rule(
    container: Container, images_file: Path, operator: Mapping[str, str], *, no_own_user: str | None
) -> ImageRule:
    """The rule of the container's image in the operator's current file. Raises TerminalError."""
    rule = ImageRules.load(images_file).resolve(container.image)
    if rule is None:
        raise TerminalError(describe_unknown_image(container.image, images_file))
    refusal = None
    if rule.runs_code:
        refusal = why_not_trusted(operator, no_own_user=no_own_user)
    if refusal is None and rule.kind == "predictive" and rule.runtime is not None:
        refusal = why_no_runtime(rule.runtime)
    if refusal is not None:
        raise TerminalError(refusal)
    if rule.kind == "triton" and find_own_server(operator) is not None:
        rule = replace(rule, runtime=None)  # the operator has installed it
    if container.is_multi_model:
        parse_accelerator_memory(container.environment)  # raises if it is not a number
        return build_multi_model_rule(rule, container.image)
    return apply_own_probe(rule, container.environment)


def find_hub_downloads(
    rule: ImageRule, container: Container, operator: Mapping[str, str]
) -> Mapping[str, ArtifactSource]:
    """The hub's model that the agent downloads, by the variables that name it to the server.

    A server with the operator's token downloads the model itself. An offline server reads it from
    the operator's cache. An LLM keeps the id, which clients name, and gets HUB_MODEL.
    """
    source = find_hub_source(container)
    is_own = SecretPurpose.HUB in rule.get_secrets(operator) or is_offline(operator)
    if source is None or is_own or not rule.loads_hub_models:
        return {}
    names = (HUB_MODEL,) if rule.kind == "lmi" else hub_variables(container)
    return dict.fromkeys(names, source)


def build_place(
    spec: CopySpec, folder: CopyFolder, deps: CopyDeps, desired: Iterable[CopySpec]
) -> CopyPlace:
    """The place of a copy that is started now, with a new port and a new key.

    `desired` are all copies of the instance. As on AWS, servers of many models, and servers that
    share a copy with other containers, get further ports.
    """
    specs, container = tuple(desired), spec.container
    has_more_ports = container.is_multi_model or container.hostname is not None
    return CopyPlace(
        folder=folder.root,
        model_folder=folder.model,
        port=free_port(),
        safe_ports=free_range(NUM_SAFE_PORTS) if has_more_ports else range(0),
        region=deps.region,
        shape=deps.shape,
        machine_cpus=deps.machine_cpus,
        reserved_cpus=reserved_cpus(specs),
        num_sharing=num_sharing(specs),
        devices=deps.devices,
        held_devices=tuple(deps.held_devices()),
        key=secrets.token_hex(KEY_BYTES),
    )


def build_launch_order(
    spec: CopySpec,
    rule: ImageRule,
    place: CopyPlace,
    substitutes: Mapping[str, str],
    operator: Mapping[str, str],
) -> LaunchOrder:
    """Build the order of one copy at `place`. `operator` are the operator's own variables."""
    folder = CopyFolder(place.folder)
    if not rule.is_container:
        return LaunchOrder(
            argv=rule.argv,
            environment=build_program_environment(operator, spec, rule, place, substitutes),
            folder=folder.root,
            log=folder.log,
            limits=place.compute_limits(spec),
            key=place.key,
        )
    order = build_container_order(spec, rule, place, substitutes)
    return LaunchOrder(
        argv=rule.argv,
        environment=build_container_environment(spec, order, place, substitutes),
        folder=folder.root,
        log=folder.log,
        container=order,
        key=order.key,
    )


def find_left_out_names(spec: CopySpec, rule: ImageRule) -> tuple[str, ...]:
    """The names in the container's Environment that its server does not get."""
    if rule.is_container:
        return tuple(find_refused_names(spec))
    # The agent reads these variables for the copy.
    read = {PROBE_BODY, PROBE_CONTENT_TYPE, DISK_VARIABLE, CAPACITY, EACH_MODEL, ISOLATION}
    names = find_left_out(spec.container.environment, rule.environment)
    return tuple(name for name in names if name not in read)


def describe_order(order: LaunchOrder) -> str:
    """A description of the order, for the log."""
    if order.container is None:
        return " ".join(order.argv)
    return f"a container of {order.container.image} (network {order.container.network})"
