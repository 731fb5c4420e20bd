"""Differences of JSON documents as merge patches. Pure.

Source: RFC 7386. In a merge patch, null removes a member. So documents must not contain null, which
`without_nulls` removes. A patch replaces a whole array. Therefore data that changes often is kept
in objects keyed by id.
"""

from typing import Any


def without_nulls(value: Any) -> Any:
    """Remove members without a value (None) from `value`, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(it) for key, it in value.items() if it is not None}
    if isinstance(value, (list, tuple)):
        return [without_nulls(it) for it in value]
    return value


def diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch from `before` to `after`. Empty if they are equal."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        if key not in before:
            patch[key] = value
            continue
        old = before[key]
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := diff(old, value):
                patch[key] = inner
        elif old != value or type(old) is not type(value):
            patch[key] = value
    return patch


def apply_patch(document: Any, patch: Any) -> Any:
    """Apply `patch` to `document` as a browser does."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_patch(result.get(key), value)
    return result
