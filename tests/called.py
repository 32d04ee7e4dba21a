"""`posttrain ...` in this process, so that the fork server's imports are paid once a worker."""

from dataclasses import dataclass

import pytest

from posttrain.cli.main import main


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line of an error; what else was said is about stages that ran or failed."""
        (line,) = (line for line in self.err.splitlines() if line.startswith("error: "))
        assert "Traceback" not in self.err
        return line.removeprefix("error: ")


def called(*arguments: str, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Said:
    """Call the command line's own entry point, where this process is.

    Args:
        arguments: The words behind `posttrain`.
        patch: Undoes, at the end of the test, what is set for it.
        capture: Of file descriptors, to hear what stages say too.

    Returns:
        How it ended.

    """
    patch.setattr("sys.argv", ["posttrain", *arguments])
    capture.readouterr()
    code = 0
    try:
        main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return Said(code, *capture.readouterr())
