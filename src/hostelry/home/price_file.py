"""The operator's prices.toml, and the example that ships with the package."""

import logging
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.cost.prices import (
    NO_PRICES,
    PriceFileError,
    PriceList,
    get_price_per_hour,
    parse_prices,
)
from hostelry.fleet.shapes import describe_unknown_type, instance_types

LOG = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024 * 1024
MAX_SHOWN_TYPES = 5


def load_prices(path: Path) -> PriceList | None:
    """The prices in a file, or None if it does not exist. Raises TerminalError with the fault."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise TerminalError(
            f"{path} has more than {MAX_FILE_BYTES} bytes. Remove instance types that you do not"
            " use"
        )
    try:
        return parse_prices(content.decode())
    except UnicodeDecodeError as error:
        raise TerminalError(
            f"{path} is not UTF-8 text: byte {error.start}. Save it as UTF-8"
        ) from error
    except PriceFileError as error:
        raise TerminalError(f"{path}: {error}") from error


def list_unknown_types(prices: PriceList, used: Collection[str | None] = ()) -> list[str]:
    """Faults of prices whose instance types are unknown, and not in `used`: they price nothing."""
    unknown = [it for it in prices.instances if it not in used and it not in instance_types()]
    faults = [f"{describe_unknown_type(it)}" for it in unknown[:MAX_SHOWN_TYPES]]
    more = len(unknown) - len(faults)
    return [*faults, f"{more:,} further unknown instance types"] if more else faults


def read_example() -> str:
    """The text of the example."""
    return (files("hostelry.cost") / "example_prices.toml").read_text(encoding="utf-8")


class PriceFile:
    """The prices in one prices.toml. The first use after a change reads the file again.

    An error in the file is logged once per change. Until the file is valid, no price is known.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prices: PriceList | None = None
        self._seen: Stamp | None = None

    def get(self) -> PriceList | None:
        """The prices in force. None without a valid file."""
        seen = get_stamp(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._prices = load_prices(self._path)
            except TerminalError as error:
                self._prices = None
                LOG.warning("no price is known: %s", error)
            for fault in list_unknown_types(self._prices or NO_PRICES):
                LOG.warning("%s: %s", self._path, fault)
        return self._prices

    def get_price_per_hour(self, instance_type: str) -> float | None:
        """The price of an hour of an instance type, or None if the price is unknown."""
        prices = self.get()
        return None if prices is None else get_price_per_hour(prices, instance_type)
