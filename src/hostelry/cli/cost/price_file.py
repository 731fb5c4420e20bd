"""The operator's prices.toml, and the example that ships with the package."""

from importlib.resources import files
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.cost.prices import PriceFileError, PriceList, parse_prices

MAX_FILE_BYTES = 1024 * 1024


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


def read_example() -> str:
    """The text of the example."""
    return (files("hostelry.cost") / "example_prices.toml").read_text(encoding="utf-8")
