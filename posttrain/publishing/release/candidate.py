"""What a workspace holds, decided by the gates of its recipe against the release before it."""

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release import tags
from posttrain.publishing.release.chain import Chain, read_chain
from posttrain.publishing.release.config import AnyGate, ReleaseConfig
from posttrain.publishing.release.contents import CLAIMS, EVIDENCE, FolderContents
from posttrain.publishing.release.gates.base import Evidence, GateResult
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.results import Results, collect
from posttrain.publishing.release.statements import last_statement
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest


class GatesFailed(UserError):
    """What is to be released does not pass its gates."""

    def __init__(self, sentence: str, gates: Sequence[str]) -> None:
        super().__init__(sentence)
        self.gates = gates
        """Names of those that failed."""


@dataclass(frozen=True)
class ReleaseCandidate:
    """What may become a release: its evidence, and what each gate says of it."""

    tag: Tag
    config: ReleaseConfig
    evidence: Evidence
    decided: Sequence[tuple[AnyGate, GateResult]]

    @property
    def chain(self) -> Chain:
        """The stage runs behind it."""
        return self.evidence.chain

    def remarks(self) -> list[str]:
        """Say what is no obstacle, and probably not meant: a license of something not read."""
        names = [each.name for each in self.evidence.inputs()]
        # Of several of one name, each is called `stage.name`, and the name alone is of them all.
        known = {"*", *names, *(name.partition(".")[2] for name in names)}
        return [
            f"release.licenses states one of '{name}', which is no input; those are called "
            + ", ".join(names)
            for name in self.config.licenses
            if name not in known
        ]

    def require_passed(self) -> None:
        """Raise with every gate that failed, its rule and its figures, and inputs out of reach."""
        sentences = []
        if outside := self.chain.elsewhere():
            sentences.append(
                f"outside of the project, so that nobody could rebuild from it: "
                f"{', '.join(outside)}; copy that into the project (`dvc add` it where it is too "
                "large for git), name it so in recipe.yaml, and run again"
            )
        for gate, result in self.decided:
            figures = ", ".join(f"{key} {value:.4g}" for key, value in result.figures.items())
            remedy = f"; {result.remedy}" if result.remedy else ""
            if not result.passed:
                sentences.append(f"gate '{gate.name}' failed ({result.rule}): {figures}{remedy}")
        if sentences:
            failed = [gate.name for gate, result in self.decided if not result.passed]
            raise GatesFailed("nothing is released: " + " | ".join(sentences), failed)


def check_gates(session: Session, tag: Tag) -> ReleaseCandidate:
    """Ask every gate about what the workspace holds; refuses nothing and writes nothing."""
    config = ReleaseConfig.parse(session.recipe.release, where="release")
    chain = read_chain(session, released=config.policy, evaluated_by=config.evaluation)
    finder = Finder(session.workspace.root, session.stat_cache)
    results = collect(session.ledger, finder, policy=chain.policy, evaluation=chain.evaluation)
    known = tags.release_tags(session.workspace.root)
    before = [each for each in known if each.name == tag.name and each.version < tag.version]
    parent = max(before, key=lambda each: each.version, default=None)
    evidence = Evidence(
        chain=chain,
        ledger=session.ledger,
        finder=finder,
        results=results,
        licenses=config.licenses,
        parent=str(parent) if parent else None,
        parent_results=_parent_results(session, parent, chain, finder) if parent else None,
    )
    decided = [(gate, gate.check(evidence)) for gate in config.every_gate()]
    return ReleaseCandidate(tag, config, evidence, decided)


def _parent_results(session: Session, parent: Tag, chain: Chain, finder: Finder) -> Results:
    """Results of the parent as its release holds them, joined by what the ledger knows since."""
    contents = FolderContents(parent.folder(session.workspace.root))
    name = f"{EVIDENCE}/results.json"
    if not (contents.folder / CLAIMS).is_file():
        raise UserError(
            f"the release {parent} is not at {contents.folder}, so nothing can be compared with "
            f"it; posttrain release verify {parent} brings it back from the DVC cache or remote"
        )
    digest, statement = last_statement(contents)
    said = tags.release_message(session.workspace.root, parent).get("statement")
    stated = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    if digest != said or stated.get(name) != contents.sha256(name):
        raise UserError(
            f"{contents.folder} was altered since it was released; "
            f"posttrain release verify {parent} says what"
        )
    stored = Results.from_json(contents.evidence("results")["policy"])
    record = ArtifactRecord("policy", "checkpoint", "", ArtifactDigest(stored.policy), 0)
    now = collect(session.ledger, finder, policy=record, evaluation=chain.evaluation)
    if dict(stored.basis) == dict(now.basis):
        return Results(stored.policy, stored.basis, {**stored.by_seed, **now.by_seed})
    return now if now.by_seed else stored
