"""The load of each name in the last minute, and of one name by time."""

from msgspec.structs import replace
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load

from hostelry.control.gateway_routes import summarize_buckets, summarize_names
from hostelry.domain.load import Distribution

OTHER = replace(CHAT, endpoint_name="other", component_name=None)
FAST = Distribution(values=(1_000.0, 9_000.0), counts=(98, 2))


def test_a_name_has_its_rates_its_requests_now_and_its_percentiles() -> None:
    loads = [
        load(T0 + at, arrivals=20, errors_5xx=1, in_flight_mean=2.0, model_latency_us=FAST)
        for at in range(12)
    ]
    loads[-1] = replace(loads[-1], held=3, oldest_held_s=0.5)
    (found,) = summarize_names([(it.second, (it,)) for it in loads], None)
    assert (found["endpoint"], found["component"]) == (CHAT.endpoint_name, CHAT.component_name)
    assert (found["arrivals_per_s"], found["errors_5xx_per_s"], found["in_flight"]) == (20, 1, 2)
    assert (found["held"], found["oldest_held_s"]) == (3, 0.5)
    assert found["latency_ms"] == {"p50": 1.0, "p90": 1.0, "p99": 9.0}
    assert found["first_chunk_ms"] is None


def test_a_name_that_has_gone_quiet_has_no_rate_but_its_percentiles_of_the_minute() -> None:
    seconds = [(T0, (load(T0, arrivals=5, held=1, model_latency_us=FAST),)), (T0 + 30, ())]
    (found,) = summarize_names(seconds, CHAT.endpoint_name)
    assert (found["arrivals_per_s"], found["in_flight"], found["held"]) == (0, 0, 0)
    assert found["latency_ms"] is not None
    assert summarize_names(seconds, "other") == []
    assert summarize_names([], None) == []


def test_only_the_names_of_the_endpoint_are_there() -> None:
    seconds = [(T0, (load(T0, arrivals=5), replace(load(T0, arrivals=7), key=OTHER)))]
    assert [it["endpoint"] for it in summarize_names(seconds, None)] == [
        CHAT.endpoint_name,
        "other",
    ]
    assert [it["arrivals_per_s"] for it in summarize_names(seconds, "other")] == [7]


def test_the_seconds_of_a_name_are_gathered_by_time() -> None:
    begin = T0 - T0 % 5
    loads = [load(begin + at, arrivals=10 if at < 5 else 30, held_max=at) for at in range(7)]
    first, short = summarize_buckets(loads, 5)
    assert (first["at"], first["arrivals_per_s"], first["held"]) == (begin, 10, 4)
    assert (short["at"], short["arrivals_per_s"], short["held"]) == (begin + 5, 30, 6)
