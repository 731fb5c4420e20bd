"""Writes acknowledged during a fault, and looked for afterwards."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.fixture import new_name
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver
from hostelry_lab.threads import running_threads

PAUSE_S = 0.1
IMPATIENT_S = 3.0
CHECK_TRIES = 5


class WriteLedger:
    """Writes one record after the other from a thread, and keeps the acknowledged names."""

    def __init__(
        self,
        write: Callable[[str], object],
        read: Callable[[str], object],
        remove: Callable[[str], object],
    ) -> None:
        self._write = write
        self._read = read
        self._remove = remove
        self._stopping = threading.Event()
        self._tried: list[str] = []
        self.acknowledged: list[str] = []
        self.refusal: str | None = None  # of the last refused write

    @contextmanager
    def writing(self) -> Iterator["WriteLedger"]:
        """Write while the block runs. `settle` removes the records."""
        with running_threads(self._stopping, self._run):
            yield self

    def settle(self) -> list[str]:
        """Remove all records. Returns the acknowledged ones that were missing."""
        lost = [it for it in self.acknowledged if outcome_of(partial(self._read, it)) != OK]
        for name in self._tried:
            outcome_of(partial(self._remove, name))
        return lost

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            name = new_name()
            self._tried.append(name)
            try:
                self._write(name)
                self.acknowledged.append(name)
            except ClientError as error:
                self.refusal = str(error)
            except BotoCoreError:
                continue  # no answer, so no refusal


@contextmanager
def control_ledger(platform: PlatformObserver) -> Iterator[WriteLedger]:
    """Create endpoint configurations while the block runs."""
    api = aws_client("sagemaker", platform.config, platform.credentials, read_timeout_s=IMPATIENT_S)
    patient = aws_client("sagemaker", platform.config, platform.credentials, tries=CHECK_TRIES)
    variant = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}

    def write(name: str) -> Any:
        return api.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=platform.credentials.role_arn,
            ProductionVariants=[variant],
        )

    with WriteLedger(
        write,
        lambda name: patient.describe_endpoint_config(EndpointConfigName=name),
        lambda name: patient.delete_endpoint_config(EndpointConfigName=name),
    ).writing() as ledger:
        yield ledger


@contextmanager
def object_ledger(platform: PlatformObserver) -> Iterator[WriteLedger]:
    """Put objects into a new bucket while the block runs."""
    api = aws_client("s3", platform.config, platform.credentials, read_timeout_s=IMPATIENT_S)
    patient = aws_client("s3", platform.config, platform.credentials, tries=CHECK_TRIES)
    bucket = new_name()
    patient.create_bucket(Bucket=bucket)
    with WriteLedger(
        lambda name: api.put_object(Bucket=bucket, Key=name, Body=name.encode()),
        lambda name: patient.get_object(Bucket=bucket, Key=name)["Body"].read(),
        lambda name: patient.delete_object(Bucket=bucket, Key=name),
    ).writing() as ledger:
        yield ledger


@contextmanager
def no_ledger(platform: PlatformObserver) -> Iterator[None]:
    """Write nothing during the fault."""
    del platform
    yield None
