"""Learn again from a run's rollouts, and look at the policy along the way."""

import json
from collections.abc import Mapping
from pathlib import Path

from posttrain.learning.models.load import weights_digest
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.relearn import learn_from
from posttrain.learning.rl.replay import read_run
from posttrain.learning.rl.series import read_heldout, steps_of
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.learning.training.curve import Curve
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.series.config import SeriesConfig


def run(
    config: SeriesConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Measure the start, points along the way, and the policy at the end, which must be the run's.

    Raises:
        UserError: The rollouts lead to other weights than those of the run.

    """
    table, policy, limited = read_run(config.run, inputs, inputs["rollouts"], context)
    params = SamplingParams(
        max_tokens=tokens_for(config.run.longest or "auto", policy.model, note=context.note),
        num_samples=config.num_samples,
        seed=purpose_seed(context.seed, "series"),
    )
    heldout = read_heldout(inputs, params, device=context.device)
    learner = build_learner(policy, limited, context, inputs=inputs)
    last = int(table.filter("trained")["step"].max())  # type: ignore[arg-type]
    points, curve = steps_of(config.points, last), Curve(context)
    with open_engine(TorchEngine(), policy) as engine:

        def look(step: int) -> None:
            engine.update(step)
            found = heldout.measure(policy, engine, report=lambda _done: None)
            curve.log(step, found)

        def along(step: int) -> None:
            # The last one is looked at when it is finished: averaged, merged.
            if step in points[:-1]:
                look(step)

        look(0)
        learn_from(table, limited, learner, context, of=str(inputs["rollouts"]), after_step=along)
        _refuse_other_weights(weights_digest(policy.model), inputs["run_report"])
        look(last)
    curve.write(outputs["curve"])
    return {f"series/{name.rpartition('/')[2]}": value for name, value in curve.metrics().items()}


def _refuse_other_weights(found: str, report: Path) -> None:
    """Refuse points along another way than the run's."""
    wanted = json.loads(report.read_text(encoding="utf-8"))["policy"]["after"]
    if found != wanted:
        raise UserError(
            f"series: the rollouts led to weights {found[:12]}, and the run's are {wanted[:12]};"
            " say under series.run what the run's section says, set seed_as to its name, and use"
            " as many threads"
        )
