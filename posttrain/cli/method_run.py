"""`posttrain method run`: a claim's arms one by one, and the verdict in a sentence."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
from ruamel.yaml import YAML

from posttrain.cli.method_verdict import (
    VERDICT_STAGE,
    Keeping,
    commit_of,
    decided_verdict,
    keep_decided,
    moved_since,
)
from posttrain.cli.run import execute
from posttrain.methods.claim import MethodClaim
from posttrain.methods.method import Method
from posttrain.pipeline.claim_recipe import (
    digest_of_claim,
    folder_of_claim,
    values_of_claim,
)
from posttrain.pipeline.execution.display import PlainDisplay
from posttrain.pipeline.execution.session import Session, open_session
from posttrain.pipeline.plan import Decision
from posttrain.pipeline.verdicts import (
    claim_keys,
    command_of_claim,
    equal_arms,
    keep_verdict,
    kept_verdicts,
    seconds_of_base,
    stages_of_arena,
)
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.errors import UserError, UserErrors, nearest
from posttrain.stage.formatting import counted, duration
from posttrain.stage.interrupts import Interrupted


def run_methods(
    methods: Sequence[Method], names: Sequence[str], root: Path, *, seeds: int | None
) -> None:
    """Run the claims of several methods, one after the other; see `run_claims`.

    Raises:
        UserError: Of one method; of several all that was refused, when the others have run.
        click.ClickException: A verdict has another word than the one that was kept.

    """
    done, refused, other = list[str](), list[UserError](), list[str]()
    for method in methods:
        try:
            other += run_claims(method, names, root, seeds=seeds)
        except Interrupted:
            before = f"{', '.join(done)} done; " if done else ""
            told = f"{before}{method.name} broken off, of which all finished stages are kept"
            click.echo(f"{told}; the same command goes on there", err=True)
            raise
        except UserError as error:
            refused.append(error)
        else:
            done.append(method.name)
    told = f"not the verdict that was kept: {', '.join(other)}" if other else ""
    if refused:
        more = (told,) * bool(told)
        raise UserErrors((*(each for one in refused for each in one.sentences), *more))
    if told:
        raise click.ClickException(told)


def run_claims(method: Method, names: Sequence[str], root: Path, *, seeds: int | None) -> list[str]:
    """Run claims of a method to their verdicts; each takes up where it was stopped.

    Args:
        method: The method.
        names: Of its claims; none for all.
        root: The project.
        seeds: Runs of each arm; None as the claim says. Of another number nothing is kept.

    Returns:
        The claims that came to another word than the verdict that was kept.

    Raises:
        UserError: It claims nothing, or there is no claim of that name.

    """
    known = {claim.name: claim for claim in method.claims}
    if not known:
        raise UserError(f"the method {method.name} claims nothing; see docs/methods.md, Claims")
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise UserError(f"the method {method.name} has no claim '{name}'{hint}")
    asked = [known[name] for name in names or known]
    agrees = {each.name: _run_claim(method, each, root, seeds or each.seeds) for each in asked}
    return [f"{method.name}.{name}" for name, agreed in agrees.items() if not agreed]


def _run_claim(method: Method, claim: MethodClaim, root: Path, seeds: int) -> bool:
    """Run a claim to its verdict; False where that has another word than the one that was kept."""
    values = values_of_claim(method, claim, seeds=seeds)
    arms = ", ".join([method.name, *claim.against])
    click.echo(f"{method.name}.{claim.name}: {claim.says}")
    number = claim.numbers(seeds)[0]
    first = f" from number {number}" if number > 1 else ""
    click.echo(
        f"arena {claim.arena}; arms {arms}; {counted(seeds, 'seed')}{first}, matched by"
        f" {claim.matched}"
    )
    share = claim.minutes * seeds / claim.seeds
    click.echo(f"about {share:.0f} min on two cores; once stopped, it takes up where it was")
    folder = folder_of_claim(method, claim, root)
    command = command_of_claim(method, claim)
    if seeds != claim.seeds:
        command += f" --seeds {seeds}"
    began = time.monotonic()
    with _opened(folder, values, root, command) as session:
        decisions = session.planner.plan()
        if told := _base_told(session, claim, values, decisions):
            click.echo(told)
        cached = _bring_up(session, decisions, command)
        decided = _decided(session)
        took = (record.ended - record.started for record in session.records.values())
        # A run that was stopped before its verdict was kept has all in the cache, too.
        minutes = (sum(took) if cached else time.monotonic() - began) / 60
        if seeds == claim.seeds:
            kept = keep_decided(root, decided_verdict(session, method, claim, decided, minutes))
        else:
            told = f"a trial with {counted(seeds, 'seed')} of {claim.seeds}: nothing is kept"
            kept = Keeping((told,))
        from posttrain.cli.summary import renew_report

        # It shows what is kept by now of this claim.
        click.echo(f"{renew_report(session).relative_to(root)} draws the curves of all arms")
        for line in kept.told:
            click.echo(line)
        fallen = below_base(session, [method.name, *claim.against], claim.numbers(seeds))
    for told in (*checks_told(decided), *equal_arms(method.name, decided["decisions"]), *fallen):
        click.echo(told)
    click.echo(f"{decided['sentence']}, {minutes:.1f} min")
    return kept.agrees


def checks_told(decided: Mapping[str, Any]) -> Iterator[str]:
    """Set what was measured of arena's base and mechanism beside what the claim asks of them.

    Args:
        decided: The verdict, as its artifact has it.

    Yields:
        A line for each check, with the figure of every seed of a mechanism.

    """
    for part in ("contract", "mechanism"):
        for each in decided[part]:
            at = f" ({each['at']})" if each["at"] else ""
            values = ", ".join("n/a" if v is None else f"{v:.4g}" for v in each["values"])
            outcome = "holds" if each["holds"] else "does not hold"
            yield f"{part}: {each['metric']}{at} {values}, {each['asked']} asked: {outcome}"


def below_base(session: Session, arms: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Say where every arm is right less often than the policy that all of them began as.

    Args:
        session: Of the claim, when its arms are evaluated.
        arms: Names of two or more.
        numbers: Of the seeds.

    Returns:
        A sentence with the mean of each arm over the seeds; none where one of them held its start.

    """
    rates: dict[str, list[float]] = {}
    for number in numbers:
        if (stage := f"evaluate_{number}") not in session.dag.stages:
            return []
        for policy in _graded(session, stage):
            rates.setdefault(policy["name"], []).append(policy["pass_at"][0]["value"])
    means = {name: fmean(values) for name, values in rates.items()}
    own = {arm: means.pop(arm) for arm in arms if arm in means}
    if len(own) < 2 or not means or max(own.values()) >= (base := max(means.values())):
        return []
    told = ", ".join(f"{arm} {rate:.3f}" for arm, rate in own.items())
    return [
        f"every arm is right less often than at its start (pass@1 {told}; start {base:.3f}): what"
        " is compared is how far they fell"
    ]


def _graded(session: Session, stage: str) -> Sequence[Mapping[str, Any]]:
    """Read what an evaluation found of each policy."""
    output = session.dag.stages[stage].outputs()["report"]
    found: list[dict[str, Any]] = json.loads(session.workspace.output(str(output)).read_text())[
        "policies"
    ]
    return found


def _base_told(
    session: Session, claim: MethodClaim, values: Mapping[str, Any], decisions: Sequence[Decision]
) -> str:
    """Say what of the arena's base is still to be made, and how long that took before."""
    ahead = {each.stage for each in decisions if each.action in ("run", "pending")}
    to_make = [
        each for each in stages_of_arena(claim, values, session.dag.order()) if each in ahead
    ]
    if not to_make:
        return ""
    known = seconds_of_base(claim, to_make, session.ledger)
    if not known:
        took = "how long that takes is not known, as it was never made in this project"
    else:
        most = "" if len(known) == len(to_make) else "at least "
        took = f"{most}{duration(sum(known.values()))}, as long as it took before"
    return (
        f"the arena's base comes on top, once for all claims on it ({', '.join(to_make)}): {took}"
    )


class Rechecked(NamedTuple):
    """What became of a verdict."""

    stands: bool
    told: str


def recheck_claim(method: Method, claim: MethodClaim, root: Path) -> Rechecked:
    """Run the first seed of a claim whose verdict is stale; where it makes the same, it stands.

    Args:
        method: Whose claim it is.
        claim: One that was decided before, on the same arms and arena.
        root: The project.

    Returns:
        Whether it stands, and why in a sentence.

    Raises:
        UserError: It was never run, says something else by now, or was kept by a version that did
            not note what its first seed made.

    """
    name, again = f"{method.name}.{claim.name}", f"posttrain method run {method.name}"
    known = kept_verdicts().get((method.name, claim.name))
    if known is None:
        raise UserError(f"{name} was never run; {again} does")
    if known.digest != digest_of_claim(method, claim):
        raise UserError(f"{name} says something else than when it was decided; run it: {again}")
    if not known.made:
        raise UserError(
            f"the verdict on {name} does not note what its first seed made; run it once: {again}"
        )
    keys = claim_keys(method, claim, claim.seeds, root)
    if keys == known.keys:
        return Rechecked(True, f"{name} stands: nothing that it rests on moved")
    folder = folder_of_claim(method, claim, root)
    # The claim of its first seed alone: other numbers of seeds would be a trial, on others.
    values = values_of_claim(method, claim.model_copy(update={"seeds": 1}), seeds=1)
    command = f"posttrain method recheck {method.name}"
    with _opened(folder, values, root, command) as session:
        _bring_up(session, session.planner.plan(), command)
        other, commit = moved_since(known, session, _decided(session)), commit_of(session)
    if other:
        more = f" and {len(other) - 1} more" * (len(other) > 1)
        told = f"{name} is stale: its first seed makes another {other[0]}{more}; run it: {again}"
        return Rechecked(False, told)
    keep_verdict(root, replace(known, keys=keys, rechecked=commit))
    told = f"{name} stands: its first seed makes the same rows and figures ({known.verdict})"
    return Rechecked(True, told)


def _decided(session: Session) -> dict[str, Any]:
    """The verdict's artifact."""
    output = session.dag.stages[VERDICT_STAGE].outputs()[VERDICT_STAGE]
    found: dict[str, Any] = json.loads(session.workspace.output(str(output)).read_text())
    return found


def _bring_up(session: Session, decisions: Sequence[Decision], command: str) -> bool:
    """Run what is to be run; True where nothing was."""
    cached = all(decision.action == "cached" for decision in decisions)
    if cached:
        session.settle(decisions)
    else:
        lanes, shown = session.recipe.run.lanes(), _Arms(session)
        execute(session, decisions, local=True, slots=lanes, command=command, shown=shown)
    return cached


@contextmanager
def _opened(folder: Path, values: Mapping[str, Any], root: Path, command: str) -> Iterator[Session]:
    """Hold the claim's folder, write its recipe there whole, and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    with Workspace(root, folder).locked(command):
        written = folder / "recipe.yaml.half"
        with written.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(values, file)
        written.replace(folder / RECIPE_FILE)
        with open_session(folder) as session:
            yield session


class _Arms(PlainDisplay):
    """Plain lines, and what each arm can do as soon as that is known."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def finished(self, stage: str, status: str, seconds: float) -> None:
        """Say how a stage ended; of an evaluation, what it found of each arm."""
        super().finished(stage, status, seconds)
        if not stage.startswith("evaluate_") or status == "failed":
            return
        told = [
            f"{policy['name']} pass@1 {policy['pass_at'][0]['value']:.3f}"
            f" length {policy['mean_length']:.1f}"
            for policy in _graded(self._session, stage)
        ]
        click.echo(f"seed {stage.removeprefix('evaluate_')}: {'; '.join(told)}")
