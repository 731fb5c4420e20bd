"""The quotas that select a call.

A call is counted by each quota that selects it, under the quota's id and the call's names for the
selectors that are `*`. These make the key of the count, which is the same in every process.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from hostelry.domain.quota import EACH, SELECTORS, CallPrices, Priority, Quota, QuotaDocument
from hostelry.quotas.measures import CONCURRENCY, REQUESTS, list_limits

KEY_BYTES = 16
OTHERS = "(others)"
MAX_VALUES = 1000  # of the selectors `*` of one quota. Clients can choose names of adapters
MAX_KNOWN_CALLS = 4096
DEFAULT_WEIGHT = 1.0


class QuotaCall(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a call that quotas select by. `principal` is an ARN.

    A call of an adapter has its base as `component`. A call that a graph makes for another call
    `is_inner`: it is not one more request, and its tokens are charged.
    """

    account: str
    principal: str = ""
    endpoint: str = ""
    component: str = ""
    adapter: str = ""
    openai_key: str = ""
    is_inner: bool = False


class QuotaCount(msgspec.Struct, frozen=True, kw_only=True):
    """A count that a call belongs to. `values` are the call's names for the selectors `*`.

    `limits` are the quota's limits by measure.
    """

    quota: Quota
    values: tuple[str, ...]
    key: bytes
    limits: tuple[tuple[int, int], ...]

    @property
    def label(self) -> str:
        """The values in words: `endpoint chat, adapter blue`. Empty without selectors `*`."""
        each = [name for name, value in self.quota.selectors.items() if value == EACH]
        pairs = zip(each, self.values, strict=True)
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in pairs)


class CallStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a call, and its place in the queue of a busy endpoint."""

    counts: tuple[QuotaCount, ...] = ()
    priority: Priority = Priority.NORMAL
    weight: float = DEFAULT_WEIGHT

    @property
    def counts_tokens(self) -> bool:
        """True if a limit depends on the numbers of tokens or the cost of the call."""
        measures = {measure for it in self.counts for measure, _ in it.limits}
        return not measures <= {REQUESTS, CONCURRENCY}


NO_STANDING = CallStanding()


class QuotaIndex:
    """The quotas of a document, and the standings of the last calls."""

    def __init__(self, document: QuotaDocument) -> None:
        self.version = document.version
        self.quotas = document.quotas
        self.prices: CallPrices = document.prices
        self._by_account: dict[str, list[Quota]] = {}
        for quota in sorted(document.quotas, key=lambda it: it.name):
            self._by_account.setdefault(quota.account, []).append(quota)
        self._known: dict[QuotaCall, CallStanding] = {}
        self._values: dict[str, set[tuple[str, ...]]] = {}

    def find(self, call: QuotaCall) -> CallStanding:
        """Find the quotas that select the call."""
        found = self._known.get(call)
        if found is None:
            if len(self._known) >= MAX_KNOWN_CALLS:
                self._known.clear()
            found = self._known[call] = self._build(call)
        return found

    def _build(self, call: QuotaCall) -> CallStanding:
        own = self._by_account.get(call.account, ())
        selecting = [it for it in (*own, *self._by_account.get(EACH, ())) if selects(it, call)]
        counts = [self._count(it, call) for it in selecting if list_limits(it)]
        return CallStanding(
            counts=tuple(counts),
            priority=next((it.priority for it in selecting if it.priority), Priority.NORMAL),
            weight=next((it.weight for it in selecting if it.weight), DEFAULT_WEIGHT),
        )

    def _count(self, quota: Quota, call: QuotaCall) -> QuotaCount:
        values = tuple(
            getattr(call, name) for name, value in quota.selectors.items() if value == EACH
        )
        known = self._values.setdefault(quota.id, set())
        if values not in known and len(known) >= MAX_VALUES:
            values = (OTHERS,) * len(values)
        known.add(values)
        return QuotaCount(
            quota=quota,
            values=values,
            key=compute_key(quota.id, values),
            limits=list_limits(quota),
        )


def selects(quota: Quota, call: QuotaCall) -> bool:
    """True if the quota counts the call."""
    for name in SELECTORS:
        wanted = getattr(quota, name)
        if wanted is not None:
            value = getattr(call, name)
            if not value or wanted not in (EACH, value):
                return False
    return True


def compute_key(quota_id: str, values: Iterable[str]) -> bytes:
    """Compute the key of a count. It is never all zero."""
    text = "\0".join((quota_id, *values))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def build_document(quotas: Iterable[Quota], prices: CallPrices) -> QuotaDocument:
    """Build the document of these quotas, whose version depends on its content only."""
    ordered = tuple(sorted(quotas, key=lambda it: (it.account, it.name)))
    content = msgspec.json.encode((ordered, prices), order="deterministic")
    version = blake2b(content, digest_size=KEY_BYTES).hexdigest()
    return QuotaDocument(version=version, quotas=ordered, prices=prices)
