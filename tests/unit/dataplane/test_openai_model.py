import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import ELSEWHERE, HERE, OTHER_ACCOUNT, SNAPSHOT

from hostelry.base.errors import ServiceError
from hostelry.dataplane.openai import find_model
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.completions import parse_model_name

TABLE = RouteTable(SNAPSHOT)


@cases(
    "owner, name, component, region, adapter",
    case("a base component", HERE, "base", "base", "us-west-2", (None, None)),
    case("an adapter", HERE, "pirate", "pirate", "us-west-2", ("pirate-3", "pirate")),
    case("one in the archive", HERE, "base:es", "base", "us-west-2", ("es", "es")),
    case("with a colon", HERE, "base:a:b", "base", "us-west-2", ("a:b", "a:b")),
    case("another region's", HERE, "abroad", "abroad", "eu-west-1", (None, None)),
    case("own region first", ELSEWHERE, "base", "base", "eu-west-1", (None, None)),
)
def test_models_by_name(
    owner: Scope, name: str, component: str, region: str, adapter: tuple[str | None, str | None]
) -> None:
    found = find_model(TABLE, owner, name)
    assert found.component_name == component
    assert found.scope.region == region
    assert (found.adapter_id, found.adapter_alias) == adapter


@cases(
    "owner, name",
    case("unknown", HERE, "gpt-4"),
    case("empty", HERE, ""),
    case("an adapter without a name", HERE, "base:"),
    case("an adapter of an adapter", HERE, "pirate:es"),
    case("an adapter of nothing", HERE, "nope:es"),
    case("a header smuggled in the name", HERE, "base:a\r\nX-Evil: 1"),
    case("a name that fits in no header", HERE, "base:\u00e9"),
    case("an endless name", HERE, "base:" + "a" * 300),
    case("another account's", OTHER_ACCOUNT, "base"),
)
def test_models_that_do_not_exist(owner: Scope, name: str) -> None:
    with pytest.raises(ServiceError) as refusal:
        find_model(TABLE, owner, name)
    assert (refusal.value.code, refusal.value.http_status) == ("model_not_found", 404)


def test_the_refusal_of_a_component_that_is_not_an_llm() -> None:
    llms, *others = SNAPSHOT.endpoints
    made = llms.components[0]
    shop = replace(llms, name="shop", components=(replace(made, name="prices", serves_llm=False),))
    table = RouteTable(replace(SNAPSHOT, endpoints=(llms, shop, *others)))
    with pytest.raises(ServiceError, match=r"`prices` is not an LLM.* InvokeEndpoint calls it"):
        find_model(table, HERE, "prices")
    with pytest.raises(ServiceError, match="`base:` does not exist"):
        find_model(table, HERE, "base:")


@pytest.mark.parametrize("name", ["broken", "broken:es"])
def test_the_reason_of_a_failed_model(name: str) -> None:
    with pytest.raises(ServiceError) as refusal:
        find_model(TABLE, HERE, name)
    assert (refusal.value.code, refusal.value.http_status) == ("component_failed", 400)
    assert "is Failed and takes no requests: It ran out of memory." in refusal.value.message
    with pytest.raises(ServiceError, match="does not exist"):
        find_model(TABLE, HERE, "trees")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"model": 3}', b'{"messages": []}', b'{"model": "\xff"}', b"[" * 5000],
)
def test_bodies_that_name_no_model(body: bytes) -> None:
    with pytest.raises(ServiceError) as refusal:
        parse_model_name(body)
    assert refusal.value.http_status == 400


def test_all_models_are_listed_once() -> None:
    names = TABLE.llms(HERE.account)
    assert names == ["abroad", "asleep", "base", "pirate", "starting", "unregistered"]
    assert TABLE.llms(OTHER_ACCOUNT.account) == []
