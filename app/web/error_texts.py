"""What a page says of an error: a headline, what to do next, and where to go."""

from __future__ import annotations

from dataclasses import dataclass

from app.web.i18n import gettext as _
from app.web.i18n import later as N_


@dataclass(frozen=True)
class Fault:
    """A headline and what to do; `again` offers the same address once more."""

    headline: str
    advice: str = ""
    again: bool = False


FAULTS = {
    400: Fault(
        N_("That did not arrive as it should"),
        N_("Go back, load the page again and try once more. What you typed may still be there."),
    ),
    401: Fault(N_("Sign in first"), N_("Your session may have ended. Sign in and you come back here.")),
    403: Fault(
        N_("Not for you"),
        N_(
            "Your account may not open or do this. If you think it should, ask the person who teaches "
            "your course."
        ),
    ),
    404: Fault(
        N_("Nothing here"),
        N_(
            "The address may be mistyped, or the page was deleted or belongs to someone else. The "
            "home page lists everything you have access to."
        ),
    ),
    405: Fault(
        N_("That way round does not work"),
        N_("This address only takes what a form sends. Go back and use the buttons of the page."),
    ),
    409: Fault(N_("Changed by someone else"), N_("Go back and load the page again to see how things stand.")),
    413: Fault(
        N_("Too large"),
        N_("Leave out data and pictures that the task does not ask for. Nothing was stored."),
    ),
    415: Fault(N_("This kind of file does not work here")),
    422: Fault(N_("Something in it does not fit")),
    429: Fault(
        N_("A moment, please"), N_("Nothing is lost. Wait a minute before you try again."), again=True
    ),
    500: Fault(
        N_("Our mistake"),
        N_("It is not your fault. It was written down for whoever runs this server; try again in a minute."),
        again=True,
    ),
    503: Fault(
        N_("Back in a moment"),
        N_(
            "What you submitted before is safe. If you were just submitting, nothing was stored: keep your "
            "files and send them again."
        ),
        again=True,
    ),
    507: Fault(N_("The server is full"), N_("Keep your files; nothing that was stored before is lost.")),
}
OTHER = Fault(N_("That did not work"))


def fault(status: int) -> Fault:
    """In the reader's language."""
    found = FAULTS.get(status, OTHER)
    return Fault(_(found.headline), _(found.advice), found.again)
