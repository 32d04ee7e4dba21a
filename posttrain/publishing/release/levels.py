"""What each level of reproducibility promises of a rebuild, and the comparison that shows it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.provenance.ledger import StageRun
from posttrain.publishing.release.contents import EVIDENCE, Contents
from posttrain.publishing.release.verify import SignedClaims
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

# Levels at which the same bytes are promised; at the others the same figures are.
BITWISE = ("L0", "L1")
RULES: Mapping[str, str] = {
    "L0": "every output of every stage has the same digest, on this kind of processor",
    "L1": "every output of every stage has the same digest, on this model of GPU",
    "L2": "every learner, given the stored rollouts and starting policy, ends at the same weights; "
    "and the figures of the DAG, run once more, agree with the released ones",
    "L3": "the released figures are ones that the rebuilt seeds could have given",
}
_DECIDES = "pass_at_1"


@dataclass(frozen=True)
class RebuildComparison:
    """One thing that was compared, how, and whether it agrees.

    What is not `binding` is shown, and decides nothing at this level.
    """

    stage: str
    what: str
    how: str
    released: str
    rebuilt: str
    agrees: bool
    binding: bool = True


def compare_bytes(
    claims: SignedClaims, runs: Mapping[str, StageRun], *, binding: bool
) -> Iterator[RebuildComparison]:
    """Every output of every stage, by digest; and the keys, which say if the work was the same."""
    for claim in claims.stages:
        definition = claim["predicate"]["buildDefinition"]
        stage = str(definition["externalParameters"]["stage"])
        run = runs.get(stage)
        made = {record.path: record.digest for record in run.outputs} if run else {}
        for each in claim["subject"]:
            released, rebuilt = each["digest"]["sha256"], made.get(each["name"], "nothing")
            same = released == rebuilt
            yield RebuildComparison(stage, each["name"], "digest", released, rebuilt, same, binding)
        key = definition["internalParameters"]["key"]
        components = definition["internalParameters"]["components"]
        same = run is not None and _work(run.components) == _work(components)
        how = "code, parameters and inputs behind it" if binding else "code and parameters"
        if not binding and run is not None:
            same = _work(run.components, inputs=False) == _work(components, inputs=False)
        yield RebuildComparison(stage, "key", how, key, run.key if run else "nothing", same)


def _work(components: Mapping[str, Any], *, inputs: bool = True) -> str:
    """Code and parameters must be the same; packages may differ where the result does not."""
    groups = ("code", "params", "inputs") if inputs else ("code", "params")
    return sha256_of_json({name: components.get(name, {}) for name in groups})


def compare_replays(pairs: Sequence[tuple[str, str, str]]) -> Iterator[RebuildComparison]:
    """Weights as released, and as the stored rollouts lead to them: stage, released, replayed."""
    for stage, released, replayed in pairs:
        how = "weights from the stored rollouts"
        yield RebuildComparison(stage, "weights", how, released, replayed, released == replayed)


def compare_figures(
    claims: SignedClaims,
    seeds: Mapping[int, Mapping[str, StageRun]],
    contents: Contents,
    within: float,
) -> list[RebuildComparison]:
    """The evaluation's metrics over the rebuilt seeds; pass@1 decides, the others are shown."""
    stored = json.loads(contents.read(f"{EVIDENCE}/metrics.json"))["evaluation"]
    first = next(iter(seeds.values()))
    stage, prefix = _evaluation(claims, first)
    found = []
    for metric, value in stored.items():
        name = f"{stage}/{prefix}/{metric}"
        values = {
            seed: runs[stage].metrics[name]
            for seed, runs in seeds.items()
            if stage in runs and name in runs[stage].metrics
        }
        if len(values) < len(seeds):
            continue
        compared = _overlap(value, values) if len(values) == 1 else _spread(value, values, within)
        found.append(RebuildComparison(stage, metric, *compared, binding=metric == _DECIDES))
    if not any(each.binding for each in found):
        raise UserError(f"the rebuild has no {_DECIDES} of the policy to compare; see its report")
    return found


def _evaluation(claims: SignedClaims, runs: Mapping[str, StageRun]) -> tuple[str, str]:
    """The stage that evaluated the released policy, and what it calls it."""
    policy = str(claims.about["policy"]["path"])
    for stage, run in runs.items():
        names = [each.role for each in run.inputs if each.path == policy]
        names = [name.removeprefix("policies.") for name in names if name.startswith("policies.")]
        if names and any(record.role == "report" for record in run.outputs):
            return stage, names[0]
    raise UserError("the rebuild has no evaluation of the policy to compare; see its report")


def _overlap(value: Mapping[str, float], values: Mapping[int, float]) -> tuple[str, str, str, bool]:
    """One seed: two estimates on other draws differ by sqrt(2) of what one of them is off."""
    (rebuilt,) = values.values()
    low = value["value"] - 2**0.5 * (value["value"] - value["low"])
    high = value["value"] + 2**0.5 * (value["high"] - value["value"])
    how = "the two intervals over problems overlap: one seed, so training is not averaged over"
    released = f"{value['value']:.4f}, {low:.4f} to {high:.4f} for another run"
    return how, released, f"{rebuilt:.4f}", low <= rebuilt <= high


def _spread(
    value: Mapping[str, float], values: Mapping[int, float], within: float
) -> tuple[str, str, str, bool]:
    """Several seeds: the released value lies where one more of them would, by Student's t."""
    from posttrain.publishing.reproduction.seeds import CONFIDENCE, spread_of

    found = spread_of("it", value["value"], values, within)
    how = (
        f"it lies in the {CONFIDENCE:.0%} t prediction interval of {len(values)} rebuilt seeds, "
        f"which tell the mean to within {within:g}"
    )
    rebuilt = f"{found.mean:.4f}, {found.low:.4f} to {found.high:.4f} for one seed"
    if not found.enough:
        rebuilt += f"; undecided, {found.needed} seeds would tell"
    return how, f"{value['value']:.4f}", rebuilt, found.holds
