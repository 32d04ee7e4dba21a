"""All slots that posttrain has, and who offers which part for them.

A new slot is one line in `SLOTS`: its name, and where its literal dict stands.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
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
    package_offering,
    parts_of_modules,
)

SLOTS: Mapping[str, str] = {
    "source": "posttrain.data.sources.registry:SOURCES",
    "format": "posttrain.data.formats.registry:FORMATS",
    "teacher": "posttrain.data.teachers.registry:TEACHERS",
    "extractor": "posttrain.learning.rewards.extractors.registry:EXTRACTORS",
    "constraint": "posttrain.learning.rewards.constraints.registry:CONSTRAINTS",
    "verifier": "posttrain.learning.rewards.verifiers.registry:VERIFIERS",
    "pair_oracle": "posttrain.learning.rewards.components.oracles.registry:PAIR_ORACLES",
    "filter": "posttrain.data.filters.registry:FILTERS",
    "run_source": "posttrain.data.run_sources.registry:RUN_SOURCES",
    "ranking": "posttrain.data.rankings.registry:RANKINGS",
    "pair_builder": "posttrain.data.pair_builders.registry:PAIR_BUILDERS",
    "template": "posttrain.data.chat_templates.registry:TEMPLATES",
    "row_loss": "posttrain.learning.training.row_losses.registry:ROW_LOSSES",
    "optimizer": "posttrain.learning.models.optimizers.registry:OPTIMIZERS",
    "alarm": "posttrain.learning.training.alarms.registry:ALARMS",
    "merge": "posttrain.learning.models.merges.registry:MERGES",
    "problem_sampler": "posttrain.learning.curriculum.registry:PROBLEM_SAMPLERS",
    "instructor": "posttrain.learning.rl.instructors.registry:INSTRUCTORS",
    "environment": "posttrain.learning.episodes.registry:EPISODE_ENVIRONMENTS",
    "player": "posttrain.learning.episodes.players.registry:PLAYERS",
    "context_manager": "posttrain.learning.episodes.contexts.registry:CONTEXT_MANAGERS",
    "branching": "posttrain.learning.episodes.branches.registry:BRANCHINGS",
    "guidance": "posttrain.learning.episodes.guidance.registry:GUIDANCE",
    "producer": "posttrain.learning.rl.producers.registry:PRODUCERS",
    "hint_law": "posttrain.learning.rl.hints.registry:HINT_LAWS",
    "selection": "posttrain.learning.rl.selections.registry:SELECTIONS",
    "reference": "posttrain.learning.rl.references.registry:REFERENCES",
    "rehearsal": "posttrain.learning.rl.rehearsals.registry:REHEARSALS",
    "balance": "posttrain.learning.rl.balances.registry:BALANCES",
    "action_mask": "posttrain.learning.rl.action_masks.registry:ACTION_MASKS",
    "addition": "posttrain.learning.rl.additions.registry:ADDITIONS",
    "replay": "posttrain.learning.rl.replays.registry:ROLLOUT_REPLAYS",
    "exchange": "posttrain.learning.rl.exchanges.registry:EXCHANGES",
    "engine": "posttrain.learning.rollouts.engines.registry:ENGINES",
    "component": "posttrain.learning.rewards.components.registry:COMPONENTS",
    "combine": "posttrain.learning.rewards.combines.registry:COMBINES",
    "advantage": "posttrain.learning.algorithms.advantages.registry:ADVANTAGES",
    "turn_value": "posttrain.learning.algorithms.turn_values.registry:TURN_VALUES",
    "surrogate": "posttrain.learning.algorithms.surrogates.registry:SURROGATES",
    "foreign_loss": "posttrain.learning.algorithms.foreign_losses.registry:FOREIGN_LOSSES",
    "token_weight": "posttrain.learning.algorithms.token_weights.registry:TOKEN_WEIGHTS",
    "regularizer": "posttrain.learning.algorithms.regularizers.registry:REGULARIZERS",
    "pair_loss": "posttrain.learning.algorithms.pair_losses.registry:LOSSES_ON_PAIRS",
    "pair_term": "posttrain.learning.algorithms.pair_terms.registry:PAIR_TERMS",
    "search": "posttrain.learning.rollouts.searches.registry:SEARCHES",
    "strategy": "posttrain.learning.rollouts.strategies.registry:STRATEGIES",
    "variant": "posttrain.learning.rollouts.variants.registry:VARIANTS",
    "diagnostic": "posttrain.learning.rollouts.diagnostics.registry:DIAGNOSTICS",
    "schedule": "posttrain.stage.shapes.registry:SCHEDULE_SHAPES",
}
"""Name -> `module:variable`, in the order of the pipeline; a module is imported when it is used."""

_SOURCE = "Source: "


@dataclass(frozen=True)
class OfferedPart:
    """A part that a recipe may name, and where it comes from."""

    slot: str
    kind: str
    summary: str
    """First sentence of its docstring."""
    source: str
    """Paper and equation, or code at a commit; `own` where nothing was published."""
    origin: str
    """`posttrain`, `plug-in MODULE`, or `package NAME VERSION`."""
    part: type[Part] | None = None
    """Its class; None where that is broken."""

    def fields(self) -> Iterator[tuple[str, str, str]]:
        """Say what may be set in a recipe.

        Yields:
            Name, default (empty where a value must be given), and what it means.

        """
        if self.part is None:
            return
        texts = self.part.texts_of_fields()
        for name, field in self.part.model_fields.items():
            if name != "kind":
                usual = field.get_default(call_default_factory=True)
                told = "" if field.is_required() else str(getattr(usual, "kind", usual))
                yield name, told, first_sentence(texts.get(name, ""))


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
    """Refuse plug-ins that offer what no slot takes.

    Args:
        offered: What the plug-ins offer: slot -> kind -> part.
        where: Place in the recipe, for errors.

    Raises:
        UserError: One is for no slot, of a kind that ships, or no part of its slot.

    """
    for name, parts in offered.items():
        for kind, part in parts.items():
            if complaint := _complaint(name, kind, part):
                raise UserError(f"{where}: {complaint}")


def offered_parts(names: Sequence[str], plugins: Sequence[str]) -> Iterator[OfferedPart]:
    """List the parts of some slots: those that ship, of plug-ins, of installed packages.

    What nobody can name is listed too, with the reason in place of what it does.

    Args:
        names: Slots, in the order wanted; none for all, and what is offered for no slot.
        plugins: Modules whose parts count beside those that ship.

    Yields:
        Each part once, by slot, sorted by kind among those of one origin.

    """
    added = parts_of_modules(plugins)
    packaged = installed_parts()
    strays = {*added, *(slot for slot, _, _ in packaged)} - SLOTS.keys()
    for name in names or [*SLOTS, *sorted(strays)]:
        for kind, part in sorted(find_slot(name).parts.items()) if name in SLOTS else ():
            yield _offered(name, kind, part, "posttrain")
        for kind, part in sorted(added.get(name, {}).items()):
            wrong = _complaint(name, kind, part)
            yield _offered(name, kind, part, f"plug-in {getattr(part, '__module__', '')}", wrong)
        for kind, point in ((kind, point) for slot, kind, point in packaged if slot == name):
            yield _of_package(name, kind, point)


def parts_of_kind(kind: str, plugins: Sequence[str]) -> list[OfferedPart]:
    """Find the parts of a kind in all slots.

    Args:
        kind: Its name; several slots may have one.
        plugins: Modules whose parts count beside those that ship.

    Returns:
        The parts, in the order of the slots.

    Raises:
        UserError: It is neither a kind nor a slot; the nearest name of either is said.

    """
    offered = list(offered_parts((), plugins))
    if found := [each for each in offered if each.kind == kind]:
        return found
    near = nearest(kind, [*SLOTS, *(each.kind for each in offered)])
    known = near or f"; the slots are {', '.join(SLOTS)}"
    raise UserError(f"there is no slot '{kind}', and no part of that kind{known}")


def _complaint(slot: str, kind: str, part: object) -> str | None:
    """Say why no recipe can name what is offered under a slot and a kind."""
    if slot not in SLOTS:
        known = nearest(slot, SLOTS) or f"; there are {', '.join(SLOTS)}"
        return f"{slot}.{kind} is offered for a slot that there is not{known}"
    found = find_slot(slot)
    if kind in found.parts:
        origin = getattr(part, "__module__", repr(part))
        return f"{slot}.{kind} of {origin} ships with posttrain too; rename the plug-in's"
    return found.complaint(kind, part)


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


def _of_package(slot: str, kind: str, point: EntryPoint) -> OfferedPart:
    try:
        part = load_part(point)
    except UserError as error:
        return _offered(slot, kind, None, package_offering(point), str(error))
    return _offered(slot, kind, part, package_offering(point), _complaint(slot, kind, part))


def _offered(slot: str, kind: str, part: Any, origin: str, wrong: str | None = None) -> OfferedPart:
    summary = f"broken: {wrong}" if wrong else first_sentence(part.__doc__ or "")
    return OfferedPart(slot, kind, summary, source_of(part), origin, None if wrong else part)


def source_of(part: Any) -> str:
    """Where a part says that it is from, in one line; empty where it does not say.

    That is its `SOURCE`, or the paragraph of its docstring that begins with `Source: `, and the
    `SOURCE` of its base only where it has neither. What a docstring says is in no key: where it is
    put right, nothing runs again.
    """
    paragraphs = [each.strip() for each in (part.__doc__ or "").split("\n\n")]
    told = [each.removeprefix(_SOURCE) for each in paragraphs if each.startswith(_SOURCE)]
    own = getattr(part, "__dict__", {}).get("SOURCE")
    said = own or " ".join(told) or getattr(part, "SOURCE", "")
    return " ".join(str(said).split())


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
