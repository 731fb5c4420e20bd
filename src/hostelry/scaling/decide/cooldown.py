"""Cooldowns: which earlier act still counts, and for how long.

| last act that way | in force |
| --- | --- |
| none, or an act the other way came later | no |
| its cooldown / pace is over | no |
| further in the future than a cooldown: the clock was set back | no |
| otherwise | yes |

Source: "Target tracking scaling policies" and "Step scaling policies" (Cooldown period) in the
Application Auto Scaling user guide.
"""

from hostelry.scaling.decide.decision import Direction, LastAct, LastActs


def act_in_force(
    acts: LastActs, direction: Direction, cooldown_s: float, pace: float, now: float
) -> LastAct | None:
    """The act that way whose cooldown lasts at `now`; None where nothing holds a new one back.

    An act the other way ends it: scaling out aborts the cooldown of scaling in. The cooldown counts
    from the act's success, and `pace` divides it.
    """
    outwards = direction is Direction.OUT
    act = acts.scale_out if outwards else acts.scale_in
    other = acts.scale_in if outwards else acts.scale_out
    if act is None or (other is not None and other.at > act.at):
        return None
    return act if remaining_s(act, cooldown_s, pace, now) > 0.0 else None


def remaining_s(act: LastAct, cooldown_s: float, pace: float, now: float) -> float:
    """Seconds until the cooldown that began with `act` ends; 0 where it has ended.

    An act further in the future than a whole cooldown was timed by a clock that has since been set
    back, and holds nothing back.
    """
    lasts_s = cooldown_s / pace
    left_s = act.at + lasts_s - now
    return left_s if 0.0 < left_s <= 2.0 * lasts_s else 0.0
