"""Types of artifacts; apart from the specification, so that asking for them loads nothing else."""

from enum import StrEnum


class ArtifactType(StrEnum):
    """What the bytes of an artifact mean; an edge may only join ports of one type."""

    PROBLEMS = "problems"
    COMPLETIONS = "completions"
    SOLVE_RATES = "solve_rates"
    PAIRS = "pairs"
    ROLLOUTS = "rollouts"
    TURNS = "turns"
    VERDICTS = "verdicts"
    CURVE = "curve"
    DROPPED = "dropped"
    CHECKPOINT = "checkpoint"
    REWARD_MODEL = "reward_model"
    REPORT = "report"
    SOURCE = "source"
    # Never on a port: parts that an artifact of another type carries inside.
    TOKENIZER = "tokenizer"
    TEMPLATE = "template"
    JUDGE = "judge"

    @property
    def suffix(self) -> str:
        """File suffix of an artifact of this type; directories and foreign files have none."""
        if self in _DIRECTORIES or self in PARTS or self is ArtifactType.SOURCE:
            return ""
        return ".json" if self is ArtifactType.REPORT else ".parquet"

    @property
    def is_directory(self) -> bool:
        """True where the artifact is a directory rather than one file."""
        return self in _DIRECTORIES


_DIRECTORIES = frozenset({ArtifactType.CHECKPOINT, ArtifactType.REWARD_MODEL})
PARTS = (ArtifactType.TOKENIZER, ArtifactType.TEMPLATE, ArtifactType.JUDGE)
