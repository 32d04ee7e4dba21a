"""What a release at level L2 carries so that its learners can be replayed, and the replay itself.

`python -m posttrain.publishing.release.replays FOLDER` learns again from one stored replay, in the
code of the project around it, and prints the digest of the weights.
"""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.pipeline.recipe_formats import parse_recorded
from posttrain.provenance.key import nested
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.publishing.release.contents import EVIDENCE, Contents, pretty, write_folder
from posttrain.publishing.reproduction.project import foreign_environment
from posttrain.publishing.reproduction.replaying import has_replay, learn_again
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged

if TYPE_CHECKING:
    from posttrain.publishing.release.gates.base import Evidence

REPLAYS = f"{EVIDENCE}/replays"
_SETTINGS = "replay.json"
_ROLLOUTS = "rollouts.parquet"
# Where a release of 0.1 has this module: its stages are replayed by its own code.
_MODULE_0_1 = "posttrain.release.replays"
# Roles of what a learner starts from.
_MODELS = ("policy", "reference")
_TABLES = ("episodes",)


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
            if record.role in _MODELS:
                shutil.copytree(evidence.find(record), target / record.role)
            if record.role in _TABLES:
                shutil.copyfile(evidence.find(record), target / f"{record.role}.parquet")
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
    folder = project / STATE_DIR / "replays" / stage
    write_folder(contents, folder, below=f"{REPLAYS}/{stage}/")
    old = (project / _MODULE_0_1.replace(".", "/")).with_suffix(".py").is_file()
    done = subprocess.run(
        [sys.executable, "-m", _MODULE_0_1 if old else __name__, str(folder)],
        cwd=project,
        env=foreign_environment(),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        raise UserError(f"the replay of stage '{stage}' stopped; its messages are above")
    return done.stdout.strip().splitlines()[-1]


def _replay(folder: Path) -> str:
    settings = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    stage, task = settings["stage"], settings["task"]

    def prepare() -> tuple[StageConfig, Mapping[str, Path], Path]:
        models = {role: folder / role for role in _MODELS if (folder / role).is_dir()}
        tables = {role: folder / f"{role}.parquet" for role in _TABLES}
        models |= {role: path for role, path in tables.items() if path.is_file()}
        with plugged(settings.get("plugins", ())):
            declared = importlib.import_module(task).TASK
            config = parse_recorded(declared, settings["params"], where=stage)
        return config, models, folder / _ROLLOUTS

    return learn_again(stage, task, settings["runtime"], prepare, scratch=folder / "scratch")


if __name__ == "__main__":
    print(_replay(Path(sys.argv[1])))
