"""A talk with the mail server: bounded, and encrypted unless it is on this computer."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from grading.config.mail import Mail
from grading.domain.errors import GraderError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
FAILURES = (OSError, smtplib.SMTPException)


class NotEncrypted(GraderError):
    """The mail server offers no encryption (STARTTLS); use smtps, or a server on this computer."""

    code = "mail_not_encrypted"
    status = 503


@contextmanager
def connected(mail: Mail, password: str, seconds: float) -> Iterator[smtplib.SMTP]:
    """A talk with the server, signed in where the configuration names a user; nothing is sent yet.

    Finding it and getting so far may take `seconds`. Raises FAILURES, NotEncrypted.
    """
    trusted = ssl.create_default_context()
    if mail.encrypted:
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(timeout=seconds, context=trusted)
    else:
        smtp = smtplib.SMTP(timeout=seconds)
    smtp._host = mail.host  # type: ignore[attr-defined]  # whose certificate it must be; else only its constructor says so
    try:
        with within(smtp, seconds):
            smtp.connect(mail.host, mail.port)
            smtp.ehlo_or_helo_if_needed()
            _encrypt(smtp, mail, trusted)
            if mail.user:
                smtp.login(mail.user, password)
        yield smtp
        with suppress(*FAILURES):
            smtp.quit()
    finally:
        smtp.close()


def _encrypt(smtp: smtplib.SMTP, mail: Mail, trusted: ssl.SSLContext) -> None:
    if mail.encrypted or (mail.host in LOOPBACK and not smtp.has_extn("starttls")):
        return
    if not smtp.has_extn("starttls"):
        raise NotEncrypted
    smtp.starttls(context=trusted)
    smtp.ehlo()


@contextmanager
def within(smtp: smtplib.SMTP, seconds: float) -> Iterator[None]:
    """End the talk under a server that lets it take longer, however it does so."""

    def cut() -> None:
        with suppress(OSError):
            if smtp.sock is not None:
                socket.socket.shutdown(smtp.sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
