"""Names of what `deploy` creates, by AWS's rules. Pure."""

import hashlib
import re
import unicodedata

from hostelry.base.errors import UsageError

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,1023}")
# Letters without marks that could be taken away.
SPELLED = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O"}
    | {"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH"}
)
SUFFIXES = (
    ".tar.gz", ".tgz", ".joblib", ".pkl", ".pickle", ".json", ".ubj", ".pt", ".pth",
    ".model",
)  # fmt: skip
MAX_NAME, MAX_VALUE = 63, 1024
DIGEST_LETTERS = 8


def valid_name(text: str) -> str:
    """The name closest to `text` that AWS allows; "model" if nothing of it is left."""
    plain = re.sub(r"[^a-zA-Z0-9]+", "-", _latin(text)).strip("-")[:MAX_NAME].strip("-")
    return plain or "model"


def _latin(text: str) -> str:
    """`text` with the letters of Latin scripts without their marks; others stay."""
    parts = unicodedata.normalize("NFKD", text.translate(SPELLED))
    return "".join(it for it in parts if not unicodedata.combining(it))


def _loses_letters(text: str) -> bool:
    """True if `valid_name` cannot spell a letter or digit of `text`, as of another script."""
    return any(it.isalnum() and not it.isascii() for it in _latin(text))


def default_name(given: str) -> str:
    """The name of a source without --name; raises UsageError if Latin letters cannot spell it."""
    last = _last_part(given)
    if _loses_letters(last):
        raise UsageError(
            f"{last[:MAX_NAME]!r} has letters that SageMaker's names cannot have: give --name"
        )
    return valid_name(last)


def source_name(given: str) -> str:
    """The name of an adapter by its source; a digest stands for letters that are lost."""
    last = _last_part(given)
    return with_digest(valid_name(last), last) if _loses_letters(last) else valid_name(last)


def _last_part(given: str) -> str:
    """The last part of a source's path, without its suffix."""
    path = given.partition("@sha256:")[0].rstrip("/")
    last = path.rpartition("/")[2].partition(":")[0]
    suffix = next((it for it in SUFFIXES if last.endswith(it)), "")
    return last.removesuffix(suffix)


def check_name(option: str, name: str) -> None:
    """Raise UsageError for a name that AWS does not allow, with one that it does."""
    if NAME.fullmatch(name) is None:
        raise UsageError(
            f"{option} {name!r} is no name: up to 63 letters, digits and single hyphens between "
            f"them, for example {valid_name(name)}"
        )


def with_digest(name: str, *parts: str) -> str:
    """`name` with a digest of `parts`: the same parts have the same name."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_LETTERS]
    return f"{name[: MAX_NAME - DIGEST_LETTERS - 1].rstrip('-')}-{digest}"


def adapter_name(name: str, adapter: str) -> str:
    """The name of an adapter's component; a digest stands for what is too long, or is lost."""
    whole = f"{name}-{valid_name(adapter)}"
    is_whole = len(whole) <= MAX_NAME and not _loses_letters(adapter)
    return whole if is_whole else with_digest(whole, name, adapter)


def read_environment(given: list[str]) -> dict[str, str]:
    """The variables of --env K=V. Raises TerminalError."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or ENVIRONMENT_NAME.fullmatch(name) is None:
            raise UsageError(f"--env {pair[:80]!r} is not NAME=VALUE")
        if len(value) > MAX_VALUE:
            raise UsageError(
                f"--env {name} has {len(value)} characters; SageMaker allows {MAX_VALUE}"
            )
        found[name] = value
    return found
