"""Input of a rule's target, from the event that matched. PURE.

the target has      its input
------------------  ----------------------------------------------------------------
nothing             the event
Input               that text
InputPath           the value at the path in the event
InputTransformer    InputTemplate, with a value for each <name>

A value within quotes of the template is escaped as in JSON, so that no object's key can end the
text. A value outside quotes is JSON. A value that is missing in the event is empty, or null.

Source: "Amazon EventBridge input transformation" in the EventBridge user guide.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hostelry.domain.event_rule import EventRule, RuleTarget

PATH = re.compile(r"\$((?:\.[\w-]+|\['[^']+'\]|\[\d{1,9}\])*)")
STEP = re.compile(r"\.([\w-]+)|\['([^']+)'\]|\[(\d+)\]")
TOKEN = re.compile(r'\\.|"|<([A-Za-z0-9_.-]+)>', re.DOTALL)
RESERVED = "aws.events."
NOTHING = object()


class InputError(ValueError):
    """The target's input cannot be built. The message says why."""


def check_input(rule: EventRule, target: RuleTarget) -> None:
    """Raise InputError where the target's paths or template are not valid."""
    paths = dict(target.template_paths)
    if target.input_path is not None:
        paths["InputPath"] = target.input_path
    for name, path in paths.items():
        if PATH.fullmatch(path) is None:
            raise InputError(
                f"{name} \"{path:.200}\" is no path that is read here: $, .name, ['name'] and [n]."
            )
        if name.startswith(RESERVED):
            raise InputError(f'InputPathsMap may not name "{name}": {RESERVED} is reserved.')
    if target.template is not None:
        _check_template(rule, target)


def build_input(rule: EventRule, target: RuleTarget, event: Mapping[str, Any], now: float) -> str:
    """Build the input of `target` for `event`, taken in at `now` (seconds since the epoch)."""
    if target.input is not None:
        return target.input
    if target.input_path is not None:
        found = value_at(event, target.input_path)
        return "null" if found is NOTHING else _json(found)
    if target.template is None:
        return _json(event)
    values = {name: value_at(event, path) for name, path in target.template_paths.items()}
    return fill_template(target.template, {**values, **_build_predefined(rule, event, now)})


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """Replace each <name> in `template` that has a value."""
    parts, at, is_quoted = [], 0, False
    for token in TOKEN.finditer(template):
        if token[0] == '"':
            is_quoted = not is_quoted
        if token[1] is None or token[1] not in values:
            continue
        parts += [template[at : token.start()], _format(values[token[1]], is_quoted=is_quoted)]
        at = token.end()
    return "".join([*parts, template[at:]])


def value_at(event: Any, path: str) -> Any:
    """Return the value at a path of the event, or NOTHING."""
    found = event
    for name, quoted, index in STEP.findall(path):
        if index:
            is_there = isinstance(found, list) and int(index) < len(found)
            found = found[int(index)] if is_there else NOTHING
        else:
            found = found.get(name or quoted, NOTHING) if isinstance(found, dict) else NOTHING
    return found


def _check_template(rule: EventRule, target: RuleTarget) -> None:
    template = target.template or ""
    known = {*target.template_paths, *_build_predefined(rule, {}, 0.0)}
    unknown = [it for it in TOKEN.findall(template) if it and it not in known]
    if unknown:
        raise InputError(f"InputTemplate names <{unknown[0]}>, which InputPathsMap does not have.")
    try:
        json.loads(fill_template(template, dict.fromkeys(known, NOTHING)))
    except (ValueError, RecursionError) as error:
        raise InputError(f"InputTemplate is not JSON once it is filled: {error}.") from None


def _build_predefined(rule: EventRule, event: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    whole = dict(event)
    return {
        f"{RESERVED}rule-arn": rule.arn,
        f"{RESERVED}rule-name": rule.name,
        f"{RESERVED}event.ingestion-time": datetime.fromtimestamp(now, UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        ),
        f"{RESERVED}event": {name: it for name, it in whole.items() if name != "detail"},
        f"{RESERVED}event.json": whole,
    }


def _format(value: Any, *, is_quoted: bool) -> str:
    if value is NOTHING:
        return "" if is_quoted else "null"
    if not is_quoted:
        return _json(value)
    return _json(value if isinstance(value, str) else _json(value))[1:-1]


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair has no UTF-8
