"""Traces and rows of the benchmark of many models, without any server."""

import pytest
from benchmarks.many_models_bench import SETTINGS
from benchmarks.many_models_live import (
    Called,
    first_seconds,
    hit_row,
    num_joined,
    requests_of,
    speed_row,
)
from benchmarks.many_models_platform import target_of
from benchmarks.model_policies import NAMES, OURS

MB = 1 << 20


def called(*models: int, hits: tuple[int, ...] = ()) -> list[Called]:
    return [
        Called(model=model, began_s=at, ended_s=at + 0.5, hit=at in hits)
        for at, model in enumerate(models)
    ]


def account(*sizes: int, memory: int) -> dict[str, object]:
    models = [
        {
            "target": target_of(number),
            "memory_bytes": size,
            "disk_bytes": size,
            "load_s": 0.1,
            "download_s": 0.1,
        }
        for number, size in enumerate(sizes)
    ]
    return {"memory_bytes": memory, "models": models}


def test_policies_get_the_endpoints_requests_models_and_memory() -> None:
    requests = called(*[0, 1, 0, 2, 0] * 4)
    row = hit_row("some", requests, 8, account(MB, MB, MB, memory=3 * MB))
    shown = {"ours, replayed" if it == OURS else it for it in NAMES}
    assert row.keys() == {"trace", "AWS's metric", "live", "upper bound"} | shown
    assert {row[it] for it in shown} == {100.0}, "all fit, and each is loaded in the warm-up"
    tight = hit_row("some", requests, 8, account(MB, MB, MB, memory=MB))
    assert tight["Belady"] < 50 < row["LRU"]
    assert tight["live"] == tight["AWS's metric"] == 50.0


def test_requests_that_join_a_load_differ_from_those_beside_a_quick_answer() -> None:
    def at(began_s: float, ended_s: float, model: int = 1) -> Called:
        return Called(model=model, began_s=began_s, ended_s=ended_s, hit=None)

    load = [at(0.0, 0.3), at(0.1, 0.3), at(0.2, 0.31), at(0.25, 0.3, model=2)]
    quick = [at(1.0, 1.02), at(1.01, 1.03)]
    assert num_joined([*load, *quick], {1: 0.2, 2: 0.2}) == 2


def test_a_row_of_callers_has_what_they_saw() -> None:
    requests = called(0, 1, 0, 0, hits=(2, 3))
    assert first_seconds(requests) == 3.5
    row = speed_row("ray", 7, requests)
    assert (row["found in memory, %"], row["requests/s"]) == (50.0, pytest.approx(4 / 3.5))
    assert speed_row("ours", 7, requests, 0.75)["found in memory, %"] == 75.0


def test_traces_are_the_same_for_the_same_seed_and_name_only_models_that_there_are() -> None:
    setting = SETTINGS["smoke"]
    traces = requests_of(setting, 1)
    assert traces == requests_of(setting, 1) != requests_of(setting, 2)
    for numbers in traces.values():
        assert len(numbers) == setting.num_requests
        assert set(numbers) <= set(range(setting.num_models))
