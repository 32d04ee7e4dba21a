"""`posttrain hub`: what stages made, in the layout of the Hugging Face hub."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.options import Documented, DocumentedGroup
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from posttrain.provenance.ledger import ArtifactRecord, StageRun
    from posttrain.publishing.hub.upload import RepositoryKind


@click.group(cls=DocumentedGroup)
def hub() -> None:
    """Write tables, adapters and models for the Hugging Face hub, and upload them.

    Releases go there by `posttrain release push`, which keeps their signed claims.

    Examples:
      posttrain hub export synthesize.problems synthesize.heldout out/    a data set with its card
      posttrain hub push synthesize.problems synthesize.heldout me/sums
      posttrain hub push sft.policy me/adapter --base Qwen/Qwen2.5-0.5B   an adapter
      posttrain hub merge adapter/ base/ merged/                          one from elsewhere

    """


def _shared(command: "Callable[..., None]") -> "Callable[..., None]":
    """Options of what is written for the hub."""
    options = [
        click.option(
            "--recipe", default=".", type=click.Path(path_type=Path), help="Folder of the recipe."
        ),
        click.option("--base", help="Base of an adapter, by its name on the hub or a folder."),
        click.option("--license", help="SPDX identifier, or one of the hub's list."),
        click.option("--license-link", help="Where its text is, if the hub does not list it."),
        click.option("--language", multiple=True, help="What the rows speak, such as en; again."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class _Made:
    """An artifact of the workspace, and the stage run that made it."""

    run: "StageRun"
    record: "ArtifactRecord"
    path: Path


@hub.command(cls=Documented)
@click.argument("names", metavar="STAGE.OUTPUT...", nargs=-1, required=True)
@click.argument("folder", type=click.Path(path_type=Path))
@_shared
def export(names: Sequence[str], folder: Path, **options: Any) -> None:
    """Write tables, or an adapter, into FOLDER as a repository of the hub would have them.

    Tables become a data set: parquet by split (what is held out is `test`), README.md with the
    head that the hub reads, and croissant.json with what they are derived from.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    _export(names, folder, name=folder.resolve().name, **_stated(**options))
    click.echo(f"{folder}: {len([each for each in folder.rglob('*') if each.is_file()])} files")


@hub.command(cls=Documented)
@click.argument("names", metavar="STAGE.OUTPUT...", nargs=-1, required=True)
@click.argument("repository", metavar="OWNER/NAME")
@_shared
def push(names: Sequence[str], repository: str, **options: Any) -> None:
    """Upload tables as a data set, or an adapter; a new repository is private.

    The repository holds exactly these files afterwards.
    """
    from posttrain.publishing.hub.upload import push_folder

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        kind = _export(names, folder, name=repository.rpartition("/")[2], **_stated(**options))
        message = f"{' '.join(names)} of posttrain"
        click.echo(push_folder(folder, repository, message=message, kind=kind))


@hub.command(cls=Documented)
@click.argument("adapter", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("base", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("folder", type=click.Path(path_type=Path))
def merge(adapter: Path, base: Path, folder: Path) -> None:
    """Merge ADAPTER, from anywhere, into the model in BASE: a plain model in FOLDER.

    A recipe takes it as import_model: {path: FOLDER}.
    """
    from posttrain.publishing.hub.adapters import merge_adapter

    click.echo(f"{folder}: {merge_adapter(adapter, base, folder)}")


def _stated(*, license: str | None, license_link: str | None, **others: Any) -> dict[str, Any]:
    return {"license": (license, license_link), **others}


def _export(
    names: Sequence[str],
    folder: Path,
    *,
    name: str,
    recipe: Path,
    base: str | None,
    license: tuple[str | None, str | None],
    language: Sequence[str],
) -> "RepositoryKind":
    from posttrain.publishing.hub.adapters import is_adapter
    from posttrain.publishing.hub.data_sets import PushedTable, export_data_set
    from posttrain.publishing.hub.licenses import license_metadata
    from posttrain.stage.artifact_kinds import kind_named

    made, stages = _made(names, recipe)
    head = license_metadata(*license, where="--license")
    if all(kind_named(each.record.type).shape == "table" for each in made):
        tables = [
            PushedTable(each.run.stage, each.record.role, each.path, each.record.digest)
            for each in made
        ]
        export_data_set(tables, folder, name=name, stages=stages, license=head, language=language)
        return "dataset"
    if len(made) == 1 and is_adapter(made[0].path):
        _export_adapter(made[0], stages, folder, base, head)
        return "model"
    raise UserError(
        f"{', '.join(names)}: name tables, or one adapter (learner.lora.save: adapter); whole"
        " models go to the hub as releases: posttrain release push"
    )


def _export_adapter(
    made: _Made, stages: "Sequence[StageRun]", folder: Path, base: str | None, head: dict[str, str]
) -> None:
    from posttrain.publishing.hub.adapters import export_adapter
    from posttrain.publishing.hub.origins import base_models, trainers_behind

    digest = made.record.digest
    trainers = trainers_behind(stages, digest)
    known = base_models(stages, digest)
    # Behind two trainings the adapter belongs to what the first one made, which no hub has.
    found = base or (known[0] if len(known) == 1 and len(trainers) == 1 else None)
    if found is None:
        raise UserError(
            f"{made.run.stage}.{made.record.role}: the recipe does not tell what the hub calls the"
            " adapter's base; name it: --base OWNER/NAME"
        )
    export_adapter(made.path, folder, base=found, license=head, tags=trainers)


def _made(names: Sequence[str], recipe: Path) -> "tuple[list[_Made], list[StageRun]]":
    """Find artifacts as the workspace has them, and all stage runs of the recipe."""
    from posttrain.pipeline.execution.session import open_session
    from posttrain.provenance.lineage.artifacts import Finder
    from posttrain.publishing.changes import WORKSPACE, state_named

    with open_session(recipe) as session:
        root = session.workspace.root
        state = state_named(session.ledger, session.recipe.directory, root, WORKSPACE)
        order = [name for name in session.dag.order() if name in state.stages]
        finder = Finder(root)
        found = [_find(name, state.stages, finder) for name in names]
        finder.remember()
    return found, [state.stages[name] for name in order]


def _find(name: str, stages: "Any", finder: Any) -> _Made:
    outputs = {
        f"{run.stage}.{record.role}": (run, record)
        for run in stages.values()
        for record in run.outputs
    }
    if name not in outputs:
        raise UserError(f"no stage has made '{name}'{nearest(name, outputs)}; posttrain run first")
    run, record = outputs[name]
    path = finder.find(record.path, record.digest, record.md5)
    if path is None:
        raise UserError(f"{name} is neither in the workspace nor in the cache; posttrain pull")
    return _Made(run, record, path)


@hub.command(cls=Documented)
@click.argument("model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def gguf(model: Path, file: Path) -> None:
    """Write the model in folder MODEL as one FILE for llama.cpp, if it answers as the model does.

    The file is read back, and its answers and log-probabilities are compared; where they differ,
    nothing is written. Weights keep their number format.
    """
    from posttrain.publishing.hub.gguf_file import export_gguf

    found = export_gguf(model, file)
    click.echo(
        f"{file}: read back, {found.tokens} tokens are the same, and their log-probabilities"
        f" differ by {found.largest_gap:.1e} at most"
    )
