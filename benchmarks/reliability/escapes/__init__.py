"""Programs that try to get out of the sandbox, and what each must not achieve."""

from benchmarks.reliability.escapes.files import FILES
from benchmarks.reliability.escapes.network import NETWORK
from benchmarks.reliability.escapes.processes import PROCESSES
from benchmarks.reliability.escapes.resources import RESOURCES
from benchmarks.reliability.escapes.system import SYSTEM

ESCAPES = (*FILES, *PROCESSES, *RESOURCES, *NETWORK, *SYSTEM)
