"""What libraries hold of episodes that are under way: kept to save time, and never needed."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Underway(Generic[T]):
    """Objects of a library by what was said so far; who takes one alone has it until it is kept.

    A state of an episode says all that was said in it, so that an object that is not here any more
    is made again from that.
    """

    def __init__(self, most: int) -> None:
        """Keep no more than `most`, the latest."""
        self.most = most
        self._kept: OrderedDict[tuple[str, str], T] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, problem: str, said: str) -> T | None:
        """Take out what was kept after something was said.

        Args:
            problem: All that the beginning depends on.
            said: All that was said since.

        Returns:
            What was kept; None where nothing is.

        """
        with self._lock:
            return self._kept.pop((problem, said), None)

    def keep(self, problem: str, said: str, thing: T) -> list[T]:
        """Keep an object for who goes on from there.

        Args:
            problem: All that the beginning depends on.
            said: All that was said since.
            thing: What stands there now; nobody else may hold it.

        Returns:
            What is not kept any more, for who has to close it.

        """
        with self._lock:
            replaced = self._kept.get((problem, said))
            gone = [] if replaced is None else [replaced]
            self._kept[problem, said] = thing
            self._kept.move_to_end((problem, said))
            while len(self._kept) > self.most:
                gone.append(self._kept.popitem(last=False)[1])
        return gone
