"""What was acknowledged while a fault lasted, and whether it is still there afterwards."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.chaos.beside import beside
from hostelry.chaos.call import OK
from hostelry.chaos.load import client, outcome_of
from hostelry.chaos.sight import Platform
from hostelry.chaos.stage import new_name

PAUSE_S = 0.1
IMPATIENT_S = 3.0
CHECK_TRIES = 5


class Ledger:
    """Writes one record after the other from a thread, and keeps those that were acknowledged."""

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
        self.refusal: str | None = None  # what the last write that was refused was told

    @contextmanager
    def writing(self) -> Iterator["Ledger"]:
        """Write for as long as the block runs; what was written is removed by `settle`."""
        with beside(self._stopping, self._run):
            yield self

    def settle(self) -> list[str]:
        """The acknowledged records that are not there any more; removes all of them."""
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
                continue  # no answer is no refusal


@contextmanager
def control_ledger(platform: Platform) -> Iterator[Ledger]:
    """Endpoint configurations, created while the block runs."""
    api = client("sagemaker", platform.config, platform.credentials, read_timeout_s=IMPATIENT_S)
    patient = client("sagemaker", platform.config, platform.credentials, tries=CHECK_TRIES)
    variant = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}

    def write(name: str) -> Any:
        return api.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=platform.credentials.role_arn,
            ProductionVariants=[variant],
        )

    with Ledger(
        write,
        lambda name: patient.describe_endpoint_config(EndpointConfigName=name),
        lambda name: patient.delete_endpoint_config(EndpointConfigName=name),
    ).writing() as ledger:
        yield ledger


@contextmanager
def object_ledger(platform: Platform) -> Iterator[Ledger]:
    """Objects in a bucket of their own, put while the block runs."""
    api = client("s3", platform.config, platform.credentials, read_timeout_s=IMPATIENT_S)
    patient = client("s3", platform.config, platform.credentials, tries=CHECK_TRIES)
    bucket = new_name()
    patient.create_bucket(Bucket=bucket)
    with Ledger(
        lambda name: api.put_object(Bucket=bucket, Key=name, Body=name.encode()),
        lambda name: patient.get_object(Bucket=bucket, Key=name)["Body"].read(),
        lambda name: patient.delete_object(Bucket=bucket, Key=name),
    ).writing() as ledger:
        yield ledger


@contextmanager
def no_ledger(platform: Platform) -> Iterator[None]:
    """Nothing is written."""
    del platform
    with contextlib.nullcontext():
        yield None
