"""Pages of the catalog: one for each method, one for each family, from the methods' files."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.hooks.words import cell, code, paragraphs, table
from posttrain.cli.method_shown import ShownMethod, shown_method
from posttrain.methods.claim import MethodClaim
from posttrain.methods.find import FoundMethod, arena_files, every_method, find_arena
from posttrain.methods.method import FAMILIES, Method
from posttrain.pipeline.method_checks import KeptCheck, kept_checks
from posttrain.pipeline.verdicts import KeptVerdict, kept_verdicts


def method_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Write a page for each method and family, and one that lists the families.

    Args:
        root: The repository.

    Yields:
        Place in the site and Markdown.

    """
    found, verdicts, checks = every_method(), kept_verdicts(), kept_checks()
    for name, each in found.items():
        shown = shown_method(name, root)
        yield f"reference/methods/{name}.md", _of_method(each, shown, verdicts, checks)
    families = []
    for family, title in FAMILIES.items():
        own = [each.method for each in found.values() if each.method.family == family]
        if own:
            rows = [(f"[{each.name}](../{each.name}.md)", cell(each.says)) for each in own]
            head = f"# {title[:1].upper()}{title[1:]}\n\n`posttrain method list --family {family}`"
            yield (
                f"reference/methods/family/{family}.md",
                f"{head}\n\n{table(('method', ''), rows)}",
            )
            families.append((f"[{title}](family/{family}.md)", code(family), str(len(own))))
    yield "reference/methods/arenas.md", _arenas()
    yield (
        "reference/methods/index.md",
        "# Methods\n\nEvery published method is one file; `method: NAME` at the top of a recipe"
        " lays its settings under the recipe's own ([how](../../methods.md)). Whether a verdict"
        " still stands for the code of today, `posttrain method show NAME` says.\n\n"
        + table(("family", "name", "methods"), families)
        + "\nClaims are decided in [arenas](arenas.md): problems, a base and a budget.\n",
    )


def _of_method(
    found: FoundMethod,
    shown: ShownMethod,
    verdicts: Mapping[tuple[str, str], KeptVerdict],
    checks: Mapping[tuple[str, str], KeptCheck],
) -> str:
    said = found.method
    like = f" Like [{said.like}]({said.like}.md)." if said.like else ""
    sections = [
        f"# {said.name}\n\n{cell(said.title)}. {cell(said.says)}\n",
        f"```yaml\nmethod: {said.name}\n```\n",
        f"Family: [{FAMILIES[said.family]}](family/{said.family}.md). File:"
        f" `{found.shown}`.{like}\n",
    ]
    if said.equation:
        sections.append(f"## Formula\n\n```text\n{said.equation.rstrip()}\n```\n")
    sections.append(f"## Source\n\n{cell(said.source)}\n")
    if said.note:
        sections.append(f"## What the source leaves open\n\n{paragraphs(said.note)}\n")
    if said.leaves_out:
        rows = [f"- {cell(each)}" for each in said.leaves_out]
        sections.append("## What is left out\n\n" + "\n".join(rows) + "\n")
    sections.append(f"## Claims\n\n{_claims(said, verdicts)}")
    if made := [_of_check(each) for (name, _), each in checks.items() if name == said.name]:
        sections.append("## Checks\n\n" + "\n".join(made) + "\n")
    sections.append(f"## Switches\n\n{_switches(shown)}")
    return "\n".join(sections)


def _claims(method: Method, verdicts: Mapping[tuple[str, str], KeptVerdict]) -> str:
    if not method.claims:
        return "None is stated.\n"
    return "\n".join(
        f"### {claim.name}\n\n{_of_claim(claim, verdicts.get((method.name, claim.name)))}"
        for claim in method.claims
    )


def _of_claim(claim: MethodClaim, kept: KeptVerdict | None) -> str:
    found = (
        f"Decided at commit `{kept.commit[:10]}` by {kept.seeds} seeds: **{cell(kept.verdict)}**."
        f" {cell(kept.sentence.removeprefix(f'{kept.verdict}: '))}"
        if kept
        else "Not decided yet."
    )
    arms = [f"- `{name}`: {code(json.dumps(said))}" for name, said in claim.against.items()]
    lines = "\n\nArms that it is compared with:\n\n" + "\n".join(arms) if arms else ""
    return (
        f"{cell(claim.says)}\n\n{found}\n\n"
        f"Arena [{claim.arena}](arenas.md#{claim.arena}), equal {claim.matched},"
        f" {claim.seeds} seeds, some {claim.minutes:g} minutes on two cores.{lines}\n"
    )


def _of_check(kept: KeptCheck) -> str:
    ended = "passed" if kept.passed else "failed"
    return f"- {kept.kind}, at commit `{kept.commit[:10]}`: {ended}, {cell(kept.says)}"


def _arenas() -> str:
    """What the arms of claims share, by arena."""
    blocks = [
        f"## {name}\n\n{cell(find_arena(name).says)}\n\n"
        f"```yaml\n{file.read_text(encoding='utf-8').rstrip()}\n```\n"
        for name, file in sorted(arena_files().items())
    ]
    return "# Arenas\n\nProblems, a base model and a budget that the arms of a claim share.\n\n" + (
        "\n".join(blocks)
    )


def _switches(shown: ShownMethod) -> str:
    rows = [
        (code(path), code(_spelled(value)), "" if value == default else code(_spelled(default)))
        for path, (value, default) in shown.told_switches().items()
    ]
    return table(("switch", "value", "default, where it differs"), rows) or "It sets nothing.\n"


def _spelled(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str)
