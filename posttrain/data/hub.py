"""Whether the Hugging Face hub can be reached, asked once."""

import http.client
import threading
import urllib.error
import urllib.request

from posttrain.stage.errors import UserError

_SECONDS_TO_ANSWER = 4.0


def check_network(what: str, *, remedy: str) -> None:
    """Refuse at once where no hub answers: the hub's own libraries would try again for minutes.

    `what` is wanted from it; `remedy` says how to do without. A hub in offline mode is not asked,
    as its local cache may hold what is wanted.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return
    reason = _silence(constants.ENDPOINT)
    if reason:
        raise UserError(f"{what}: {constants.ENDPOINT} does not answer ({reason}); {remedy}")


def _silence(url: str) -> str | None:
    """Why there is no answer, or None where there is one, of whatever kind."""
    found: list[str | None] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER).close()
        except urllib.error.HTTPError:
            found.append(None)
        except (OSError, http.client.HTTPException) as error:
            found.append(str(error).strip("<>\r\n"))
        else:
            found.append(None)

    # The resolver knows no time limit, and each address of a name has the whole of one.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_ANSWER)
    return found[0] if found else f"nothing in {_SECONDS_TO_ANSWER:g} seconds"
