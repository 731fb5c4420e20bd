"""A percentile sketch as a short byte string: counts of values in logarithmic buckets.

Bucket k > 0 holds the values in (GAMMA^(k-1-OFFSET), GAMMA^(k-OFFSET)], bucket -k their negatives,
bucket 0 values too small to differ from zero. So keys sort as values do, a merge adds counts, and
the middle of a bucket is within RELATIVE_ERROR of every value in it.

Source: Masson, Rim, Lee: DDSketch (VLDB 2019), section 2. A sketch of few values is tens of bytes
where an object of the ddsketch package is two thousand: docs/decisions.md.
"""

import math
from array import array
from collections.abc import Iterable, Sequence

RELATIVE_ERROR = 0.01
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
# CloudWatch takes values up to 2^360 in magnitude. Smaller values than 2^-360 count as zero.
LARGEST = 2.0**360
SMALLEST = 2.0**-360
_LOG_GAMMA = math.log(GAMMA)
_OFFSET = math.ceil(360 * math.log(2) / _LOG_GAMMA) + 1
_MIDDLE = 2 / (1 + GAMMA)
_KEY_BYTES = 2
# Counts have two bytes if all are whole and small, as nearly always, else eight.
_SMALL, _LARGE = "H", "d"
_MAX_SMALL = 0xFFFF
_SMALL_TAG = b"s"
_LARGE_TAG = b"l"


def compute_key(value: float) -> int:
    """The key of the bucket of `value`. Values beyond LARGEST are in the outermost bucket."""
    size = abs(value)
    if size < SMALLEST:
        return 0
    key = min(math.ceil(math.log(size) / _LOG_GAMMA), _OFFSET - 1) + _OFFSET
    return key if value > 0 else -key


def get_value(key: int) -> float:
    """The value that represents a bucket: within RELATIVE_ERROR of all its values."""
    if key == 0:
        return 0.0
    size = math.exp((abs(key) - _OFFSET) * _LOG_GAMMA) * _MIDDLE
    return size if key > 0 else -size


def build_sketch(values: Iterable[float], counts: Iterable[float]) -> bytes:
    """The sketch of `values`, each repeated as often as `counts` says."""
    found: dict[int, float] = {}
    for value, count in zip(values, counts, strict=True):
        key = compute_key(value)
        found[key] = found.get(key, 0.0) + count
    return _pack(found)


def merge(sketches: Iterable[bytes]) -> bytes:
    """The sketch of the values of all sketches."""
    found: dict[int, float] = {}
    for sketch in sketches:
        for key, count in _entries(sketch):
            found[key] = found.get(key, 0.0) + count
    return _pack(found)


def weighted_values(sketch: bytes) -> list[tuple[float, float]]:
    """(value, count) of every bucket, smallest value first."""
    return [(get_value(key), float(count)) for key, count in _entries(sketch)]


def _entries(sketch: bytes) -> Iterable[tuple[int, float]]:
    keys, counts = array("h"), array(_SMALL if sketch[:1] == _SMALL_TAG else _LARGE)
    middle = 1 + (len(sketch) - 1) // (_KEY_BYTES + counts.itemsize) * _KEY_BYTES
    keys.frombytes(sketch[1:middle])
    counts.frombytes(sketch[middle:])
    return zip(keys, counts, strict=True)


def _pack(found: dict[int, float]) -> bytes:
    keys: Sequence[int] = sorted(found)
    counts = [found[key] for key in keys]
    if all(count <= _MAX_SMALL and count == int(count) for count in counts):
        body = array(_SMALL, map(int, counts)).tobytes()
        return _SMALL_TAG + array("h", keys).tobytes() + body
    return _LARGE_TAG + array("h", keys).tobytes() + array(_LARGE, counts).tobytes()
