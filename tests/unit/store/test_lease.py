"""Decisions of a control process after a look at the lease."""

from tests.cases import case, cases

from hostelry.store.lease import (
    TTL_S,
    Acquire,
    LeaderLease,
    LeaseLook,
    Renew,
    StandBy,
    StepDown,
    decide,
)

NOW = 1_000.0


def lease(
    holder: str = "b", epoch: int = 3, age_s: float = 0.5, released: bool = False
) -> LeaderLease:
    renewed_at = NOW - age_s
    return LeaderLease(
        holder=holder,
        epoch=epoch,
        renewals=7,
        renewed_at=renewed_at,
        expires_at=0.0 if released else renewed_at + TTL_S,
    )


def view(
    found: LeaderLease | None,
    unchanged_s: float = 0.0,
    session_lives: bool = True,
    server_age_s: float = 3600.0,
) -> tuple[LeaseLook, float]:
    look = LeaseLook(
        lease=found,
        now=NOW,
        session_lives=session_lives,
        server_started_at=NOW - server_age_s,
    )
    return look, unchanged_s


@cases(
    "seen, reason",
    case("a renewed lease is waited for", view(lease()), None),
    case("the first control takes it", view(None), "no control led before"),
    case("a released one is taken", view(lease(released=True)), "b released it"),
    case(
        "the lease of a killed holder is taken at once",
        view(lease(), session_lives=False),
        "the session of b ended",
    ),
    case(
        "sessions that the server's restart ended say nothing of their owners",
        view(lease(age_s=2.0), session_lives=False, server_age_s=1.0),
        None,
    ),
    case(
        "nor where it restarted in the moment of the last renewal",
        view(lease(age_s=1.0), session_lives=False, server_age_s=1.0),
        None,
    ),
    case(
        "the lease of a frozen holder expires",
        view(lease(age_s=TTL_S)),
        "b did not renew it for 5.0 s",
    ),
    case("but not sooner", view(lease(age_s=TTL_S - 0.1)), None),
    case(
        "after the server's restart its holder has time to come back",
        view(lease(age_s=60.0), session_lives=False, server_age_s=TTL_S - 0.1),
        None,
    ),
    case(
        "and no longer than that",
        view(lease(age_s=60.0), session_lives=False, server_age_s=TTL_S),
        "b did not renew it for 60.0 s",
    ),
    case(
        "an hour that the database's clock went back is not waited for",
        view(lease(age_s=-3600.0), unchanged_s=TTL_S),
        "b did not renew it for 5.0 s",
    ),
    case(
        "and a holder that renews meanwhile keeps it",
        view(lease(age_s=-3600.0), unchanged_s=TTL_S - 0.1),
        None,
    ),
)
def test_a_standby_takes_the_lease_when_its_holder_is_gone(
    seen: tuple[LeaseLook, float], reason: str | None
) -> None:
    assert decide("a", None, *seen) == (StandBy() if reason is None else Acquire(reason))


@cases(
    "epoch, found, expected",
    case("its own lease is renewed", 3, lease("a"), Renew(3)),
    case("an expired one too, if no other took it", 3, lease("a", age_s=60.0), Renew(3)),
    case("it leads where the answer to its acquisition was lost", None, lease("a"), Renew(3)),
    case(
        "it steps down once another has it",
        3,
        lease("b", epoch=4),
        StepDown("epoch 3 is over: b has the lease with epoch 4"),
    ),
    case(
        "its own newer epoch is not the one that it acts with",
        3,
        lease("a", epoch=4),
        StepDown("epoch 3 is over: a has the lease with epoch 4"),
    ),
    case(
        "it steps down where the database lost the lease",
        3,
        None,
        StepDown("epoch 3 is over: the database has no lease any more"),
    ),
)
def test_a_leader_renews_or_steps_down(
    epoch: int | None, found: LeaderLease | None, expected: Renew | StepDown
) -> None:
    assert decide("a", epoch, *view(found)) == expected
