"""Divergence of a shadow's answers from production's to the same requests, as counts."""

from dataclasses import dataclass

from hostelry.domain.distribution import EMPTY, Distribution, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Pairs of answers that were compared; `exact` say the same, `close` within the tolerance.

    `exact` ones are close, too. Distances, from 0 to 1, are in millionths, those of `exact` pairs
    among them.
    """

    pairs: int = 0
    exact: int = 0
    close: int = 0
    distance_millionths: Distribution = EMPTY

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of pairs."""
        return self.pairs, self.exact, self.close

    def plus(self, other: "Divergence") -> "Divergence":
        """Both, added up."""
        if not other.pairs or not self.pairs:
            return self if self.pairs else other
        return Divergence(
            pairs=self.pairs + other.pairs,
            exact=self.exact + other.exact,
            close=self.close + other.close,
            distance_millionths=joined(self.distance_millionths, other.distance_millionths),
        )


NO_DIVERGENCE = Divergence()
