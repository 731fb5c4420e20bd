"""Random numbers as a function of a seed and a counter, without generator state.

Source: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_DERIVED = 0xD1B54A32D192ED03  # sets derived seeds apart from draws


def draw_uniform(seed: int, index: int) -> float:
    """A number in [0, 1), a function of seed and index alone."""
    return (_mix(_mix(seed & _MASK) + (index + 1) * _STEP) >> 11) / (1 << 53)


def derive_seed(seed: int, number: int) -> int:
    """A seed below 2**63 for part `number` of a request with `seed`. Independent of its draws."""
    return _mix(_mix(_mix(seed & _MASK) ^ _DERIVED) + number * _STEP) >> 1


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
