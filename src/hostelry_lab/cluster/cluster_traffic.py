"""Requests and writes through the gateways of both hosts, as a load balancer sends them.

A host whose /health is not 200 gets no request, as from any load balancer. The drill reads /health
ten times a second.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx

from hostelry.base.clock import monotonic_s
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK, LoadCall
from hostelry_lab.cluster.cluster_ledger import ClusterWrite
from hostelry_lab.fixture import new_name
from hostelry_lab.load import Load, LoadTarget, outcome_of
from hostelry_lab.observer import PlatformObserver
from hostelry_lab.threads import running_threads

ASK_S = 0.1
HEALTH_S = 1.0
PAUSE_S = 0.05
WRITE_PAUSE_S = 0.2
IMPATIENT_S = 2.0


class HostTraffic:
    """The requests and writes through one host's gateway."""

    def __init__(self, host: str, platform: PlatformObserver, load_target: LoadTarget) -> None:
        config, credentials = platform.config, platform.credentials
        self.host = host
        self._load = Load(aws_client("sagemaker-runtime", config, credentials), load_target, 1)
        self._api = aws_client("sagemaker", config, credentials, read_timeout_s=IMPATIENT_S)
        self._role = credentials.role_arn
        self._health = f"{config.gateway_url}/health"
        self._stopping = threading.Event()
        self._serves = threading.Event()
        self.calls: list[LoadCall] = []
        self.writes: list[ClusterWrite] = []

    @contextmanager
    def flowing(self, num_threads: int) -> Iterator[None]:
        """Send while the block runs."""
        work: list[Callable[[], None]] = [self._ask, self._write, *[self._invoke] * num_threads]
        with running_threads(self._stopping, *work):
            yield

    def _ask(self) -> None:
        with httpx.Client(timeout=HEALTH_S, trust_env=False, verify=False) as client:
            while not self._stopping.wait(ASK_S):
                try:
                    well = client.get(self._health).status_code == 200
                except httpx.HTTPError:
                    well = False
                if well:
                    self._serves.set()
                else:
                    self._serves.clear()

    def _invoke(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            if not self._serves.is_set():
                continue
            began_at = monotonic_s()
            outcome = self._load.once()
            self.calls.append(LoadCall(began_at=began_at, ended_at=monotonic_s(), outcome=outcome))

    def _write(self) -> None:
        variant = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        while not self._stopping.wait(WRITE_PAUSE_S):
            if not self._serves.is_set():
                continue
            name, began_at = new_name(), monotonic_s()
            outcome = outcome_of(
                partial(
                    self._api.create_endpoint_config,
                    EndpointConfigName=name,
                    ExecutionRoleArn=self._role,
                    ProductionVariants=[variant],
                )
            )
            self.writes.append(
                ClusterWrite(
                    name=name,
                    host=self.host,
                    began_at=began_at,
                    ended_at=monotonic_s(),
                    outcome=outcome,
                )
            )


class ClusterTraffic:
    """The traffic through every host with a gateway."""

    def __init__(self, platforms: Mapping[str, PlatformObserver], load_target: LoadTarget) -> None:
        self._hosts = [HostTraffic(it, platforms[it], load_target) for it in platforms]

    @contextmanager
    def flowing(self, num_threads: int) -> Iterator["ClusterTraffic"]:
        """Send while the block runs, by `num_threads` callers at each host."""
        with ExitStack() as stack:
            for host in self._hosts:
                stack.enter_context(host.flowing(num_threads))
            yield self

    def calls(self) -> dict[str, list[LoadCall]]:
        """The calls that have ended, by host."""
        return {it.host: list(it.calls) for it in self._hosts}

    def writes(self) -> list[ClusterWrite]:
        """The writes that have ended."""
        return [write for it in self._hosts for write in tuple(it.writes)]

    def is_well_since(self, instant: float) -> bool:
        """Whether each host has answered calls and acknowledged a write begun after `instant`."""
        return all(
            _is_well(host.calls, instant, 5) and _is_well(host.writes, instant, 1)
            for host in self._hosts
        )


def _is_well(made: list[Any], instant: float, least: int) -> bool:
    """Whether the last `least` entries of `made` began after `instant` and succeeded."""
    last = made[-least:]
    return len(last) == least and all(it.outcome == OK and it.began_at >= instant for it in last)
