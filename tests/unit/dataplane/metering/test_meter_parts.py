"""The meter counts served requests for their target model, their tenant and their tokens."""

import pytest
from tests.unit.dataplane.metering.test_meter import CHAT, Rig

from hostelry.dataplane.metering.request_counters import MAX_PARTS, OTHER_PARTS
from hostelry.dataplane.tracing.call_trace import CallTrace
from hostelry.domain.load import PartLoad


@pytest.fixture
def rig() -> Rig:
    return Rig()


def call_trace(**members: object) -> CallTrace:
    found = CallTrace("id", "1", 0.0, 0, 0)
    for name, value in members.items():
        setattr(found, name, value)
    return found


USAGE = b'"usage": {"prompt_tokens": 9, "completion_tokens": 2}'


def test_served_requests_count_for_their_tenant_model_and_tokens(rig: Rig) -> None:
    for trace in (
        call_trace(tenant="t", tail=USAGE),
        call_trace(tenant="t", target_model="m"),
        call_trace(tenant="u" * 300),
    ):
        request = rig.meter.begin(CHAT, trace=trace)
        request.record_copy("c-1")
        if trace.target_model:
            request.record_lease(hit=True, waited_s=0.0, times=())
        rig.wait(0.125)
        request.end()
    refused = rig.meter.begin(CHAT, trace=call_trace(tenant="v", target_model="none"))
    refused.end()
    without_lease = rig.meter.begin(CHAT, trace=call_trace(target_model="none"))
    without_lease.record_copy("c-1")
    without_lease.end()
    second = rig.last()
    assert (second.token_requests, second.tokens_in, second.tokens_out) == (1, 9, 2)
    tenant = PartLoad(finished=2, service_s=0.25, token_requests=1, tokens_in=9, tokens_out=2)
    rest = PartLoad(finished=1, service_s=0.125)
    assert second.by_tenant == {"t": tenant, OTHER_PARTS: rest}
    assert second.by_model == {"m": rest}


def test_names_of_parts_are_limited(rig: Rig) -> None:
    for number in range(MAX_PARTS + 5):
        request = rig.meter.begin(CHAT, trace=call_trace(tenant=f"t{number}"))
        request.record_copy("c-1")
        request.end()
    parts = rig.last().by_tenant
    assert len(parts) == MAX_PARTS + 1
    assert parts[OTHER_PARTS].finished == 5
