"""A temporary project with the code of this one, its recipe, and nothing that it ever made."""

import json
import os
from pathlib import Path

from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.recipe import RECIPE_FILE
from posttrain.publishing.reproduction.project import make_project


class Mirror:
    """Where the project and the recipe lie below a temporary folder.

    At the same depth as the original, so that `../` in a recipe leads to the same names.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._folder = folder
        self.root = self._below(session.workspace.root)
        self.recipe = self._below(session.workspace.recipe_dir)
        make_project(self.root)
        self._link_code(session.workspace.root)
        self._link_sources(session)
        self.recipe.mkdir(parents=True, exist_ok=True)
        recipe = {
            "format": session.recipe.format,
            "flow": session.recipe.flow,
            "plugins": list(session.recipe.plugins),
            "run": session.recipe.run.model_dump(mode="json"),
            **session.recipe.sections,
        }
        # JSON is YAML, and says every value as it is.
        text = json.dumps(recipe, indent=1, default=str)
        (self.recipe / RECIPE_FILE).write_text(text + "\n", encoding="utf-8")

    def output(self, relative: str) -> Path:
        """Where an artifact of the recipe lies here."""
        return self.recipe / relative

    def _below(self, path: Path) -> Path:
        return self._folder.joinpath(*Path(os.path.normpath(path)).parts[1:])

    def _link_code(self, root: Path) -> None:
        packages = [path.parent for path in root.glob("*/__init__.py")]
        for path in [*packages, *root.glob("*.py")]:
            (self.root / path.name).symlink_to(path.resolve())

    def _link_sources(self, session: Session) -> None:
        """Files from outside the DAG, at the place where the recipe will look for them."""
        for stage in session.dag.stages.values():
            for reference in stage.inputs.values():
                if reference.path is None:
                    continue
                link = self._below(reference.path)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(reference.path.resolve())
