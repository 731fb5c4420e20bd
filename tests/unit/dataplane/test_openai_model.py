import pytest
from tests.unit.dataplane.routes_sample import ELSEWHERE, HERE, OTHER_ACCOUNT, SNAPSHOT

from hostelry.base.errors import ServiceError
from hostelry.dataplane.openai import find_model
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.completions import parse_model_name

TABLE = RouteTable(SNAPSHOT)


@pytest.mark.parametrize(
    ("owner", "name", "component", "region", "adapter"),
    [
        pytest.param(HERE, "base", "base", "us-west-2", (None, None), id="a base component"),
        pytest.param(
            HERE, "pirate", "pirate", "us-west-2", ("pirate-3", "pirate"), id="an adapter"
        ),
        pytest.param(HERE, "base:es", "base", "us-west-2", ("es", "es"), id="one in the archive"),
        pytest.param(HERE, "base:a:b", "base", "us-west-2", ("a:b", "a:b"), id="with a colon"),
        pytest.param(HERE, "abroad", "abroad", "eu-west-1", (None, None), id="another region's"),
        pytest.param(ELSEWHERE, "base", "base", "eu-west-1", (None, None), id="own region first"),
    ],
)
def test_models_by_name(
    owner: Scope, name: str, component: str, region: str, adapter: tuple[str | None, str | None]
) -> None:
    found = find_model(TABLE, owner, name)
    assert found.component_name == component
    assert found.scope.region == region
    assert (found.adapter_id, found.adapter_alias) == adapter


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(HERE, "gpt-4", id="unknown"),
        pytest.param(HERE, "", id="empty"),
        pytest.param(HERE, "base:", id="an adapter without a name"),
        pytest.param(HERE, "pirate:es", id="an adapter of an adapter"),
        pytest.param(HERE, "nope:es", id="an adapter of nothing"),
        pytest.param(HERE, "base:a\r\nX-Evil: 1", id="a header smuggled in the name"),
        pytest.param(HERE, "base:\u00e9", id="a name that fits in no header"),
        pytest.param(HERE, "base:" + "a" * 300, id="an endless name"),
        pytest.param(OTHER_ACCOUNT, "base", id="another account's"),
    ],
)
def test_models_that_do_not_exist(owner: Scope, name: str) -> None:
    with pytest.raises(ServiceError) as refusal:
        find_model(TABLE, owner, name)
    assert (refusal.value.code, refusal.value.http_status) == ("model_not_found", 404)


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
