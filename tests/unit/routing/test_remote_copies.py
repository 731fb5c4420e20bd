from msgspec.structs import replace

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import EndpointDelta, RouteDelta
from hostelry.domain.routes import (
    ComponentRoute,
    ContainerRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    ShadowRoute,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.routing.remote_copies import through_proxy

PROXY, LOOPBACK = "https://control@10.0.0.2:7443", "http://127.0.0.1:90"
LOCAL = CopyRoute(
    id="c-1",
    address=LOOPBACK,
    models_address=f"{LOOPBACK}/target-models/c-1",
    further=(CopyRoute(id="c-2", address=LOOPBACK),),
)
REMOTE = CopyRoute(
    id="c-1",
    address="https://c-1@10.0.0.2:7443",
    models_address="https://agent-c-1@10.0.0.2:7443/target-models/c-1",
    further=(CopyRoute(id="c-2", address="https://c-2@10.0.0.2:7443"),),
)
ANY = RoutingStrategy.RANDOM


def endpoint(copy: CopyRoute) -> EndpointRoute:
    """An endpoint with the copy in each possible place."""
    copies = (copy,)
    containers = (ContainerRoute(hostname="h", copies=copies),)
    variant = VariantRoute(name="v", weight=1, routing=ANY, copies=copies, containers=containers)
    component = ComponentRoute(name="m", variant_name="v", routing=ANY, copies=copies)
    return EndpointRoute(
        scope=Scope("1", "r"),
        name="e",
        takes_components=True,
        variants=(variant,),
        components=(component,),
        shadow=ShadowRoute(name="s", share=1.0, routing=ANY, copies=copies),
    )


def test_copies_on_loopback_are_reached_through_their_hosts_proxy() -> None:
    snapshot = RouteSnapshot(version="1", endpoints=(endpoint(LOCAL),))
    assert through_proxy(snapshot, PROXY) == replace(snapshot, endpoints=(endpoint(REMOTE),))


def test_copies_elsewhere_are_reached_where_they_are() -> None:
    snapshot = RouteSnapshot(version="1", endpoints=(endpoint(REMOTE),))
    assert through_proxy(snapshot, "https://control@10.0.0.9:1") == snapshot


def test_changes_of_routes_are_as_the_routes() -> None:
    def delta(copy: CopyRoute) -> RouteDelta:
        whole = endpoint(copy)
        change = EndpointDelta(head=replace(whole, components=()), components=whole.components)
        return RouteDelta(since="1", version="2", changed=(change,))

    assert through_proxy(delta(LOCAL), PROXY) == delta(REMOTE)
