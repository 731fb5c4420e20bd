"""Decisions of a control process after a look at the lease."""

import pytest

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


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        pytest.param(view(lease()), None, id="a renewed lease is waited for"),
        pytest.param(view(None), "no control led before", id="the first control takes it"),
        pytest.param(view(lease(released=True)), "b released it", id="a released one is taken"),
        pytest.param(
            view(lease(), session_lives=False),
            "the session of b ended",
            id="the lease of a killed holder is taken at once",
        ),
        pytest.param(
            view(lease(age_s=2.0), session_lives=False, server_age_s=1.0),
            None,
            id="sessions that the server's restart ended say nothing of their owners",
        ),
        pytest.param(
            view(lease(age_s=1.0), session_lives=False, server_age_s=1.0),
            None,
            id="nor where it restarted in the moment of the last renewal",
        ),
        pytest.param(
            view(lease(age_s=TTL_S)),
            "b did not renew it for 5.0 s",
            id="the lease of a frozen holder expires",
        ),
        pytest.param(view(lease(age_s=TTL_S - 0.1)), None, id="but not sooner"),
        pytest.param(
            view(lease(age_s=60.0), session_lives=False, server_age_s=TTL_S - 0.1),
            None,
            id="after the server's restart its holder has time to come back",
        ),
        pytest.param(
            view(lease(age_s=60.0), session_lives=False, server_age_s=TTL_S),
            "b did not renew it for 60.0 s",
            id="and no longer than that",
        ),
        pytest.param(
            view(lease(age_s=-3600.0), unchanged_s=TTL_S),
            "b did not renew it for 5.0 s",
            id="an hour that the database's clock went back is not waited for",
        ),
        pytest.param(
            view(lease(age_s=-3600.0), unchanged_s=TTL_S - 0.1),
            None,
            id="and a holder that renews meanwhile keeps it",
        ),
    ],
)
def test_a_standby_takes_the_lease_when_its_holder_is_gone(
    seen: tuple[LeaseLook, float], reason: str | None
) -> None:
    assert decide("a", None, *seen) == (StandBy() if reason is None else Acquire(reason))


@pytest.mark.parametrize(
    ("epoch", "found", "expected"),
    [
        pytest.param(3, lease("a"), Renew(3), id="its own lease is renewed"),
        pytest.param(
            3, lease("a", age_s=60.0), Renew(3), id="an expired one too, if no other took it"
        ),
        pytest.param(
            None, lease("a"), Renew(3), id="it leads where the answer to its acquisition was lost"
        ),
        pytest.param(
            3,
            lease("b", epoch=4),
            StepDown("epoch 3 is over: b has the lease with epoch 4"),
            id="it steps down once another has it",
        ),
        pytest.param(
            3,
            lease("a", epoch=4),
            StepDown("epoch 3 is over: a has the lease with epoch 4"),
            id="its own newer epoch is not the one that it acts with",
        ),
        pytest.param(
            3,
            None,
            StepDown("epoch 3 is over: the database has no lease any more"),
            id="it steps down where the database lost the lease",
        ),
    ],
)
def test_a_leader_renews_or_steps_down(
    epoch: int | None, found: LeaderLease | None, expected: Renew | StepDown
) -> None:
    assert decide("a", epoch, *view(found)) == expected
