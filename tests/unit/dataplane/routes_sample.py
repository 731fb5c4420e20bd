"""Routes in which several tests look up names."""

from msgspec.structs import replace

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import (
    ChangedParts,
    EndpointDelta,
    EndpointParts,
    build_head,
    changed_parts,
    difference,
    is_empty,
)
from hostelry.domain.routes import (
    ComponentRoute,
    ContainerRoute,
    CopyRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope

HERE = Scope("111122223333", "us-west-2")
ELSEWHERE = Scope("111122223333", "eu-west-1")
OTHER_ACCOUNT = Scope("999999999999", "us-west-2")
COPIES = (
    CopyRoute(id="c-1", address="http://127.0.0.1:1"),
    CopyRoute(id="c-2", address="http://127.0.0.1:2"),
)


def component(
    name: str,
    copies: tuple[CopyRoute, ...] = COPIES,
    adapter_id: str | None = None,
    desired_copies: int = 0,
) -> ComponentRoute:
    return ComponentRoute(
        name=name,
        variant_name="AllTraffic",
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
        adapter_id=adapter_id,
        desired_copies=desired_copies,
        serves_llm=True,
    )


def variant(name: str, weight: float, copies: tuple[CopyRoute, ...] = COPIES) -> VariantRoute:
    return VariantRoute(name=name, weight=weight, routing=RoutingStrategy.RANDOM, copies=copies)


SNAPSHOT = RouteSnapshot(
    version="v1",
    endpoints=(
        EndpointRoute(
            scope=HERE,
            name="llms",
            takes_components=True,
            components=(
                component("base"),
                component("pirate", adapter_id="pirate-3"),
                component("asleep", copies=()),
                component("starting", copies=(), desired_copies=1),
                component("unregistered", copies=(), adapter_id="unregistered-1"),
            ),
            failed=(
                FailedComponent(name="broken", reason="It ran out of memory.", serves_llm=True),
                FailedComponent(name="trees", reason="No such image.", serves_llm=False),
            ),
        ),
        EndpointRoute(scope=HERE, name="empty", takes_components=True),
        EndpointRoute(
            scope=HERE,
            name="models",
            takes_components=False,
            variants=(variant("blue", 1.0), variant("green", 3.0), variant("dark", 0.0, ())),
        ),
        EndpointRoute(
            scope=HERE,
            name="mixed",
            takes_components=False,
            variants=(variant("one", 1.0), replace(variant("many", 1.0), is_multi_model=True)),
        ),
        EndpointRoute(
            scope=HERE,
            name="many",
            takes_components=False,
            variants=(replace(variant("many", 1.0), is_multi_model=True),),
        ),
        EndpointRoute(
            scope=HERE,
            name="direct",
            takes_components=False,
            variants=(
                replace(
                    variant("named", 1.0, ()),
                    containers=(
                        ContainerRoute(hostname="a", copies=COPIES[:1]),
                        ContainerRoute(hostname="b", copies=COPIES[1:]),
                        ContainerRoute(hostname="dark", copies=()),
                    ),
                ),
            ),
        ),
        EndpointRoute(
            scope=HERE,
            name="down",
            takes_components=False,
            variants=(variant("only", 1.0, ()),),
        ),
        EndpointRoute(
            scope=ELSEWHERE,
            name="llms",
            takes_components=True,
            components=(component("base", COPIES[:1]), component("abroad")),
        ),
    ),
)


def delta_between(old: EndpointRoute | None, new: EndpointRoute) -> EndpointDelta:
    """The changes from one route of an endpoint to another."""
    head = build_head(new)
    if old is None:
        return EndpointDelta(head=head, is_whole=True, components=new.components, failed=new.failed)
    return difference(head, [(parts_of(old), parts_of(new))])


def parts_of(endpoint: EndpointRoute) -> EndpointParts:
    return EndpointParts(
        components={it.name: it for it in endpoint.components},
        failed={it.name: it for it in endpoint.failed},
    )


def changed_between(old: EndpointRoute | None, new: EndpointRoute) -> ChangedParts | None:
    """The names of different parts. None without a difference."""
    delta = delta_between(old, new)
    if old is not None and is_empty(delta) and build_head(old) == delta.head:
        return None
    return changed_parts(delta)
