"""Mail: whether its server can be reached as the sweeper would reach it. Nothing is sent."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator

from cli.doctor.finding import Finding, Patient, failure, ok
from cli.settings import mail_password
from grading.domain.errors import ConfigError
from workers.server.delivery.mail import FAILURES, NotEncrypted, connected

MAIL_S = 5.0
"""For the whole talk; the sweeper has more patience."""


def check(patient: Patient) -> Iterator[Finding]:
    """Find the server, greet it, encrypt, and sign in where the configuration names a user."""
    mail = patient.config.mail
    if not mail.on:
        yield ok("mail", "none is sent: config.toml names no server")
        return
    where = f"{mail.host}:{mail.port}"
    try:
        with connected(mail, mail_password(patient.config, patient.environ), MAIL_S):
            pass
    except ConfigError as error:
        yield failure("mail", error.message, "set it for the sweeper, and for `grader doctor`")
    except (*FAILURES, NotEncrypted) as error:
        yield failure("mail", *_why(error, where))
    else:
        yield ok("mail", f"{where} takes letters{f' from {mail.user}' if mail.user else ''}")


def _why(error: Exception, where: str) -> tuple[str, str]:
    """What is wrong and what to do; nothing of what the server said, which may be anything."""
    match error:
        case NotEncrypted():
            said = f"{where} offers no encryption (STARTTLS), so nothing is sent to it"
            return said, "use smtps in mail.url, or a server on this computer"
        case smtplib.SMTPAuthenticationError():
            said = f"{where} refuses the user or the password"
            return said, "correct the user in mail.url, or GRADER_MAIL_PASSWORD"
        case ssl.SSLCertVerificationError():
            said = f"the certificate of {where} is not trusted"
            return said, "write the name that is in its certificate into mail.url, or renew it"
        case ssl.SSLError():
            said = f"{where} does not speak TLS as mail.url says"
            return said, "smtps is encrypted at once (mostly port 465), smtp begins in the clear (25 or 587)"
        case socket.gaierror():
            return f"nobody knows the address of {where}", "correct mail.url, or look at DNS"
        case TimeoutError() | smtplib.SMTPServerDisconnected():
            said = f"{where} did not answer as a mail server within {MAIL_S:g} s"
            return said, "look at its port in mail.url, at the firewall, and at the server"
    return f"{where} cannot be used ({type(error).__name__})", "start it, or correct mail.url"
