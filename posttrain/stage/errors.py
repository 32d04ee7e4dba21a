"""The one error that a user is meant to see, and what its sentences are made of."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

# A password may hold what it should not, such as an @ or a slash: up to the last @ of the word.
_USERINFO = re.compile(r"(?<=//)[^\s/?#@:]*(?::\S*)?@")
_SECRET_OPTION = re.compile(
    r"([?&][\w-]*(?:password|passwd|pwd|secret|token|key)=)[^\s&#'\")]+", re.I
)


class UserError(Exception):
    """Bad input, said in one sentence: what is wrong, where, and what to do about it.

    The command line prints the sentence and exits with code 2; nothing has been written by then.
    """

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is wrong, a sentence each; of most it is one."""
        return (str(self),)


class UserErrors(UserError):
    """Several of them that one command found: each is a line of its own."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._sentences = tuple(sentences)
        super().__init__("\n".join(self._sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each of them."""
        return self._sentences


def first_line(error: BaseException) -> str:
    r"""Give the first line of what an error says, or the name of its class where it says nothing.

    >>> first_line(ValueError("no such column\nat line 3")), first_line(TimeoutError())
    ('no such column', 'TimeoutError')

    Args:
        error: Any error, such as one of a library that speaks in paragraphs.

    Returns:
        The line, without a full stop at its end.

    """
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def sentence(error: BaseException) -> str:
    """Say any error in a line: a refusal in its own words, another one after its class.

    >>> sentence(UserError("no recipe here")), sentence(KeyError("a"))
    ('no recipe here', "KeyError: 'a'")

    Args:
        error: What was raised.

    Returns:
        The line.

    """
    known = isinstance(error, UserError)
    return str(error) if known else f"{type(error).__name__}: {first_line(error)}"


_SHORT = 4


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Suggest the closest candidate to a name that is unknown.

    Args:
        name: What was written.
        candidates: What could have been meant.

    Returns:
        ``; did you mean 'x'?``, to be put at the end of a message; empty where nothing is close.

    """
    # Of a short name one letter is much: two that changed places leave half of it alike.
    cutoff = 0.6 if len(name) > _SHORT else 0.5
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=cutoff)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def masked(text: str) -> str:
    """Hide who logs in, and by which password, in every URL of a text.

    >>> masked("no ledger at postgresql://me:p@ss/1@db:5432/runs?sslpassword=x&port=1")
    'no ledger at postgresql://***@db:5432/runs?sslpassword=***&port=1'

    Args:
        text: A URL, or a sentence that holds some.

    Returns:
        The text without users, passwords and options that are secrets. Where a URL can be read in
        two ways, more is hidden rather than less.

    """
    return _SECRET_OPTION.sub(r"\1***", _USERINFO.sub("***@", text))


def shown(path: Path) -> str:
    """Spell a file as a person in the present folder would name it.

    Args:
        path: An absolute path, or one from that folder.

    Returns:
        The path from the present folder where the file lies below it, else the path as it is.

    """
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
