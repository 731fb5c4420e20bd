"""Calls and reconcilers at the same time: nothing is lost, nothing is half done."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.api.rig import Api

from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.operations import ATTEMPTS
from hostelry.base.errors import Conflict, ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record
from hostelry.store.records import State, open_state


class BusyStore(MemoryStore):
    """A store in which another writer changes a record just before each of our first writes."""

    def __init__(self) -> None:
        super().__init__()
        self.intrusions = 0

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Write, after the intruder if one is due."""
        present = self.get(key)
        if present and self.intrusions:
            self.intrusions -= 1
            super().put(key, present.body, expect=present.version)
        return super().put(key, body, expect=expect)


@pytest.fixture
def store() -> BusyStore:
    return BusyStore()


@pytest.fixture
def state(store: BusyStore, scope: Scope) -> State:
    state = open_state(store)
    ensure_execution_role(state, scope, "HostelryExecutionRole", 0.0)
    return state


def test_a_call_goes_on_after_a_record_moved(api: Api, store: BusyStore) -> None:
    api.make.endpoint()
    store.intrusions = ATTEMPTS - 1
    api.call("DeleteEndpoint", EndpointName="e")
    assert store.intrusions == 0
    assert api.call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "Deleting"


def test_a_record_that_never_rests_is_a_conflict(api: Api, store: BusyStore) -> None:
    api.make.endpoint()
    store.intrusions = ATTEMPTS
    with pytest.raises(Conflict):
        api.call("DeleteEndpoint", EndpointName="e")


def test_of_calls_that_make_the_same_name_one_succeeds(api: Api) -> None:
    made: list[str] = []
    refused: list[str] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait(60.0)
        try:
            api.make.model("same", Tags=[{"Key": "maker", "Value": str(number)}])
            made.append(str(number))
        except ServiceError as error:
            refused.append(error.message)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert (len(made), len(refused)) == (1, 7)
    arn = "arn:aws:sagemaker:us-west-2:123456789012:model/same"
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == [{"Key": "maker", "Value": made[0]}]


def test_no_component_is_left_on_an_endpoint_that_is_deleted(api: Api) -> None:
    for number in range(20):
        name = f"e{number}"
        api.make.endpoint(name)
        barrier = threading.Barrier(2)

        def act(operation: Callable[[], Any], barrier: threading.Barrier = barrier) -> None:
            barrier.wait(60.0)
            try:
                operation()
            except ServiceError:
                return

        threads = [
            threading.Thread(target=act, args=(lambda at=name: api.make.component(f"c-{at}", at),)),
            threading.Thread(
                target=act, args=(lambda at=name: api.call("DeleteEndpoint", EndpointName=at),)
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        endpoint, component = (
            api.state.endpoints.get(api.scope, name),
            api.state.components.get(api.scope, f"c-{name}"),
        )
        assert endpoint is not None
        is_deleted = endpoint.value.status is EndpointStatus.DELETING
        assert is_deleted == (component is None)
        assert component is None or component.value.status is ComponentStatus.CREATING
