"""What is sent to people and learning systems: mail servers, secrets, closed addresses, paused receivers."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, Installation, failure, ok, shut, warning
from cli.settings import lms_secrets, mail_password
from grading.domain.errors import ConfigError
from grading.domain.learning_platforms import platform_modules
from grading.store import Store
from grading.store.integrations import webhooks
from grading.store.reporting.operations import file_of
from workers.server.delivery.mail import FAILURES, NotEncrypted, connected

MAIL_S = 5.0
"""For the whole talk; the sweeper has more patience."""


def diagnose_mail(installation: Installation) -> Iterator[Finding]:
    """Find the server, greet it, encrypt, and sign in where the configuration names a user."""
    mail = installation.config.mail
    if not mail.on:
        yield ok("mail", "off: config.toml has no [mail] url")
        return
    where = f"{mail.host}:{mail.port}"
    try:
        with connected(mail, mail_password(installation.config, installation.environ), MAIL_S):
            pass
    except ConfigError as error:
        yield failure(
            "mail_password_missing", "mail", error.message, "set it for the sweeper and for `grader doctor`"
        )
    except (*FAILURES, NotEncrypted) as error:
        why = _why(error, where)
        yield failure(why.code, "mail", why.message, why.remedy)
    else:
        yield ok("mail", f"{where} accepts mail{f' from {mail.user}' if mail.user else ''}")


class Why(NamedTuple):
    """What is wrong with the mail server, and what to do."""

    code: str
    message: str
    remedy: str


def _why(error: Exception, where: str) -> Why:
    """Nothing of what the server said, which may be anything."""
    match error:
        case NotEncrypted():
            reason = f"{where} offers no encryption (STARTTLS), so no mail is sent"
            return Why("mail_not_encrypted", reason, "use smtps in mail.url, or a server on this computer")
        case smtplib.SMTPAuthenticationError():
            reason = f"{where} refuses the user or the password"
            return Why(
                "mail_password_refused", reason, "correct the user in mail.url, or GRADER_MAIL_PASSWORD"
            )
        case ssl.SSLCertVerificationError():
            reason = f"the certificate of {where} is not trusted"
            remedy = "use the host name of the certificate in mail.url, or renew the certificate"
            return Why("mail_untrusted", reason, remedy)
        case ssl.SSLError():
            reason = f"{where} does not use TLS as mail.url says"
            remedy = "use smtps for TLS from the start (mostly port 465), smtp for STARTTLS (25 or 587)"
            return Why("mail_without_tls", reason, remedy)
        case socket.gaierror():
            return Why(
                "mail_unknown_host",
                f"the host name of {where} cannot be resolved",
                "correct mail.url, or check DNS",
            )
        case TimeoutError() | smtplib.SMTPServerDisconnected():
            reason = f"{where} did not answer as a mail server within {MAIL_S:g} s"
            remedy = "check its port in mail.url, the firewall and the server"
            return Why("mail_silent", reason, remedy)
    reason = f"{where} cannot be used ({type(error).__name__})"
    return Why("mail_unusable", reason, "start it, or correct mail.url")


def diagnose_webhooks(installation: Installation) -> Iterator[Finding]:
    """All of it. What only the database knows is left out while that is away, which is said elsewhere."""
    for platform in platform_modules("cli.commands.{}").values():
        yield from platform.diagnose(installation)
    server = installation.config.server
    if not (server.lms_connections or server.event_receivers):
        return
    made_here, paused = _stored(installation)
    for name, secrets in lms_secrets(installation.config, installation.environ).items():
        if not secrets and name not in made_here:
            variable = f"GRADER_LMS_{name.upper().replace('-', '_')}_SECRET"
            message = f"server.lms_connections: '{name}' has no secret; {variable} is not set"
            remedy = f"set it to the sender's signing secret, or run `grader webhook secret add {name}`"
            yield failure("lms_secret_missing", "secrets", message, remedy)
    for receiver in server.event_receivers:
        problem = shut(receiver.url, server.allowed)
        if problem:
            yield warning(
                "receiver_closed",
                "events",
                f"receiver {receiver.name}: {problem}",
                "see docs/how-to/developers/events.md",
            )
        if receiver.name in paused:
            message = f"receiver {receiver.name} failed for two days and is paused; its events stay queued"
            yield failure(
                "receiver_paused",
                "events",
                message,
                f"fix it, then run `grader webhook resume {receiver.name}`",
            )


def _stored(installation: Installation) -> tuple[set[str], set[str]]:
    """Connections with a live secret that was made here, and receivers that are paused."""
    store = Store(installation.config.database.url)
    try:
        file = file_of(store)
        if file is not None and not file.exists():
            return set(), set()
        with store.read() as session:
            live = {one.connection for one in webhooks.list_secrets(session) if one.ended_at is None}
            return live, {one.name for one in webhooks.list_receivers(session) if one.paused_at is not None}
    except (SQLAlchemyError, OSError):
        return set(), set()
    finally:
        store.close()
