"""How `posttrain method show` prints a method: its switches, its story, what is known of it.

An arena too: what is asked there, its budget, and who claims there; and what a claim may name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import click
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from posttrain.cli.method_shown import ShownMethod
from posttrain.cli.options import plain_table
from posttrain.learning.algorithms.identity import Identified, digest, flat
from posttrain.methods.claim import Arena
from posttrain.methods.find import arena_files, every_method, find_arena, has_method
from posttrain.methods.method import Method
from posttrain.operations.remarks import remarks_on_values
from posttrain.pipeline.claim_metrics import metrics_of_curve, metrics_of_evaluation
from posttrain.pipeline.claim_recipe import arenas_of_same_base
from posttrain.pipeline.method_checks import checks_of
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.pipeline.slots import first_sentence
from posttrain.pipeline.verdicts import broken_off, remarks_on_verdicts, verdicts_of
from posttrain.stage.config import StageConfig

_GRADING = ("evaluate", "diagnose")
"""Sections that say how arms are graded, and have no curve."""
_BUDGET = (
    "steps",
    "epochs",
    "problems_per_step",
    "group_size",
    "batch_tokens",
    "optimization.learning_rate",
    "max_tokens",
    "max_length",
    "num_samples",
)
"""Settings that say how much an arm may take, in the order in which they are told."""


class KnownOfMethod(NamedTuple):
    """What was found out about a method; nothing of what is no method, such as a recipe."""

    verdicts: Mapping[str, str] = {}
    """What is known of its claims, by their names."""
    remarks: Mapping[str, Sequence[str]] = {}
    """What there is to say beside the verdicts, by claim."""
    broken: Mapping[str, str] = {}
    """How the last run of a claim ended that came to no verdict."""
    checks: Mapping[str, str] = {}
    """The checks that were made of it as it is today, by their kinds."""

    @classmethod
    def of(cls, method: Method, root: Path) -> Self:
        """Look it up in a project."""
        return cls(
            verdicts_of(method, root),
            remarks_on_verdicts(method, root),
            broken_off(method, root),
            checks_of(method, root),
        )


def print_method(shown: ShownMethod, known: KnownOfMethod, *, verbose: bool) -> None:
    """Print all that is known of a method.

    Args:
        shown: The method.
        known: What was found out about it.
        verbose: Whether to say of each switch what it does.

    """
    console = Console(highlight=False)
    said = shown.method
    console.print(f"[bold]{shown.name}[/]  {escape(said.title) if said else ''}", soft_wrap=True)
    if shown.remark:
        console.print(f"note: {shown.remark}", markup=False, soft_wrap=True)
    if said:
        console.print(said.says, markup=False)
    for place, algorithm in shown.algorithms.items():
        console.print(f"{place}  {escape(algorithm.describe())}", soft_wrap=True)
        console.print(f"{place} sha256 {digest(algorithm)}", soft_wrap=True)
        section = place.partition(".")[0]
        if isinstance(config := shown.sections[section], Identified):
            console.print(f"{section} sha256 {digest(config)}", soft_wrap=True)
    console.print()
    _print_switches(console, shown, verbose=verbose)
    for section, config in shown.sections.items():
        for line in remarks_on_values(config):
            console.print(f"note: {section}: {line}", markup=False, soft_wrap=True)
    for heading, text in _story(said, known) if said else ():
        console.print(f"\n[bold]{heading}[/]")
        console.print(text, markup=False, soft_wrap=heading == "claims")


def switch_value(value: object) -> str:
    """Spell a switch as it is written in a recipe."""
    return "[dim]null[/]" if value is None else f"[cyan]{json.dumps(value).strip(chr(34))}[/]"


def _print_switches(console: Console, shown: ShownMethod, *, verbose: bool) -> None:
    more = ("meaning",) if verbose else ()
    table = plain_table("switch", "value", "framework's default", *more, unbroken=("switch",))
    meanings = {
        f"{name}.{path}": text
        for name, config in shown.sections.items()
        for path, text in _meanings(config, ())
    }
    for path, (value, default) in shown.told_switches().items():
        other = "" if value == default else switch_value(default)
        meant = [f"[dim]{meanings.get(path, '')}[/]"] if verbose else []
        table.add_row(path, switch_value(value), f"[dim]{other}[/]", *meant)
    console.print(table)


def _story(method: Method, known: KnownOfMethod) -> Iterator[tuple[str, str]]:
    """What a method's file says beside its settings, under headings."""
    texts = {
        "equation": method.equation.rstrip("\n"),
        "source": str(method.source),
        "note": method.note,
        "like": method.like,
        "of the system": method.system,
        "leaves out": "\n".join(method.leaves_out),
        "reads": "\n".join(_inputs(method)),
        "claims": "\n".join(_claims(method, known)),
        "checks": "\n".join(f"{kind}: {found}" for kind, found in sorted(known.checks.items())),
    }
    return ((heading, text) for heading, text in texts.items() if text)


def _inputs(method: Method) -> Iterator[str]:
    """What each section reads of other stages, and who has these: the method or a recipe."""
    for section, said in method.sets.items():
        for port, source in _connected((said or {}).get("inputs") or {}, section):
            makes = "the method sets" if source.partition(".")[0] in method.sets else "recipes have"
            yield f"{port} from {source}, which {makes}"


def _connected(inputs: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """The ports that are connected, by dotted place, and each output that one reads."""
    for port, source in inputs.items():
        place = f"{above}.{port}"
        if isinstance(source, Mapping):
            yield from _connected(source, place)
        elif source is not None:
            yield from ((place, each) for each in ([source] if isinstance(source, str) else source))


def _claims(method: Method, known: KnownOfMethod) -> Iterator[str]:
    """What is claimed and known of each claim, where it is decided, what each other arm sets."""
    for claim in method.claims:
        yield f"{claim.name}: {claim.says}"
        verdict = known.verdicts.get(claim.name, "")
        remarks = known.remarks.get(claim.name, ()) if verdict else ()
        # Where a verdict stands, nothing is left to be gone on with.
        stands = verdict and not verdict.startswith("stale")
        left = "" if stands else known.broken.get(claim.name, "")
        told = [line for line in (verdict, *remarks, left) if line]
        yield from (f"  {line}" for line in told or ["not run"])
        yield f"  arena {claim.arena}, equal {claim.matched}"
        yield from (f"  arm {name}: {_in_a_line(said)}" for name, said in claim.against.items())


def _in_a_line(said: Mapping[str, Any]) -> str:
    """Spell sections of a recipe as YAML in one line."""
    import yaml

    line: str = yaml.safe_dump(
        dict(said), default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return line.strip()


def _meanings(config: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What each switch does, from its docstring, by dotted path."""
    texts = config.texts_of_fields() if isinstance(config, StageConfig) else {}
    for name in type(config).model_fields:
        inner = getattr(config, name)
        if isinstance(inner, BaseModel):
            yield from _meanings(inner, (*path, name))
        elif isinstance(inner, Mapping) and inner:
            for key, part in inner.items():
                if isinstance(part, BaseModel):
                    yield from _meanings(part, (*path, name, key))
        else:
            text = " ".join(texts.get(name, "").split()).replace("`", "").replace("[", r"\[")
            yield ".".join((*path, name)), text


def metrics_of_method(shown: ShownMethod, root: Path) -> dict[str, dict[str, str]]:
    """Describe what a claim of a method may name.

    Args:
        shown: The method, its settings resolved.
        root: The project.

    Returns:
        A sentence by metric, under the section whose stage measures it.

    """
    found = {
        section: known
        for section, config in shown.sections.items()
        if section not in _GRADING and (known := metrics_of_curve(section, config))
    }
    evaluation: Any = shown.sections.get("evaluate")
    if evaluation is None:
        evaluation = stages_of_flow("flows.post_training", root)["evaluate"].config()
    graded = metrics_of_evaluation(evaluation) | dict(_figures(evaluation.variants))
    diagnosis: Any = shown.sections.get("diagnose")
    told = dict(_figures(diagnosis.diagnostics)) if diagnosis else {}
    return found | {"evaluate": graded} | ({"diagnose": told} if told else {})


def print_metrics(found: dict[str, dict[str, str]]) -> None:
    """Print what `metrics_of_method` gives, a table for each section."""
    console = Console(highlight=False)
    for section, metrics in found.items():
        console.print(f"[bold]{section}[/]")
        table = plain_table("metric", "what it is", unbroken=("metric",))
        for name, about in metrics.items():
            table.add_row(name, escape(about))
        console.print(table)
        console.print()


def is_arena(name: str) -> bool:
    """Whether a name is that of an arena and of no method."""
    return not has_method(name) and name in arena_files()


def shown_arena(name: str, root: Path) -> dict[str, Any]:
    """Say what an arena is, as `-o json` prints it.

    Args:
        name: Of the arena.
        root: The project.

    Returns:
        What its file says, what its budget comes to, the arenas of the same base, and the claims of
        methods that are decided there.

    """
    arena = find_arena(name)
    said = arena.model_dump(mode="json", exclude_none=True)
    return {
        **said,
        "budget": _budget_of(arena, root),
        "shares_its_base_with": arenas_of_same_base(name, root),
        "claims": _claims_in(name),
    }


def print_arena(name: str, root: Path) -> None:
    """Print an arena: what is asked, what its base must show, what lies under every arm, claims.

    Args:
        name: Of the arena.
        root: The project.

    """
    import yaml

    arena = find_arena(name)
    console = Console(highlight=False)
    console.print(f"[bold]{name}[/]  an arena", soft_wrap=True)
    console.print(arena.says, markup=False)
    texts = {
        "its base must show": "\n".join(_contract_of(arena)),
        "shares its base with": ", ".join(arenas_of_same_base(name, root)),
        "under every arm": yaml.safe_dump(
            arena.sections, sort_keys=False, allow_unicode=True, width=100
        ),
        "its budget, where an arm sets nothing else": "\n".join(
            f"{section}: {', '.join(f'{name} {value}' for name, value in said.items())}"
            for section, said in _budget_of(arena, root).items()
        ),
        "claims": "\n".join(_claims_in(name)),
    }
    for heading, text in texts.items():
        if text:
            console.print(f"\n[bold]{heading}[/]")
            click.echo(text.rstrip())


def _budget_of(arena: Arena, root: Path) -> dict[str, dict[str, Any]]:
    """What an arm may take in each section of an arena: what this says, over the task's defaults.

    They are laid over each other unread: a section may be right with the settings of an arm alone.
    """
    tasks = stages_of_flow("flows.post_training", root)
    found = {}
    for section, said in arena.sections.items():
        if section in tasks:
            usual = flat(tasks[section].config())
            values = {name: _at(said, name, usual[name]) for name in _BUDGET if name in usual}
            if budget := {name: value for name, value in values.items() if value is not None}:
                found[section] = budget
    return found


def _at(said: Mapping[str, Any], path: str, usual: Any) -> Any:
    """The value at a dotted path of settings; `usual` where they do not say it."""
    head, _, rest = path.partition(".")
    if head not in said:
        return usual
    return _at(said[head], rest, usual) if rest else said[head]


def _contract_of(arena: Arena) -> list[str]:
    """What the policy must show that all arms begin as, a line for each metric."""
    return [
        f"{arena.base}: {each.metric} {sign} {bound:g}"
        for each in arena.contract
        for sign, bound in (("at least", each.at_least), ("at most", each.at_most))
        if bound is not None
    ]


def _claims_in(name: str) -> list[str]:
    """The claims of methods that are decided in an arena."""
    return [
        f"{found.method.name}.{claim.name}"
        for found in every_method().values()
        for claim in found.method.claims
        if claim.arena == name
    ]


def _figures(parts: Any) -> Iterator[tuple[str, str]]:
    """Name the figures of variants or diagnostics, which these know when they have measured."""
    for name, part in parts.items():
        yield f"{name}.FIGURE", f"a figure of {part.kind}: {first_sentence(part.__doc__ or '')}"
