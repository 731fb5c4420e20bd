"""The processes of one model, as the routes and the table of models use them."""

from typing import Any, Protocol

from hostelry.containers.predictive.worker_process import Answered, Asked


class ModelProcesses(Protocol):
    """`start` them, `invoke` the model, `close` them."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The living processes' ids."""
        ...

    @property
    def fault(self) -> str | None:
        """Why they do not serve; None while they do."""
        ...

    @property
    def execution_parameters(self) -> dict[str, Any] | None:
        """What GET /execution-parameters answers; None for 404."""
        ...

    async def start(self) -> None:
        """Load the model.

        Raises ModelLoadError, WorkerLostError, ZygoteError, ModelRefusedError.
        """
        ...

    async def invoke(self, asked: Asked) -> Answered:
        """The answer to a request. Raises PoolBusyError, WorkerLostError, ModelLoadError."""
        ...

    async def close(self, reason: str = "the server ends") -> None:
        """End the processes; requests that wait or come are refused with the reason."""
        ...


class SharedProcess(Protocol):
    """A process that the models of a table share, and which knows the ends of theirs."""

    @property
    def pid(self) -> int:
        """Its id; 0 where there is none."""
        ...

    async def exit_code(self, pid: int) -> int | None:
        """The status of a model's process, once it has ended; None if it is not known."""
        ...
