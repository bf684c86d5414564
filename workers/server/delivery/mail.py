"""Sends the mail that waits in the outbox: that a result can be seen, and where; never more than that."""

from __future__ import annotations

import hashlib
import logging
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.exc import DBAPIError

from grading.broker.machine_status import span
from grading.config.mail import Mail, valid_address
from grading.domain.errors import GraderError
from grading.domain.messages import Message, define_message, render
from grading.shared.catalogues import catalogue
from grading.store import outbox
from grading.store.away import why_away as why_sql_away
from grading.store.outbox import Delivery
from grading.store.submissions import mail_notifications
from grading.store.submissions.mail_notifications import Letter
from workers.server.context import Server

log = logging.getLogger(__name__)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FAILURES = (OSError, smtplib.SMTPException)


class NotEncrypted(GraderError):
    """The mail server offers no encryption (STARTTLS). Use smtps, or a mail server on this computer."""

    code = "mail_not_encrypted"
    status = 503
    default_message = define_message(
        "error.not_encrypted",
        "The mail server offers no encryption (STARTTLS). Use smtps, or a mail server on this computer.",
    )


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


SUBJECT = define_message("mail.result_subject", "Your result is ready: %(title)s")
BODY = define_message(
    "mail.result_body",
    'Hello,\n\nyour result for "%(title)s" is available:\n\n%(link)s\n\n'
    "You receive this email because you turned on emails about results. "
    'To turn them off, open "My account" in Grader.\n',
)
ANSWER_SUBJECT = define_message("mail.answer_subject", "Your regrade request was answered: %(title)s")
ANSWER_BODY = define_message(
    "mail.answer_body",
    'Hello,\n\nyour regrade request for "%(title)s" was answered. View the answer:\n\n'
    "%(link)s\n\nYou receive this email because you turned on emails about results. "
    'To turn them off, open "My account" in Grader.\n',
)


def answered(translations: Path, language: str, title: str, link: str) -> tuple[str, str]:
    """Subject and body of the letter that a request for a regrade was answered."""
    said = ANSWER_SUBJECT(title=title), ANSWER_BODY(title=title, link=link)
    return _rendered(translations, language, *said)


def ready(translations: Path, language: str, title: str, link: str) -> tuple[str, str]:
    """Subject and body of the letter that a result can be seen; English where the language is not known."""
    return _rendered(translations, language, SUBJECT(title=title), BODY(title=title, link=link))


def _rendered(translations: Path, language: str, subject: Message, body: Message) -> tuple[str, str]:
    texts = catalogue(translations, language)
    return render(subject, texts), render(body, texts)


EVERY_S = 5.0
TIMEOUT_S = 30.0
"""For the whole talk about one letter, and for finding the server."""
LEASE_S = 120.0
RETRIES_S = (60.0, *(minutes * 60.0 for minutes in (5, 30, 120, 300, 600, 1200, 1440)))
"""Waits between tries: more than two days in all."""
AT_ONCE = 100


@dataclass(frozen=True)
class MailSender:
    """Sends what is due; any number of processes may do so at once."""

    server: Server
    translations: Path
    """The folder of the catalogues."""
    password: str = field(default="", repr=False)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Send every 5 s until `stop`, in a thread of its own."""
        thread = threading.Thread(target=self._run, name="mail")
        thread.start()
        return thread

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.send_due()
            except DBAPIError as error:
                log.warning("%s, email is sent later: %s", why_sql_away(error), error)
            except Exception:
                log.exception("sending email failed, retrying")
            self.stop.wait(EVERY_S)

    def send_due(self) -> int:
        """One pass; returns how many letters the mail server took. Without a server all are put away."""
        mail = self.server.config.mail
        if not mail.on:
            with self.server.store.write() as session:
                outbox.fail_all(
                    session, mail_notifications.KIND, "no mail is sent: config.toml names no server"
                )
            return 0
        taken = 0
        while taken < AT_ONCE and not self.stop.is_set() and (row := self._next()) is not None:
            held = row
            try:
                with connected(mail, self.password, TIMEOUT_S) as smtp:
                    while row is not None:
                        held = row
                        taken += self._deliver(smtp, held)
                        row = self._next() if taken < AT_ONCE and not self.stop.is_set() else None
            except (*FAILURES, GraderError) as error:
                # of the server, not of this letter: the others wait, too
                self._put_off(held, f"{type(error).__name__}: {error}")
                break
        return taken

    def _next(self) -> Delivery | None:
        with self.server.store.write() as session:
            rows = outbox.claim(session, mail_notifications.KIND, 1, LEASE_S)
        return rows[0] if rows else None

    def _deliver(self, smtp: smtplib.SMTP, row: Delivery) -> bool:
        """Whether the server took it. Raises FAILURES where nothing more can be sent now."""
        with self.server.store.read() as session:
            letter = mail_notifications.load_letter(session, row.payload)
        if letter is None or not valid_address(letter.address):
            self._end(row, "" if letter is None else "this is no address that mail can be sent to")
            return False
        message = self.written(letter, row)
        with within(smtp, TIMEOUT_S):
            try:
                smtp.send_message(message)
            except smtplib.SMTPRecipientsRefused as error:
                code, words = next(iter(error.recipients.values()))
                self._refused(row, code, words)
                return False
            except smtplib.SMTPDataError as error:
                self._refused(row, error.smtp_code, error.smtp_error)
                return False
        self._end(row, "")
        return True

    def written(self, letter: Letter, row: Delivery) -> EmailMessage:
        """The letter: a link and the assignment's title. No score, and no name of anybody."""
        public_url = self.server.config.server.public_url
        title = " ".join("".join(c if c.isprintable() else " " for c in letter.title).split())[:150]
        link = f"{public_url.rstrip('/')}/submissions/{letter.submission_id}"
        write = answered if letter.answer else ready
        subject, body = write(self.translations, letter.language, title, link)
        message = EmailMessage()
        message["From"] = self.server.config.mail.sender
        message["To"] = letter.address
        message["Subject"] = subject
        message["Date"] = formatdate(row.created_at.timestamp())
        number = hashlib.sha256(f"{row.key}:{letter.address}".encode()).hexdigest()[:32]
        # the same at every try, so that a letter that was taken twice is shown once
        message["Message-ID"] = f"<{number}@{urlsplit(public_url).hostname or 'grader'}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(body)
        return message

    def _refused(self, row: Delivery, code: int, words: bytes | str) -> None:
        said = f"{code} {words.decode('ascii', 'replace') if isinstance(words, bytes) else words}"
        if 500 <= code < 600:
            self._end(row, said)
        else:
            self._put_off(row, said)

    def _end(self, row: Delivery, error: str) -> None:
        with self.server.store.write() as session:
            if error:
                outbox.mark_failed(session, row, error, None)
                log.warning("email %d could not be delivered: %s", row.id, error)
            else:
                outbox.mark_done(session, row)

    def _put_off(self, row: Delivery, error: str) -> None:
        wait = RETRIES_S[row.tries - 1] if row.tries <= len(RETRIES_S) else None
        with self.server.store.write() as session:
            outbox.mark_failed(session, row, error, wait)
        what = "no retries left" if wait is None else f"retry in {span(wait)}"
        log.warning("email %d was not sent: %s; %s", row.id, error, what)
