"""The status of a copy as callers get it."""

import dataclasses
from dataclasses import fields

from msgspec.structs import replace

from hostelry.domain.copy import AdapterPhase, AdapterStatus, CopyPhase, CopyStatus, LastEnd
from hostelry.fleet.agent.copy_state import hide_status_paths

PATH = "no file /srv/h/x"
SHOWN = "no file x"
STATUS = CopyStatus(
    id="c-1",
    phase=CopyPhase.FAILED,
    reason=PATH,
    log_tail=PATH,
    last_end=LastEnd(at=1.0, cause=PATH, log_tail=PATH),
    adapters=(
        AdapterStatus(id="a", phase=AdapterPhase.FAILED, reason=PATH),
        AdapterStatus(id="b", phase=AdapterPhase.READY),
    ),
)


def hide_paths(text: str) -> str:
    return text.replace("/srv/h/", "")


def test_no_text_of_a_status_has_a_path_of_the_machine() -> None:
    found = hide_status_paths(STATUS, hide_paths)
    assert PATH not in str([getattr(found, it.name) for it in fields(found)])
    assert found == dataclasses.replace(
        STATUS,
        reason=SHOWN,
        log_tail=SHOWN,
        last_end=LastEnd(at=1.0, cause=SHOWN, log_tail=SHOWN),
        adapters=(replace(STATUS.adapters[0], reason=SHOWN), STATUS.adapters[1]),
    )


def test_a_status_without_such_a_path_is_the_same_object() -> None:
    status = CopyStatus(id="c-1", phase=CopyPhase.READY)
    assert hide_status_paths(status, hide_paths) is status
