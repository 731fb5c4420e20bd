from collections import ChainMap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from tests.cases import case, cases

from hostelry.base.errors import Conflict
from hostelry.domain.component import InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Endpoint, EndpointVariant
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.model import Container, Model
from hostelry.domain.scope import Scope, TagSet
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, StoreRefused
from hostelry.store.records import Records, State, open_state

HERE = Scope("123456789012", "us-west-2")
THERE = Scope("210987654321", "us-west-2")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(str, TEXT)


def mappings(kind: Any) -> st.SearchStrategy[Any]:
    """Dictionaries for a Mapping with these value types. For Any they contain JSON."""
    of_key, of_value = get_args(kind)
    values = JSON if of_value is Any else st.from_type(of_value)
    return st.dictionaries(st.from_type(of_key), values, max_size=3)


st.register_type_strategy(Mapping, mappings)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values with every field drawn. Hypothesis takes a default's factory for a value."""
    return st.builds(kind, **{it.name: st.from_type(it.type) for it in fields(kind)})


for with_factory in (Container, EndpointVariant, Copy):
    st.register_type_strategy(with_factory, structs)


@pytest.mark.parametrize(
    "kind",
    [Model, EndpointConfig, Endpoint, InferenceComponent, Instance, Copy, TagSet],
    ids=lambda kind: kind.__name__,
)
# An endpoint nests so deep that some of its random values exceed what Hypothesis draws.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(draw=st.data())
def test_every_value_comes_back_as_it_went_in(kind: type[Any], draw: st.DataObject) -> None:
    value = draw.draw(st.from_type(kind))
    records = Records(MemoryStore(), "kind", kind)
    written = records.put(HERE, "name", value, expect=None)
    assert records.get(HERE, "name") == written
    assert written.value == value


@pytest.fixture
def state() -> State:
    return open_state(MemoryStore())


def model(name: str, scope: Scope = HERE) -> Model:
    return Model(
        scope=scope,
        name=name,
        arn=scope.arn("model", name),
        created_at=1.5,
        containers=(Container(image="image"),),
        given={"ModelName": name},
    )


def test_a_value_is_replaced_only_where_its_version_is_known(state: State) -> None:
    first = state.models.put(HERE, "m", model("m"), expect=None)
    second = state.models.put(HERE, "m", replace(model("m"), created_at=2.0), expect=first.version)
    with pytest.raises(Conflict):
        state.models.put(HERE, "m", model("m"), expect=first.version)
    with pytest.raises(Conflict):
        state.models.delete(HERE, "m", expect=first.version)
    assert state.models.get(HERE, "m") == second
    state.models.delete(HERE, "m", expect=second.version)
    assert state.models.get(HERE, "m") is None


def test_list_is_by_scope_or_all(state: State) -> None:
    for name, scope in (("b", HERE), ("a", HERE), ("c", THERE)):
        state.models.put(scope, name, model(name, scope), expect=None)
    assert [it.value.name for it in state.models.list(HERE)] == ["a", "b"]
    assert [it.value.name for it in state.models.list()] == ["a", "b", "c"]


def test_kinds_do_not_see_each_other(state: State) -> None:
    state.models.put(HERE, "x", model("x"), expect=None)
    assert state.endpoints.get(HERE, "x") is None
    assert state.endpoint_configs.list() == []


@cases(
    "name, scope, expected",
    case("the same", "Llama-3", HERE, True),
    case("in another case", "LLAMA-3", HERE, True),
    case("another", "llama", HERE, False),
    case("in another account", "Llama-3", THERE, False),
)
def test_names_are_taken_in_any_case(state: State, name: str, scope: Scope, expected: bool) -> None:
    state.models.put(HERE, "Llama-3", model("Llama-3"), expect=None)
    assert state.models.has_name(scope, name) is expected


@cases(
    "body",
    case("not JSON", b"{"),
    case("fields missing", b'{"name": "m"}'),
    case("not text", b"\xff\xfe"),
)
def test_a_body_that_is_not_a_value_is_named_in_the_error(body: bytes) -> None:
    store = MemoryStore()
    store.put(Key(kind="model", scope=HERE, name="broken"), body, expect=None)
    with pytest.raises(StoreRefused, match="stored model 'broken' cannot be read"):
        open_state(store).models.list()


def test_a_field_of_a_newer_version_is_passed_over() -> None:
    store = MemoryStore()
    body = (
        b'{"scope":{"account":"123456789012","region":"us-west-2"},"arn":"a",'
        b'"tags":{"k":"v"},"color":"green"}'
    )
    store.put(Key(kind="tags", scope=HERE, name="a"), body, expect=None)
    found = open_state(store).tags.get(HERE, "a")
    assert found is not None
    assert found.value == TagSet(scope=HERE, arn="a", tags={"k": "v"})


@cases(
    "tags",
    case("a read-only view", MappingProxyType({"k": "v"})),
    case("a chain", ChainMap({"k": "v"}, {"k": "hidden"})),
)
def test_any_mapping_is_stored_as_what_it_maps(state: State, tags: Mapping[str, str]) -> None:
    state.tags.put(HERE, "a", TagSet(scope=HERE, arn="a", tags=tags), expect=None)
    found = state.tags.get(HERE, "a")
    assert found is not None
    assert found.value.tags == {"k": "v"}


def test_what_is_no_value_is_an_error_and_is_not_stored(state: State) -> None:
    with pytest.raises(TypeError, match="object"):
        state.models.put(HERE, "m", replace(model("m"), given={"x": object()}), expect=None)
    assert state.models.list() == []
