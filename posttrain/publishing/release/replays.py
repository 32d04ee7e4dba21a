"""What a release at level L2 carries so that its learners can be replayed, and the replay itself.

`python -m posttrain.publishing.release.replays FOLDER` learns again from one stored replay, in the
code of the project around it, and prints the digest of the weights.
"""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.pipeline.recipe_formats import parse_recorded
from posttrain.provenance.key import nested
from posttrain.publishing.release.canonical import pretty
from posttrain.publishing.release.contents import EVIDENCE, Contents
from posttrain.publishing.reproduction.project import clean_environment
from posttrain.publishing.reproduction.replaying import has_replay
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.publishing.release.gates.evidence import Evidence

REPLAYS = f"{EVIDENCE}/replays"
_SETTINGS = "replay.json"
_ROLLOUTS = "rollouts.parquet"


def store_replays(evidence: "Evidence", folder: Path) -> None:
    """Copy the starting policy and the rollouts of every learner of the chain into a release."""
    from posttrain.learning.models.load import load_policy, weights_digest

    learners = [run for run in evidence.chain.stages if has_replay(run.task)]
    if not learners:
        raise UserError(
            "run.level is L2, and no stage of this recipe stores rollouts to replay; "
            "declare L0 (the same bytes) or L3 (figures over seeds)"
        )
    for run in learners:
        runtime = run.components["runtime"]
        if int(runtime.get("processes", "1")) > 1:
            raise UserError(
                f"run.level is L2, and stage '{run.stage}' learned in {runtime['processes']} "
                "processes, which one alone does not replay bit for bit; declare L0 or L3"
            )
        target = folder / REPLAYS / run.stage
        for record in run.inputs:
            if record.role in ("policy", "reference"):
                shutil.copytree(evidence.find(record), target / record.role)
        outputs = {record.role: record for record in run.outputs}
        shutil.copyfile(evidence.find(outputs["rollouts"]), target / _ROLLOUTS)
        settings = {
            "stage": run.stage,
            "task": run.task,
            "params": nested(run.components["params"]),
            "runtime": dict(runtime),
            "plugins": list(evidence.chain.recipe.plugins),
            "weights": weights_digest(load_policy(evidence.find(outputs["policy"])).model),
        }
        (target / _SETTINGS).write_bytes(pretty(settings))


def replays_of(contents: Contents) -> Iterator[tuple[str, str]]:
    """Stage, and the weights that its stored rollouts must lead to."""
    for name in contents.names():
        if name.startswith(f"{REPLAYS}/") and name.endswith(f"/{_SETTINGS}"):
            settings = json.loads(contents.read(name))
            yield str(settings["stage"]), str(settings["weights"])


def replay_in(project: Path, contents: Contents, stage: str) -> str:
    """Weights that the stored rollouts lead to, in a process with the project's own code."""
    folder = project / ".posttrain" / "replays" / stage
    prefix = f"{REPLAYS}/{stage}/"
    for name in contents.names():
        if name.startswith(prefix):
            target = folder / name.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contents.open(name) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=project,
        env=clean_environment(),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        raise UserError(f"the replay of stage '{stage}' stopped; its messages are above")
    return done.stdout.strip().splitlines()[-1]


def _replay(folder: Path) -> str:
    from posttrain.pipeline.determinism import make_deterministic, stage_seed

    settings = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    stage, runtime = settings["stage"], settings["runtime"]
    seed, threads = stage_seed(runtime, stage), int(runtime["threads"])
    make_deterministic(seed, threads)
    from posttrain.stage.context import StageContext
    from posttrain.stage.slots import plugged

    task = importlib.import_module(settings["task"]).TASK
    with plugged(settings.get("plugins", ())):
        config = parse_recorded(task, settings["params"], where=stage)
    given = {role: folder / role for role in ("policy", "reference") if (folder / role).is_dir()}
    context = StageContext(seed, threads, runtime["device"], folder / "scratch")
    again = importlib.import_module(f"{settings['task']}.replay").replay
    return str(again(config, given, folder / _ROLLOUTS, context))


if __name__ == "__main__":
    print(_replay(Path(sys.argv[1])))
