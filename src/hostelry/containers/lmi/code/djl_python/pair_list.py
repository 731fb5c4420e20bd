"""Pairs in order, whose keys may be absent or repeated."""

from typing import Any


class PairList:
    """Keys and values of a request's or a response's parts."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.values: list[Any] = []

    def add(self, key: str | None = None, value: Any = None) -> None:
        """Append a pair. None stands for no value."""
        if value is not None:
            self.keys.append(key)
            self.values.append(value)

    def size(self) -> int:
        """The number of pairs."""
        return len(self.keys)

    def is_empty(self) -> bool:
        """True if the list is empty."""
        return not self.keys

    def get(self, key: str | None) -> Any:
        """The first value under `key`. None if absent."""
        return self.values[self.keys.index(key)] if key in self.keys else None

    def key_at(self, index: int) -> str | None:
        """The key of one pair."""
        return self.keys[index]

    def value_at(self, index: int) -> Any:
        """The value of one pair."""
        return self.values[index]

    def get_keys(self) -> list[str | None]:
        """Every key, in order."""
        return self.keys

    def get_values(self) -> list[Any]:
        """Every value, in order."""
        return self.values
