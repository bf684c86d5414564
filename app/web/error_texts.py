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
        N_("Invalid request"),
        N_("Go back, reload the page and try again. Your input may still be there."),
    ),
    401: Fault(N_("Sign in first"), N_("Your session may have ended. Sign in to return here.")),
    403: Fault(
        N_("No access"),
        N_("If you need access, ask your instructor."),
    ),
    404: Fault(
        N_("Page not found"),
        N_(
            "The address may be mistyped, or the page was deleted or belongs to someone else. The "
            "home page lists everything you have access to."
        ),
    ),
    405: Fault(
        N_("Method not allowed"),
        N_("This address accepts only form submissions. Go back and use the buttons on the page."),
    ),
    409: Fault(N_("Changed by someone else"), N_("Go back and reload the page to see the current state.")),
    413: Fault(
        N_("Too large"),
        N_("Nothing was stored. Remove data and images that the task does not require."),
    ),
    415: Fault(N_("Unsupported file type")),
    422: Fault(N_("Invalid input")),
    429: Fault(N_("Please wait"), N_("Nothing is lost. Wait a minute before you try again."), again=True),
    500: Fault(
        N_("Server error"),
        N_(
            "This is not your fault. The error was logged for the operator of this server. Try again "
            "in a minute."
        ),
        again=True,
    ),
    503: Fault(
        N_("Temporarily unavailable"),
        N_(
            "Earlier submissions are safe. If you were submitting, nothing was stored: keep your "
            "files and submit them again."
        ),
        again=True,
    ),
    507: Fault(N_("Server disk full"), N_("Keep your files. Nothing stored earlier is lost.")),
}
OTHER = Fault(N_("Request failed"))


def fault(status: int) -> Fault:
    """In the reader's language."""
    found = FAULTS.get(status, OTHER)
    return Fault(_(found.headline), _(found.advice), found.again)
