"""How stages fail, and several of them together."""

from collections.abc import Sequence


class StageFailed(Exception):
    """A stage did not succeed; `retryable` says whether starting it again can help."""

    def __init__(self, stage: str, error: str, *, retryable: bool, refused: bool) -> None:
        super().__init__(f"stage '{stage}' failed: {error}" if not refused else error)
        self.stage = stage
        self.retryable = retryable
        self.refused = refused


def together(failures: Sequence[StageFailed]) -> StageFailed:
    """One failure that tells every reason, for a run in which several stages failed."""
    first, *others = failures
    if others:
        first.args = ("\n".join(str(each) for each in failures),)
        # With a crash among them it is no longer the input alone that is wrong.
        first.refused = all(each.refused for each in failures)
    return first
