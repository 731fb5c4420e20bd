"""The description of an architecture that each file of `architectures/` gives."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hostelry.engine.models.fields import ConfigFields
from hostelry.engine.models.spec import ModelSpec
from hostelry.engine.models.tensors import NormNames


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """An architecture, named as in config.json.

    `read_spec` reads the fields it knows, with the parsed generation_config.json. The caller
    refuses the unread fields.
    """

    name: str
    model_type: str
    read_spec: Callable[[ConfigFields, Mapping[str, Any]], ModelSpec]
    norms: NormNames
