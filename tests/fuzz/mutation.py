"""Random faults in bytes and texts: cuts, repetitions, swaps and insertions."""

from collections.abc import Sequence
from random import Random


def mutated(source: bytes, random: Random, words: Sequence[bytes]) -> bytes:
    """`source` after one to four edits. `words` may be inserted."""
    made = source
    for _ in range(random.choice((1, 1, 2, 4))):
        at, to = sorted((random.randint(0, len(made)), random.randint(0, len(made))))
        kind = random.randrange(6)
        if kind == 0:
            made = made[:at] + made[to:]
        elif kind == 1:
            made = made[:at] + random.choice(words) + made[at:]
        elif kind == 2:
            made = made[:at] + random.choice(words) + made[to:]
        elif kind == 3:
            made = made[:to] + made[at:]
        elif kind == 4:
            made = made[:at] + random.randbytes(random.randint(1, 3)) + made[at + 1 :]
        else:
            made = made[:at] + random.choice(words) * random.randint(1, 40) + made[at:]
    return made


def mutated_text(source: str, random: Random, words: Sequence[str]) -> str:
    """`source` after one to four edits. `words` may be inserted."""
    encoded = [it.encode() for it in words]
    return mutated(source.encode(), random, encoded).decode("utf-8", "replace")


def cuts(source: bytes, random: Random) -> list[bytes]:
    """`source` in pieces of random size."""
    most = random.choice((1, 2, 7, 40, 400))
    pieces: list[bytes] = []
    at = 0
    while at < len(source):
        size = random.randint(1, most)
        pieces.append(source[at : at + size])
        at += size
    return pieces
