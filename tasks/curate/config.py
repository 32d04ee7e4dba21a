"""Parameters of the curation of problems and their solutions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from posttrain.data.filters.base import Filter
from posttrain.data.filters.bucket_size import BucketSizeFilter
from posttrain.data.filters.contamination import ContaminationFilter
from posttrain.data.filters.difficulty_range import DifficultyRangeFilter
from posttrain.data.filters.dropped_problem import DroppedProblemFilter
from posttrain.data.filters.exact_duplicates import ExactDuplicatesFilter
from posttrain.data.filters.length import LengthFilter
from posttrain.data.filters.near_duplicates import NearDuplicatesFilter
from posttrain.data.filters.per_problem import PerProblemFilter
from posttrain.data.filters.registry import FILTERS
from posttrain.data.filters.verified import VerifiedFilter
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import nearest
from posttrain.stage.part_schema import PartsByName
from posttrain.stage.slots import InSlot

# Leaks go before near duplicates, so that a leak does not take its innocent neighbors along.
PROBLEM_FILTERS: tuple[Filter, ...] = (
    LengthFilter(column="prompt", most=4000),
    LengthFilter(column="answer"),
    DifficultyRangeFilter(),
    ExactDuplicatesFilter(),
    ContaminationFilter(),
    NearDuplicatesFilter(),
    BucketSizeFilter(),
)
TRACE_FILTERS: tuple[Filter, ...] = (
    DroppedProblemFilter(),
    VerifiedFilter(),
    LengthFilter(column="text", most=8000),
    ExactDuplicatesFilter(columns=("problem_id", "text")),
    PerProblemFilter(),
)


def _changes_to(defaults: Sequence[Filter]) -> BeforeValidator:
    """Let a field take, in place of a list, a mapping of labels to what is changed; null takes out.

    A label that is not among the defaults adds a filter at the end: one of that kind, or of the
    `kind` that it states.
    """

    def changed(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        filters: dict[str, Any] = {each.label: each for each in defaults}
        for label, fields in value.items():
            known = filters.get(label)
            if known is None and fields is None:
                hint = nearest(label, filters) or f"; the labels are {', '.join(filters)}"
                raise ValueError(f"there is no '{label}' to leave out{hint}")
            start = {"kind": label} if known is None else known.model_dump()
            filters[label] = {**start, **fields} if isinstance(fields, Mapping) else fields
        kept = {label: each for label, each in filters.items() if each is not None}
        return list(FILTERS.parse_named(kept).values())

    changes = Annotated[Any, PartsByName(FILTERS, {each.label: each.kind for each in defaults})]
    return BeforeValidator(changed, json_schema_input_type=tuple[_InList, ...] | changes)


_InList = Annotated[Filter, InSlot(FILTERS)]


class CurateConfig(StageConfig):
    """Which rows stay, and in which order."""

    problem_filters: Annotated[tuple[_InList, ...], _changes_to(PROBLEM_FILTERS)] = PROBLEM_FILTERS
    """Filters of problems, in order; a mapping changes some of the default ones by their label:
    `near_duplicates: {similarity: 0.9}`, `contamination: null`."""
    trace_filters: Annotated[tuple[_InList, ...], _changes_to(TRACE_FILTERS)] = TRACE_FILTERS
    """Filters of solutions, likewise: `verified: null`."""
    difficulty_edges: tuple[int, ...] = ()
    """Greatest difficulty of each bucket but the last; () gives every difficulty its own bucket."""
    order: Literal["easy_to_hard", "easy_to_hard_then_short", "mixed"] = "easy_to_hard"
    """Order of the kept rows; the second is for data that come without difficulties. Training takes
    it up where its own `order` is `as_given`."""
    most_too_long: float = Field(0.5, ge=0.0, le=1.0)
    """Largest share of a source's problems, or solutions, that the filters of length may take."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        edges = list(self.difficulty_edges)
        if edges != sorted(set(edges)):
            raise ValueError(f"difficulty_edges is {edges}; write each edge once, in rising order")
        for name, given in (("problem_filters", {"heldout"}), ("trace_filters", _OF_TRACES)):
            labels = [each.label for each in getattr(self, name)]
            if twice := next((label for label in labels if labels.count(label) > 1), None):
                raise ValueError(f"{name} has '{twice}' twice; leave one out")
            for each in getattr(self, name):
                if missing := sorted(each.NEEDS - given):
                    raise ValueError(
                        f"{name} has '{each.label}', which needs the {missing[0]} that stay;"
                        " move it to trace_filters"
                    )
        return self


_OF_TRACES = {"heldout", "problems"}
