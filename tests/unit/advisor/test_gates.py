"""Gates: an option that cannot work is refused with the limit that it breaks."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import MACHINE, build_mix, build_model, build_models

from hostelry.advisor.gates import check_gates
from hostelry.advisor.options import HostingOption as Option
from hostelry.advisor.options import get_isolation, merge_adapters
from hostelry.advisor.values import (
    GIB,
    MIB,
    FitModel,
    Hardware,
    IsolationLevel,
    LatencyClass,
)
from hostelry.domain.shape import Shape

TWO = build_models(2)
ON_GPU: dict[str, Any] = {
    "hardware": Hardware.ACCELERATOR, "accelerators": 1, "accelerator_memory_bytes": 10 * GIB,
}  # fmt: skip


@cases(
    "option, models, reason",
    case("a large model", Option.DEDICATED, [build_model(memory_bytes=17 * GIB)],
         "one needs 17.0 GiB, ml.m5.xlarge has 16.0"),
    case("the server's part", Option.MULTI_MODEL, build_models(2, memory_bytes=15 * GIB),
         "m-0 needs 15.0 GiB, ml.m5.xlarge has 14.4"),
    case("small in a server that runs", Option.MULTI_MODEL,
         build_models(2, memory_bytes=15 * GIB, loaded_bytes=GIB), None),
    case("large beside its server", Option.DEDICATED,
         build_models(2, memory_bytes=17 * GIB, loaded_bytes=GIB), "m-0 needs 17.0 GiB"),
    case("all at once", Option.MULTI_CONTAINER, build_models(2, memory_bytes=9 * GIB),
         "the 2 models together need 18.0 GiB"),
    case("too many CPUs", Option.COMPONENTS, [build_model(cpus=8.0)], "needs 8 CPUs"),
    case("no accelerator", Option.DEDICATED, [build_model(**ON_GPU)], "needs 1 accelerators"),
    case("more instances than allowed", Option.DEDICATED, build_models(31),
         "needs 31 instances, and the machines allow 30"),
    case("two frameworks", Option.MULTI_MODEL, [TWO[0], build_model("x", framework="triton")],
         "one framework, and there are sklearn, triton"),
    case("an LLM", Option.MULTI_MODEL, build_models(2, framework="lmi"), "takes one model"),
    case("one model", Option.MULTI_MODEL, [TWO[0]], "one model only"),
    case("sixteen containers", Option.MULTI_CONTAINER, build_models(16), "2 to 15 containers"),
    case("no adapters", Option.ADAPTERS, TWO, "no model is an adapter"),
    case("a large environment", Option.SERVERLESS, [build_model(memory_bytes=7 * GIB)],
         "an environment has 6,144 MB at most"),
    case("serverless on GPUs", Option.SERVERLESS, [build_model(**ON_GPU)], "needs an accelerator"),
    case("many serverless endpoints", Option.SERVERLESS, build_models(51), "50 serverless"),
    case("much concurrency", Option.SERVERLESS, build_models(50), None),
    case("a serverless body", Option.SERVERLESS, [build_model(payload_bytes=5 * MIB)],
         "requests of 5 MiB, the limit is 4 MiB"),
    case("a real-time body", Option.DEDICATED, [build_model(payload_bytes=26 * MIB)],
         "the limit is 25 MiB"),
    case("an asynchronous body", Option.ASYNCHRONOUS,
         [build_model(payload_bytes=500 * MIB, latency_class=LatencyClass.SOON)], None),
    case("a batch's body", Option.BATCH,
         [build_model(payload_bytes=101 * MIB, latency_class=LatencyClass.OFFLINE)],
         "the limit is 100 MiB"),
    case("a long call", Option.DEDICATED, [build_model(max_s=90.0)], "the limit is 60 s"),
    case("a long stream", Option.DEDICATED, [build_model(max_s=90.0, needs_streaming=True)], None),
    case("interactive later", Option.ASYNCHRONOUS, TWO, "m-0 is interactive"),
    case("a stream later", Option.ASYNCHRONOUS,
         [build_model(latency_class=LatencyClass.SOON, needs_streaming=True)], "needs a stream"),
    case("capture of components", Option.COMPONENTS, [build_model(needs_capture=True)],
         "data capture, which is refused"),
    case("capture of an endpoint", Option.DEDICATED, [build_model(needs_capture=True)], None),
    case("isolation", Option.MULTI_MODEL, build_models(2, isolation_min=IsolationLevel.OWN_LIMITS),
         "needs isolation 3"),
    case("fits", Option.COMPONENTS, TWO, None),
)  # fmt: skip
def test_gates(option: Option, models: list[FitModel], reason: str | None) -> None:
    found = check_gates(option, models, build_mix(*models))
    if reason is None:
        assert found.reasons == ()
    else:
        assert reason in "; ".join(found.reasons)


def test_one_reason_stands_for_all_models() -> None:
    found = check_gates(Option.BATCH, TWO, build_mix(*TWO))
    assert found.reasons[0].endswith("(and 1 more)")


def test_memory_of_accelerators_is_counted_by_device() -> None:
    gpu = replace(
        MACHINE,
        type="ml.g5.xlarge",
        shape=Shape(cpus=4, memory_bytes=16 * GIB, accelerators=1),
        device_memory_bytes=24 * GIB,
    )
    model = build_model(**ON_GPU)
    mix = build_mix(model, machines=(gpu,))
    assert check_gates(Option.DEDICATED, [model], mix).is_open
    large = build_model(**ON_GPU | {"accelerator_memory_bytes": 25 * GIB})
    assert "25.0 GiB of accelerator memory" in str(check_gates(Option.DEDICATED, [large], mix))


def test_instances_on_one_machine_isolate_no_more_than_copies() -> None:
    assert get_isolation(Option.DEDICATED, has_machine_per_instance=False) == 3
    assert get_isolation(Option.DEDICATED, has_machine_per_instance=True) == 4
    assert get_isolation(Option.MULTI_MODEL, has_machine_per_instance=True) == 1


def test_adapters_are_whole_models_elsewhere() -> None:
    base = build_model("base", traffic=replace(TWO[0].traffic, per_hour=0.0))
    adapter = build_model("es", adapter_of="base", memory_bytes=20 * MIB)
    assert check_gates(Option.ADAPTERS, [base, adapter], build_mix(base, adapter)).is_open
    (merged,) = merge_adapters([base, adapter])
    assert merged.memory_bytes == 220 * MIB
    assert merged.adapter_of is None
