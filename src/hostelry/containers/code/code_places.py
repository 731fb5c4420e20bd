"""Environment and readable places of an author's process. Pure, but for the links it follows.

                          base model's code               an adapter's code
variables                 SETTINGS, NEUTRAL               NEUTRAL
  trusted                 and the rest, less SECRETS      the same as confined
reads                     the model folder                its own folder, the tokenizer's files
writes                    a folder of its own             nothing
both read Python, the system's libraries, and a few files of /etc, /proc and /sys
"""

import os
import site
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hostelry.base.operator_secrets import HUB_VARIABLES

NEUTRAL = (
    "LANG", "LANGUAGE", "LC_*", "TZ", "PATH", "LD_LIBRARY_PATH", "PYTHONSAFEPATH",
    "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
SETTINGS = (
    "OPTION_*", "SERVING_*", "SAGEMAKER_*", "SM_*", "HF_MODEL_ID", "HF_REVISION", "HF_TASK",
    "AWS_REGION", "AWS_DEFAULT_REGION", "TENSOR_PARALLEL_DEGREE",
)  # fmt: skip
SECRETS = (
    "HOSTELRY_*", *sorted(HUB_VARIABLES), "*_PROXY", "*_proxy", "HF_ENDPOINT",
    "*HF_TOKEN", "*API_KEY", "*AUTHTOKEN", "*KEYSTORE_PASS",
)  # fmt: skip
SYSTEM_PLACES = (
    "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs",
    "/etc/mime.types", "/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo",
    "/sys/devices/system/cpu",
)  # fmt: skip
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json", "config.json",
)  # fmt: skip


def code_environment(
    server: Mapping[str, str], *, is_adapter: bool, is_confined: bool, scratch: Path | None
) -> dict[str, str]:
    """The variables of an author's process, of the server's own."""
    shown = {name: it for name, it in server.items() if not is_like(name, SECRETS)}
    if is_adapter:
        passed = {name: it for name, it in shown.items() if is_like(name, NEUTRAL)}
    elif is_confined:
        passed = {name: it for name, it in shown.items() if is_like(name, NEUTRAL + SETTINGS)}
    else:
        passed = shown
    places = {"HOME": str(scratch or "/"), "TMPDIR": str(scratch or "/")}
    own = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if site.ENABLE_USER_SITE:  # found by HOME otherwise
        own["PYTHONUSERBASE"] = site.getuserbase()
    return {**passed, **(places if is_confined else {}), **own}


def is_like(name: str, patterns: Sequence[str]) -> bool:
    """Whether the name is one of `patterns`, in which a star stands for any letters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def readable_places(
    folder: Path, tokenizer_folder: Path, packages: Path | None = None
) -> tuple[str, ...]:
    """Files and folders that the code of `folder` may read."""
    python = [it for it in sys.path if it and Path(it).is_absolute() and Path(it).exists()]
    files = [os.path.realpath(tokenizer_folder / name) for name in TOKENIZER_FILES]
    own = [sys.prefix, sys.base_prefix, *python, str(folder), os.path.realpath(folder)]
    return (*own, *files, *([str(packages)] if packages else []), *SYSTEM_PLACES)
