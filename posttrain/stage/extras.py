"""Packages that some parts need and most do without: how they are installed."""


def extra_line(extra: str) -> str:
    """Write the command that installs an extra, in a clone and in any other project alike.

    >>> extra_line("search")
    "pip install 'posttrain[search]'"

    Args:
        extra: Its name in pyproject.toml.

    Returns:
        A line for a shell.

    """
    return f"pip install 'posttrain[{extra}]'"
