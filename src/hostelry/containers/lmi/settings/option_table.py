"""Every option that LMI, vLLM and TGI know, and what the server makes of each.

    done              read, or checked to have a value that is done
    refused           any value that asks for more ends the start
    no effect         accepted with a warning, since it cannot change an answer
    not in the table  a warning with names that are close; refused with option.strict_options=true

`option_page.py` writes docs/llm-options.md of it.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from hostelry.containers.lmi.settings.lmi_options import LMI_OPTIONS, PROPERTIES
from hostelry.containers.lmi.settings.option_row import OptionRow, Rows
from hostelry.containers.lmi.settings.options import ALIASES
from hostelry.containers.lmi.settings.vllm_options import VLLM_OPTIONS

OPTIONS: Rows = {**LMI_OPTIONS, **VLLM_OPTIONS}
NAME_CHARACTERS = 64  # of an unknown name that is compared with known ones

# Endings of names whose values no message shows.
SECRETS = ("api_key", "hf_token", "authtoken", "keystore_pass")


def row_of(name: str) -> OptionRow | None:
    """The row of an option, or of a property where the name begins with a slash."""
    return PROPERTIES.get(name[1:]) if name.startswith("/") else OPTIONS.get(name)


def close_names(name: str) -> tuple[str, ...]:
    """Known names that look like `name`, the closest first."""
    known: Mapping[str, object] = PROPERTIES if name.startswith("/") else {**OPTIONS, **ALIASES}
    plain = name.removeprefix("/").lower()[:NAME_CHARACTERS]
    return tuple(get_close_matches(plain, known, n=3, cutoff=0.75))
