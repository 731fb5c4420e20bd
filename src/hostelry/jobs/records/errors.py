"""Errors in the data of a transform job."""

from hostelry.base.errors import HostelryError


class RecordError(HostelryError):
    """An object's records cannot be read or sent, or its answers not kept; the same again fails."""
