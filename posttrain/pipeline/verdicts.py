"""Verdicts that are kept: `methods/verdicts.jsonl` of a project, and what ships with posttrain.

A verdict is bound to what the claim says and to the keys of the stages that it came from, as far as
this code decides them: a stage's code and its parameters. Where one of them moved it is stale.
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from posttrain.methods.claim import MethodClaim
from posttrain.methods.find import FoundMethod, every_method, find_arena, method_folders, own_folder
from posttrain.methods.method import Method
from posttrain.pipeline.claim_recipe import digest_of_claim, recipe_of_claim, values_of_claim
from posttrain.pipeline.kept_lines import kept_lines
from posttrain.pipeline.stage_keys import StageKeys, look_together
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.git import ask_git, run_git
from posttrain.provenance.ledger import Ledger, ledger_location, open_ledger
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

VERDICTS_FILE = "verdicts.jsonl"
NOT_IN_HISTORY = "not in this history"
_DIGITS = 12
_NO_RECORDS = "sqlite:///:memory:"
_ENDED = {"failed": "failed", "stopped": "was stopped", "killed": "was killed"}


@dataclass(frozen=True)
class KeptVerdict:
    """One line of the file."""

    method: str
    claim: str
    verdict: str
    """confirmed, refuted, undecided or void."""
    sentence: str
    """The verdict with its figures."""
    seeds: int
    minutes: float
    commit: str
    """Of the project, where the arms ran; empty where nothing was committed there."""
    digest: str
    """Of what the claim said: arms, arena, decisions."""
    keys: Mapping[str, str]
    """Code and parameters of each stage."""
    artifact: str
    """Digest of the verdict's artifact, by which lineage finds what it was made from."""
    decisions: list[Mapping[str, Any]] = field(default_factory=list)
    """Each comparison with its figures, as the artifact has them. Lines of older versions have
    none, nor `made`."""
    made: Mapping[str, str] = field(default_factory=dict)
    """Digest of the rows of each table that the verdict read of the first seed, by port. Where
    today's code makes the same there, and the same figures of `decisions`, the verdict stands."""
    rechecked: str = ""
    """Commit at which the first seed was run again and made the same; all seeds ran at `commit`."""

    @property
    def commits(self) -> tuple[str, str]:
        """Where it ran; each may be empty."""
        return self.commit, self.rechecked


def kept_verdicts() -> dict[tuple[str, str], KeptVerdict]:
    """Read the last verdict of each claim, by method and claim; a project's own goes first."""
    return {
        (kept.method, kept.claim): kept
        for folder in reversed(method_folders())
        for kept in _lines(folder)
    }


def keep_verdict(root: Path, kept: KeptVerdict) -> Path:
    """Add a verdict to the project's file.

    Args:
        root: The project.
        kept: The verdict.

    Returns:
        The file.

    """
    path = own_folder(root) / VERDICTS_FILE
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(kept), sort_keys=True) + "\n")
    return path


def claim_keys(method: Method, claim: MethodClaim, seeds: int, root: Path) -> dict[str, str]:
    """Digest code and parameters of every stage of a claim, as they are now.

    Args:
        method: Whose claim it is.
        claim: The claim.
        seeds: Runs of each arm.
        root: The project.

    Returns:
        Stage -> SHA-256.

    """
    with open_ledger(_NO_RECORDS) as ledger:
        return _digests(_stage_keys(method, claim, seeds, Workspace(root, root), ledger))


def standing_verdicts(methods: Sequence[FoundMethod], root: Path) -> dict[tuple[str, str], str]:
    """Say what is known of each claim that was run: its verdict, or that it is stale.

    Args:
        methods: Those whose claims are asked about.
        root: The project.

    Returns:
        The verdict's word by method and claim; `stale (...)` where what it rests on moved.

    """
    kept = kept_verdicts()
    ran = [
        (found.method, claim, kept[found.method.name, claim.name])
        for found in methods
        for claim in found.method.claims
        if (found.method.name, claim.name) in kept
    ]
    if not ran:
        return {}
    with open_ledger(_NO_RECORDS) as ledger:
        workspace = Workspace(root, root)
        asked: dict[tuple[str, str], StageKeys] = {}
        for method, claim, known in ran:
            # An arm's method or the arena may be gone, or what it says be refused by now.
            with contextlib.suppress(UserError):
                if known.digest == digest_of_claim(method, claim):
                    keys = _stage_keys(method, claim, known.seeds, workspace, ledger)
                    asked[method.name, claim.name] = keys
        look_together([*asked.values()])
        return {
            (known.method, known.claim): known.verdict
            if _stands(known, asked.get((known.method, known.claim)))
            else f"stale ({known.verdict})"
            for _, _, known in ran
        }


def verdicts_of(method: Method, root: Path) -> dict[str, str]:
    """Say what is known of each claim of a method that was run, with its figures.

    Args:
        method: The method.
        root: The project.

    Returns:
        The sentence by claim, with a word before it where it is stale.

    """
    kept, found = kept_verdicts(), FoundMethod(method, Path())
    standing = standing_verdicts([found], root)
    return {
        claim: f"{'stale, it was ' * word.startswith('stale')}{kept[name, claim].sentence}"
        for (name, claim), word in standing.items()
    }


def remarks_on_verdicts(method: Method, root: Path) -> dict[str, list[str]]:
    """Say of each claim of a method that was run what its sentence does not.

    Args:
        method: The method.
        root: The project, in whose history commits are looked up.

    Returns:
        Lines by claim: where it was decided, and which arms were equal.

    """
    kept = {each.claim: each for each in kept_verdicts().values() if each.method == method.name}
    gone = gone_of_project(kept.values(), root)
    return {
        claim: [where_decided(each, gone), *equal_arms(method.name, each.decisions)]
        for claim, each in kept.items()
    }


def where_decided(kept: KeptVerdict, gone: Collection[str] = ()) -> str:
    """Name the commit that a verdict is of, and the one that its first seed was run again at.

    Args:
        kept: The verdict.
        gone: Commits that cannot be checked out, of `commits_gone`.

    Returns:
        The words.

    """

    def named(commit: str) -> str:
        return f"{commit[:_DIGITS]}{f' ({NOT_IN_HISTORY})' * (commit in gone)}"

    if not kept.commit:
        return "decided on code that was not committed"
    again = f", first seed again at {named(kept.rechecked)}" if kept.rechecked else ""
    return f"decided at commit {named(kept.commit)}{again}"


def gone_of_project(kept: Iterable[KeptVerdict], root: Path) -> frozenset[str]:
    """Tell which commits of a project's own verdicts its repository has not.

    Those of verdicts that ship, or are of a plug-in, are of another history, and missed by nobody.

    Args:
        kept: Verdicts, of whatever origin.
        root: The project.

    Returns:
        Those that cannot be checked out there, see `commits_gone`.

    """
    asked = {at for each in kept for at in each.commits}
    own = {at for each in _lines(own_folder(root)) for at in each.commits}
    return commits_gone(asked & own, root)


def commits_gone(commits: Iterable[str], root: Path) -> frozenset[str]:
    """Tell which commits a project's repository has not, as where its history was rewritten.

    Args:
        commits: Whole names of commits; empty ones are passed over.
        root: The project.

    Returns:
        Those that cannot be checked out there. None is named where that is not known: without git,
        outside of a repository, and in a shallow clone, which has few of its commits.

    """
    asked = frozenset(commits) - {""}
    if not asked or ask_git(root, "rev-parse", "--is-shallow-repository") != "false":
        return frozenset()
    # One question for all. A partial clone would ask its server for each that is missing.
    question = ("rev-list", "--no-walk", "--ignore-missing", "--end-of-options", *sorted(asked))
    done = run_git(root, *question, env={"GIT_NO_LAZY_FETCH": "1"})
    return frozenset() if done.returncode else asked.difference(done.stdout.split())


def equal_arms(method: str, decisions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say where the method's arm and another one have the very same figures in every seed.

    Args:
        method: Name of the method's own arm.
        decisions: Comparisons with their figures, as a verdict has them.

    Yields:
        A sentence for each such arm. That the mechanism may not have acted is said where all that
        was compared with that arm is equal: one rate may be 0 in both.

    """
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for each in decisions:
        # What is compared with a number has no other arm.
        if each["against"]:
            by_arm.setdefault(each["against"], []).append(each)
    for arm, compared in by_arm.items():
        equal = [each for each in compared if each["ours"] == each["theirs"]]
        if not equal:
            continue
        seeds = len(equal[0]["ours"])
        where = f"in all {seeds} seeds" if seeds > 1 else "in the only seed"
        metrics = ", ".join(dict.fromkeys(each["metric"] for each in equal))
        told = f"{where} {method} and {arm} came to the same {metrics}"
        if len(equal) == len(compared):
            told += f": the mechanism may not have acted; posttrain method check {method}"
        yield told


def stages_of_arena(
    claim: MethodClaim, values: Mapping[str, Any], stages: Iterable[str]
) -> list[str]:
    """Pick the stages of a claim that make its arena's base, from which all arms begin.

    Args:
        claim: The claim.
        values: Of `values_of_claim`.
        stages: Names of all of the claim's stages.

    Returns:
        Those that the arena sets, or its flow adds, in the same order; none of an arm's own, no
        evaluation, no verdict.

    """
    arena = find_arena(claim.arena).sections
    return [name for name in stages if name in arena or name not in values]


def seconds_of_base(claim: MethodClaim, stages: Sequence[str], ledger: Ledger) -> dict[str, float]:
    """Look up how long stages of a claim's arena took in the claims that were run there.

    Args:
        claim: The claim, which may never have been run itself.
        stages: Of `stages_of_arena`.
        ledger: Of the project.

    Returns:
        Seconds by stage, the longest of the last executions for each claim; a stage that was never
        executed in that arena is absent.

    """
    longest: dict[str, float] = {}
    for found in every_method().values():
        for other in found.method.claims:
            if other.arena == claim.arena:
                name = f"{found.method.name}.{other.name}"
                for stage, seconds in ledger.history.durations(stages, name).items():
                    longest[stage] = max(seconds, longest.get(stage, 0.0))
    return longest


def command_of_claim(method: Method, claim: MethodClaim) -> str:
    """Spell the command that runs a claim to its verdict, as the ledger notes it."""
    return f"posttrain method run {method.name} --claim {claim.name}"


def broken_off(method: Method, root: Path) -> dict[str, str]:
    """Say of each claim whose last run was not brought to its verdict how that run ended.

    Args:
        method: Whose claims they are.
        root: The project, in whose ledger it is looked up.

    Returns:
        By claim a line on how it ended and how to go on.

    """
    place = ledger_location(root)
    if "://" not in place and not Path(place).exists():
        return {}
    with open_ledger(place) as ledger:
        last = {run.command: run.status for run in reversed(ledger.runs())}
    found = {}
    for claim in method.claims:
        command = command_of_claim(method, claim)
        if (status := last.get(command, "succeeded")) not in ("succeeded", "running"):
            found[claim.name] = f"its last run {_ENDED[status]}; what was done is kept: {command}"
    return found


def _lines(folder: Path) -> Iterator[KeptVerdict]:
    """The verdicts that a folder of methods keeps, in their order."""
    complaint = (
        "this is no verdict; take the line out, and run the claim again with posttrain method run"
    )
    return kept_lines(folder / VERDICTS_FILE, KeptVerdict, complaint=complaint)


def _stands(known: KeptVerdict, keys: StageKeys | None) -> bool:
    if keys is None or known.keys.keys() != keys.dag.stages.keys():
        return False
    try:
        # The first stage that moved decides: most are of the same code, whose reading takes time.
        return all(_digest(keys, name) == digest for name, digest in known.keys.items())
    except UserError:
        # A stage cannot be run as it is asked for any more.
        return False


def _stage_keys(
    method: Method, claim: MethodClaim, seeds: int, workspace: Workspace, ledger: Ledger
) -> StageKeys:
    recipe = recipe_of_claim(values_of_claim(method, claim, seeds=seeds), workspace.recipe_dir)
    return StageKeys(recipe, recipe.resolve(workspace.root), workspace, ledger)


def _digests(keys: StageKeys) -> dict[str, str]:
    return {name: _digest(keys, name) for name in keys.dag.stages}


def _digest(keys: StageKeys, name: str) -> str:
    components = keys.key(name, {}).components
    return sha256_of_json({part: components[part] for part in ("code", "params")})
