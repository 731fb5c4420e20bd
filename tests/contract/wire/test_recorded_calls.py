"""Any call of any operation can be recorded, within the limit of a record, and read back."""

from random import Random

import msgspec
import pytest
from tests.contract.wire.conftest import AnyValue
from tests.unit.audit.samples import KEY, root

from hostelry.api.operations import OPERATIONS
from hostelry.audit.chain import MAX_LINE_BYTES, ChainHead, NewRecord, add_record, parse_line
from hostelry.audit.lookup import describe_event
from hostelry.audit.record import AuditedCall, build_call_event
from hostelry.audit.redaction import show_params, show_result
from hostelry.audit.resources import find_resources
from hostelry.aws.models import operation_model

SERVICES = sorted({service for service, _ in OPERATIONS})


@pytest.mark.parametrize("service", SERVICES)
def test_a_call_with_any_parameters_is_recorded(service: str) -> None:
    for _, operation in (it for it in OPERATIONS if it[0] == service):
        model = operation_model(service, operation)
        drawn = AnyValue(random=Random(operation), full=True, constrained=False)
        params = {} if model.input_shape is None else drawn.of(model.input_shape)
        result = {} if model.output_shape is None else drawn.of(model.output_shape)
        event = build_call_event(
            AuditedCall(
                at=1.5,
                caller=root("111122223333"),
                account="111122223333",
                region="us-east-1",
                service=service,
                operation=operation,
                request_id="r",
                event_id="e",
                params=show_params(service, operation, params),
                result=show_result(service, operation, result),
                resources=find_resources(service, params, "111122223333", "us-east-1"),
            )
        )
        encoded = msgspec.json.encode(event)
        assert len(encoded) < MAX_LINE_BYTES, operation
        record = NewRecord(at=1.5, account="a", region="r", source="s", event=encoded)
        shown = describe_event(parse_line(add_record(KEY, ChainHead(), record).line))
        assert shown is not None
        assert shown["EventName"] == operation
