"""An engine on two ranks: the answers of one rank, and an end to everything when a rank fails."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from tests.models import random_adapter, tiny_llama
from tests.selection import first_alone
from tests.unit.engine.oracle import PROMPTS, drain, greedy, run, variant

from hostelry.engine.engine import AdapterError, Engine, EngineConfig, UnsupportedModelError
from hostelry.engine.lora.layout import AdapterRanks
from hostelry.engine.lora.share import count_share_pages
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_spec
from hostelry.engine.request import FinishReason, Output
from hostelry.engine.runner import follower
from hostelry.engine.runner.parallel import ParallelError

COUNT = 10
ADAPTERS = {"r3": 3, "r8": 8, "r16": 16, "r64": 64}
ONE = EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1, kernels="torch", page_tokens=4)
TWO = variant(ONE, kernels="auto", tensor_parallel=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model, by the name "", and its adapters."""
    root = tmp_path_factory.mktemp("tiny")
    model = tiny_llama(root / "model")
    adapters = {
        name: random_adapter(root / name, model, rank, seed=seed)
        for seed, (name, rank) in enumerate(ADAPTERS.items())
    }
    return {"": model, **adapters}


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> dict[str, list[int]]:
    """Greedy tokens of one rank, by prompt's index and adapter."""
    with loaded(folders, ONE) as engine:
        return run(engine, [it for name in ("", *ADAPTERS) for it in requests(name)])


class CopyingFetcher:
    """Brings the folder that an URI names last."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders

    def fetch(self, uri: str, into: Path) -> None:
        for file in self._folders[uri.rsplit("/", 1)[-1]].iterdir():
            (into / file.name).write_bytes(file.read_bytes())


@contextmanager
def loaded(
    folders: dict[str, Path], config: EngineConfig, names: tuple[str, ...] = tuple(ADAPTERS)
) -> Iterator[Engine]:
    engine = Engine.load(folders[""], config, fetchers={"far": CopyingFetcher(folders)})
    try:
        for name in names:
            engine.load_adapter(name, folders[name])
        yield engine
    finally:
        engine.close()


def requests(name: str, prefix: str = "") -> list[Any]:
    return [
        greedy(f"{prefix}{number} {name}", prompt, COUNT, name or None)
        for number, prompt in enumerate(PROMPTS)
    ]


def of(expected: dict[str, list[int]], name: str, prefix: str = "") -> dict[str, list[int]]:
    return {f"{prefix}{it.id}": expected[it.id] for it in requests(name)}


def processes(engine: Engine) -> list[subprocess.Popen[bytes]]:
    leads = engine._deps.leader
    assert leads is not None
    return list(leads._followers._processes)


def is_child_left(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}").exists()


def test_ranks_are_refused_what_they_cannot_do_before_any_starts(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    for fields, message in (
        ({"kernels": "native"}, "kernels native .* cannot sum over ranks yet: use torch kernels"),
        ({"weight_dtype": "int8"}, "weight_dtype int8; native kernels, which int8 weights need"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0; it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            variant(TWO, **fields)
    for config, message in (
        (variant(TWO, tensor_parallel=3), "3 ranks cannot share num_heads 4 evenly"),
        (variant(TWO, tensor_parallel=4), "4 ranks cannot share num_kv_heads 2 evenly"),
        (variant(TWO, pool_bytes=100), "pool_bytes is 100; one page"),
    ):
        with pytest.raises(ValueError, match=message):
            Engine.load(folders[""], config)
    odd = tiny_llama(tmp_path / "odd", intermediate_size=111)
    with pytest.raises(ValueError, match="2 ranks cannot share intermediate_size 111 evenly"):
        Engine.load(odd, TWO)


@pytest.fixture(scope="class")
def two(folders: dict[str, Path]) -> Iterator[Engine]:
    """Two ranks with all adapters. A process can lead only one such engine at a time."""
    with loaded(folders, TWO) as engine:
        yield engine


class TestTwoRanks:
    """One engine for all tests. Each test leaves it as it was."""

    @pytest.mark.parametrize("name", ["", *ADAPTERS], ids=["the base", *ADAPTERS])
    def test_two_ranks_answer_as_one(
        self, name: str, two: Engine, expected: dict[str, list[int]]
    ) -> None:
        assert run(two, requests(name)) == of(expected, name)

    def test_a_mixed_batch(self, two: Engine, expected: dict[str, list[int]]) -> None:
        everything = [it for name in ("", *ADAPTERS) for it in requests(name)]
        assert run(two, everything) == expected
        assert two.stats.kernels == "torch"
        assert any("native kernels are for one rank" in it for it in two.warnings)

    def test_the_pool_is_as_large_as_with_one_rank(
        self, folders: dict[str, Path], two: Engine
    ) -> None:
        with loaded(folders, ONE, ()) as one:
            assert two.stats.pages.num_pages == one.stats.pages.num_pages
            assert two.stats.pool_bytes == one.stats.pool_bytes

    def test_an_aborted_request_leaves_the_others_alone(
        self, two: Engine, expected: dict[str, list[int]]
    ) -> None:
        two.add(greedy("gone", PROMPTS[0], 50, "r8"))
        two.add(greedy("stays", PROMPTS[1], COUNT, "r16"))
        outputs = []
        for _ in range(3):
            outputs += two.step()
        two.abort("gone")
        outputs += drain(two)
        assert [it.finish_reason for it in outputs if it.request_id == "gone"][
            -1
        ] is FinishReason.ABORT
        tokens = [it.token_id for it in outputs if it.request_id == "stays"]
        assert tokens == expected["1 r16"]

    def test_a_replaced_adapter_answers_as_the_new_one(
        self, folders: dict[str, Path], two: Engine, expected: dict[str, list[int]]
    ) -> None:
        two.load_adapter("swapped", folders["r8"])
        two.add(greedy("old", PROMPTS[0], COUNT, "swapped"))
        outputs = two.step()
        two.replace_adapter("swapped", folders["r64"])
        two.add(greedy("new", PROMPTS[0], COUNT, "swapped"))
        outputs += drain(two)
        two.unload_adapter("swapped")
        for request_id, name in (("old", "r8"), ("new", "r64")):
            tokens = [it.token_id for it in outputs if it.request_id == request_id]
            assert tokens == expected[f"0 {name}"]

    def test_a_remote_adapter(self, two: Engine, expected: dict[str, list[int]]) -> None:
        two.register_adapter("far", two.prepare_adapter("far://away/r16"))
        tokens = run(two, [greedy("1", PROMPTS[2], COUNT, "far")])
        two.unload_adapter("far")
        assert tokens["1"] == expected["2 r16"]

    def test_adapters_are_checked_as_with_one_rank(
        self, folders: dict[str, Path], two: Engine, tmp_path: Path
    ) -> None:
        wrong = random_adapter(tmp_path / "wrong", folders[""], 65)
        with pytest.raises(AdapterError, match="r is 65"):
            two.load_adapter("wrong", wrong)

    def test_a_process_leads_the_ranks_of_one_engine(
        self, folders: dict[str, Path], two: Engine
    ) -> None:
        with pytest.raises(ValueError, match=r"has a torch\.distributed group already"):
            Engine.load(folders[""], TWO)
        assert run(two, requests("r3")[:1])


def test_adapters_leave_the_pool_and_come_back(
    folders: dict[str, Path], tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    """Their files are deleted by then, so other ranks get them from rank 0."""
    targets = decoder_targets(load_spec(folders[""]))
    ranks = AdapterRanks(linears=(64,) * len(targets.linears))
    page_bytes = 2 * 2 * 2 * 16 * 4 * 4  # keys and values, layers, heads, dimension, tokens, fp32
    largest = count_share_pages(targets, ranks, 2, page_bytes // 4 // 2)
    config = variant(TWO, pool_bytes=(largest + 10) * page_bytes, prefix_cache=False, pin_share=0.0)
    with loaded(folders, config, ()) as engine:
        for name, rank in ADAPTERS.items():
            folder = random_adapter(
                tmp_path / name, folders[""], rank, seed=list(ADAPTERS).index(name)
            )
            engine.load_adapter(name, folder)
            for file in folder.iterdir():
                file.unlink()
        for turn in ("first", "second"):
            for name in ("r64", "r3", "r16", "r8"):
                first = [it for it in requests(name, turn) if it.id.startswith(f"{turn}0")]
                assert run(engine, first) == {f"{turn}0 {name}": expected[f"0 {name}"]}
        assert engine.adapter_metrics("r64").num_uploads == 2


def test_a_closed_engine_leaves_no_process_and_no_file(folders: dict[str, Path]) -> None:
    with loaded(folders, TWO, ("r3",)) as engine:
        run(engine, requests("r3"))
        children = processes(engine)
        leads = engine._deps.leader
        assert leads is not None
        meeting_place = leads._folder
        assert len(children) == 1
        assert is_child_left(children[0])
        assert meeting_place.exists()
    assert [it.returncode for it in children] == [0]
    assert not is_child_left(children[0])
    assert not meeting_place.exists()
    engine.close()  # again does nothing


def ended(engine: Engine) -> dict[str, Output]:
    return {it.request_id: it for it in drain(engine, check=False)}


def test_a_killed_rank_ends_all_requests_saying_so(folders: dict[str, Path]) -> None:
    config = variant(TWO, max_batch_size=2)
    with loaded(folders, config, ("r3", "r8")) as engine:
        run(engine, [greedy("good", PROMPTS[0], 2, "r3")])
        reported: Queue[str] = Queue()
        engine.watch(reported.put)
        for request in requests("r3")[:3]:  # the third has to wait
            engine.add(request)
        engine.step()
        (child,) = processes(engine)
        os.kill(child.pid, signal.SIGKILL)
        reason = "rank 1 was ended by SIGKILL; the engine must be loaded again"
        assert reported.get(timeout=30) == engine.failure == reason
        outputs = ended(engine)
        assert set(outputs) == {"0 r3", "1 r3", "2 r3"}
        for output in outputs.values():
            assert output.finish_reason is FinishReason.ERROR
            assert "rank 1 was ended by SIGKILL" in str(output.error)
        engine.add(greedy("later", PROMPTS[0], 2, "r8"))
        later = ended(engine)["later"]
        assert later.error == reason
        assert engine.stats.num_running == engine.stats.num_waiting == 0
        engine._scheduler.check_integrity()
    assert not is_child_left(child)


def test_a_rank_that_hangs_ends_all_requests(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hostelry.engine.loading.FollowerJob",
        lambda **fields: follower.FollowerJob(**fields, step_timeout_s=3.0),
    )
    with loaded(folders, TWO, ("r3",)) as engine:
        run(engine, [greedy("good", PROMPTS[0], 2)])
        (child,) = processes(engine)
        os.kill(child.pid, signal.SIGSTOP)
        engine.add(greedy("base", PROMPTS[0], 2))
        engine.add(greedy("adapter", PROMPTS[0], 2, "r3"))
        for output in ended(engine).values():
            assert output.finish_reason is FinishReason.ERROR
            assert "a rank failed" in str(output.error)
            assert "the engine must be loaded again" in str(output.error)
    assert not is_child_left(child)


def test_a_rank_that_cannot_start_is_an_error(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ParallelError, match="rank 1 ended with status 1"):
        Engine.load(folders[""], TWO)
    assert not torch.distributed.is_initialized()


def test_a_model_that_no_rank_can_load_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    for file in folders[""].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors"):
        Engine.load(tmp_path, TWO)
    assert not torch.distributed.is_initialized()


RANK_0 = """
import sys
from pathlib import Path

from hostelry.engine.engine import Engine, EngineConfig

config = EngineConfig(dtype="fp32", pool_bytes=1 << 20, num_threads=1, tensor_parallel=2)
engine = Engine.load(Path(sys.argv[1]), config)
(child,) = engine._deps.leader._followers._processes
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", first_alone([signal.SIGKILL, signal.SIGTERM, None]), ids=str)
def test_followers_end_with_rank_0(how: signal.Signals | None, folders: dict[str, Path]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RANK_0, str(folders[""])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # of the connection that ended
    ) as rank_0:
        assert rank_0.stdin is not None
        assert rank_0.stdout is not None
        child = os.pidfd_open(int(rank_0.stdout.readline()))
        try:
            if how is None:
                rank_0.stdin.close()
            else:
                rank_0.send_signal(how)
            assert select.select([child], [], [], 30)[0], "the follower is still there"
        finally:
            os.close(child)
            rank_0.kill()
