"""Changes of messages and tables that the previous version would not understand. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

# Enum values that this version reads but does not send yet. The next version may send them.
READ_FIRST: Mapping[str, frozenset[Any]] = {}


def broken_types(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    read_first: Mapping[str, frozenset[Any]] = READ_FIRST,
) -> list[str]:
    """Sentences about type changes that break the previous version, or this version."""
    found = [
        f"{name} refuses fields that it does not know"
        for name, it in now.items()
        if it.get("additionalProperties") is False
    ]
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            found.append(f"{name} is gone")
        elif "enum" in old:
            found += broken_values(name, old, new, read_first.get(name, frozenset()))
        elif "properties" in old:
            found += broken_fields(name, old, new)
        elif old != new:
            found.append(f"{name} was {old}, and is {new}")
    return found


def broken_values(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], read_first: frozenset[Any]
) -> Iterator[str]:
    """Enum values that one of the two versions does not read."""
    before, now = set(old["enum"]), set(new.get("enum", ()))
    for value in sorted(before - now):
        yield f"{name} reads {value!r} no more, which the version before sends"
    for value in sorted(now - before - read_first):
        yield f"{name} has {value!r}, which the version before does not read"


def broken_fields(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Fields that one of the two versions lacks, or reads as another type."""
    fields = new.get("properties", {})
    for field, was in old["properties"].items():
        if field not in fields:
            yield f"{name}.{field} is gone, which the version before needs"
        elif bare(was) != bare(fields[field]):
            yield f"{name}.{field} was {bare(was)}, and is {bare(fields[field])}"
    for field in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{name}.{field} needs a default: the version before does not send it"


def bare(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field's schema without its default."""
    return {key: it for key, it in field.items() if key != "default"}


def broken_tables(
    before: Mapping[str, Mapping[str, str]],
    now: Mapping[str, Mapping[str, str]],
    growing: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Sentences about table changes that break programs of the previous version.

    Tables in `growing` may get columns that need no value. Other tables in `now` must not change.
    """
    found = []
    for table, columns in before.items():
        new = {**now, **growing}.get(table)
        if new is None:
            found.append(f"the table {table} is gone")
            continue
        for column, was in columns.items():
            if new.get(column) != was:
                found.append(f"{table}.{column} was {was}, and is {new.get(column, 'gone')}")
        for column in new.keys() - columns.keys():
            if table not in growing:
                found.append(f"{table}.{column} is new, and nothing adds it where the table is")
            elif not new[column].endswith((" null", " default")):
                found.append(f"{table}.{column} is new, and needs a default of the server")
    return found
