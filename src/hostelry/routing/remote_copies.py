"""Changes routes for other hosts, which reach a copy through the node proxy of its host. Pure.

address of a copy                      becomes
------------------------------------   -------------------------------------
``http://`` address on its host        the address of the node proxy, with the copy's id
any other                              unchanged
"""

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from hostelry.base.address import on_host
from hostelry.domain.route_delta import EndpointDelta, RouteDelta
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    VariantRoute,
)

Published = TypeVar("Published", RouteSnapshot, RouteDelta)
OF_ITS_AGENT = "agent-"  # before a copy's id, it names the agent that runs the copy


def through_proxy(published: Published, proxy: str) -> Published:
    """Change the addresses in routes, or in changes of routes, to go through the node proxy.

    `proxy` is the address of the node proxy on the host of the copies.
    """
    if isinstance(published, RouteDelta):
        changed = tuple(_change(it, proxy) for it in published.changed)
        return replace(published, changed=changed)
    return replace(published, endpoints=tuple(_endpoint(it, proxy) for it in published.endpoints))


def _change(change: EndpointDelta, proxy: str) -> EndpointDelta:
    components = tuple(_component(it, proxy) for it in change.components)
    return replace(change, head=_endpoint(change.head, proxy), components=components)


def _endpoint(route: EndpointRoute, proxy: str) -> EndpointRoute:
    shadow = route.shadow
    return replace(
        route,
        variants=tuple(_variant(it, proxy) for it in route.variants),
        components=tuple(_component(it, proxy) for it in route.components),
        shadow=None if shadow is None else replace(shadow, copies=_copies(shadow.copies, proxy)),
    )


def _variant(route: VariantRoute, proxy: str) -> VariantRoute:
    containers = tuple(replace(it, copies=_copies(it.copies, proxy)) for it in route.containers)
    return replace(route, copies=_copies(route.copies, proxy), containers=containers)


def _component(route: ComponentRoute, proxy: str) -> ComponentRoute:
    return replace(route, copies=_copies(route.copies, proxy))


def _copies(copies: Iterable[CopyRoute], proxy: str) -> tuple[CopyRoute, ...]:
    return tuple(_copy(it, proxy) for it in copies)


def _copy(copy: CopyRoute, proxy: str) -> CopyRoute:
    if not copy.address.startswith("http://"):
        return copy
    models = copy.models_address
    if models is not None:
        path = models.partition("://")[2].partition("/")[2]
        models = f"{on_host(proxy, OF_ITS_AGENT + copy.id)}/{path}"
    return dataclasses.replace(
        copy,
        address=on_host(proxy, copy.id),
        models_address=models,
        further=_copies(copy.further, proxy),
    )
