"""One model on several ranks: two processes over gloo give the results of one."""

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.models import ALL_TARGETS, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from tests.unit.engine.paged_steps import (
    CPU,
    Driver,
    Scatter,
    build_batch,
    new_pool,
    peft_adapters,
    reference,
    scattered,
    torch_decoder,
    updates_of,
)

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, ForwardBatch
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.shard import Shard, share_module
from hostelry.engine.layers.parallel import shard_weights
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.runner.follower import FollowerJob
from hostelry.engine.runner.leader import start_leader
from hostelry.engine.runner.parallel import (
    LeadingDecoder,
    ParallelError,
    PlaceMessage,
    RemoveMessage,
    StepMessage,
    StopMessage,
    follow,
    parse,
    serialize,
)

ROOT = Path(__file__).parents[3]
PROMPTS = ([*range(20, 60)], [5, 9, 33, 12, 77, 120, 4], [61], [150, 3, 3, 8, 198, 0, 99, 100])
# With Triton's kernels, whose interpreter is slow: rows of a tile, single rows, the base's rows.
FEW_PROMPTS = ([61], [*range(20, 32)], [150, 3, 3])
TRITON = "Triton's kernels"
WIDE = ("embed_tokens", "lm_head")
BIASES = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}


def adapter(rank: int, *targets: str) -> dict[str, Any]:
    return {"r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets or ALL_TARGETS)}


CASES: Mapping[str, tuple[Any, dict[str, Any], dict[str, Any], int]] = {
    "base only": (tiny_llama, {}, {}, 64),
    "biases, an output projection of its own": (tiny_llama, BIASES, {}, 5),
    "mixed adapters": (
        tiny_llama,
        BIASES,
        {"a": adapter(8), "b": adapter(3), "c": adapter(1, "q_proj", "o_proj", "down_proj")},
        64,
    ),
    "adapters of the vocabulary": (
        tiny_llama,
        {"tie_word_embeddings": False},
        {"a": adapter(5, *ALL_TARGETS, *WIDE), "b": adapter(2, "lm_head")},
        6,
    ),
    "an adapter of a tied embedding": (tiny_llama, {}, {"a": adapter(3, "embed_tokens")}, 64),
    "Qwen2": (tiny_qwen2, {}, {"a": adapter(4)}, 6),
    "Qwen3": (tiny_qwen3, {}, {"a": adapter(4)}, 64),
    "Gemma 3": (tiny_gemma3, {}, {"a": adapter(7)}, 6),
    TRITON: (
        tiny_llama,
        BIASES,
        {"a": adapter(5, *ALL_TARGETS, *WIDE), "b": adapter(3, "q_proj", "o_proj", "down_proj")},
        9,
    ),
}


def write_case(
    folder: Path,
    writer: Any,
    overrides: dict[str, Any],
    adapters: dict[str, Any],
    chunk: int,
    kernels: str = "torch",
) -> list[torch.Tensor]:
    """Write the model, the job and the adapters to `folder`. Returns the results of one rank."""
    writer(folder, **overrides)
    prompts = FEW_PROMPTS if kernels == "triton" else PROMPTS
    names = [None, *adapters]
    chosen = [names[number % len(names)] for number in range(len(prompts))]
    job = {
        "adapters": list(adapters),
        "prompts": prompts,
        "chosen": chosen,
        "chunk": chunk,
        "kernels": kernels,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    updates = {}
    if adapters:
        model = peft_adapters(reference(folder), adapters)
        updates = {name: updates_of(model, name) for name in adapters}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the copies that PEFT saves with embeddings
            model.save_pretrained(folder)
    spec = load_spec(folder)
    pool = new_pool(spec, 400)
    scatter = Scatter(pool, range(40, 400), seed=9)
    indexes = {name: scattered(it, spec, scatter) for name, it in updates.items()}
    driver = Driver(torch_decoder(folder, spec), pool, range(40))
    for prompt, name in zip(prompts, chosen, strict=True):
        driver.add(prompt, None if name is None else indexes[name])
    return driver.finish(chunk)


def start_ranks(folder: Path, world_size: int, action: str = "run") -> list[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }
    command = [sys.executable, "-m", "tests.unit.engine.parallel_rank", str(folder)]
    return [
        subprocess.Popen(
            [*command, str(rank), str(world_size), action],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]


def finish_ranks(processes: list[subprocess.Popen[str]], timeout_s: float = 120) -> list[str]:
    """Wait for all ranks, and return the stderr of each."""
    try:
        return [process.communicate(timeout=timeout_s)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[torch.Tensor]]]:
    """Every case, computed by one rank in this process, and by two ranks in separate processes."""
    root = tmp_path_factory.mktemp("ranks")
    written = {}
    for number, (name, case) in enumerate(CASES.items()):
        folder = root / f"{number:02}"
        folder.mkdir()
        kernels = "triton" if name == TRITON else "torch"
        written[name] = folder, write_case(folder, *case, kernels)
    processes = start_ranks(root, 2)
    errors = finish_ranks(processes)
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return written


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_equal_one(name: str, runs: dict[str, tuple[Path, list[torch.Tensor]]]) -> None:
    folder, expected = runs[name]
    computed = torch.load(folder / "logits.pt", weights_only=True)
    for two, one in zip(computed, expected, strict=True):
        torch.testing.assert_close(two, one, atol=1e-4, rtol=1e-5)


def test_a_rank_that_cannot_place_an_adapter_reports_its_reason(
    runs: dict[str, tuple[Path, list[torch.Tensor]]],
) -> None:
    folder, _ = runs["mixed adapters"]
    reasons = json.loads((folder / "refusals.json").read_text(encoding="utf-8"))
    expected = (
        r"adapter \w+ could not be placed; rank 1: .*No such file or directory: .*nowhere.*",
        r"adapter 0123 could not be placed; rank 1: .* the image is of another content or form",
        r"adapter \w+ could not be placed; rank 1: .* takes \d+ pages; 1 were given",
    )
    assert len(reasons) == len(expected)
    for reason, pattern in zip(reasons, expected, strict=True):
        assert re.fullmatch(pattern, reason)


def test_rank_0_starts_the_others(runs: dict[str, tuple[Path, list[torch.Tensor]]]) -> None:
    folder, expected = runs["base only"]
    job = FollowerJob(
        folder=str(folder),
        dtype="fp32",
        max_len=64,
        page_tokens=4,
        num_pages=40,
        init_method="",
        rank=0,
        world_size=2,
    )
    leader = start_leader(job, ["cpu", "cpu"])
    try:
        driver = Driver(leader, leader.pool, range(40))
        for prompt in PROMPTS:
            driver.add(prompt)
        for two, one in zip(driver.finish(9), expected, strict=True):
            torch.testing.assert_close(two, one, atol=1e-4, rtol=1e-5)
    finally:
        leader.close()


def test_a_follower_ends_when_rank_0_dies(tmp_path: Path) -> None:
    write_case(tmp_path / "0", tiny_llama, {}, {}, 64)
    processes = start_ranks(tmp_path, 2, "die")
    errors = finish_ranks(processes)
    assert processes[0].returncode == 3
    assert processes[1].returncode not in (0, None)
    assert "RuntimeError" in errors[1] or "DistBackendError" in errors[1]


@pytest.mark.parametrize(
    ("overrides", "world_size", "message"),
    [
        pytest.param({}, 3, "3 ranks cannot share num_heads 4 evenly", id="heads"),
        pytest.param({}, 4, "4 ranks cannot share num_kv_heads 2 evenly", id="key-value heads"),
        pytest.param(
            {"intermediate_size": 111},
            2,
            "2 ranks cannot share intermediate_size 111 evenly",
            id="columns of the MLP",
        ),
    ],
)
def test_refused_numbers_of_ranks(
    overrides: dict[str, Any], world_size: int, message: str, tmp_path: Path
) -> None:
    folder = tiny_llama(tmp_path, **overrides)
    weights = load_decoder(folder, load_spec(folder), max_len=8, dtype=torch.float32, device=CPU)
    with pytest.raises(ValueError, match=message):
        shard_weights(weights, Shard(0, world_size))


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_is_one_of_its_world(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} of 2"):
        Shard(rank, 2)


@given(count=st.integers(0, 300), world_size=st.integers(1, 9))
def test_spans_cover_everything_once(count: int, world_size: int) -> None:
    shards = [Shard(rank, world_size) for rank in range(world_size)]
    assert [it for s in shards for it in range(count)[s.span(count)]] == list(range(count))
    sizes = [len(range(count)[s.span(count)]) for s in shards]
    assert max(sizes) == shards[0].largest(count)
    assert max(sizes) - min(sizes) <= 1


@given(rank=st.integers(1, 20), world_size=st.integers(1, 4), name=st.sampled_from(MODULES))
def test_no_two_ranks_hold_the_same_of_an_adapter(rank: int, world_size: int, name: str) -> None:
    down = numpy.zeros((rank, 24), int)
    up = numpy.zeros((36, rank), int)
    for number in range(world_size):
        share = share_module(
            Shard(number, world_size), name, rank=rank, in_features=24, out_features=36
        )
        down[share.down_rows, share.down_columns] += 1
        up[share.up_rows] += 1
    assert (down == 1).all()
    assert (up == 1).all()


def test_ranks_hold_their_part_only(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, **BIASES)
    spec = load_spec(folder)
    whole = load_decoder(folder, spec, max_len=8, dtype=torch.float32, device=CPU)
    parts = [shard_weights(whole, Shard(rank, 2)) for rank in range(2)]
    assert torch.equal(torch.cat([it.embedding_VH for it in parts]), whole.embedding_VH)
    layer, halves = whole.layer(1), [it.layer(1) for it in parts]
    assert torch.equal(torch.cat([it.down.weight_OI for it in halves], 1), layer.down.weight_OI)
    query, key = 64, 32
    for start, width in ((0, query), (query, key), (query + key, key)):
        rows = [it.qkv.weight_OI[start // 2 : (start + width) // 2] for it in halves]
        assert torch.equal(torch.cat(rows), layer.qkv.weight_OI[start : start + width])
    assert halves[0].o.bias_O is not None
    assert halves[1].o.bias_O is None
    numbers = [sum(it.o.weight_OI.numel() for it in halves), layer.o.weight_OI.numel()]
    assert numbers[0] == numbers[1]


def test_a_tied_head_stays_tied(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    whole = load_decoder(folder, load_spec(folder), max_len=8, dtype=torch.float32, device=CPU)
    part = shard_weights(whole, Shard(1, 2))
    assert part.lm_head_VH is part.embedding_VH
    assert len(part.embedding_VH) == 100


class Recorder(LogitsDecoder):
    """A decoder that keeps its input."""

    def __init__(self) -> None:
        self.batches: list[ForwardBatch] = []

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        self.batches.append(batch)
        return torch.zeros(len(batch.logit_rows_S), 3)


class Tape:
    """A channel whose messages are sent first and received later."""

    def __init__(self, *reasons: str) -> None:
        self.sent: list[bytes] = []
        self._reasons = ["", *reasons]

    def send(self, content: bytes) -> None:
        self.sent.append(content)

    def receive(self) -> bytes:
        return self.sent.pop(0)

    def exchange_reasons(self, own: str) -> list[str]:
        return [own or it for it in self._reasons]


def empty_index() -> AdapterIndex:
    nothing = numpy.zeros(0, numpy.int32)
    offsets = numpy.zeros(0, numpy.int64)
    return AdapterIndex(
        ranks_M=nothing,
        scales_M=nothing.astype(numpy.float32),
        firsts_M=nothing,
        down_offsets_R=offsets,
        up_offsets_R=offsets,
    )


def test_a_follower_sees_the_same_step(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    pool = new_pool(load_spec(folder), 8)
    tape, first, second = Tape(), Recorder(), Recorder()
    leading = LeadingDecoder(first, tape)
    indexes = {name: empty_index() for name in "ab"}
    own = {name: empty_index() for name in "ab"}
    for name in "ab":
        leading.place(name, indexes[name], [3, 4], "file")
    driver = Driver(leading, pool, range(8))
    for tokens, name in (([5, 6, 7], "a"), ([8], ""), ([9, 10], "b"), ([11], "a")):
        driver.add(tokens, indexes.get(name))
    batch = build_batch([(it, len(it.tokens)) for it in driver.sequences])
    leading.forward(batch, pool)
    leading.remove(indexes["a"])
    leading.stop()
    placed = []

    def place(message: PlaceMessage) -> AdapterIndex:
        placed.append((message.key, message.pages, message.source))
        return own[message.key]

    follow(second, pool, tape, place)
    assert placed == [("a", [3, 4], "file"), ("b", [3, 4], "file")]
    seen = second.batches[0]
    for field in ("token_ids_T", "positions_T", "row_starts_B1", "lengths_B", "pages_BP"):
        mine, theirs = getattr(seen, field), getattr(batch, field)
        assert mine.dtype == numpy.int32
        assert numpy.array_equal(mine, theirs)
    assert [(it.row_start, it.row_end) for it in seen.segments] == [(0, 3), (4, 6), (6, 7)]
    assert [it.index for it in seen.segments] == [own["a"], own["b"], own["a"]]


def test_a_removal_is_sent_with_the_next_adapter() -> None:
    steps, adapters = Tape(), Tape()
    leading = LeadingDecoder(Recorder(), steps, adapters)
    first, second = empty_index(), empty_index()
    leading.place("a", first, [1], "file")
    leading.remove(first)
    assert len(adapters.sent) == 1
    leading.place("b", second, [1], "file")
    leading.stop()
    assert [parse(it) for it in adapters.sent[1:]] == [
        RemoveMessage(1),
        PlaceMessage(2, "b", [1], "file"),
        StopMessage(),
    ]
    assert [parse(it) for it in steps.sent] == [StopMessage()]


def test_an_adapter_that_one_rank_refused_is_placed_nowhere() -> None:
    tape = Tape("disk full")
    leading = LeadingDecoder(Recorder(), tape)
    index = empty_index()
    with pytest.raises(ParallelError, match="adapter a could not be placed; rank 1: disk full"):
        leading.place("a", index, [1], "file")
    assert [parse(it) for it in tape.sent] == [PlaceMessage(1, "a", [1], "file"), RemoveMessage(1)]
    leading.remove(index)
    leading.stop()
    assert [parse(it) for it in tape.sent[2:]] == [StopMessage()]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"nonsense", id="nonsense"),
        pytest.param(msgspec.msgpack.encode(["steal", "x"]), id="an unknown message"),
        pytest.param(msgspec.msgpack.encode(["place", 1, 3, [], ""]), id="a key that is a number"),
    ],
)
def test_damaged_messages_are_refused(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse(content)


def test_messages_survive_the_way() -> None:
    step = StepMessage(b"1", b"2", b"3", b"4", b"5", b"6", [(0, 1, 7)])
    assert parse(serialize(step)) == step
    assert parse(serialize(PlaceMessage(7, "a", [1], "b"))) == PlaceMessage(7, "a", [1], "b")
