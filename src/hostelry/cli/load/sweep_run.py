"""Runs a sweep: one load test or search for each cell, on copies of the model if they differ."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import groupby

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.load.measure import LoadResult
from hostelry.cli.load.model_copy import ModelCopies
from hostelry.cli.load.sweep import CellResult, SweepCell, SweptOption, SweptValue, build_cells
from hostelry.cli.named import NamedModel

Measure = Callable[[SweepCell, Sequence[NamedModel]], LoadResult]


class Sweep(msgspec.Struct, frozen=True):
    """A sweep of models. `measure` measures one cell, or raises TerminalError.

    `open_copies` is called if a swept option needs another deployment.
    """

    models: Sequence[NamedModel]
    swept: Sequence[SweptOption]
    measure: Measure
    open_copies: Callable[[], AbstractContextManager[ModelCopies]]

    def measure_cells(self) -> tuple[list[CellResult], bool]:
        """The results of the cells, and true if Ctrl-C ended the sweep before the last cell."""
        cells = build_cells(self.swept)
        results: list[CellResult] = []
        is_interrupted = False
        with ExitStack() as stack:
            copies = None
            if any(it.needs_copy for it in self.swept):
                copies = stack.enter_context(self.open_copies())
                for cell in cells:
                    copies.check(cell.copy_values)
            try:
                for values, group in groupby(cells, lambda it: it.copy_values):
                    self._run_group(copies, values, list(group), results)
            except KeyboardInterrupt:
                is_interrupted = True
                typer.echo("hostelry: the sweep was ended early", err=True)
        return results, is_interrupted

    def _run_group(
        self,
        copies: ModelCopies | None,
        values: Mapping[str, SweptValue],
        cells: Sequence[SweepCell],
        results: list[CellResult],
    ) -> None:
        """Measure the cells of one deployment."""
        models = self.models
        if copies is not None:
            try:
                models = [copies.deploy(values)]
            except TerminalError as error:
                results += [CellResult(it, None, str(error)) for it in cells]
                cells = ()
        for cell in cells:
            typer.echo(f"{cell.label}:", err=True)
            results.append(self._measure_cell(cell, models))
        if copies is not None:
            copies.remove()

    def _measure_cell(self, cell: SweepCell, models: Sequence[NamedModel]) -> CellResult:
        try:
            result = self.measure(cell, models)
        except TerminalError as error:
            return CellResult(cell, None, str(error))
        if result.is_interrupted:
            raise KeyboardInterrupt
        return CellResult(cell, result.document, result.problem)
