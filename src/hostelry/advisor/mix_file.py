"""The mix in a TOML file. Errors name file, model, field, value, limit and remedy."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.structs import replace

from hostelry.advisor.mix_form import (
    AnchorsForm,
    MachineForm,
    MixForm,
    ModelForm,
    ThroughputForm,
    TrafficForm,
)
from hostelry.advisor.values import (
    GIB,
    MIB,
    AdapterThroughput,
    AxisAnchors,
    FitAxis,
    FitMachine,
    FitMix,
    FitModel,
    Hardware,
    IsolationLevel,
    ModelTraffic,
    format_limit,
)
from hostelry.base.errors import TerminalError
from hostelry.base.files import read_at_most
from hostelry.base.json import convert
from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import declared_shape, instance_types
from hostelry.sim.scenario import zipf_shares
from hostelry.sim.service import ServiceModel, load_service

MAX_FILE_BYTES = 8 * MIB
MAX_MODELS = 5000
LEAST_SEEDS, MAX_SEEDS = 3, 50
MAX_MODEL_HOURS = 1000.0
WORDS = {
    "Object missing required field": "lacks the field",
    "Object contains unknown field": "has the unknown field",
}  # of msgspec, and better ones
MAX_NAMES, MAX_POINTS = 5, 1000
USUAL_START_S, USUAL_WARM_START_S, USUAL_INSTANCE_START_S = 7.0, 1.3, 2.0


def example_text() -> str:
    """The example of a file, with every field."""
    return files("hostelry.advisor").joinpath("example.toml").read_text(encoding="utf-8")


def read_mix(path: Path) -> FitMix:
    """The mix in a file. Raises TerminalError with the first fault."""
    try:
        data = read_at_most(path, MAX_FILE_BYTES)
        if data is None:
            raise TerminalError(
                f"{path} has more than {MAX_FILE_BYTES:,} bytes; write similar models as one table "
                "with count"
            )
        text = data.decode("utf-8")
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TerminalError(f"{path} is not UTF-8 at byte {error.start}") from None
    return parse_mix(text, path)


def parse_mix(text: str, path: Path) -> FitMix:
    """The mix in `text`. `path` is for messages, and for files that it names."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TerminalError(f"{path} is not TOML: {error}") from None
    for where, value in _list_numbers(tree, ()):
        if not math.isfinite(value):
            raise _wrong(path, tree, where, f"is {value}; it must be a finite number")
    try:
        form = convert(tree, MixForm)
    except msgspec.ValidationError as error:
        raise _translate(path, tree, str(error)) from None
    return _Building(path, tree, form).build()


Where = tuple[str | int, ...]


def _list_numbers(value: Any, where: Where) -> Iterator[tuple[Where, float]]:
    """Every float of a file. TOML nests no deeper than its parser's recursion."""
    if isinstance(value, float):
        yield where, value
    elif isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _list_numbers(inner, (*where, key))


def _translate(path: Path, tree: Any, text: str) -> TerminalError:
    """An error of msgspec as one with the model's name and the value."""
    for words, better in WORDS.items():
        text = text.replace(words, better)
    reason, _, at = text.rpartition(" - at `$")
    if not reason:
        return TerminalError(f"{path}: {text[:1].lower()}{text[1:]}; see `hostelry fit --example`")
    where = _parse_where(at.removesuffix("`"))
    value = _get_value(tree, where)
    shown = f"is {_show(value)}: " if not isinstance(value, (dict, list)) else ""
    return _wrong(path, tree, where, f"{shown}{reason[:1].lower()}{reason[1:]}")


def _parse_where(text: str) -> Where:
    """The keys in `.models[0].cpus`."""
    found: list[str | int] = []
    for part in text.split("."):
        name, *numbers = part.replace("]", "").split("[")
        found += [name] if name else []
        found += [int(it) if it.isdigit() else it for it in numbers]
    return tuple(found)


def _get_value(tree: Any, where: Where) -> Any:
    for key in where:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _wrong(path: Path, tree: Any, where: Where, text: str) -> TerminalError:
    place = ""
    if len(where) > 1 and where[0] in ("models", "machines") and isinstance(where[1], int):
        table = _get_value(tree, where[:2])
        kind = "model" if where[0] == "models" else "machine"
        known = (
            table.get("name" if kind == "model" else "type") if isinstance(table, dict) else None
        )
        place = f"{kind} {_show(known) if known is not None else f'number {where[1] + 1}'}: "
        where = where[2:]
    field = ".".join(map(str, where))
    return TerminalError(
        f"{path}: {place}{field}{' ' if field else ''}{text}; see `hostelry fit --example`"
    )


class _Building:
    """Builds the values of a checked form."""

    def __init__(self, path: Path, tree: Any, form: MixForm) -> None:
        self._path = path
        self._tree = tree
        self._form = form
        self._calibrations: dict[str, ServiceModel] = {}

    def build(self) -> FitMix:
        form, platform = self._form, self._form.platform
        self._check_sizes()
        machines = tuple(self._machine(it, n) for n, it in enumerate(form.machines))
        self._check_unique("machines", "type", [it.type for it in machines])
        models = [it for n, one in enumerate(form.models) for it in self._models(one, n)]
        if len(models) > MAX_MODELS:
            raise self._fault(("models",), f"are {len(models):,}; at most {MAX_MODELS:,} fit here")
        self._check_unique("models", "name", [it.name for it in models])
        self._check_adapters(models)
        if len(models) * form.hours > MAX_MODEL_HOURS:
            most = MAX_MODEL_HOURS / len(models)
            raise self._fault(
                ("hours",),
                f"is {form.hours:g}, times {len(models):,} models; at most {MAX_MODEL_HOURS:,.0f} "
                f"are simulated: set hours to {format_limit(most)} or less",
            )
        return FitMix(
            name=form.name,
            models=tuple(models),
            machines=machines,
            axes=self._axes(),
            seeds=tuple(form.seeds),
            hours=form.hours,
            has_machine_per_instance=platform.machine_per_instance,
            serverless_price=platform.serverless_price_per_gb_s,
            serverless_concurrency=platform.serverless_concurrency,
            merge_from_share=platform.merge_from_share,
            adapter_throughput=self._throughput(models),
            batch_hour=platform.batch_hour,
            batch_instances=platform.batch_instances,
        )

    def _check_sizes(self) -> None:
        form = self._form
        if not form.models:
            raise self._fault(("models",), "is empty: add a [[models]] table")
        if not form.machines:
            raise self._fault(("machines",), "is empty: add a [[machines]] table")
        if not LEAST_SEEDS <= len(form.seeds) <= MAX_SEEDS:
            raise self._fault(
                ("seeds",), f"has {len(form.seeds)}; give {LEAST_SEEDS} to {MAX_SEEDS}"
            )
        if len(set(form.seeds)) < len(form.seeds):
            raise self._fault(("seeds",), "names one twice: give different numbers")

    def _check_unique(self, table: str, field: str, names: Sequence[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise self._fault(
                    (table,), f"has two with the {field} {_show(name)}: rename or remove one"
                )
            seen.add(name)

    def _check_adapters(self, models: Sequence[FitModel]) -> None:
        by_name = {it.name: it for it in models}
        for model in models:
            if model.adapter_of is None and model.adapter_rank is not None:
                raise TerminalError(
                    f"{self._path}: model {model.name!r}: adapter_rank is {model.adapter_rank} "
                    "without adapter_of; name the base model, or leave adapter_rank out"
                )
            if model.adapter_of is None:
                continue
            base = by_name.get(model.adapter_of)
            if base is None or base.adapter_of is not None:
                what = "no model of this file" if base is None else "an adapter itself"
                raise TerminalError(
                    f"{self._path}: model {model.name!r}: adapter_of is {model.adapter_of!r}, "
                    f"{what}; name a base model"
                )

    def _throughput(self, models: Sequence[FitModel]) -> tuple[AdapterThroughput, ...]:
        """The measured points, each with its base model."""
        forms = self._form.platform.adapter_throughput
        if len(forms) > MAX_POINTS:
            raise self._fault(
                ("platform", "adapter_throughput"),
                f"has {len(forms):,} points; at most {MAX_POINTS:,} are read",
            )
        bases = sorted({it.adapter_of for it in models if it.adapter_of is not None})
        found: dict[tuple[str, int, int], AdapterThroughput] = {}
        for number, form in enumerate(forms):
            base = self._find_base(form, bases, number)
            key = (base, form.rank, form.adapters)
            if key in found:
                raise self._fault(
                    ("platform", "adapter_throughput", number),
                    f"is the second for {form.adapters} adapters of rank {form.rank} on {base}: "
                    "remove one",
                )
            found[key] = AdapterThroughput(
                base=base, rank=form.rank, adapters=form.adapters, tokens_per_s=form.tokens_per_s
            )
        return tuple(found.values())

    def _find_base(self, form: ThroughputForm, bases: Sequence[str], number: int) -> str:
        where: Where = ("platform", "adapter_throughput", number)
        names = ", ".join(bases[:MAX_NAMES]) + (", ..." if len(bases) > MAX_NAMES else "")
        if not bases:
            raise self._fault(where, "has no effect: no model has adapter_of. Remove it")
        if form.base is None and len(bases) > 1:
            raise self._fault(
                where, f"has no base, and {len(bases):,} models have adapters ({names}): name one"
            )
        if form.base is not None and form.base not in bases:
            raise self._fault(
                (*where, "base"), f"is {form.base!r}, which has no adapters; name one of {names}"
            )
        return form.base or bases[0]

    def _axes(self) -> Mapping[FitAxis, AxisAnchors]:
        found: dict[FitAxis, AxisAnchors] = {}
        for axis in FitAxis:
            form: AnchorsForm = getattr(self._form.axes, axis.value)
            if form.unacceptable == form.target:
                raise self._fault(
                    ("axes", axis.value),
                    f"has {form.target:g} as unacceptable and as target; they must differ",
                )
            grows = axis in (FitAxis.LATENCY, FitAxis.ISOLATION)
            if (form.target > form.unacceptable) is not grows:
                order = "above" if grows else "below"
                raise self._fault(
                    ("axes", axis.value),
                    f"has the target {form.target:g}; it must be {order} unacceptable "
                    f"({form.unacceptable:g}), because {'more' if grows else 'less'} is better",
                )
            found[axis] = AxisAnchors(
                unacceptable=form.unacceptable, target=form.target, weight=form.weight
            )
        if not any(it.weight for it in found.values()):
            raise self._fault(("axes",), "has no weight above 0: give one to an axis")
        return found

    def _machine(self, form: MachineForm, number: int) -> FitMachine:
        shape = declared_shape(form.type)
        if shape is None and (form.cpus is None or form.memory_gib is None):
            raise self._fault(
                ("machines", number),
                "has an unknown type: give its cpus and memory_gib, or a type of docs/fleet.md",
            )
        known = shape or Shape(cpus=0.0, memory_bytes=0)
        declared = instance_types().get(form.type)
        device = declared.device.memory_bytes if declared and declared.device else 0
        given = form.accelerator_memory_gib
        accelerators = known.accelerators if form.accelerators is None else form.accelerators
        if accelerators and not (given or device):
            raise self._fault(
                ("machines", number),
                "has accelerators of unknown memory: give accelerator_memory_gib",
            )
        return FitMachine(
            type=form.type,
            shape=Shape(
                cpus=known.cpus if form.cpus is None else form.cpus,
                memory_bytes=known.memory_bytes
                if form.memory_gib is None
                else int(form.memory_gib * GIB),
                accelerators=accelerators,
            ),
            device_memory_bytes=device if given is None else int(given * GIB),
            price_per_hour=form.price_per_hour,
            most=form.most,
        )

    def _models(self, form: ModelForm, number: int) -> Iterator[FitModel]:
        traffic = self._traffic(form.traffic, number)
        if form.count > 1 and traffic.trace is not None:
            raise self._fault(("models", number, "count"), "does not go with a trace")
        service = self._service(form, number)
        self._check_hardware(form, number)
        shares = zipf_shares(form.count, form.zipf)
        for place in range(form.count):
            name = form.name if form.count == 1 else f"{form.name}-{place + 1:04}"
            share = replace(traffic, per_hour=traffic.per_hour * float(shares[place]))
            yield self._model(form, name, service, share)

    def _model(
        self, form: ModelForm, name: str, service: ServiceModel, traffic: ModelTraffic
    ) -> FitModel:
        first_ms = form.target_first_token_ms
        return FitModel(
            name=name,
            framework=form.framework,
            hardware=form.hardware,
            memory_bytes=int(form.memory_mb * MIB),
            loaded_bytes=None if form.loaded_mb is None else int(form.loaded_mb * MIB),
            disk_bytes=int((form.disk_mb or form.memory_mb) * MIB),
            cpus=form.cpus,
            accelerators=form.accelerators,
            accelerator_memory_bytes=int(form.accelerator_memory_mb * MIB),
            latency_class=form.latency_class,
            target_p99_s=form.target_p99_ms / 1000,
            target_first_token_s=None if first_ms is None else first_ms / 1000,
            isolation_label=form.isolation_label,
            isolation_min=IsolationLevel(form.isolation_min),
            needs_streaming=form.streaming,
            needs_capture=form.data_capture,
            payload_bytes=int(form.payload_mb * MIB),
            answer_bytes=int(form.answer_mb * MIB),
            max_s=form.max_s,
            adapter_of=form.adapter_of,
            adapter_rank=form.adapter_rank,
            min_copies=form.min_copies,
            service=service,
            service_origin=service.origin,
            is_measured="measured" in service.origin,
            is_calibrated=form.calibration is not None,
            download_s=form.download_s,
            load_s=form.load_s,
            overhead_s=form.overhead_ms / 1000,
            traffic=traffic,
            image=form.image,
            artifact=form.artifact.replace("{name}", name),
            environment=form.environment,
        )

    def _check_hardware(self, form: ModelForm, number: int) -> None:
        where: Where = ("models", number)
        if form.hardware is Hardware.ACCELERATOR and not form.accelerators:
            raise self._fault((*where, "accelerators"), "is 0 with hardware accelerator: give 1")
        if form.hardware is Hardware.ACCELERATOR and not form.accelerator_memory_mb:
            raise self._fault(
                (*where, "accelerator_memory_mb"), "is 0 with hardware accelerator: give its size"
            )
        if form.hardware is Hardware.CPU and (form.accelerators or form.accelerator_memory_mb):
            raise self._fault(
                (*where, "hardware"), "is cpu, and accelerators are given; give one of both"
            )

    def _service(self, form: ModelForm, number: int) -> ServiceModel:
        where: Where = ("models", number)
        if (form.seconds is None) is (form.calibration is None):
            raise self._fault(where, "needs one of seconds and calibration")
        if form.calibration is not None:
            others = ("measured", "spread", "start_s", "warm_start_s", "instance_start_s")
            given = [it for it in others if getattr(form, it) not in (None, [])]
            if given:
                raise self._fault((*where, given[0]), "is in the calibration: leave it out")
            if form.calibration not in self._calibrations:
                at = self._path.parent / form.calibration
                try:
                    self._calibrations[form.calibration] = load_service(at)
                except TerminalError as error:
                    raise self._fault((*where, "calibration"), f"is invalid: {error}") from None
            return self._calibrations[form.calibration]
        origin = "assumed" if form.measured is None else f"measured {form.measured}"
        try:
            return ServiceModel(
                prefill_s=form.seconds or 0.0,
                prefill_s_per_token=0.0,
                token_s=0.0,
                max_concurrency=form.concurrency,
                spread=tuple(form.spread),
                cold_start_s=_or(form.start_s, USUAL_START_S),
                warm_start_s=_or(form.warm_start_s, USUAL_WARM_START_S),
                instance_start_s=_or(form.instance_start_s, USUAL_INSTANCE_START_S),
                origin=origin,
            )
        except ValueError as error:
            raise self._fault((*where, "spread"), f"is invalid: {error}") from None

    def _traffic(self, form: TrafficForm, number: int) -> ModelTraffic:
        where: Where = ("models", number, "traffic")
        if form.trace is not None and form.per_hour is not None:
            raise self._fault(where, "has a trace and per_hour; give one of both")
        if form.model is not None and form.trace is None:
            raise self._fault((*where, "model"), "names rows of a trace: give trace, too")
        try:
            ZoneInfo(form.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise self._fault(
                (*where, "time_zone"),
                f"is {_show(form.time_zone)}; give a name such as Europe/Berlin",
            ) from None
        return ModelTraffic(
            trace=None if form.trace is None else self._path.parent / form.trace,
            trace_model=form.model,
            per_hour=form.per_hour or 0.0,
            cv=form.cv,
            peak_hour=form.peak_hour,
            peak_to_mean=form.peak_to_mean,
            time_zone=form.time_zone,
            input_tokens=form.input_tokens,
            output_tokens=form.output_tokens,
        )

    def _fault(self, where: Where, text: str) -> TerminalError:
        return _wrong(self._path, self._tree, where, text)


def _or(value: float | None, usual: float) -> float:
    return usual if value is None else value
