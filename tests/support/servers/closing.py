"""An application that ends what it sends, also when the browser goes away in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def ends_what_it_sends(app: WSGIApplication) -> WSGIApplication:
    """werkzeug's server closes no answer whose connection breaks while it looks for more of the request.

    A file that is open then is one of pytest's warnings, which fail the test.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        said: Any = app(environ, start_response)
        with closing(said):
            yield from said

    return answer
