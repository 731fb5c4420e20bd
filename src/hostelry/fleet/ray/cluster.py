"""The Ray cluster as this project sees it: connected to, its nodes, the states of its actors.

The only code that calls Ray's functions for them; Ray is imported here, and only once it is used.
"""

import importlib
from typing import Any

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.fleet.ray.demand import RayNode

MISSING = "`--fleet ray` needs Ray: pip install 'hostelry[ray]'"
ALIVE = "ALIVE"
DEAD = "DEAD"


def connected(address: str | None, namespace: str) -> Any:
    """The module `ray`, connected; `address` None: the cluster of this machine.

    Raises TerminalError without Ray, or with another version than the cluster's, RetryableError
    when the cluster cannot be reached.
    """
    if address is not None and "://" in address:
        raise TerminalError(
            f"--ray-address {address}: expected HOST:PORT of the cluster's head. Control's machine "
            "must be a node of the cluster; it may offer nothing (ray start --num-cpus=0)"
        )
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise TerminalError(f"{MISSING} ({error})") from None
    try:
        ray.init(
            address=address or "auto",
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
        )
    # Ray names what is wrong only in its texts: another version, a token, no cluster, no node here.
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        text = f"no connection to the Ray cluster at {address or 'this machine'}: {error}"
        if "ersion mismatch" in str(error):
            raise TerminalError(text) from None
        raise RetryableError(text) from None
    return ray


def nodes_of(ray: Any) -> list[RayNode]:
    """The living nodes, by address."""
    free = ray._private.state.available_resources_per_node()
    nodes = [
        RayNode(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            total=node["Resources"],
            free=free.get(node["NodeID"], {}),
            labels=node.get("Labels", {}),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda it: (it.address, it.id))


def state_of(ray: Any, actor: Any) -> str:
    """Ray's own state of the actor, `ALIVE` once it was placed and runs."""
    return str(ray._private.state.actors(actor._actor_id.hex()).get("State", DEAD))
