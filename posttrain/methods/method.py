"""What the file of a method may say."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from posttrain.methods.claim import FIRST_TRIAL, MethodClaim, Name
from posttrain.stage.config import StageConfig

FAMILIES: Mapping[str, str] = {
    "pg": "policy-gradient objective",
    "div": "divergence, reference, over-optimization",
    "ent": "entropy and exploration",
    "len": "length and token efficiency",
    "mix": "off-policy, mixed sources, replay",
    "cur": "curriculum and difficulty",
    "syn": "synthesis and self-evolution",
    "sft": "supervised variants and mid-training",
    "rm": "reward models",
    "rub": "rubrics and judges",
    "ver": "verifiable, partial-credit and calibration rewards",
    "pref": "preference optimization",
    "self": "label-free and co-evolving models",
    "agent": "multi-turn agents and tools",
    "search": "search and inference-time methods",
    "eval": "evaluation and diagnosis",
    "sys": "systems",
    "recipe": "complete published recipes",
}
"""Name of a family's folder -> what stands in it."""


class MethodSource(StageConfig):
    """Where a method is from."""

    paper: str = ""
    """Title, authors and year, arXiv id, section."""
    code: str = ""
    """Repository or package at a commit or version, and the files that were read."""

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if not (self.paper or self.code):
            raise ValueError("name the paper or the code that the method is from")
        return self

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.paper, self.code)))


class Method(StageConfig):
    """A named composition of settings with its citation, and the claims that test it."""

    name: Name
    """As the file is called; what `method: NAME` in a recipe says."""
    title: str
    """What its authors call it."""
    source: MethodSource
    """Paper, and the authors' code at a commit."""
    family: str
    """Name of the folder that the file is in."""
    kind: Literal["run", "idea"] = "run"
    """The method itself, or the one idea that is taken over from another field."""
    system: str = ""
    """The published system that it is, as `method list` names it; none for a base method."""
    says: str
    """What it does, in a sentence."""
    equation: str = ""
    """Advantage and loss. A: advantage, r: reward, ρ: ratio to the old policy, sg: no gradient."""
    note: str = ""
    """What the source leaves open, what is a choice here, and how others differ."""
    like: str = ""
    """Another method, whose `sets` lie under this one's: what is said here is what differs."""
    sets: dict[str, dict[str, Any] | None] = {}
    """Sections of a recipe: exactly what `--set` would say."""
    leaves_out: tuple[str, ...] = ()
    """Parts of the source that this is without."""
    claims: tuple[MethodClaim, ...] = ()
    """Experiments that test it."""

    @field_validator("sets")
    @classmethod
    def _names_are_presets(cls, sets: dict[str, Any]) -> dict[str, Any]:
        """Write an algorithm that is a name as a mapping, over which switches can lie."""
        spelled = {}
        for section, said in sets.items():
            named = isinstance((said or {}).get("algorithm"), str)
            spelled[section] = (
                {**said, "algorithm": {"preset": said["algorithm"]}} if named else said
            )
        return spelled

    @model_validator(mode="after")
    def _is_placed(self) -> Self:
        if self.family not in FAMILIES:
            raise ValueError(
                f"there is no family '{self.family}'; take one of {', '.join(FAMILIES)}"
            )
        if late := [each for each in self.claims if each.first_seed + each.seeds > FIRST_TRIAL]:
            raise ValueError(
                f"claim {late[0].name} takes runs from {FIRST_TRIAL} on, on which settings are"
                " tuned; set first_seed lower"
            )
        names = [claim.name for claim in self.claims]
        if len(set(names)) < len(names):
            raise ValueError("two of the claims have one name; rename one of them")
        return self

    def section(self, *path: str) -> Any:
        """Give what stands at a place of `sets`.

        Args:
            *path: Names of the section and of what is in it, such as ``"rl", "algorithm"``.

        Returns:
            The value; None where the method says nothing of it.

        """
        value: Any = self.sets
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value
