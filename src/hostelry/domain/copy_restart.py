"""A copy that a person asked to have replaced by a new one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRestart:
    """The desired replacement of a copy, kept in its endpoint's record until it is over.

    Copies of one group (a component, or a variant's model) are replaced one after the other;
    `began_at` is when this one's turn came. With `with_instance` the copy has its instance to
    itself: another instance comes up for it. `failure` is why it was given up: the copy serves on.
    """

    copy_id: str
    component_name: str | None
    variant_name: str
    instance_id: str
    asked_at: float
    with_instance: bool = False
    began_at: float | None = None
    failure: str | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a replacement comes up now."""
        return self.began_at is not None and self.failure is None

    @property
    def group(self) -> tuple[str | None, str]:
        """The component and the variant, of which one copy is replaced at a time."""
        return (self.component_name, self.variant_name)
