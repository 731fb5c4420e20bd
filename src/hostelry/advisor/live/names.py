"""Names of models that are valid in a mix, for names of the platform. PURE."""

from collections.abc import Callable
from itertools import count

from hostelry.advisor.mix_form import MAX_NAME_CHARS


class MixNames:
    """Gives each name of the platform a different name in a mix."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}
        self._taken: set[str] = set()

    def add(self, name: str) -> str:
        """A new name, as like the given one as can be."""
        found = self._find_free(name)
        self._by_name.setdefault(name, found)
        self._taken.add(found)
        return found

    def get(self, name: str) -> str:
        """The name that `add` gave, or will give. A base may be listed after its adapters."""
        return self._by_name.get(name) or clean_name(name)

    def _find_free(self, name: str) -> str:
        cleaned = clean_name(name)
        endings: Callable[[int], str] = "-{}".format
        tried = (
            cleaned
            if number == 1
            else cleaned[: MAX_NAME_CHARS - len(endings(number))].rstrip("-") + endings(number)
            for number in count(1)
        )
        return next(it for it in tried if it not in self._taken)


def clean_name(name: str) -> str:
    """A name of letters and digits with single hyphens between them."""
    letters = [it if it.isascii() and it.isalnum() else "-" for it in name]
    parts = [it for it in "".join(letters).split("-") if it]
    return "-".join(parts)[:MAX_NAME_CHARS].rstrip("-") or "model"
