"""Quotas of tenants: policies, buckets, refusals and the time to retry."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.unit.engine.schedule import STEP_S, Drive, scheduler

from hostelry.engine.scheduler.decisions import QuotaExceededError, ServerFullError
from hostelry.engine.scheduler.tenants import (
    CompletionInterval,
    TenantPolicies,
    TenantPolicy,
    TokenBucket,
)


def quota(**fields: float) -> TenantPolicies:
    policy = TenantPolicy(**fields)  # type: ignore[arg-type]
    return TenantPolicies(table={"t": policy})


@cases(
    "fields, message",
    case("no weight", {"weight": 0.0}, "weight is 0.0"),
    case("a negative weight", {"weight": -1.0}, "weight is -1.0"),
    case("a weight that is no number", {"weight": math.nan}, "weight is nan"),
    case("a huge weight", {"weight": 1e300}, "between 0.001 and 1000"),
    case("a tiny weight", {"weight": 1e-300}, "between 0.001 and 1000"),
    case("no tokens at all", {"tokens_per_s": 0.0}, "tokens_per_s is 0.0"),
    case("a rate of nan", {"tokens_per_s": math.nan}, "tokens_per_s is nan"),
    case("an endless rate", {"tokens_per_s": math.inf}, "tokens_per_s is inf"),
    case("a negative burst", {"burst_s": -1.0}, "burst_s is -1.0"),
    case("no request at all", {"max_concurrent": 0}, "max_concurrent is 0"),
    case("a negative queue", {"max_queued": -2}, "max_queued is -2"),
)
def test_a_senseless_policy_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quota(**fields)


def test_tenants_that_are_not_named_have_the_default_policy() -> None:
    policies = TenantPolicies(
        default=TenantPolicy(weight=2.0), table={"a": TenantPolicy(weight=3.0)}
    )
    assert policies.of("a").weight == 3.0
    assert policies.of("b").weight == 2.0
    assert TenantPolicies().of("anyone") == TenantPolicy()


@cases(
    "used, after_s, wanted, wait_s",
    case("a full bucket", 0, 0.0, 100, 0.0),
    case("an empty bucket fills at its rate", 100, 0.0, 1, 0.1),
    case("filled in the meantime", 100, 5.0, 50, 0.0),
    case("not filled enough", 100, 5.0, 60, 1.0),
    case("more was used than there was", 150, 0.0, 1, 5.1),
    case("it does not fill above its capacity", 0, 1e9, 100, 0.0),
    case("a request larger than the bucket, which is full", 0, 0.0, 10_000, 0.0),
    case("a request larger than the bucket waits for all of it", 1, 0.0, 10_000, 0.1),
)
def test_a_bucket_computes_when_there_is_room(
    used: int, after_s: float, wanted: int, wait_s: float
) -> None:
    bucket = TokenBucket(10.0, 100.0, now=5.0)
    bucket.take(used, 5.0)
    assert bucket.wait_s(wanted, 5.0 + after_s) == pytest.approx(wait_s)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 500)), min_size=1))
def test_a_client_that_waits_as_advised_never_uses_more_than_rate_and_burst(
    calls: list[tuple[float, int]],
) -> None:
    bucket, now, used = TokenBucket(10.0, 50.0, now=0.0), 0.0, 0
    for pause_s, number in calls:
        now += pause_s
        now += bucket.wait_s(number, now)
        assert bucket.wait_s(number, now) <= 1e-6
        bucket.take(number, now)
        used += number
        largest = max(it for _, it in calls)
        assert used <= 50 + 10 * now + largest + 1e-3


def test_time_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(10.0, 100.0, now=5.0)
    bucket.take(100, 5.0)
    assert bucket.level(1.0) == 0.0
    assert bucket.level(6.0) == 10.0


def test_a_request_over_the_rate_is_refused_with_the_time_until_there_is_room() -> None:
    drive = Drive(scheduler(tenants=quota(tokens_per_s=2.0, burst_s=10.0)))
    drive.submit("first", 16, 1)
    with pytest.raises(QuotaExceededError, match="2 tokens per second") as refusal:
        drive.submit("second", 16, 1)
    assert refusal.value.tenant == "t"
    assert refusal.value.quota == "tokens per second"
    assert refusal.value.limit == 2.0
    assert refusal.value.retry_after_s == pytest.approx((16 - 4) / 2)
    drive.submit("other", 16, 1, tenant="u")
    drive.finish()
    drive.now += refusal.value.retry_after_s + 1 / 2  # the first one's output counts too
    drive.submit("second", 16, 1)
    drive.finish()
    drive.check_conserved()


def test_output_tokens_count_as_they_come() -> None:
    drive = Drive(scheduler(tenants=quota(tokens_per_s=1.0, burst_s=8.0)))
    drive.submit("r", 4, 16)
    drive.finish()
    with pytest.raises(QuotaExceededError) as refusal:
        drive.submit("s", 4, 1)
    passed_s = drive.now - STEP_S / 2
    assert refusal.value.retry_after_s == pytest.approx(4 - (8 - 4 - 16) - passed_s, abs=0.05)


def test_a_request_that_never_ran_is_given_back_to_the_bucket() -> None:
    drive = Drive(scheduler(tenants=quota(tokens_per_s=1.0, burst_s=8.0)))
    drive.submit("cancelled", 8, 1)
    with pytest.raises(QuotaExceededError):
        drive.submit("next", 8, 1)
    drive.cancel("cancelled")
    drive.submit("next", 8, 1)
    drive.finish()
    drive.check_conserved()


@cases(
    "fields, number, name",
    case("requests in flight", {"max_concurrent": 3}, 3, "concurrent requests"),
    case("requests that wait", {"max_queued": 2}, 2, "queued requests"),
)
def test_too_many_requests_are_refused(fields: dict[str, float], number: int, name: str) -> None:
    drive = Drive(scheduler(tenants=quota(**fields)))
    for index in range(number):
        drive.submit(f"r{index}")
    with pytest.raises(QuotaExceededError, match=f"'t'.*{number} {name}") as refusal:
        drive.submit("one more")
    assert refusal.value.quota == name
    assert refusal.value.retry_after_s >= 1
    drive.submit("another tenant's", tenant="u")
    drive.cancel("r0")
    drive.submit("one more")
    drive.finish()
    drive.check_conserved()


def test_running_requests_are_in_flight_and_not_queued() -> None:
    drive = Drive(scheduler(tenants=quota(max_queued=1, max_concurrent=3)))
    for index in range(3):
        drive.submit(f"r{index}", 4, 8)
        drive.step()
    with pytest.raises(QuotaExceededError, match="concurrent"):
        drive.submit("r3")
    drive.finish()
    drive.submit("r3")


def test_a_full_server_refuses_everybody() -> None:
    drive = Drive(scheduler(max_waiting=2))
    drive.submit("r0")
    drive.submit("r1", tenant="u")
    with pytest.raises(ServerFullError, match="2 requests wait already") as refusal:
        drive.submit("r2", tenant="v")
    assert refusal.value.limit == 2
    assert refusal.value.retry_after_s >= 1
    drive.step()
    drive.submit("r2", tenant="v")
    drive.finish()
    drive.check_conserved()


def test_a_quota_is_checked_before_a_full_server() -> None:
    drive = Drive(scheduler(tenants=quota(max_queued=1), max_waiting=1))
    drive.submit("r0")
    with pytest.raises(QuotaExceededError):
        drive.submit("r1")


def test_a_refused_request_leaves_nothing_behind() -> None:
    drive = Drive(scheduler(tenants=quota(tokens_per_s=1.0, burst_s=8.0), max_waiting=1))
    drive.submit("r0", 4, 1, tenant="u")
    for _ in range(5):
        with pytest.raises(ServerFullError):
            drive.submit("r1", 8, 1)
    drive.finish()
    drive.submit("r1", 8, 1)
    drive.finish()
    drive.check_conserved()


@cases(
    "ends, expected_s",
    case("nothing measured", [], 1.0),
    case("one end", [10.0], 10.0),
    case("a steady pace", [4.0, 8.0, 12.0], 4.0),
    case("never less than a second", [0.1, 0.2, 0.3], 1.0),
    case("newer ones count more", [10.0, 12.0], 7.6),
)
def test_a_place_is_promised_at_the_pace_of_the_ends_so_far(
    ends: list[float], expected_s: float
) -> None:
    pace = CompletionInterval()
    pace.begin(0.0)
    for now in ends:
        pace.end(now)
    assert pace.retry_after_s == pytest.approx(expected_s)


def test_idle_time_does_not_slow_the_pace_down() -> None:
    drive = Drive(scheduler(tenants=quota(max_concurrent=1)))
    for _ in range(3):
        drive.now += 1000.0
        drive.submit("r", 4, 3)
        drive.finish()
    drive.submit("r")
    with pytest.raises(QuotaExceededError) as refusal:
        drive.submit("s")
    assert refusal.value.retry_after_s == 1.0


def test_retry_after_follows_slow_requests() -> None:
    drive = Drive(scheduler(tenants=quota(max_concurrent=1)))
    drive.submit("r", 4, 8)
    drive.now += 30.0
    drive.finish()
    drive.submit("r")
    with pytest.raises(QuotaExceededError) as refusal:
        drive.submit("s")
    assert refusal.value.retry_after_s == pytest.approx(30.0, rel=0.05)
