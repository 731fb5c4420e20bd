"""Kernels against loops in fp64 that follow their semantics word for word."""

from collections.abc import Sequence

import pytest
import torch

from hostelry.engine.kernels.attention import decode_attention, prefill_attention
from hostelry.engine.kernels.linear import DenseWeight, plain_reason
from hostelry.engine.kernels.lora import add_lora
from hostelry.engine.lora.adapter import Adapter, ModuleWeights
from hostelry.engine.lora.shapes import ModuleShape, Site, TargetSpace
from hostelry.engine.lora.slots import AdapterSlots, Slot

# Largest difference from fp64, relative to the largest value.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
DTYPES = [pytest.param(dtype, id=str(dtype)[6:]) for dtype in TOLERANCE]


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    difference = (found.double() - expected).abs().max() / expected.abs().max()
    assert difference < TOLERANCE[found.dtype], f"differs by {difference:.1e}"


def random_tensor(seed: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attend(q_D: torch.Tensor, k_LD: torch.Tensor, v_LD: torch.Tensor, scale: float) -> torch.Tensor:
    weights_L = (k_LD.double() @ q_D.double() * scale).softmax(0)
    return weights_L @ v_LD.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(1,), (5,), (1, 4, 5, 17), (16, 2, 40)])
def test_decode_attention(lengths: Sequence[int], dtype: torch.dtype) -> None:
    page_tokens, num_kv_heads, group, head_dim = 4, 2, 3, 16
    num_pages = -(-max(lengths) // page_tokens)
    k = random_tensor(1, dtype, 50, page_tokens, num_kv_heads, head_dim)
    v = random_tensor(2, dtype, 50, page_tokens, num_kv_heads, head_dim)
    q = random_tensor(3, dtype, len(lengths), num_kv_heads, group, head_dim)
    pages = torch.randperm(49, generator=torch.Generator().manual_seed(4))
    table = pages[: len(lengths) * num_pages].view(len(lengths), num_pages)
    beyond = torch.arange(num_pages * page_tokens) >= torch.tensor(lengths)[:, None]
    bias = torch.zeros(beyond.shape, dtype=dtype).masked_fill(beyond, float("-inf"))
    found = decode_attention(q, k, v, table, bias[:, None, None], 0.25)
    expected = torch.empty(q.shape, dtype=torch.float64)
    for row, length in enumerate(lengths):
        keys, values = (part[table[row]].flatten(0, 1)[:length] for part in (k, v))
        for head in range(num_kv_heads):
            for member in range(group):
                expected[row, head, member] = attend(
                    q[row, head, member], keys[:, head], values[:, head], 0.25
                )
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("num_tokens", "length"), [(1, 1), (7, 7), (2, 9), (5, 6)])
def test_prefill_attention(
    num_tokens: int, length: int, num_kv_heads: int, dtype: torch.dtype
) -> None:
    num_heads, head_dim = 4, 16
    q = random_tensor(1, dtype, num_tokens, num_heads, head_dim)
    k = random_tensor(2, dtype, length, num_kv_heads, head_dim)
    v = random_tensor(3, dtype, length, num_kv_heads, head_dim)
    found = prefill_attention(q, k, v, 0.25)
    expected = torch.empty(q.shape, dtype=torch.float64)
    for token in range(num_tokens):
        seen = length - num_tokens + token + 1
        for head in range(num_heads):
            shared = head // (num_heads // num_kv_heads)
            expected[token, head] = attend(q[token, head], k[:seen, shared], v[:seen, shared], 0.25)
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 2, 17])
@pytest.mark.parametrize("has_bias", [False, True])
def test_dense_products(num_rows: int, dtype: torch.dtype, *, has_bias: bool) -> None:
    weight = random_tensor(1, dtype, 48, 32)
    bias = random_tensor(2, dtype, 48) if has_bias else None
    x = random_tensor(3, dtype, num_rows, 32)
    expected = x.double() @ weight.double().T + (bias.double() if bias is not None else 0)
    assert_close(DenseWeight(weight, bias)(x), expected)


def test_a_dtype_that_cannot_be_packed_is_computed_plainly() -> None:
    weight, x = random_tensor(1, torch.float16, 48, 32), random_tensor(3, torch.float16, 5, 32)
    dense = DenseWeight(weight)
    assert not dense.is_packed
    assert torch.allclose(dense(x).float(), x.float() @ weight.float().T, atol=2e-2)


SITE = Site(0, "qkv")
IN, OUTS = 24, (16, 8, 12)
SPACE = TargetSpace(
    modules=[
        ModuleShape(
            path=f"part{part}",
            site=SITE,
            in_features=IN,
            out_features=out_features,
            out_start=sum(OUTS[:part]),
        )
        for part, out_features in enumerate(OUTS)
    ],
    other_paths=(),
)


def random_weights(seed: int, ranks: Sequence[int]) -> Adapter:
    """An adapter with these ranks of the three parts; 0 leaves a part alone."""
    modules = {
        f"part{part}": ModuleWeights(
            random_tensor(10 * seed + part, torch.float32, rank, IN),
            random_tensor(10 * seed + part + 5, torch.float32, out_features, rank),
        )
        for part, (rank, out_features) in enumerate(zip(ranks, OUTS, strict=True))
        if rank
    }
    return Adapter(modules=modules, content_id=str(seed))


POPULARITY = {
    "identical": [0] * 12,
    "distinct": list(range(12)),
    "uniform": [0, 0, 0, 4, 4, 4, 7, 7, 7, 11, 11, 11],
    "skewed": [0, 0, 0, 0, 0, 0, 0, 3, 3, 5, 8, 11],
    "single": [6],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([(4, 4, 4)] * 12, id="equal ranks"),
        pytest.param([(n + 1, n + 1, n + 1) for n in range(12)], id="all ranks different"),
        pytest.param([(8, 8, 8), (3, 0, 5), (0, 2, 0)] * 4, id="mixed ranks and targets"),
    ],
)
@pytest.mark.parametrize("popularity", POPULARITY)
@pytest.mark.parametrize("num_base_rows", [0, 3])
def test_mixed_adapters(
    popularity: str, ranks: list[tuple[int, int, int]], num_base_rows: int, dtype: torch.dtype
) -> None:
    adapters = [random_weights(seed, adapter) for seed, adapter in enumerate(ranks)]
    slots = AdapterSlots(SPACE, torch.device("cpu"))
    placed = [slots.add(adapter) for adapter in adapters]
    owners = sorted(POPULARITY[popularity], key=lambda owner: placed[owner])
    rows: dict[Slot, int] = {}
    for owner in owners:
        rows[placed[owner]] = rows.get(placed[owner], 0) + 1
    x = random_tensor(98, dtype, num_base_rows + len(owners), IN)
    y = random_tensor(99, dtype, len(x), sum(OUTS))
    expected = y.double()
    for row, owner in enumerate(owners, start=num_base_rows):
        for module in SPACE.modules:
            weights = adapters[owner].modules.get(module.path)
            if weights is not None:
                update = weights.up_OR.double() @ (weights.down_RI.double() @ x[row].double())
                expected[row, module.out_start : module.out_start + len(update)] += update
    base = y[:num_base_rows].clone()
    batch = slots.batch(rows.items(), num_base_rows)
    assert batch is not None
    add_lora(y, x, batch.runs(SITE))
    assert_close(y, expected)
    assert torch.equal(y[:num_base_rows], base)


def test_neighbours_of_equal_rank_are_one_run() -> None:
    slots = AdapterSlots(SPACE, torch.device("cpu"))
    placed = [slots.add(random_weights(seed, (4, 4, 4))) for seed in range(10)]
    batch = slots.batch([(slot, 1) for slot in placed], 0)
    assert batch is not None
    assert len(batch.segments) == 1
    slots.remove(placed[5])
    left = [(slot, 1) for slot in placed if slot is not placed[5]]
    split = slots.batch(left, 0)
    assert split is not None
    assert len(split.segments) == 2
    assert slots.add(random_weights(77, (4, 4, 4))) == placed[5]


def test_no_adapter_rows_are_no_batch() -> None:
    assert AdapterSlots(SPACE, torch.device("cpu")).batch([], 5) is None


@pytest.mark.parametrize(
    ("device_type", "has_operator", "is_told"),
    [
        pytest.param("cpu", True, False, id="packed weights are nothing to tell"),
        pytest.param("cpu", False, True, id="plain weights on a CPU are told"),
        pytest.param("cuda", False, False, id="a GPU never wants the CPU's layout"),
    ],
)
def test_products_on_plain_weights_are_told_of(
    device_type: str, has_operator: bool, is_told: bool
) -> None:
    reason = plain_reason(device_type, has_operator=has_operator)
    assert (reason is not None) == is_told
