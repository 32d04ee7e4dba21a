"""Packages that some parts need and most do without: how they are installed."""

import importlib.metadata


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


def extra_of(package: str) -> str:
    """Name the extra of posttrain that brings a package along; empty if none.

    >>> extra_of("ray"), extra_of("numpy")
    ('ray', '')

    Args:
        package: Its name in a registry.

    Returns:
        The extra, without that of the tests.

    """
    for line in importlib.metadata.requires("posttrain") or ():
        requirement, _, marker = line.partition(";")
        name, _, _ = requirement.partition("[")
        for sign in "<>=!~ ":
            name = name.partition(sign)[0]
        extra = marker.partition("extra ==")[2].strip(" \"'")
        if name.lower() == package.lower() and extra and extra != "test":
            return extra
    return ""


_OTHERWISE = {
    "vllm": "uv pip install --editable '.[vllm]' in a clone of posttrain, as pip cannot",
    ("vllm", "cpu"): (
        "pip install --no-deps --requirement requirements-engines.txt in a clone of posttrain"
    ),
    "flash-attn": "pip install flash-attn --no-build-isolation",
}
"""By name, or name and device: what pip finds no versions for where an extra brings it (see
[tool.uv]), and what it builds otherwise."""


def package_line(package: str, *, device: str = "") -> str:
    """Write the command that installs a package: by its extra, or by itself.

    >>> package_line("vllm").partition(" in ")[0], package_line("bm25s")
    ("uv pip install --editable '.[vllm]'", "pip install 'posttrain[search]'")

    Args:
        package: Its name in a registry.
        device: What a recipe runs on, `cpu` or `cuda`, where the package is another one for each.

    Returns:
        A line for a shell.

    """
    if line := _OTHERWISE.get((package, device), _OTHERWISE.get(package)):
        return line
    extra = extra_of(package)
    return extra_line(extra) if extra else f"pip install {package}"


def is_installed(package: str) -> bool:
    """Tell whether a package is there; nothing is imported."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
