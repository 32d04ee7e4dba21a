"""A number of a config that changes while a stage runs: with the step, or after a metric.

A config class that derives from `Schedulable` takes, wherever it has a number, also a schedule:

    temperature: {from: 1.0, to: 0.6, over: 200, shape: cosine}
    entropy_weight: {metric: rl/entropy, from: 0.01, to: 0.0, low: 0.2, high: 0.6}

Such a field then holds a `ScheduledNumber`, with which nobody can calculate by mistake. A loop
keeps one `NumberSchedules` over its config and asks it, at every step, for the plain config:

    schedules = NumberSchedules(config)
    for step in range(steps):
        now = schedules.at(step)          # every number is a number
        ...
        schedules.observe(metrics)        # what numbers that follow a metric go by

It has `state_dict` and `load_state_dict` for the checkpoint. A config without schedules costs
nothing: `at` returns the config itself.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import (
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from posttrain.stage.config import StageConfig, fields_that_take
from posttrain.stage.errors import UserError
from posttrain.stage.part_schema import referable
from posttrain.stage.shapes.base import ScheduleShape
from posttrain.stage.shapes.linear import Linear
from posttrain.stage.shapes.registry import SCHEDULE_SHAPES
from posttrain.stage.slots import InSlot, name_of

C = TypeVar("C", bound=StageConfig)

# By how much, of the larger end, a shape's own rounding may pass an end.
_ROUNDING = 1e-9

# Of a field's JSON schema, what is about the field and not about the type of its value.
_ABOUT = frozenset({"title", "description", "default"})


class ScheduledNumber(StageConfig):
    """A number that goes from one value to another.

    By the step it is `from` until the step `after`, `to` from the step `after + over` on, and on
    the way between them where `shape` puts it. Steps count from 0. By a metric it is `from` where
    the metric is at most `low`, `to` where it is at least `high`, and `from` until the metric was
    first measured.
    """

    start: int | float = Field(alias="from")
    """The first value."""
    end: int | float = Field(alias="to")
    """The last value."""
    over: int | None = Field(default=None, ge=1)
    """Steps that the way takes; of a number that does not follow a metric."""
    after: int = Field(default=0, ge=0)
    """Steps at the first value before the way begins."""
    shape: Annotated[ScheduleShape, InSlot(SCHEDULE_SHAPES)] = Linear()
    """How it goes: linear, cosine, exponential, step, cycle, or a plug-in's shape."""
    metric: str | None = Field(default=None, min_length=1)
    """Name of the metric that it follows in place of the step, such as rl/entropy."""
    low: float | None = None
    """The metric at which the way begins."""
    high: float | None = None
    """The metric at which the way ends."""

    @model_validator(mode="after")
    def _refuse_half_a_schedule(self) -> Self:
        if self.metric is None:
            if self.over is None:
                raise ValueError(
                    "a schedule needs 'over', the number of steps that it takes, or 'metric', the"
                    " name of the metric that it follows; add one of them"
                )
            if self.low is not None or self.high is not None:
                raise ValueError(
                    "'low' and 'high' are for a schedule that follows a metric; name it as"
                    " 'metric', or leave them out"
                )
        elif self.over is not None or self.after:
            raise ValueError(
                "a schedule with 'metric' does not go by steps; leave out 'over' and 'after', or"
                " 'metric'"
            )
        elif self.low is None or self.high is None or self.low >= self.high:
            raise ValueError(
                "a schedule with 'metric' needs 'low' and 'high', the values of the metric between"
                " which the number goes from 'from' to 'to'; give both, the lower one as 'low'"
            )
        if complaint := self.shape.refuse(self.start, self.end):
            raise ValueError(complaint)
        return self

    def at(self, step: int, metrics: Mapping[str, float]) -> float:
        """Compute the value of one step.

        Args:
            step: Number of the step, from 0.
            metrics: Last known value by name; only the one that is followed is looked at.

        Returns:
            A number from `start` to `end`, which are met exactly at the ends of the way.

        Raises:
            UserError: The shape gives a number that does not lie between them.

        >>> ramp = ScheduledNumber.model_validate({"from": 1, "to": 0, "over": 4})
        >>> [ramp.at(step, {}) for step in (0, 1, 4, 9)]
        [1.0, 0.75, 0.0, 0.0]

        """
        progress = self._progress(step, metrics)
        if progress <= 0:
            return float(self.start)
        if progress >= 1:
            return float(self.end)
        found = self.shape.value(self.start, self.end, progress)
        low, high = sorted((self.start, self.end))
        slack = _ROUNDING * max(abs(low), abs(high))
        if not (isinstance(found, int | float) and low - slack <= found <= high + slack):
            raise UserError(
                f"{name_of(self.shape)}: `value` gave {found!r:.60} on the way from {self.start} to"
                f" {self.end}; let it give a number between them"
            )
        return found

    def written(self) -> dict[str, Any]:
        """Spell the schedule as the recipe does: what was given and nothing else."""
        given: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if set(given.get("shape", {})) == {"kind"}:
            given["shape"] = given["shape"]["kind"]
        return given

    def _progress(self, step: int, metrics: Mapping[str, float]) -> float:
        if self.metric is None:
            assert self.over is not None
            return (step - self.after) / self.over
        assert self.low is not None
        assert self.high is not None
        seen = metrics.get(self.metric, self.low)
        return (seen - self.low) / (self.high - self.low)


def _weight(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A number, or the schedule of one."""
    try:
        if isinstance(value, ScheduledNumber | Mapping):
            return ScheduledNumber.model_validate(value)
    except ValidationError as error:
        context = {"config": ScheduledNumber, "inner": error}
        raise PydanticCustomError("in_part", "{inner}", context) from None
    return handler(value)


def _written(value: Any, handler: SerializerFunctionWrapHandler) -> Any:
    return value.written() if isinstance(value, ScheduledNumber) else handler(value)


Weight = Annotated[
    float,
    WrapValidator(_weight, json_schema_input_type=float | ScheduledNumber),
    WrapSerializer(_written),
]
"""The type of a number in a list or a mapping, in whose place a schedule may stand."""


class Schedulable(StageConfig):
    """A config whose numbers (int, float, or these or null) may be written as schedules.

    Both ends of a schedule must be valid for the field, each with the rest of the config. Derive
    from it only what `NumberSchedules.at` resolves at every step: elsewhere the field is no number.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset()
    """Numbers that nothing asks for anew at a step, so that they cannot be schedules."""

    @classmethod
    def schedulable(cls) -> set[str]:
        """Names of the fields that hold an int or a float, if anything, and are not fixed."""
        return fields_that_take(cls, int, float) - cls.FIXED

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate by way of `_with_schedules`, outside of all validators of the class."""
        return core_schema.no_info_wrap_validator_function(cls._with_schedules, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add to every number that it may be a schedule."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        scheduled = handler(referable(ScheduledNumber))
        for name in cls.schedulable() & properties.keys():
            number = properties[name]
            # Pydantic asks twice: for the validator around the class, and for the class.
            if scheduled not in number.get("anyOf", ()):
                described = {key: number.pop(key) for key in _ABOUT & number.keys()}
                properties[name] = {"anyOf": [number, scheduled], **described}
        return made

    @classmethod
    def _with_schedules(cls, data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Validate the config at both ends of its schedules, and put these in place."""
        given = _schedules_given(cls, data) if isinstance(data, Mapping) else {}
        if not given:
            return handler(data)
        handler({**data, **{name: each.end for name, each in given.items()}})
        config = handler({**data, **{name: each.start for name, each in given.items()}})
        config.__dict__.update(given)
        config._refuse_schedules()
        return config

    def _refuse_schedules(self) -> None:
        """Raise ValueError where one of the schedules contradicts the rest of the config."""

    def at(self, step: int, metrics: Mapping[str, float] | None = None) -> Self:
        """Return the config of one step: see `at` of this module."""
        return at(self, step, metrics or {})

    @model_serializer(mode="wrap")
    def _spelled(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Dump schedules as they were written."""
        kept = {k: v for k, v in self.__dict__.items() if isinstance(v, ScheduledNumber)}
        if not kept:
            return dict(handler(self))
        first = {name: each.start for name, each in kept.items()}
        dumped = dict(handler(self.model_copy(update=first)))
        left_out = info.exclude if isinstance(info.exclude, set) else set()
        return dumped | {k: v.written() for k, v in kept.items() if k not in left_out}


class NumberSchedules(Generic[C]):
    """A config, and what its schedules go by: the last values of the metrics that they follow.

    Args:
        config: Any config; schedules count wherever they are in it, in parts and lists too.

    """

    def __init__(self, config: C) -> None:
        self._config = config
        self._seen: dict[str, float] = {}
        found = (number for _, number in schedules_in(config))
        self.followed = frozenset(number.metric for number in found if number.metric)
        """Names of the metrics that the config's numbers follow."""

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take note of the metrics of a step; those that nothing follows are dropped.

        Args:
            metrics: Measured values, by name.

        Raises:
            UserError: One that is followed is NaN.

        """
        for name in self.followed & metrics.keys():
            if math.isnan(metrics[name]):
                raise UserError(
                    f"{name} is NaN, and a schedule follows it; correct what measures it, or let"
                    " the number follow another metric"
                )
            self._seen[name] = float(metrics[name])

    def at(self, step: int) -> C:
        """Return the config of one step, in which every number is a number.

        Args:
            step: Number of the step, from 0.

        Returns:
            A config of the class that was given; the very same one where it holds no schedule.

        """
        return at(self._config, step, self._seen)

    def metrics(self, step: int) -> dict[str, float]:
        """Return the scheduled numbers of one step for the log, by `schedule/path.of.field`."""
        found = schedules_in(self._config)
        return {f"schedule/{path}": number.at(step, self._seen) for path, number in found}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold: the last known value by metric."""
        return {"seen": dict(self._seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._seen = {str(name): float(value) for name, value in state["seen"].items()}


def at(config: C, step: int, metrics: Mapping[str, float]) -> C:
    """Return the config of one step, in which every number is a number.

    Args:
        config: Any config; it may hold `Schedulable` ones and parts at any depth.
        step: Number of the step, from 0.
        metrics: Last known values of metrics, by name.

    Returns:
        A config of the same class, or `config` itself where it holds no schedule.

    """
    changed: dict[str, Any] = {}
    floats = fields_that_take(type(config), float)
    for name in type(config).model_fields:
        value = getattr(config, name)
        now = _now(value, step, metrics)
        if isinstance(value, ScheduledNumber) and name not in floats:
            now = round(now)
        if now is not value:
            changed[name] = now
    return config.model_copy(update=changed) if changed else config


def schedules_in(value: Any, path: str = "") -> Iterator[tuple[str, ScheduledNumber]]:
    """Find all schedules in a config, at any depth.

    Args:
        value: A config, or any value that one may hold.
        path: Dotted path of the value itself, which goes before each found one.

    Yields:
        The dotted path of each schedule, and the schedule.

    """
    if isinstance(value, ScheduledNumber):
        yield path, value
        return
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseModel):
        inner = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    for name, each in inner:
        yield from schedules_in(each, f"{path}.{name}" if path else str(name))


def _now(value: Any, step: int, metrics: Mapping[str, float]) -> Any:
    """A value of a config at one step; the same object where no schedule is in it."""
    if isinstance(value, ScheduledNumber):
        return value.at(step, metrics)
    if isinstance(value, StageConfig):
        return at(value, step, metrics)
    if isinstance(value, dict):
        items = {key: _now(each, step, metrics) for key, each in value.items()}
        return items if any(items[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        each = [_now(one, step, metrics) for one in value]
        same = all(one is other for one, other in zip(each, value, strict=True))
        return value if same else type(value)(each)
    return value


def _schedules_given(
    config: type[Schedulable], data: Mapping[str, Any]
) -> dict[str, ScheduledNumber]:
    """The schedules in place of numbers, by field; raises pydantic's error with their places."""
    found: dict[str, ScheduledNumber] = {}
    for name in config.schedulable() & data.keys():
        value = data[name]
        try:
            if isinstance(value, ScheduledNumber | Mapping):
                found[name] = ScheduledNumber.model_validate(value)
        except ValidationError as error:
            context = {"config": ScheduledNumber, "inner": error}
            told = PydanticCustomError("in_part", "{inner}", context)
            lines = [InitErrorDetails(type=told, loc=(name,), input=value)]
            raise ValidationError.from_exception_data(config.__name__, lines) from None
    return found
