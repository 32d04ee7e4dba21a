"""Where a project keeps what: the recipe's folder, the state beside it, and the lock on both."""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from posttrain.pipeline.recipe import Recipe
from posttrain.provenance.actor import actor_at
from posttrain.provenance.ledger.location import STATE_DIR, project_root
from posttrain.stage.errors import UserError
from posttrain.stage.files import nearest_existing
from posttrain.stage.installed import SHARED


@dataclass(frozen=True)
class Workspace:
    """The folders of one recipe inside a project."""

    root: Path
    recipe_dir: Path
    plugins: tuple[str, ...] = ()
    """Modules that the recipe names; they may lie in folders without an `__init__.py`."""

    @classmethod
    def of(cls, recipe: Recipe) -> "Workspace":
        """The workspace of a recipe: its project is the nearest folder above that has `.dvc`."""
        return cls(project_root(recipe.directory), recipe.directory, recipe.plugins)

    @property
    def state(self) -> Path:
        """Everything that a run leaves beside the tracked files."""
        return self.root / STATE_DIR

    @property
    def folder(self) -> str:
        """The recipe's folder from the project's root, `.` for the root itself."""
        return self.recipe_dir.relative_to(self.root).as_posix()

    @property
    def actor(self) -> str | None:
        """Who works here; see `actor_at`."""
        return actor_at(self.root)

    @property
    def slug(self) -> str:
        """Name of the recipe's folder inside the state directory."""
        return "root" if self.folder == "." else self.folder.replace("/", "-")

    def packages(self) -> list[str]:
        """First-party code: packages and modules at the project's root, and posttrain's own."""
        own = {path.parent.name for path in self.root.glob("*/__init__.py")}
        own |= {path.stem for path in self.root.glob("*.py") if path.stem.isidentifier()}
        heads = {plugin.partition(".")[0] for plugin in self.plugins}
        own |= {head for head in heads if (self.root / head).is_dir()}
        return sorted({"posttrain", *SHARED} | own)

    def folders_of_modules(self) -> list[str]:
        """Folders at the project's root that hold modules and no `__init__.py`."""
        folders = (each for each in self.root.iterdir() if each.name.isidentifier())
        return sorted(
            each.name
            for each in folders
            if not (each / "__init__.py").exists()
            and (any(each.glob("*.py")) or any(each.glob("*/*.py")))
        )

    def staging(self, stage: str, attempt_id: str) -> Path:
        """Where a stage writes before its outputs are verified and published."""
        return self._staged / f"{stage}-{attempt_id}"

    @property
    def _staged(self) -> Path:
        return self.state / "staging" / self.slug

    def scratch(self, stage: str, key: str) -> Path:
        """Resumable state of exactly this key of a stage; outlives a killed run."""
        return self.state / "scratch" / f"{self.slug}-{stage}-{key[:16]}"

    def run_dir(self, run_id: str) -> Path:
        """Logs of one pipeline run."""
        return self.state / "runs" / run_id

    @property
    def tries(self) -> Path:
        """What a run with parameters other than the recipe's generates: committed files stay."""
        return self.state / "tries" / self.slug

    def output(self, relative: str) -> Path:
        """Absolute path of an output of this recipe."""
        return self.recipe_dir / relative

    def require_folder(self, relative: str, writer: str) -> None:
        """Refuse a file that lies where the folder of an output is to be."""
        place = nearest_existing(self.output(relative).parent)
        if not place.is_dir():
            raise UserError(
                f"{place} is a file, and {writer} writes into a folder of that name; move it away"
            )

    @contextmanager
    def locked(self, command: str) -> Iterator[None]:
        """Hold the workspace for this process, or say who does."""
        path = self.state / f"lock-{self.slug}"
        holder = path.with_suffix(".json")
        lock = FileLock(path)
        try:
            self.state.mkdir(exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(_who_holds(holder, self.recipe_dir)) from None
        except OSError as error:
            raise UserError(
                f"cannot write to {self.state}: {error.strerror}; make the workspace writable"
            ) from None
        try:
            me = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            try:
                holder.write_text(json.dumps(me | {"command": command}), encoding="utf-8")
            except OSError as error:
                raise UserError(
                    f"cannot write to {self.state}: {error.strerror}; free some space there"
                    " (posttrain gc), or make it writable"
                ) from None
            # Nobody else writes here now: what is there is of a run that was killed.
            shutil.rmtree(self._staged, ignore_errors=True)
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()


def _who_holds(holder: Path, folder: Path) -> str:
    remedy = "wait for it, or stop that process"
    try:
        who = json.loads(holder.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"the workspace {folder} is locked by another run; {remedy}"
    minutes = (time.time() - who["since"]) / 60
    return (
        f"the workspace {folder} is locked by process {who['pid']} on {who['host']} "
        f"('{who['command']}', for {minutes:.0f} min); {remedy}"
    )
