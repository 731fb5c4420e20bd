"""Components and adapters of the scale benchmark, and the changes that it makes to them."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.scale_platform import ROLE, SimulatedControl

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.29.0-lmi11.0.0-cu124"
COPIES_AN_INSTANCE = 10
EVERY = 10  # every tenth component has adapters
Call = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Endpoints of one size: components of one copy, of which every tenth has the adapters."""

    endpoints: int
    components: int
    adapters: int

    @property
    def instances(self) -> int:
        """The instances of each endpoint, with ten copies on an instance."""
        return self.components // COPIES_AN_INSTANCE


@dataclass(slots=True, kw_only=True)
class Sent:
    """A change, and when its parts were seen, in seconds of the performance counter."""

    kind: str
    name: str
    endpoint: str
    copies: int
    asked_at: float = 0.0
    acknowledged_at: float = 0.0
    settled_at: float | None = None
    published_at: float | None = None


class Models:
    """The present components and adapters, by endpoint."""

    def __init__(self, source: random.Random) -> None:
        self.bases: dict[str, list[str]] = {}  # components with adapters
        self.plain: dict[str, list[str]] = {}  # components without adapters
        self._adapters: list[tuple[str, str]] = []  # endpoint, name
        self._source = source
        self._numbers = itertools.count()
        self._scaled: set[str] = set()

    async def planned(
        self, control: SimulatedControl, shapes: Sequence[Shape]
    ) -> tuple[list[Call], list[Call]]:
        """Create the endpoints. Returns the calls that create the components, and the adapters."""
        components: list[Call] = []
        adapters: list[Call] = []
        for shape in shapes:
            config = f"config-{shape.instances}"
            await control.call(
                "CreateEndpointConfig",
                EndpointConfigName=config,
                ExecutionRoleArn=ROLE,
                ProductionVariants=[
                    {
                        "VariantName": "main",
                        "InstanceType": "ml.m5.4xlarge",
                        "InitialInstanceCount": shape.instances,
                    }
                ],
            )
            for _ in range(shape.endpoints):
                endpoint = f"endpoint-{next(self._numbers):06}"
                await control.call(
                    "CreateEndpoint", EndpointName=endpoint, EndpointConfigName=config
                )
                self._plan(control, shape, endpoint, components, adapters)
        return components, adapters

    def _plan(
        self,
        control: SimulatedControl,
        shape: Shape,
        endpoint: str,
        components: list[Call],
        adapters: list[Call],
    ) -> None:
        names = [f"component-{next(self._numbers):06}" for _ in range(shape.components)]
        bases = self.bases[endpoint] = names[::EVERY]
        self.plain[endpoint] = [it for place, it in enumerate(names) if place % EVERY]
        components += [partial(create_base, control, endpoint, it) for it in names]
        for number in range(shape.adapters):
            adapter = f"adapter-{next(self._numbers):06}"
            self._adapters.append((endpoint, adapter))
            base = bases[number % len(bases)]
            adapters.append(partial(create_adapter, control, endpoint, base, adapter))

    def cloned(self, endpoints: Sequence[str], suffixes: Sequence[str], joined: str | None) -> None:
        """Add the endpoints that `scale_seed.seed` made: one for each suffix, or a joined one."""
        adapters = [it for it in self._adapters if it[0] in endpoints]
        for suffix in suffixes:
            for endpoint in endpoints:
                place = endpoint + (joined or suffix)
                for known in (self.bases, self.plain):
                    known.setdefault(place, []).extend(it + suffix for it in known[endpoint])
            self._adapters += [(it + (joined or suffix), name + suffix) for it, name in adapters]

    def changes(self, control: SimulatedControl) -> Iterator[tuple[Sent, Call]]:
        """Changes: adapters come and go in turn, and every tenth change adds a copy."""
        for number in itertools.count():
            if number % 10 == 9:
                yield self._scaling(control)
            elif number % 2:
                yield self._removal(control)
            else:
                yield self._addition(control)

    def _scaling(self, control: SimulatedControl) -> tuple[Sent, Call]:
        copies = 2
        while True:  # a component that is being scaled cannot be scaled again
            endpoint = self._source.choice(sorted(self.plain))
            name = self._source.choice(self.plain[endpoint])
            if name not in self._scaled:
                break
        self._scaled.add(name)
        return Sent(kind="scale", name=name, endpoint=endpoint, copies=copies), partial(
            control.call,
            "UpdateInferenceComponentRuntimeConfig",
            InferenceComponentName=name,
            DesiredRuntimeConfig={"CopyCount": copies},
        )

    def _removal(self, control: SimulatedControl) -> tuple[Sent, Call]:
        place = self._source.randrange(len(self._adapters))
        endpoint, name = self._adapters[place]
        self._adapters[place] = self._adapters[-1]
        self._adapters.pop()
        return Sent(kind="delete", name=name, endpoint=endpoint, copies=0), partial(
            control.call, "DeleteInferenceComponent", InferenceComponentName=name
        )

    def _addition(self, control: SimulatedControl) -> tuple[Sent, Call]:
        endpoint = self._source.choice(sorted(self.bases))
        base = self._source.choice(self.bases[endpoint])
        name = f"adapter-{next(self._numbers):06}"
        return Sent(kind="create", name=name, endpoint=endpoint, copies=1), partial(
            create_adapter, control, endpoint, base, name
        )


async def in_order(calls: Sequence[Call], at_once: int = 8) -> None:
    """Await every call, some at a time."""
    left = iter(calls)

    async def work() -> None:
        for call in left:
            await call()

    await asyncio.gather(*[work() for _ in range(at_once)])


async def create_base(control: SimulatedControl, endpoint: str, name: str) -> None:
    """Create a component of one copy. Ten such copies fill two thirds of an instance."""
    await control.call(
        "CreateInferenceComponent",
        InferenceComponentName=name,
        EndpointName=endpoint,
        VariantName="main",
        Specification={
            "Container": {"Image": IMAGE, "ArtifactUrl": f"s3://models/{name}/model.tar.gz"},
            "ComputeResourceRequirements": {
                "NumberOfCpuCoresRequired": 1,
                "MinMemoryRequiredInMb": 4096,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )


async def create_adapter(control: SimulatedControl, endpoint: str, base: str, name: str) -> None:
    """Create an adapter of a component."""
    await control.call(
        "CreateInferenceComponent",
        InferenceComponentName=name,
        EndpointName=endpoint,
        Specification={
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": f"s3://adapters/{name}/adapter.tar.gz"},
        },
    )
