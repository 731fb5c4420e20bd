"""Any call of any operation, its numbers and documents at their worst: an answer, or refused."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fuzz.calls import HERE, MADE, ROLE, TARGET, Draw
from tests.fuzz.conftest import Cases
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext, NotYetError
from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.operations import OPERATIONS, perform
from hostelry.aws.call import ApiCall, serialize_result
from hostelry.aws.constraints import check_params
from hostelry.aws.models import operation_model, service_model
from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.shape import Shape as MachineShape
from hostelry.events.call_rows import CallRows
from hostelry.fleet.shapes import instance_types
from hostelry.logs.store import LogStore

CALLS = 100  # of one platform, which later calls find as earlier ones left it


class Platform:
    """Control's operations, over memory and files of messages and logs."""

    def __init__(self, log_file: Path) -> None:
        self.answered: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._known: dict[str, list[str | bytes]] = {}
        clock = ManualClock(1_750_000_000.0)
        self._messages = MessageRig(clock=clock, trusted=frozenset({"http://trusted/"}))
        state = self._messages.state
        ensure_execution_role(state, HERE, "HostelryExecutionRole", clock.now())
        self._context = CallContext(
            scope=HERE,
            state=state,
            now=clock.now(),
            get_shape=lambda _: MachineShape(cpus=48, memory_bytes=2**38, accelerators=4),
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
            metrics=self._messages.metrics,
            instance_types=instance_types(),
            log_store=LogStore(log_file),
            issue_keys=TokenSeal("a secret of the home").issue,
            checks_roles=True,
            messaging=self._messages.services,
            calls=CallRows(self._messages.tables),
        )
        for service, operation, params in MADE:
            self.call(service, operation, params)
        made = state.components.get(HERE, "base")
        assert made is not None
        serving = replace(made.value, status=ComponentStatus.IN_SERVICE)
        state.components.put(HERE, "base", serving, expect=made.version)
        scaled = "application-autoscaling"
        self.call(scaled, "RegisterScalableTarget", TARGET)
        named = {it: TARGET[it] for it in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
        tracking = {
            "TargetValue": 5.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
            },
        }
        self.call(
            scaled,
            "PutScalingPolicy",
            {
                **named,
                "PolicyName": "p",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": tracking,
            },
        )
        self.call(
            scaled,
            "PutScheduledAction",
            {
                **named,
                "ScheduledActionName": "n",
                "Schedule": "rate(5 minutes)",
                "ScalableTargetAction": {"MinCapacity": 1},
            },
        )
        key = self.call("kms", "CreateKey", {})["KeyMetadata"]["KeyId"]
        self.call("kms", "CreateAlias", {"AliasName": "alias/k", "TargetKeyId": key})
        self.call("kms", "Encrypt", {"KeyId": key, "Plaintext": b"x"})

    def close(self) -> None:
        self._context.logs.close()
        self._messages.database.close()

    def call(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """Perform the call and write its answer, as control does."""
        shape = operation_model(service, operation).input_shape
        if shape is not None:
            check_params(shape, params)
        result = perform(self._context, service, operation, params)
        protocol = service_model(service).metadata["protocol"]
        call = ApiCall(
            service=service,
            operation=operation,
            params=params,
            protocol=protocol,
            request_id="id",
        )
        assert serialize_result(call, result).status == 200
        self.answered.setdefault((service, operation), []).append(params)
        self._learn([params, result])
        return result

    def status(self, service: str, operation: str, params: dict[str, Any]) -> int:
        """The status that a client gets."""
        try:
            self.call(service, operation, params)
        except ServiceError as error:
            return error.http_status
        except (NotYetError, RetryableError):
            return 503
        return 200

    def _learn(self, value: Any, name: str = "") -> None:
        if isinstance(value, str | bytes):
            self._known[name] = [*self._known.get(name, ()), value][-8:]
        for each in value if isinstance(value, list) else ():
            self._learn(each, name)
        for member, each in value.items() if isinstance(value, dict) else ():
            self._learn(each, member)

    def drawn(self, service: str, operation: str, random: Random) -> dict[str, Any]:
        """Parameters for a call: from an answered call, unchanged or changed, or random ones."""
        shape = operation_model(service, operation).input_shape
        answered = self.answered.get((service, operation))
        if shape is None:
            return {}
        if answered and random.random() < 0.8:
            first = random.choice(random.choice((answered[:4], answered)))
            if random.random() < 0.2:
                return first
            made = Draw(random, self._known).changed(shape, first)
        else:
            made = Draw(random, self._known).of(shape)
        return dict(made)


@pytest.mark.parametrize("service", sorted({service for service, _ in OPERATIONS}))
def test_no_call_of_any_operation_is_a_defect(cases: Cases, tmp_path: Path, service: str) -> None:
    names = sorted(name for of, name in OPERATIONS if of == service)
    for random in cases(1 + len(names) // 2):
        platform = Platform(tmp_path / f"{random.getrandbits(64):x}.db")
        with closing(platform):
            for _ in range(CALLS):
                operation = random.choice(names)
                params = platform.drawn(service, operation, random)
                assert platform.status(service, operation, params) != 500, (operation, params)
