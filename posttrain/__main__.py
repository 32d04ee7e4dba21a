"""`posttrain`, and `python -m posttrain`: signals are heard before anything else is imported."""

from posttrain.stage.interrupts import end_now, hear


def main() -> None:
    """Entry point of the console script."""
    hear(end_now)
    from posttrain.cli.main import main as run_verb

    run_verb()


if __name__ == "__main__":
    main()
