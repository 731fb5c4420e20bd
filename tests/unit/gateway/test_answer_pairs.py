"""Pairs of a shadow's answer and production's: which are compared, when, and the counts."""

import asyncio
from collections.abc import Callable

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE

from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import Divergence, LoadKey
from hostelry.gateway.answer_pairs import AnswerPair, AnswerPairs, PairLimits

KEY = LoadKey(scope=HERE, endpoint_name="e", variant_name="shadow")
LIMITS = PairLimits(pairs_per_s=10.0, share=0.25, max_bytes=8, max_waiting=2)


class Rig:
    """A worker's pairs, on a clock that a sleep moves, and each comparison by `took_s`."""

    def __init__(self, took_s: float = 0.0) -> None:
        self.now = 50.0
        self.took_s = took_s
        self.slept_s: list[float] = []
        self.meter = Meter(lambda: self.now, lambda: int(self.now * 1e9))
        self.pairs = AnswerPairs(self.meter, self._now_s, LIMITS, self._sleep)

    def _now_s(self) -> float:
        self.now += self.took_s / 2
        return self.now

    async def _sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def begin(self) -> AnswerPair:
        found = self.pairs.begin(KEY)
        assert found is not None
        return found

    async def compared(self) -> Divergence:
        """The counts once nothing waits."""
        for _ in range(20):
            await asyncio.sleep(0)
        loads = [load for span in self.meter.close_now() for load in span.loads]
        found = Divergence()
        for load in loads:
            assert (load.key, load.arrivals, load.finished) == (KEY, 0, 0)
            found = found.plus(load.divergence)
        return found


def whole(production: bytes, shadow: bytes) -> Callable[[AnswerPair], None]:
    def give(pair: AnswerPair) -> None:
        for half, body in ((pair.shadow, shadow), (pair.production, production)):
            for at in range(0, len(body), 4):
                half.add(body[at : at + 4])
            half.finish({})
            half.close()

    return give


def breaks(pair: AnswerPair) -> None:
    pair.shadow.add(b"1")
    pair.shadow.close()
    pair.production.add(b"1")
    pair.production.finish({})


def is_alone(pair: AnswerPair) -> None:
    pair.production.add(b"1")
    pair.production.finish({})
    pair.production.close()


@cases(
    "give, counts",
    case("equal answers", whole(b"[1]", b"[1]"), (1, 1, 1)),
    case("near answers", whole(b"[1.0001]", b"[1.0002]"), (1, 0, 1)),
    case("other answers", whole(b"[1]", b"[2]"), (1, 0, 0)),
    case("of the most bytes", whole(b"12345678", b"12345679"), (1, 0, 1)),
    case("one is too large", whole(b"123456789", b"1"), (0, 0, 0)),
    case("one breaks off", breaks, (0, 0, 0)),
    case("one that is not mirrored", is_alone, (0, 0, 0)),
)
def test_whole_answers_are_compared(
    give: Callable[[AnswerPair], None], counts: tuple[int, int, int]
) -> None:
    async def main() -> Divergence:
        rig = Rig()
        give(rig.begin())
        return await rig.compared()

    assert asyncio.run(main()).counts == counts


async def test_pairs_wait_their_turn_and_those_that_find_no_place_are_no_pairs() -> None:
    rig = Rig()
    pairs = [rig.begin() for _ in range(4)]
    for pair in pairs:
        whole(b"1", b"2")(pair)
    assert rig.pairs.begin(KEY) is None, "while as many as may be wait"
    found = await rig.compared()
    assert found.counts == (2, 0, 0)
    assert found.distance_millionths.values == pytest.approx((500_000,), rel=0.01)
    assert rig.slept_s == [0.1, 0.1]
    assert rig.pairs.begin(KEY) is not None


async def test_comparisons_take_their_share_of_the_time_alone() -> None:
    rig = Rig(took_s=0.4)
    for pair in (rig.begin(), rig.begin()):
        whole(b"1", b"2")(pair)
    await rig.compared()
    assert rig.slept_s == pytest.approx([0.1, 0.6]), "three times of what the first took"


async def test_what_waits_is_left_at_the_end() -> None:
    rig = Rig()
    whole(b"1", b"2")(rig.begin())
    await rig.pairs.close()
    assert (await rig.compared()).pairs == 0
