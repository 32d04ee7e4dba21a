"""`posttrain method run`: a claim's arms one by one, and the verdict in a sentence."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
from ruamel.yaml import YAML

from posttrain.cli.run import execute
from posttrain.methods.claim import MethodClaim
from posttrain.methods.method import Method
from posttrain.pipeline.claim_recipe import (
    digest_of_claim,
    folder_of_claim,
    stages_of_arena,
    values_of_claim,
)
from posttrain.pipeline.execution.display import PlainDisplay
from posttrain.pipeline.execution.session import Session, open_session
from posttrain.pipeline.plan import Decision
from posttrain.pipeline.verdicts import (
    KeptVerdict,
    claim_keys,
    command_of_claim,
    equal_arms,
    keep_verdict,
    kept_verdicts,
    seconds_of_base,
)
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.errors import UserError, UserErrors, nearest
from posttrain.stage.formatting import counted, duration
from posttrain.stage.interrupts import Interrupted

_VERDICT = "verdict"


def run_methods(
    methods: Sequence[Method], names: Sequence[str], root: Path, *, seeds: int | None
) -> None:
    """Run the claims of several methods, one after the other; see `run_claims`.

    Raises:
        UserError: Of one method; of several all that was refused, when the others have run.

    """
    done, refused = list[str](), list[UserError]()
    for method in methods:
        try:
            run_claims(method, names, root, seeds=seeds)
        except Interrupted:
            before = f"{', '.join(done)} done; " if done else ""
            told = f"{before}{method.name} broken off, of which all finished stages are kept"
            click.echo(f"{told}; the same command goes on there", err=True)
            raise
        except UserError as error:
            refused.append(error)
        else:
            done.append(method.name)
    if refused:
        raise UserErrors(told for each in refused for told in each.sentences)


def run_claims(method: Method, names: Sequence[str], root: Path, *, seeds: int | None) -> None:
    """Run claims of a method to their verdicts; each takes up where it was stopped.

    Args:
        method: The method.
        names: Of its claims; none for all.
        root: The project.
        seeds: Runs of each arm; None as the claim says. Of another number nothing is kept.

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
    for claim in (known[name] for name in names or known):
        _run_claim(method, claim, root, seeds or claim.seeds)


def _run_claim(method: Method, claim: MethodClaim, root: Path, seeds: int) -> None:
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
        output = session.dag.stages[_VERDICT].outputs()[_VERDICT]
        decided = json.loads(session.workspace.output(str(output)).read_text())
        took = (record.ended - record.started for record in session.records.values())
        # A run that was stopped before its verdict was kept has all in the cache, too.
        minutes = (sum(took) if cached else time.monotonic() - began) / 60
        from posttrain.cli.summary import renew_report

        click.echo(f"{renew_report(session).relative_to(root)} draws the curves of all arms")
        if seeds == claim.seeds:
            click.echo(_keep(root, _kept(session, method, claim, decided, minutes)))
        else:
            click.echo(f"a trial with {counted(seeds, 'seed')} of {claim.seeds}: nothing is kept")
    for told in equal_arms(method.name, decided["decisions"]):
        click.echo(told)
    click.echo(f"{decided['sentence']}, {minutes:.1f} min")


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
    values = values_of_claim(method, claim, seeds=claim.seeds)
    command = f"posttrain method recheck {method.name}"
    with _opened(folder, values, root, command) as session:
        first = _first_seed(session)
        names = {stage for stage, _ in first.values()}
        for stage in reversed(session.dag.order()):
            if stage in names:
                names.update(session.dag.upstream(stage))
        plan = [each for each in session.planner.plan() if each.stage in names]
        _bring_up(session, plan, command)
        made, commit = _made(session), revision_of(session.workspace.root).commit or ""
    if other := sorted(port for port in first if made.get(port) != known.made.get(port)):
        more = f" and {len(other) - 1} more" * (len(other) > 1)
        told = f"{name} is stale: its first seed makes another {other[0]}{more}; run it: {again}"
        return Rechecked(False, told)
    keep_verdict(root, replace(known, keys=keys, rechecked=commit))
    told = f"{name} stands: its first seed makes the same, bit for bit ({known.verdict})"
    return Rechecked(True, told)


def _bring_up(session: Session, decisions: Sequence[Decision], command: str) -> bool:
    """Run what is to be run; True where nothing was."""
    cached = all(decision.action == "cached" for decision in decisions)
    if cached:
        session.settle(decisions)
    else:
        lanes, shown = session.recipe.run.lanes(), _Arms(session)
        execute(session, decisions, local=True, slots=lanes, command=command, shown=shown)
    return cached


def _first_seed(session: Session) -> dict[str, tuple[str, str]]:
    """Stage and output that the verdict reads of the first seed, by port: `reports.seed_1`, ..."""
    read = session.dag.stages[_VERDICT].inputs.items()
    return {port: (str(ref.stage), str(ref.output)) for port, ref in read if port.endswith("_1")}


def _made(session: Session) -> dict[str, str]:
    """Digest of each artifact that the verdict reads of the first seed."""
    outputs = {
        (stage, record.role): record.digest
        for stage, run in session.records.items()
        for record in run.outputs
    }
    read = _first_seed(session).items()
    return {port: outputs[made] for port, made in read if made in outputs}


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


def _keep(root: Path, kept: KeptVerdict) -> str:
    """Add a verdict to the project's, unless the last one of its claim is the very same."""
    known = kept_verdicts().get((kept.method, kept.claim))
    if known and replace(known, minutes=kept.minutes, commit=kept.commit, rechecked="") == kept:
        return "kept already, and the same"
    return f"kept in {keep_verdict(root, kept).relative_to(root)}"


def _kept(
    session: Session, method: Method, claim: MethodClaim, decided: dict[str, Any], minutes: float
) -> KeptVerdict:
    made = session.records[_VERDICT]
    return KeptVerdict(
        method=method.name,
        claim=claim.name,
        verdict=decided["verdict"],
        sentence=decided["sentence"],
        seeds=decided["seeds"],
        minutes=round(minutes, 1),
        commit=revision_of(session.workspace.root).commit or "",
        digest=digest_of_claim(method, claim),
        keys=claim_keys(method, claim, claim.seeds, session.workspace.root),
        artifact=made.outputs[0].digest,
        decisions=decided["decisions"],
        made=_made(session),
    )


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
        output = self._session.dag.stages[stage].outputs()["report"]
        report = json.loads(self._session.workspace.output(str(output)).read_text())
        told = [
            f"{policy['name']} pass@1 {policy['pass_at'][0]['value']:.3f}"
            f" length {policy['mean_length']:.1f}"
            for policy in report["policies"]
        ]
        click.echo(f"seed {stage.removeprefix('evaluate_')}: {'; '.join(told)}")
