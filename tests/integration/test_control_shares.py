"""Control under one caller's flood of costly simulations: it lives, and others are served."""

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from tests.integration.control_rig import ControlUnderTest

from hostelry.aws.temporary_keys import Session, session_header
from hostelry.home.heartbeat import connect, line_path
from hostelry.home.home import SERVICE_VARIABLE
from hostelry.processes.supervision import PATIENT_LIVENESS

pytestmark = pytest.mark.integration

NUM_CALLS = 40
FORM = {"Content-Type": "application/x-www-form-urlencoded", "X-Hostelry-Service": "iam"}


class SupervisedControl(ControlUnderTest):
    """Control as `up` starts it: it answers heartbeats."""

    def begin(self) -> None:
        service = self.home.run / "control"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                env={**os.environ, SERVICE_VARIABLE: str(service)},
            )

    def misses_until(self, done: threading.Event) -> list[bool]:
        """Whether each heartbeat was missed, one after the other, until `done`."""
        missed = []
        with connect(line_path(self.home.run / "control")) as line:
            line.settimeout(PATIENT_LIVENESS.timeout_s)
            while not done.wait(0.1):
                try:
                    line.sendall(b"1\n")
                    missed.append(not line.recv(16))
                except TimeoutError:
                    missed.append(True)
        return missed

    def post(self, form: bytes, timeout_s: float, **headers: str) -> httpx.Response:
        given = {**self.headers, **FORM, **headers}
        return httpx.post(self.url, content=form, headers=given, timeout=timeout_s, verify=False)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[SupervisedControl]:
    made = SupervisedControl(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop_everything()


def costly_form() -> bytes:
    """A simulation of 4,000 comparisons, whose pattern nearly fits at a thousand places."""
    statement = {
        "Effect": "Allow",
        "Action": "*",
        "Resource": f"arn:aws:s3:::*{'a' * 1000}b",
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": statement})
    members = {f"PolicyInputList.member.{n}": document for n in range(1, 41)}
    members |= {f"ActionNames.member.{n}": f"s3:Get{n}" for n in range(1, 101)}
    members["ResourceArns.member.1"] = "arn:aws:s3:::" + "a" * 2000
    return urlencode(
        {"Action": "SimulateCustomPolicy", "Version": "2010-05-08", **members}
    ).encode()


def test_one_callers_simulations_neither_end_control_nor_hold_up_another_caller(
    control: SupervisedControl,
) -> None:
    role = control.client("iam").get_role(RoleName="HostelryExecutionRole")["Role"]
    session = Session(
        access_key_id="ASIAOTHER",
        account_id="111122223333",
        expires_at=4_000_000_000,
        role_name=role["RoleName"],
        role_id=role["RoleId"],
        session_name="other",
    )
    other = {"X-Hostelry-Session": session_header(session)}
    form, answers, done = costly_form(), Counter[int](), threading.Event()
    missed: list[bool] = []

    def call() -> None:
        answers[control.post(form, 60.0).status_code] += 1

    calls = [threading.Thread(target=call) for _ in range(NUM_CALLS)]
    beating = threading.Thread(target=lambda: missed.extend(control.misses_until(done)))
    for thread in (beating, *calls):
        thread.start()
    try:
        listed = control.post(b"Action=ListRoles&Version=2010-05-08", 20.0, **other)
        assert listed.status_code == 200, listed.text
        assert control.health()["status"] == "ok"
    finally:
        for thread in calls:
            thread.join()
        done.set()
        beating.join()
    assert answers == {200: NUM_CALLS}
    assert control.process is not None
    assert control.process.poll() is None
    most = max(len(it) for it in "".join("x" if it else " " for it in missed).split(" "))
    assert most < PATIENT_LIVENESS.max_misses, missed
