"""Copies of an endpoint that control has brought up: its records under other names, and agents.

Control brings up one endpoint for each shape by itself. A thousand instances come from hundreds of
copies of its records, which equal the records that control would have written.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hostelry.fleet.fake import FakeFleet, FakeMachine
from hostelry.store.protocol import Key, RecordWrite, Store
from hostelry.store.records import State, on_endpoint

KINDS = ("endpoint", "component", "instance", "copy")
NAMES = re.compile(
    rb"(endpoint-\d{6}|component-\d{6}|adapter-\d{6}|\bi-[0-9a-f]{17}|\bc-[0-9a-f]{17})"
)
WRITTEN_TOGETHER = 500


def seed(
    store: Store, endpoints: Sequence[str], suffixes: Sequence[str], joined: str | None
) -> None:
    """Write all records of `endpoints` once more for each suffix of their names.

    With `joined`, everything of the copies is on one more endpoint, whose name has that suffix.
    """
    records = [it for kind in KINDS for it in store.list(kind) if is_on(it.body, endpoints)]
    for suffix in suffixes:
        writes = []
        for record in records:
            is_endpoint = record.key.kind == "endpoint"
            if is_endpoint and joined is not None and suffix != suffixes[0]:
                continue
            name = record.key.name + (joined if is_endpoint and joined is not None else suffix)
            body = rename_record(record.body, suffix, joined or suffix)
            key = Key(kind=record.key.kind, scope=record.key.scope, name=name)
            writes.append(RecordWrite(key=key, body=body, expect=None))
        for first in range(0, len(writes), WRITTEN_TOGETHER):
            store.write_all(writes[first : first + WRITTEN_TOGETHER])


def is_on(body: bytes, endpoints: Sequence[str]) -> bool:
    """Whether a record belongs to one of the endpoints."""
    return any(f'"{it}"'.encode() in body for it in endpoints)


def rename_record(body: bytes, suffix: str, endpoint_suffix: str) -> bytes:
    """A record's body with a suffix after each name in it."""

    def one(found: re.Match[bytes]) -> bytes:
        is_endpoint = found[0].startswith(b"endpoint")
        return found[0] + (endpoint_suffix if is_endpoint else suffix).encode()

    return NAMES.sub(one, body)


def grow_endpoint(state: State, endpoint_name: str, times: int) -> None:
    """Multiply the desired number of an endpoint's instances by `times`."""
    for found in state.endpoints.list():
        endpoint = found.value
        if endpoint.name == endpoint_name:
            (variant,) = endpoint.active.variants
            count = variant.desired_instance_count * times
            active = replace(
                endpoint.active, variants=(replace(variant, desired_instance_count=count),)
            )
            after = replace(endpoint, active=active)
            state.endpoints.put(endpoint.scope, endpoint.name, after, expect=found.version)


def staff(fleet: FakeFleet, state: State) -> None:
    """Create an agent for each recorded instance, with the recorded copies on it."""
    for endpoint in (it.value for it in state.endpoints.list()):
        copies = on_endpoint(state.copies, endpoint.scope, endpoint.name).values()
        by_instance: dict[str, list[str]] = {}
        by_id = {it.spec.id: it for it in copies}
        for copy in copies:
            by_instance.setdefault(copy.instance_id, []).append(copy.spec.id)
        instances: Iterable[str] = on_endpoint(state.instances, endpoint.scope, endpoint.name)
        for instance_id in instances:
            mine = [by_id[it] for it in sorted(by_instance.get(instance_id, []))]
            fleet.machines[instance_id] = FakeMachine(
                instance_id=instance_id,
                life=1,
                desired=tuple(it.spec for it in mine),
                copies={it.spec.id: it.status for it in mine},
            )
