"""The filters that ship with posttrain."""

from posttrain.data.filters.base import Filter
from posttrain.data.filters.bucket_size import BucketSizeFilter
from posttrain.data.filters.contamination import ContaminationFilter
from posttrain.data.filters.difficulty_range import DifficultyRangeFilter
from posttrain.data.filters.dropped_problem import DroppedProblemFilter
from posttrain.data.filters.exact_duplicates import ExactDuplicatesFilter
from posttrain.data.filters.length import LengthFilter
from posttrain.data.filters.near_duplicates import NearDuplicatesFilter
from posttrain.data.filters.per_problem import PerProblemFilter
from posttrain.data.filters.reviewed import ReviewedFilter
from posttrain.data.filters.verified import VerifiedFilter
from posttrain.stage.slots import Slot

FILTERS = Slot(
    "filter",
    Filter,
    {
        "bucket_size": BucketSizeFilter,
        "contamination": ContaminationFilter,
        "difficulty_range": DifficultyRangeFilter,
        "dropped_problem": DroppedProblemFilter,
        "exact_duplicates": ExactDuplicatesFilter,
        "length": LengthFilter,
        "near_duplicates": NearDuplicatesFilter,
        "per_problem": PerProblemFilter,
        "reviewed": ReviewedFilter,
        "verified": VerifiedFilter,
    },
    one_of=("reasons",),
)
