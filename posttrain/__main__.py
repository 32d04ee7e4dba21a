"""`posttrain`, and `python -m posttrain`: signals are heard before anything else is imported."""

import gc
import os
import signal
import sys

if not hasattr(signal, "pthread_sigmask"):
    print(
        "error: posttrain runs on Linux, and looks at what was made on macOS too; on Windows, run"
        " it inside WSL 2",
        file=sys.stderr,
    )
    sys.exit(2)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python's own answer to Ctrl-C is a traceback: they wait until ours is there.
signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def main() -> None:
    """Entry point of the console script."""
    _open_standard_files()
    # What is imported stays to the end: to look for garbage in it takes a fifth of the time.
    gc.disable()
    from posttrain.stage.interrupts import end_now, hear

    hear(end_now)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    from posttrain.cli.main import main as run_verb

    run_verb()


def _open_standard_files() -> None:
    """Put /dev/null where standard input, output or error was closed (`2>&-`).

    The next file that is opened, such as a database, has that number otherwise, and is written
    into by whoever has something to say.
    """
    names = ("stdin", "stdout", "stderr")
    for number, name in enumerate(names):
        if getattr(sys, name) is None:
            # The lowest free number is this one: those below are open by now.
            file = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(file, True)
            setattr(sys, name, os.fdopen(file, "w" if number else "r", encoding="utf-8"))


if __name__ == "__main__":
    main()
