"""Every seed derives from the run's, by a hash of what it is for.

A purpose has its own stream, whatever is added beside it and in whichever order things are drawn.
New code takes `purpose_seed`; the other spellings are those by which earlier results were drawn,
and stay as they are for these to come out the same.
"""

import random

from posttrain.stage.hashing import eight_bytes_of, sha256_of


def purpose_seed(seed: int, *purpose: str | int) -> int:
    """Derive a seed of its own for every purpose.

    >>> purpose_seed(0, "rl", 17) == purpose_seed(0, "rl", 17) != purpose_seed(0, "rl", 18)
    True

    Args:
        seed: Of the stage or run.
        purpose: What it is for, word by word.

    Returns:
        A seed below 2^63.

    """
    return int.from_bytes(purpose_bytes(seed, *purpose), "big") >> 1


def purpose_bytes(seed: int, *purpose: str | int) -> bytes:
    """Hash a purpose to the 8 bytes that `purpose_seed` reads as a number.

    Args:
        seed: Of the stage.
        *purpose: What the number is for, such as ``"rollouts", 3``.

    Returns:
        Eight bytes of BLAKE2b, the same on every machine.

    """
    return eight_bytes_of("\0".join(str(part) for part in (seed, *purpose)))


def derived_seed(seed: int, purpose: str) -> int:
    """Derive the seed of a stage, so that stages do not share random streams.

    Args:
        seed: Of the recipe.
        purpose: Name of the stage, or of what it shares its seed with.

    Returns:
        A number from 0 to 2^31 - 1.

    """
    return int.from_bytes(order_key(seed, purpose)[:4], "big") & 0x7FFFFFFF


def stable_seed(seed: int, *purpose: str) -> int:
    """Derive the seed of a source of problems or of a teacher.

    Neighboring seeds of the reasoning-gym library share most of their problems, so a sum would not
    do.

    Args:
        seed: Of the stage.
        purpose: What it is for, such as the name of the source.

    Returns:
        A seed below 2^31.

    """
    return int.from_bytes(order_key(seed, *purpose)[:4], "big") >> 1


def shuffler(seed: int | str, *purpose: str | int) -> random.Random:
    """Make a generator that orders things: `shuffler(seed, "order", epoch).shuffle(rows)`.

    Args:
        seed: Of the stage.
        *purpose: What is ordered; each purpose has a stream of its own.

    Returns:
        Python's generator (Mersenne Twister), seeded with the text of all these.

    """
    return random.Random(":".join(str(part) for part in (seed, *purpose)))


def order_key(seed: int, *purpose: str | int) -> bytes:
    """Hash to a pseudo-random sort key: sorting by it is a shuffle that new names do not disturb.

    Args:
        seed: Of the stage.
        *purpose: What is ordered, the name of the thing last.

    Returns:
        Thirty-two bytes, to compare with others.

    """
    return bytes.fromhex(sha256_of(":".join(str(part) for part in (seed, *purpose))))
