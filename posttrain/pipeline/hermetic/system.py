"""What every stage may reach: the system, the interpreter and its packages, and some caches."""

import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import posttrain
from posttrain.data import token_cache
from posttrain.stage.needs import HUB, PROCESSES, RAY

READABLE: Mapping[str, str] = {
    "/usr": "programs, libraries, time zones, certificates",
    "/bin": "programs",
    "/sbin": "programs",
    "/lib": "libraries",
    "/lib32": "libraries",
    "/lib64": "libraries",
    "/opt/rocm": "libraries",
    "/opt/nvidia": "libraries",
    "/nix/store": "programs and libraries",
    "/gnu/store": "programs and libraries",
    "/proc": "processors, memory, this process; what is another's the kernel keeps back",
    "/sys": "processors and devices",
    "/etc/ld.so.cache": "where libraries are",
    "/etc/ld.so.conf": "where libraries are",
    "/etc/ld.so.conf.d": "where libraries are",
    "/etc/alternatives": "which program a name stands for",
    "/etc/localtime": "time zone",
    "/etc/timezone": "time zone",
    "/etc/locale.alias": "language",
    "/etc/locale.conf": "language",
    "/etc/default/locale": "language",
    "/etc/passwd": "names of users",
    "/etc/group": "names of users",
    "/etc/nsswitch.conf": "where names are looked up",
    "/etc/hosts": "names of machines",
    "/etc/host.conf": "names of machines",
    "/etc/hostname": "names of machines",
    "/etc/resolv.conf": "names of machines",
    "/etc/gai.conf": "names of machines",
    "/etc/services": "names of ports",
    "/etc/protocols": "names of protocols",
    "/etc/ssl": "whom to trust",
    "/etc/pki": "whom to trust",
    "/etc/ca-certificates": "whom to trust",
    "/etc/crypto-policies": "whom to trust",
    "/etc/mime.types": "kinds of files",
    "/etc/machine-id": "a name that libraries put in logs",
    "/etc/os-release": "a name that libraries put in logs",
    "/etc/debian_version": "a name that libraries put in logs",
    "/etc/shells": "programs",
    "/etc/terminfo": "how text is shown",
    "/etc/inputrc": "how text is shown",
    "/etc/fonts": "fonts",
    "/var/cache/fontconfig": "fonts",
    "/etc/OpenCL": "devices",
    "/etc/vulkan": "devices",
    "/etc/nvidia": "devices",
}
"""Places of the machine that a stage may read, and why: none is of a project."""

DEVICES: Mapping[str, str] = {
    "null": "nothing",
    "zero": "zeros",
    "full": "a disk that is full",
    "random": "noise; what a stage computes is seeded",
    "urandom": "noise; what a stage computes is seeded",
    "tty": "a terminal",
    "ptmx": "a terminal",
    "pts": "a terminal",
    "fd": "open files",
    "shm": "memory that processes share",
    "nvidia*": "a GPU",
    "dri": "a GPU",
    "kfd": "a GPU",
    "infiniband": "how processes reach each other",
}
"""Devices that a stage may read and write."""

CACHES: Mapping[str, tuple[str, str, str]] = {
    "inductor": ("TORCHINDUCTOR_CACHE_DIR", "{tmp}/torchinductor_{user}", ""),
    "triton": ("TRITON_CACHE_DIR", "{home}/.triton", ""),
    "cuda": ("CUDA_CACHE_PATH", "{home}/.nv/ComputeCache", ""),
    "numba": ("NUMBA_CACHE_DIR", "{cache}/numba", ""),
    "fonts": ("", "{cache}/fontconfig", ""),
    "fonts of matplotlib": ("MPLCONFIGDIR", "{cache}/matplotlib", ""),
    "tokens": (token_cache.TOKENS_VARIABLE, "{cache}/posttrain/tokens", ""),
    "hub": ("HF_HOME", "{cache}/huggingface", HUB),
    "datasets of the hub": ("HF_DATASETS_CACHE", "{cache}/huggingface/datasets", HUB),
    "models of the hub": ("HF_HUB_CACHE", "{cache}/huggingface/hub", HUB),
    "torch hub": ("TORCH_HOME", "{cache}/torch", HUB),
    "vllm": ("VLLM_CACHE_ROOT", "{cache}/vllm", PROCESSES),
    "ray": ("", "{tmp}/ray", RAY),
}
"""Folders that stages may read and write: the variable that names one, its usual place, and what a
stage must declare to have it. The first four hold compiled code, by the digest of its source, and
`tokens` the ids of texts, by theirs and the tokenizer's; what lies in a home itself and not among
its caches is used where it is there, and not made."""


_PACKAGES = ("site-packages", "dist-packages")


def caches(reach: frozenset[str]) -> dict[str, Path]:
    """Find the caches that a stage may use.

    Args:
        reach: What its parameters declare, such as `hub`.

    Returns:
        The folder of each kind, there or not.

    """
    home = os.path.expanduser("~")  # noqa: PTH111 - where there is no home, this says "~"
    names = {
        "home": home,
        "cache": os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache",
        "tmp": tempfile.gettempdir(),
        "user": re.sub(r'[\\/:*?"<>|]', "_", _user()),
    }
    return {
        kind: Path(os.environ.get(variable) or usual.format(**names))
        for kind, (variable, usual, declared) in CACHES.items()
        if not declared or declared in reach
    }


def _user() -> str:
    return os.environ.get("LOGNAME") or os.environ.get("USER") or str(os.getuid())


@cache
def device_files() -> tuple[str, ...]:
    """Find the devices that a stage may read and write."""
    folder = Path("/dev")
    return tuple(
        str(each)
        for pattern in DEVICES
        for each in (folder.glob(pattern) if "*" in pattern else [folder / pattern])
    )


@cache
def machine() -> tuple[str, ...]:
    """Find what belongs to the machine, the interpreter and its packages, and this framework.

    Returns:
        Files and folders, links followed; the same for all processes that are forked from one.

    """
    found = [*READABLE, sys.prefix, sys.base_prefix, sys.exec_prefix]
    paths = sysconfig.get_paths()
    found += [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += site.getsitepackages()
    # Another environment's packages, which a .pth file adds.
    found += [place for place in sys.path if os.path.basename(place) in _PACKAGES]  # noqa: PTH119
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    folder = os.path.dirname  # noqa: PTH120
    found += [folder(sys.executable), f"{sys.prefix}/pyvenv.cfg", folder(posttrain.__file__)]
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"):
        found += filter(None, os.environ.get(variable, "").split(os.pathsep))
    # Packages that are installed for editing: setuptools maps their names.
    for name in [name for name in sys.modules if name.startswith("__editable__")]:
        found += getattr(sys.modules[name], "MAPPING", {}).values()
    return tuple(dict.fromkeys(map(os.path.realpath, filter(os.path.exists, found))))


@cache
def importable(entry: str) -> tuple[str, ...]:
    """Find what can be imported from a folder on the path of modules: all else in it is not read.

    Args:
        entry: Such as the folder of a package that is installed for editing.

    Returns:
        Modules, packages and what is written about them, links followed.

    """
    if lies_in(entry, machine()):
        return ()
    try:
        with os.scandir(entry) as inside:
            found = [each.path for each in inside if _is_importable(each)]
    except OSError:
        return ()
    return tuple(map(os.path.realpath, found))


def _is_importable(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith((".py", ".so", ".pth", ".dist-info", ".egg-info")):
        return True
    return os.path.exists(f"{entry.path}/__init__.py")  # noqa: PTH110


def lies_in(real: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of some places, or below one.

    Args:
        real: A path, links followed.
        places: Such paths.

    """
    return any(real == place or real.startswith(f"{place}/") for place in places)


def sparing(place: str, spared: str) -> Iterator[str]:
    """Find what covers all of a place but for one folder in it.

    Args:
        place: A folder or file.
        spared: Where the stage's project lies.

    Yields:
        The place itself where the project lies elsewhere; else all in it that does not lead there.

    """
    if place == spared:
        return
    if not spared.startswith(f"{place.rstrip('/')}/"):
        yield place
        return
    try:
        inside = sorted(os.listdir(place))  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in inside:
        inner = os.path.join(place, name)  # noqa: PTH118
        if not os.path.islink(inner):  # noqa: PTH114
            yield from sparing(inner, spared)
