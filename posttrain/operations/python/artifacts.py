"""Where an artifact lies: in the workspace, or by the bytes that a run or a release had."""

from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.python.project import AnyPath, OpenProject, open_project
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.names import find_run
from posttrain.publishing.release.names import Tag, parse_tag, parse_version
from posttrain.stage.artifact_kinds import ArtifactKind, kind_named
from posttrain.stage.errors import UserError, nearest


@dataclass(frozen=True)
class LocatedArtifact:
    """Where an artifact lies, and what kind it is."""

    name: str
    kind: ArtifactKind
    path: Path


def find_artifact(
    name: str, recipe: AnyPath, *, run: str | None, release: str | None
) -> LocatedArtifact:
    """Find an artifact; see `load`.

    Args:
        name: `STAGE.OUTPUT`.
        recipe: A recipe, or its folder.
        run: A run, where one is meant.
        release: A release, where one is meant.

    Returns:
        The artifact.

    """
    if run is None and release is None:
        return _in_place(name, Path(recipe))
    with open_project(recipe) as opened:
        return _of_run(opened, name, run) if run else _of_release(opened, name, str(release))


def _in_place(name: str, file: Path) -> LocatedArtifact:
    """The artifact as it lies in the workspace."""
    recipe = load_recipe(file)
    workspace = Workspace.of(recipe)
    dag = recipe.resolve(workspace.root)
    stage, output = _split(name)
    if stage not in dag.stages:
        hint = nearest(stage, dag.stages) or f"; there are {', '.join(dag.stages)}"
        raise UserError(f"there is no stage '{stage}'{hint}")
    reference = dag.stages[stage][output]
    path = workspace.output(str(dag.stages[stage].outputs()[output]))
    if not path.exists():
        raise UserError(f"{name} is not there yet; make it, or fetch it: posttrain run")
    return LocatedArtifact(name, reference.type, path)


def _of_run(opened: OpenProject, name: str, called: str) -> LocatedArtifact:
    run = find_run(opened.ledger, called)
    stage, output = _split(name)
    records = {each.stage: each for each in opened.ledger.stage_runs(run.id) if each.outputs}
    if stage not in records:
        raise UserError(f"run {run.id} made nothing in a stage '{stage}'{nearest(stage, records)}")
    made = {record.role: record for record in records[stage].outputs}
    if output not in made:
        raise UserError(f"stage '{stage}' has no output '{output}'{nearest(output, made)}")
    return _found(opened.root, name, made[output])


def _of_release(opened: OpenProject, name: str, called: str) -> LocatedArtifact:
    from posttrain.publishing.release.contents import FolderContents
    from posttrain.publishing.release.registered import find_release, release_folder
    from posttrain.publishing.release.verify import said_about

    tag = find_release(opened.root, str(_tag(opened.root, called)))
    folder = release_folder(opened.root, tag)
    contents = FolderContents(folder)
    _split(name)
    records = {
        f"{each['producer']}.{each['role']}": each
        for each in contents.evidence("data")["artifacts"]
        if each["producer"]
    }
    if name not in records:
        raise UserError(f"release {tag} has no '{name}'{nearest(name, records)}")
    record = records[name]
    if record["digest"] == said_about(contents)["policy"]["sha256"]:
        return LocatedArtifact(name, kind_named(record["type"]), folder)
    return _found(opened.root, name, ArtifactRecord(**record))


def _tag(root: Path, called: str) -> Tag:
    """The release of a name and version, or of the one name that has the version."""
    from posttrain.publishing.release.tags import release_tags

    if "@" in called:
        return parse_tag(called)
    version = parse_version(called)
    fitting = [tag for tag in release_tags(root) if tag.version == version]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UserError(f"there is no release {version}; see posttrain release list")
    names = ", ".join(sorted(map(str, fitting)))
    raise UserError(f"'{called}' fits several releases: {names}; give the name, too")


def _found(root: Path, name: str, record: ArtifactRecord) -> LocatedArtifact:
    finder = Finder(root)
    path = finder.find(record.path, record.digest, record.md5)
    finder.remember()
    if path is None:
        raise UserError(
            f"the bytes of {name} ({record.digest[:12]}) are neither in the workspace nor in the"
            " DVC cache; check out the commit that has them, and: posttrain pull"
        )
    return LocatedArtifact(name, kind_named(record.type), path)


def _split(name: str) -> tuple[str, str]:
    stage, dot, output = name.partition(".")
    if not dot:
        raise UserError(f"'{name}' names no output; write it as STAGE.OUTPUT, such as rl.rollouts")
    return stage, output
