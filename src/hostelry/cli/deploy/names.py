"""Names of what `deploy` creates, by AWS's rules. Pure."""

import hashlib
import re

from hostelry.base.errors import TerminalError, UsageError

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,1023}")
MAX_NAME, MAX_VALUE = 63, 1024
DIGEST_LETTERS = 8


def valid_name(text: str) -> str:
    """The name closest to `text` that AWS allows; "model" where nothing of it is left."""
    plain = re.sub(r"[^a-zA-Z0-9]+", "-", text).strip("-")[:MAX_NAME].strip("-")
    return plain or "model"


def default_name(given: str) -> str:
    """The name of a source without --name: the last part of its path, without its suffix."""
    last = re.sub(r"^docker://|^hf://|^s3://|@sha256:.*$", "", given).rstrip("/").rpartition("/")[2]
    last = last.partition(":")[0]
    return valid_name(re.sub(r"\.(tar\.gz|tgz|joblib|pkl|pickle|json|ubj|pt|pth|model)$", "", last))


def check_name(option: str, name: str) -> None:
    """Raise TerminalError for a name that AWS does not allow, with one that it does."""
    if NAME.fullmatch(name) is None:
        raise TerminalError(
            f"{option} {name!r} is no name: up to 63 letters, digits and single hyphens between "
            f"them, for example {valid_name(name)}"
        )


def with_digest(name: str, *parts: str) -> str:
    """`name` with a digest of `parts`: the same parts have the same name."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_LETTERS]
    return f"{name[: MAX_NAME - DIGEST_LETTERS - 1].rstrip('-')}-{digest}"


def adapter_name(name: str, adapter: str) -> str:
    """The name of an adapter's component; a digest stands for what is too long."""
    whole = f"{name}-{valid_name(adapter)}"
    return whole if len(whole) <= MAX_NAME else with_digest(whole, name, adapter)


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
