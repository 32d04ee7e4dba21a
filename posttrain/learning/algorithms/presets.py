"""Algorithms by the names of methods, and how a recipe names one.

A method's file says an algorithm of RL under `sets.rl.algorithm`, one on pairs under
`sets.preference.algorithm`: what differs from the defaults, or from the `preset` beside it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import BeforeValidator

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.methods.find import find_method, has_method, readable_methods
from posttrain.methods.lay import laid_over
from posttrain.methods.method import Method
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.part_schema import PresetOf

AlgorithmT = TypeVar("AlgorithmT", Algorithm, PreferenceAlgorithm)


class Preset(NamedTuple, Generic[AlgorithmT]):
    """An algorithm with the story of its name, as the method of that name tells it."""

    algorithm: AlgorithmT
    equation: str
    """Advantage and loss. A: advantage, r: reward, ρ: ratio to the old policy, sg: no gradient."""
    source: str
    """Paper, authors and arXiv id; or project and file, read at a stated commit."""
    note: str
    """What the source leaves open, what is the stage's to set, and how others differ."""


class Presets(Mapping[str, Preset[AlgorithmT]]):
    """The methods that say an algorithm for one section of a recipe.

    Args:
        section: `rl` or `preference`.
        called: What an error calls such an algorithm.
        config: Its class.

    """

    def __init__(self, section: str, called: str, config: type[AlgorithmT]) -> None:
        self._section, self._called = section, called
        self._config: type[AlgorithmT] = config

    def __iter__(self) -> Iterator[str]:
        """Name them; every method's file is read, and one that is wrong names none."""
        found = (each.method for each in readable_methods()[0].values())
        return (method.name for method in found if self._said(method) is not None)

    def __len__(self) -> int:
        """Count them."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Tell whether a method of that name says one."""
        known = isinstance(name, str) and has_method(name)
        return known and self._said(find_method(str(name)).method) is not None

    def __getitem__(self, name: str) -> Preset[AlgorithmT]:
        """Look one up.

        Raises:
            UserError: There is no such method, or it says no such algorithm; or its file is wrong.

        """
        return self._find(name, ())

    def expand(self, value: Any) -> Any:
        """Spell an algorithm out in full.

        Without `preset` a mapping changes the defaults. A section is merged key by key; one of
        another `kind` starts from the defaults of that, and one that is null is taken out.

        >>> PRESETS.expand({"preset": "dapo", "surrogate": {"high": 0.3}})["surrogate"]
        {'kind': 'clip', 'level': 'token', 'low': 0.2, 'high': 0.3, 'dual': None}

        Args:
            value: `"grpo"`, or `{"preset": "grpo", "surrogate": {"low": 0.1}}`; what is neither a
                name nor a mapping is left for the config to judge.

        Returns:
            All fields.

        Raises:
            ValueError: There is no method of that name that says one.

        """
        try:
            return self._expanded(value, ())
        except UserError as error:
            raise ValueError(str(error)) from None

    def _expanded(self, value: Any, within: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            value = {"preset": value}
        if not isinstance(value, Mapping):
            return value
        changes = dict(value)
        name = changes.pop("preset", None)
        base = self._config() if name is None else self._find(str(name), within).algorithm
        return laid_over(base.model_dump(), changes)

    def _find(self, name: str, within: tuple[str, ...]) -> Preset[AlgorithmT]:
        """Look one up for those `within` which it is named as preset."""
        if name in within:
            raise UserError(f"the methods {' and '.join(within)} name each other as preset")
        if not has_method(name):
            raise UserError(f"there is no {self._called} '{name}'{nearest(name, self)}")
        found = find_method(name)
        method = found.method
        if (said := self._said(method)) is None:
            raise UserError(
                f"the method {name} says no {self._section}.algorithm{nearest(name, self)}"
            )
        where = f"{found.shown}: sets.{self._section}.algorithm"
        algorithm = self._config.parse(self._expanded(said, (*within, name)), where=where)
        return Preset(algorithm, method.equation.rstrip("\n"), str(method.source), method.note)

    def _said(self, method: Method) -> Any:
        return method.section(self._section, "algorithm")


PRESETS = Presets("rl", "algorithm", Algorithm)
"""Algorithms of RL by the name of a method."""

PREFERENCE_PRESETS = Presets("preference", "preference algorithm", PreferenceAlgorithm)
"""Algorithms on pairs by the name of a method."""

AlgorithmConfig = Annotated[
    Algorithm,
    BeforeValidator(
        PRESETS.expand, json_schema_input_type=Annotated[Any, PresetOf(Algorithm, PRESETS)]
    ),
]
"""The type of a config field that holds an algorithm: a method's name, or changes of one."""

PreferenceAlgorithmConfig = Annotated[
    PreferenceAlgorithm,
    BeforeValidator(
        PREFERENCE_PRESETS.expand,
        json_schema_input_type=Annotated[Any, PresetOf(PreferenceAlgorithm, PREFERENCE_PRESETS)],
    ),
]
"""The same of an algorithm on pairs."""
