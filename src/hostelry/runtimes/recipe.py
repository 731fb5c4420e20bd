"""A runtime's ingredients. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a runtime is made.

    packages: what is resolved together, or, of vLLM, installed one after another.
    removed: packages to remove then. stand_in: one that looks itself up under the name "vllm".
    at_start: a module of this package that the runtime's interpreter imports at its start.
    pythons: the versions that it runs on, best first; none: the platform's own interpreter.
    imports: the module that must be importable in the end.
    instead: what is made where no index has these packages; `lacks` is what it has not, in words.
    """

    packages: Sequence[str]
    imports: str
    removed: Sequence[str] = ()
    stand_in: str | None = None
    at_start: str | None = None
    pythons: Sequence[str] = ()
    instead: "Recipe | None" = None
    lacks: str = ""

    @property
    def is_locked(self) -> bool:
        """Whether all packages are resolved at once, and kept as a list with hashes."""
        return bool(self.pythons)
