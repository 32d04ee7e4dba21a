"""Whether the Hugging Face hub can be reached, asked once."""

import urllib.error
import urllib.request

from posttrain.errors import UserError

_SECONDS_TO_ANSWER = 10.0


def check_network(what: str, *, remedy: str) -> None:
    """Refuse at once where no hub answers: the hub's own libraries would try again for minutes.

    `what` is wanted from it; `remedy` says how to do without. A hub in offline mode is not asked,
    as its local cache may hold what is wanted.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        return
    except OSError as error:
        reason = str(error).strip("<>")
        raise UserError(
            f"{what}: {constants.ENDPOINT} does not answer ({reason}); {remedy}"
        ) from None
