"""Parameters of the curation of problems and their solutions."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig


class CurateConfig(StageConfig):
    """Which rows stay, and in which order."""

    prompt_chars: tuple[int, int] = (1, 4000)
    """Fewest and most characters of a prompt."""
    trace_chars: tuple[int, int] = (1, 8000)
    """Fewest and most characters of a solution."""
    require_verified: bool = True
    """Drop solutions that no verifier accepted."""
    exact_duplicates: bool = True
    """Keep one of the problems whose prompts are equal but for white space."""
    near_duplicate_similarity: float | None = Field(0.8, ge=0.7, le=1.0)
    """Keep one of the problems with this Jaccard similarity of words; equal numbers, operators and
    answer are needed too, so that variants with other numbers stay. null keeps them all."""
    near_duplicate_shingle: int = Field(3, ge=1)
    """Words per n-gram of that comparison."""
    contamination_ngram: int | None = Field(13, ge=4)
    """Drop problems that share so many words in a row with an evaluation problem; null compares
    whole prompts only."""
    contamination_boilerplate: int = Field(20, ge=1)
    """Words in a row that stand in more problems than this are a template and prove nothing."""
    difficulty_range: tuple[int, int] | None = None
    """Least and greatest difficulty that stays; null keeps all."""
    difficulty_edges: tuple[int, ...] = ()
    """Greatest difficulty of each bucket but the last; () gives every difficulty its own bucket."""
    max_per_bucket: int | None = Field(None, ge=1)
    """Problems per difficulty bucket, chosen by id; null keeps all."""
    max_traces_per_problem: int | None = Field(None, ge=1)
    """Solutions per problem, chosen by id; null keeps all."""
    order: Literal["easy_to_hard", "easy_to_hard_then_short", "mixed"] = "easy_to_hard"
    """Order of the kept rows; the second is for data that come without difficulties."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("prompt_chars", "trace_chars", "difficulty_range"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ValueError(f"{name} is {list(bounds)}; write the smaller number first")
        edges = list(self.difficulty_edges)
        if edges != sorted(set(edges)):
            raise ValueError(f"difficulty_edges is {edges}; write each edge once, in rising order")
        return self
