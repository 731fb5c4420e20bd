"""One kind of resource, and how the operations on it find, write and delete its records."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope
from hostelry.store.records import Records, State, Versioned

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RecordKind(Generic[T]):
    """The records of one kind in the scope of a call.

    `records` selects them from the state. `not_found` builds the error for a missing record from
    the name in the request. `record_name` is the name that a value is stored under.
    """

    records: Callable[[State], Records[T]]
    not_found: Callable[[CallContext, str], ServiceError]
    record_name: Callable[[T], str] = operator.attrgetter("name")
    is_account_wide: bool = False

    def get(self, context: CallContext, name: str) -> Versioned[T] | None:
        """The record of that name, or None."""
        return self.records(context.state).get(self._scope(context), name)

    def find(self, context: CallContext, name: str) -> Versioned[T]:
        """The record of that name. Raises `not_found`."""
        found = self.get(context, name)
        if found is None:
            raise self.not_found(context, name)
        return found

    def all(self, context: CallContext) -> list[Versioned[T]]:
        """Every record, ordered by name."""
        return self.records(context.state).list(self._scope(context))

    def values(self, context: CallContext) -> list[T]:
        """The value of every record, ordered by name."""
        return [stored.value for stored in self.all(context)]

    def put(self, context: CallContext, value: T, replaced: Versioned[Any] | None = None) -> T:
        """Store `value` as a new record, or in place of the record `replaced`."""
        name, version = self.record_name(value), replaced.version if replaced else None
        self.records(context.state).put(self._scope(context), name, value, expect=version)
        return value

    def delete(self, context: CallContext, stored: Versioned[T]) -> None:
        """Delete a record."""
        name = self.record_name(stored.value)
        self.records(context.state).delete(self._scope(context), name, expect=stored.version)

    def _scope(self, context: CallContext) -> Scope:
        return context.scope.account_wide if self.is_account_wide else context.scope
