"""All slots that posttrain has, and who offers which part for them.

A new slot is one line in `SLOTS`: its name, and where its literal dict stands.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from posttrain.stage.errors import UserError, nearest
from posttrain.stage.installed import SHARED
from posttrain.stage.slots import (
    Part,
    Plugins,
    Slot,
    installed_parts,
    load_part,
    parts_of_modules,
)

SLOTS: Mapping[str, str] = {
    "source": "posttrain.data.sources.registry:SOURCES",
    "teacher": "posttrain.data.teachers.registry:TEACHERS",
    "verifier": "posttrain.learning.rewards.verifiers.registry:VERIFIERS",
    "filter": "posttrain.data.filters.registry:FILTERS",
    "pair_builder": "posttrain.data.pair_builders.registry:PAIR_BUILDERS",
    "template": "posttrain.data.chat_templates.registry:TEMPLATES",
    "problem_sampler": "posttrain.learning.curriculum.registry:PROBLEM_SAMPLERS",
    "producer": "posttrain.learning.rl.producers.registry:PRODUCERS",
    "engine": "posttrain.learning.rollouts.engines.registry:ENGINES",
    "component": "posttrain.learning.rewards.components.registry:COMPONENTS",
    "combine": "posttrain.learning.rewards.combines.registry:COMBINES",
    "advantage": "posttrain.learning.algorithms.advantages.registry:ADVANTAGES",
    "surrogate": "posttrain.learning.algorithms.surrogates.registry:SURROGATES",
    "token_weight": "posttrain.learning.algorithms.token_weights.registry:TOKEN_WEIGHTS",
    "regularizer": "posttrain.learning.algorithms.regularizers.registry:REGULARIZERS",
    "strategy": "posttrain.learning.rollouts.strategies.registry:STRATEGIES",
    "schedule": "posttrain.stage.shapes.registry:SCHEDULE_SHAPES",
}
"""Name -> `module:variable`, in the order of the pipeline; a module is imported when it is used."""


@dataclass(frozen=True)
class OfferedPart:
    """A part that a recipe may name, and where it comes from."""

    slot: str
    kind: str
    summary: str
    """First sentence of its docstring."""
    source: str
    """Paper and equation, or code at a commit."""
    origin: str
    """`posttrain`, `plug-in MODULE`, or `package NAME VERSION`."""


def find_slot(name: str) -> Slot[Any]:
    """The slot of that name.

    Raises:
        UserError: There is none; the nearest one is named.

    """
    if name not in SLOTS:
        known = nearest(name, SLOTS) or f"; there are {', '.join(SLOTS)}"
        raise UserError(f"there is no slot '{name}'{known}")
    module, _, variable = SLOTS[name].partition(":")
    slot = getattr(importlib.import_module(module), variable)
    assert isinstance(slot, Slot)
    return slot


def check_plugins(offered: Plugins, where: str) -> None:
    """Refuse plug-ins that offer parts for no slot, of a kind that ships, or of no class for it.

    Args:
        offered: What the plug-ins offer: slot -> kind -> part.
        where: Place in the recipe, for errors.

    Raises:
        UserError: One of these; what to do is said.

    """
    for name, parts in offered.items():
        if name not in SLOTS:
            known = nearest(name, SLOTS) or f"; there are {', '.join(SLOTS)}"
            raise UserError(f"{where}: a plug-in offers a part for the slot '{name}'{known}")
        slot = find_slot(name)
        for kind, part in parts.items():
            if kind in slot.parts:
                raise UserError(
                    f"{where}: {part.__module__} offers the {name} '{kind}', and one of that name"
                    " ships with posttrain; rename the plug-in's"
                )
            if not (isinstance(part, type) and issubclass(part, slot.base)):
                raise UserError(
                    f"{where}: the {name} '{kind}' is {part!r}, which is no {slot.base.__name__};"
                    " derive it from that class"
                )


def offered_parts(names: Sequence[str], plugins: Sequence[str]) -> Iterator[OfferedPart]:
    """List the parts of some slots: those that ship, of plug-ins, of installed packages.

    Args:
        names: Slots, in the order wanted.
        plugins: Modules whose parts count beside those that ship.

    Yields:
        Each part once, by slot, sorted by kind among those of one origin.

    """
    added = parts_of_modules(plugins)
    check_plugins(added, "plugins")
    for name in names:
        slot = find_slot(name)
        for kind, part in sorted(slot.parts.items()):
            yield _offered(name, kind, part, "posttrain")
        for kind, part in sorted(added.get(name, {}).items()):
            yield _offered(name, kind, part, f"plug-in {part.__module__}")
        for point in installed_parts(name):
            kind = point.name.partition(".")[2]
            package = f"package {point.dist.name} {point.dist.version}" if point.dist else ""
            try:
                yield _offered(name, kind, load_part(point), package)
            except UserError as error:
                yield OfferedPart(name, kind, f"cannot be imported: {error.__cause__}", "", package)


def parts_in_code(symbols: Iterable[str]) -> Plugins:
    """Import the parts among the code that a stage ran with: those of plug-ins, years later.

    Args:
        symbols: The code components of a stage's key, as `module:name`.

    Returns:
        Slot -> kind -> part, without those that ship with posttrain.

    """
    found: dict[str, dict[str, type[Part]]] = {}
    for symbol in symbols:
        module, _, name = symbol.partition(":")
        if module.partition(".")[0] == "posttrain" or not name.isidentifier():
            continue
        part = getattr(_imported(module), name, None)
        if isinstance(part, type) and issubclass(part, Part):
            kind = part.model_fields["kind"].default
            for slot in map(find_slot, SLOTS):
                ours = not isinstance(kind, str) or kind in slot.parts
                if issubclass(part, slot.base) and not ours:
                    found.setdefault(slot.name, {})[kind] = part
    return found


def _imported(module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError:
        # The stages that ship may have moved since; what a project has of its own must be there.
        if module.partition(".")[0] in SHARED:
            return None
        raise


def _offered(slot: str, kind: str, part: Any, origin: str) -> OfferedPart:
    source = " ".join(str(getattr(part, "SOURCE", "")).split())
    return OfferedPart(slot, kind, first_sentence(part.__doc__ or ""), source, origin)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, in one line, without its backticks.

    >>> first_sentence("Take the mean, i.e. the `average`.  More follows.")
    'Take the mean, i.e. the average.'
    """
    paragraph = " ".join(text.strip().partition("\n\n")[0].split()).replace("`", "")
    words = paragraph.split(" ")
    for end, word in enumerate(words, start=1):
        if word.endswith(".") and (end == len(words) or words[end][:1].isupper()):
            return " ".join(words[:end])
    return paragraph
