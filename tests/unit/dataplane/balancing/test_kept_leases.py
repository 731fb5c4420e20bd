"""Leases that a gateway keeps for the next request: their ages, their ends, and their uses."""

from tests.unit.dataplane.routes_sample import COPIES

from hostelry.dataplane.balancing.model_balancer import IDLE_S, MAX_AGE_S, KeptLease, KeptLeases

COPY, OTHER = COPIES


def kept_since(leases: KeptLeases, since_s: float, lease: str = "l-1") -> KeptLease:
    kept = KeptLease(COPY, "a", lease, "m-a", since_s)
    leases.add(kept)
    return kept


def test_the_next_requests_use_the_lease_of_their_copy_and_model() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    assert leases.take(COPY, "a", 10.1) is kept
    assert leases.take(COPY, "b", 10.1) is None
    assert leases.take(OTHER, "a", 10.1) is None
    assert not leases.give_back(kept, 10.2)
    assert not leases.give_back(kept, 10.3)
    assert leases.take(COPY, "a", 10.4) is kept
    assert (kept.in_use, kept.uses) == (1, 3)


def test_an_idle_lease_ends_after_a_moment_and_one_in_use_does_not() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    assert leases.remove_idle(10.0 + IDLE_S) == []
    leases.give_back(kept, 10.1)
    assert leases.remove_idle(10.1 + IDLE_S / 2) == []
    assert leases.remove_idle(10.1 + IDLE_S) == [kept]
    assert leases.take(COPY, "a", 10.1 + IDLE_S) is None
    assert leases.remove_idle(99.0) == []
    assert leases.num_idle == 0


def test_an_old_lease_is_used_no_more_and_ends_with_its_requests() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    leases.take(COPY, "a", 10.5)
    assert leases.take(COPY, "a", 10.0 + MAX_AGE_S) is None
    another = kept_since(leases, 11.0, "l-2")
    assert not leases.give_back(kept, 11.1)
    assert leases.give_back(kept, 11.2)
    assert leases.take(COPY, "a", 11.3) is another


def test_an_idle_lease_that_has_become_old_ends_beside_the_one_after_it() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    leases.give_back(kept, 10.0 + MAX_AGE_S - 0.01)
    another = kept_since(leases, 10.0 + MAX_AGE_S, "l-2")
    leases.give_back(another, 11.1)
    assert leases.remove_idle(11.2 + IDLE_S) == [kept, another]


def test_a_lost_model_ends_its_lease_at_once_and_once() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    leases.take(COPY, "a", 10.1)
    assert leases.give_back(kept, 10.2, lost=True)
    assert leases.take(COPY, "a", 10.2) is None
    assert not leases.give_back(kept, 10.3)
    assert leases.close() == []


def test_a_lease_that_is_not_kept_ends_with_its_request() -> None:
    leases = KeptLeases()
    assert leases.give_back(KeptLease(COPY, "a", "l-1", "m-a", 10.0), 10.1)


def test_a_model_without_room_ends_its_lease_with_its_requests() -> None:
    leases = KeptLeases()
    kept = kept_since(leases, 10.0)
    leases.take(COPY, "a", 10.1)
    assert not leases.give_back(kept, 10.2, again=False)
    assert leases.take(COPY, "a", 10.2) is None
    assert leases.give_back(kept, 10.3)
