"""Access to control for this host's other processes, if there may be several controls.

Its imports are made only then: a platform of one machine needs none of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hostelry.base.clock import Clock
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.principals.source import PublishedPrincipals

if TYPE_CHECKING:
    import httpx

    from hostelry.http1.upstream import Upstream

IDLE_S = 30.0  # an idle connection of an httpx client's is kept so long


def control_access(
    home: Home, config: UpConfig, credentials: Credentials, pool: "Upstream"
) -> "Callable[[Upstream], Upstream]":
    """How a process sends requests to control. `pool` asks who leads."""
    if is_alone(config):
        return lambda given: given
    from hostelry.cluster.own_control import ControlUpstream, build_own_control

    control = build_own_control(home, config, credentials, pool)
    return lambda given: ControlUpstream(given, control)


def published_principals(
    home: Home,
    config: UpConfig,
    credentials: Credentials,
    to_control: "Upstream",
    clock: Clock,
) -> PublishedPrincipals:
    """The principals that control publishes, and this host keeps in a file."""
    return PublishedPrincipals(
        to_control,
        config.control_url,
        credentials.internal_key,
        credentials.account_id,
        home.principals,
        clock,
    )


def control_mounts(
    home: Home, config: UpConfig, credentials: Credentials
) -> "dict[str, httpx.AsyncBaseTransport]":
    """The `mounts` of a process's httpx clients that ask control."""
    if is_alone(config):
        return {}
    from hostelry.base import tls
    from hostelry.cluster.control_transport import ControlTransport
    from hostelry.http1.upstream import UpstreamPool

    tls.use(home.tls)
    pool = UpstreamPool(IDLE_S)
    upstream = control_access(home, config, credentials, pool)(pool)
    return {config.control_url: ControlTransport(upstream, config.control_url)}


def is_alone(config: UpConfig) -> bool:
    """Whether control has no others, or another process of the host finds the leader."""
    return config.store_url is None or config.is_gateway_host
