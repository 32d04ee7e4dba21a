"""`posttrain`, and `python -m posttrain`: signals are heard before anything else is imported."""

import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python's own answer to Ctrl-C is a traceback: they wait until ours is there.
signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def main() -> None:
    """Entry point of the console script."""
    from posttrain.stage.interrupts import end_now, hear

    hear(end_now)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    from posttrain.cli.main import main as run_verb

    run_verb()


if __name__ == "__main__":
    main()
