"""What a flow is made of: kinds of artifacts, ports, tasks, stages and the DAG they form."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from os.path import normpath
from pathlib import Path, PurePosixPath

from posttrain.stage.artifact_kinds import ArtifactKind as ArtifactKind
from posttrain.stage.config import StageConfig, refuse_processes
from posttrain.stage.declared import READS, Declared
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.resources import Resources


@dataclass(frozen=True)
class Port:
    """One named input or output of a task.

    A `many` port takes a mapping of names to artifacts and reaches the stage as `port.name` keys.
    All models of a stage share one tokenizer and one chat template, those excepted that come
    through a port with `own_tokenizer`: a teacher or a grader that only ever sees text.
    """

    type: ArtifactKind
    doc: str
    many: bool = False
    optional: bool = False
    own_tokenizer: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """What a plan can know of the tokenizer of a model that a stage makes, or imports."""

    least: int
    """Tokens that it has at the least."""
    most: int
    """Tokens that it has at the most."""
    digest: str | None = None
    """SHA-256 of the vocabulary, where it is known."""

    def differs_from(self, other: "Vocabulary") -> bool:
        """True where the two cannot be one."""
        if self.digest and other.digest:
            return self.digest != other.digest
        return self.most < other.least or other.most < self.least

    def __str__(self) -> str:
        return f"{self.least}" if self.least == self.most else f"at most {self.most}"


@dataclass(frozen=True)
class Task:
    """The implementation of one kind of stage: a package with `config.py` and `stage.py`.

    Importing a task must stay cheap: its heavy imports live in `stage.py`, named by `entry`.
    A `parallel` one trains in a loop whose steps several processes can share; one `on_ray` draws
    samples or works on tables that a Ray cluster can share.
    """

    package: str
    config: type[StageConfig]
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    parallel: bool = False
    on_ray: bool = False
    refuse: Callable[["Stage", "Dag"], None] | None = None
    """Raises a `UserError` with the remedy where a stage of this task cannot succeed, as far as
    its parameters and the wiring of the whole DAG say: the plan asks it before anything runs."""
    vocabulary: Callable[["Stage"], Vocabulary | None] | None = None
    """Tells what is known beforehand of the tokenizer of the models that the stage starts from
    nothing, or imports; None where that is nothing."""

    @property
    def entry(self) -> str:
        """`module:function` that runs the stage."""
        return f"{self.package}.stage:run"


@dataclass(frozen=True)
class Reference:
    """An artifact that a stage reads: another stage's output, or a file from outside the DAG."""

    type: ArtifactKind
    stage: str | None = None
    output: str | None = None
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.stage}.{self.output}" if self.stage else str(self.path)

    @classmethod
    def to_file(cls, path: Path) -> "Reference":
        """A file or directory that no stage makes."""
        return cls(ArtifactKind.SOURCE, path=path)


@dataclass(frozen=True)
class Stage:
    """A node of a recipe's DAG: a task, its parameters, and where each input comes from."""

    name: str
    task: Task
    config: StageConfig
    inputs: Mapping[str, Reference]
    resources: Resources = Resources()
    seed_as: str | None = None
    """Name that its seed derives from, if not its own: of a stage that it is compared with."""
    declared: Declared = Declared()
    """What it may read beside its inputs; files stand among these as `reads.path`."""
    stated: Mapping[str, object] = field(default_factory=dict)
    """What the recipe says of the stage beside its parameters: `inputs`, `seed_as`, `declares`, and
    the `task` of one that the recipe adds, or which stage it `repeats`."""

    def outputs(self) -> dict[str, PurePosixPath]:
        """Workspace paths of the outputs, relative to the recipe's directory."""
        return {
            name: PurePosixPath("data", self.name, name + port.type.suffix)
            for name, port in self.task.outputs.items()
        }

    def absent(self) -> dict[str, str]:
        """Say of each input from outside the DAG, by role, where nothing is there: a sentence."""
        missing = {
            role: reference.path
            for role, reference in self.inputs.items()
            if reference.path is not None and not reference.path.exists()
        }
        said = {}
        for role, path in missing.items():
            port, _, name = role.partition(".")
            said[role] = (
                f"{self.name}: it reads {name}, and nothing is there; correct the path"
                if port == READS
                else f"{self.name}: source '{name}' is at {normpath(path)}, and nothing is there;"
                " put it there, or correct the path"
            )
        return said

    def __getitem__(self, output: str) -> Reference:
        """A reference to one output, for wiring the next stage."""
        if output not in self.task.outputs:
            hint = nearest(output, self.task.outputs)
            raise UserError(f"stage '{self.name}' has no output '{output}'{hint}")
        return Reference(self.task.outputs[output].type, stage=self.name, output=output)


@dataclass
class Dag:
    """The stages of one recipe, in declaration order, checked when it is finished."""

    stages: dict[str, Stage] = field(default_factory=dict)

    def add(self, stage: Stage) -> Stage:
        """Add a stage; names are unique."""
        if stage.name in self.stages:
            raise UserError(f"two stages are called '{stage.name}'; rename one in the flow")
        self.stages[stage.name] = stage
        return stage

    def upstream(self, name: str) -> list[str]:
        """Names of the stages whose outputs `name` reads, in port order, each once."""
        references = self.stages[name].inputs.values()
        return list(dict.fromkeys(ref.stage for ref in references if ref.stage))

    def downstream(self, names: Sequence[str]) -> set[str]:
        """`names` and every stage that depends on one of them."""
        reached = set(names)
        for name in self.order():
            if reached.intersection(self.upstream(name)):
                reached.add(name)
        return reached

    def order(self) -> list[str]:
        """Stage names so that each comes after what it reads; raises on a cycle."""
        sorter = TopologicalSorter({name: self.upstream(name) for name in self.stages})
        try:
            return list(sorter.static_order())
        except CycleError as error:
            loop = " -> ".join(error.args[1])
            raise UserError(
                f"the stages form a cycle: {loop}; rewire one of their inputs, or let a stage stand"
                " twice by a list in its section"
            ) from None

    def check(self) -> None:
        """Refuse dangling references, odd edges, unfilled ports, cycles; ask configs and tasks."""
        for stage in self.stages.values():
            _check_ports(stage)
            for port, reference in stage.inputs.items():
                self._check_edge(stage, port, reference)
        self.order()
        for stage in self.stages.values():
            refuse_processes(stage.config, stage.resources.processes, where=stage.name)
            # A file that is not there is for the plan to tell, and cannot be looked into.
            if stage.task.refuse is not None and not stage.absent():
                stage.task.refuse(stage, self)

    def _check_edge(self, stage: Stage, port: str, reference: Reference) -> None:
        where = f"{stage.name}.inputs.{port}"
        if reference.stage is None:
            return
        source = self.stages.get(reference.stage)
        if source is None:
            hint = nearest(reference.stage, self.stages)
            raise UserError(f"{where}: there is no stage '{reference.stage}'{hint}")
        if reference.output not in source.task.outputs:
            hint = nearest(str(reference.output), source.task.outputs)
            raise UserError(f"{where}: {reference.stage} has no output '{reference.output}'{hint}")
        made = source.task.outputs[str(reference.output)].type
        wanted = stage.task.inputs[port.split(".")[0]].type
        if made != wanted:
            raise UserError(f"{where} takes {wanted}, but {reference} is {made}")


def _check_ports(stage: Stage) -> None:
    """Every input names a port of the task, and every required port is filled."""
    ports = stage.task.inputs
    for name in stage.inputs:
        head, _, rest = name.partition(".")
        if head == READS:
            continue
        if head not in ports:
            raise UserError(f"stage '{stage.name}' has no input '{name}'{nearest(head, ports)}")
        if bool(rest) != ports[head].many:
            takes = f"several, each by a name: {head}.NAME" if ports[head].many else "one alone"
            raise UserError(f"stage '{stage.name}': its input '{head}' takes {takes}; got '{name}'")
    filled = {name.partition(".")[0] for name in stage.inputs}
    for name, port in ports.items():
        if name not in filled and not port.optional and not port.many:
            raise UserError(f"stage '{stage.name}': input '{name}' ({port.doc}) is not connected")


def refuse_other_than_one(stage: Stage, *ports: str) -> None:
    """Refuse a stage that takes the same from either of some ports, if not exactly one has it.

    Args:
        stage: Whose `inputs` are looked at.
        ports: Names of optional ports.

    Raises:
        UserError: None is connected, or more than one.

    """
    connected = [port for port in ports if port in stage.inputs]
    where = f"{stage.name}.inputs"
    if len(connected) > 1:
        one, other = connected[:2]
        raise UserError(
            f"{where}: {one} and {other} are both connected ({stage.inputs[one]} and"
            f" {stage.inputs[other]}), and one of them is taken; write {one}: null or {other}: null"
        )
    if not connected:
        raise UserError(f"{where}: neither {' nor '.join(ports)} is connected; connect one")


def under_port(port: str, paths: Mapping[str, Path]) -> dict[str, Path]:
    """Return what is connected to a port that takes many, by the name that the recipe gave it.

    >>> under_port("players", {"players.start": Path("a"), "policy": Path("b")})
    {'start': PosixPath('a')}

    Args:
        port: Its name.
        paths: A stage's inputs by port.

    """
    start = f"{port}."
    return {n.removeprefix(start): path for n, path in paths.items() if n.startswith(start)}


def refuse_unserved_ports(
    stage: Stage, parts: str, asked: Mapping[str, str], examples: Mapping[str, str]
) -> None:
    """Refuse a part whose port is not there or not connected, and a port that no part asks.

    Args:
        stage: Whose parts these are.
        parts: Where they stand in its parameters, such as `reward.components`.
        asked: Port, `name` or `port.name` -> name of a part that asks it.
        examples: The ports of the task that only such parts ask -> what a recipe may connect.

    Raises:
        UserError: One is asked or connected without the other; with the remedy.

    """
    for port, part in asked.items():
        where = f"{stage.name}.{parts}.{part}: it asks {port}"
        head, _, name = port.partition(".")
        if head not in stage.task.inputs or bool(name) != stage.task.inputs[head].many:
            raise UserError(
                f"{where}, and a stage of {stage.task.package} has no such port; leave it out, or"
                f" take one that asks no more than {', '.join(examples)}"
            )
        if port not in stage.inputs:
            example = examples.get(head, "STAGE.OUTPUT")
            wired = f"{head}: {{{name}: {example}}}" if name else f"{head}: {example}"
            raise UserError(
                f"{where}, which is not connected; add {stage.name}: {{inputs: {{{wired}}}}}"
            )
    for port in stage.inputs:
        if port.partition(".")[0] in examples and port not in asked:
            raise UserError(
                f"{stage.name}.inputs.{port}: nothing under {stage.name}.{parts} asks for this; add"
                " there what does, or leave it out"
            )
