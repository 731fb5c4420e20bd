"""What a file of `architectures/` tells about its architecture."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hostelry.engine.models.fields import Fields
from hostelry.engine.models.spec import ModelSpec
from hostelry.engine.models.tensors import NormNames


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """An architecture by the name config.json gives it.

    `read_spec` reads the fields it knows, with the parsed generation_config.json; whoever calls it
    refuses the fields it left.
    """

    name: str
    model_type: str
    read_spec: Callable[[Fields, Mapping[str, Any]], ModelSpec]
    norms: NormNames
