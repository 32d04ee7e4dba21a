"""How stages fail, and several of them together."""

import signal
from collections.abc import Iterable


class StageFailed(Exception):
    """A stage did not succeed; `retryable` says whether starting it again can help."""

    def __init__(self, stage: str, error: str, *, retryable: bool, refused: bool) -> None:
        said = f"stage '{stage}' failed: {error}" if not refused else error
        super().__init__(said)
        self.sentences = [said]
        """What went wrong; of several stages that failed together, with each."""
        self.stage = stage
        self.retryable = retryable
        self.refused = refused


class ServerFailed(Exception):
    """What a run needs beside its stages is not there: the machine's trouble, and no bad input."""


def raise_all(errors: Iterable[BaseException]) -> None:
    """Raise one failure that tells every reason; what is no failure of a stage goes first."""
    failures = []
    for error in errors:
        if not isinstance(error, StageFailed):
            raise error
        failures.append(error)
    if not failures:
        return
    first, *others = failures
    if others:
        first.sentences = [*map(_with_stage, failures)]
        first.args = ("\n".join(first.sentences),)
        # With a crash among them it is no longer the input alone that is wrong.
        first.refused = all(each.refused for each in failures)
    raise first


def _with_stage(failure: StageFailed) -> str:
    """What went wrong, on a line that says in which stage, where several failed."""
    said = str(failure)
    return said if f"stage '{failure.stage}'" in said else f"stage '{failure.stage}': {said}"


def killed_by(number: int) -> str:
    """Say of a process by which signal it was killed."""
    name = signal.Signals(number).name
    return f"was killed by {name}" + " (often: out of memory)" * (name == "SIGKILL")
