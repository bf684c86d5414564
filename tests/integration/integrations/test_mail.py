"""Mail when a result is ready: who gets a letter, what it says, and what a mail server may do to it."""

from __future__ import annotations

import email
import ssl
from collections.abc import Iterator
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.web.i18n import FOLDER
from cli.doctor import delivery as doctor_mail
from cli.doctor.finding import Installation
from grading.config.mail import Mail, valid_address
from grading.config.settings import Config
from grading.domain.errors import ConfigError
from grading.domain.permissions import Actor
from grading.store import Store, outbox, tables
from grading.store.completion import finish_round
from grading.store.database import now
from grading.store.grades import release as grade_release
from grading.store.privacy import erasure
from grading.store.privacy.erasure import find_student
from grading.store.review import regrade_requests
from grading.store.rounds.locking import lock_round
from grading.store.submissions import mail_notifications
from tests.integration.webapp import School, configuration, form_token, report
from tests.support.redis_servers import certificates
from tests.support.servers.smtp_server import Mailbox, mail_server
from workers.server.context import Server
from workers.server.delivery.mail import MailSender

SENDER = "Grader <grader@school.example>"
ADDRESS = "anna@school.example"


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    yield from opened(School(tmp_path))


@pytest.fixture
def either(database_url: str) -> Iterator[School]:
    """On both kinds of SQL."""
    yield from opened(School(database_url))


def opened(made: School) -> Iterator[School]:
    with made.store.write() as session:
        for name in ("anna", "ben"):
            session.get_one(tables.User, made.users[name]).email = f"{name}@school.example"
    yield made
    made.close()


def wants(school: School, name: str, *, always: bool = True) -> None:
    with school.store.write() as session:
        session.get_one(tables.User, school.users[name]).mail_when_ready = always


def graded(school: School, name: str = "anna") -> str:
    """A submission with a grade that nobody sees yet."""
    submission = school.submit(name)
    school.grade(submission, report())
    return submission


def release(school: School, submission: str) -> None:
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        grade_release.release_grade(session, round_.id, Actor(school.users["teacher"]))


def sender(school: School, box: Mailbox | None, password: str = "", **mail: Any) -> MailSender:
    chosen = Mail(url=box.url, sender=SENDER, **mail) if box is not None else Mail(**mail)
    config: Config = configuration(public_url="https://grader.school.example")
    return MailSender(
        Server(config.model_copy(update={"mail": chosen}), school.store, None), FOLDER, password
    )  # type: ignore[arg-type]


def rows(store: Store) -> list[tuple[bool, str, int]]:
    """Done, error and tries of all letters."""
    with store.read() as session:
        found = session.scalars(select(tables.Outbox).where(tables.Outbox.kind == "mail").order_by("id"))
        return [(row.done_at is not None, row.error, row.tries) for row in found]


def read(content: bytes) -> Message:
    return email.message_from_bytes(content, policy=default)  # type: ignore[arg-type]


def due_again(store: Store) -> None:
    """Whatever was put off is due."""
    with store.write() as session:
        session.query(tables.Outbox).update({"not_before": tables.Outbox.created_at})


def test_a_letter_says_where_to_look_and_nothing_else(either: School, box: Mailbox) -> None:
    wants(either, "anna")
    submission = graded(either)
    release(either, submission)
    assert sender(either, box).send_due() == 1
    ((from_, to, content),) = box.letters
    message = read(content)
    assert (from_.startswith("FROM:<grader@school.example>"), to) == (True, [ADDRESS])
    assert message["Subject"] == "Your result is ready: Homework hw1"
    text = content.decode()
    assert f"https://grader.school.example/submissions/{submission}" in text
    for secret in ("8.5", "points", "Anna", "Ben", "Teacher"):
        assert secret not in text
    assert rows(either.store) == [(True, "", 1)]
    assert sender(either, box).send_due() == 0


@pytest.mark.parametrize(
    ("language", "subject", "words"),
    [
        ("de", "Ihr Ergebnis ist da: 100 % Übung", "ist verfügbar"),
        ("", "Your result is ready: 100 % Übung", "is available"),
        ("../de", "Your result is ready: 100 % Übung", "is available"),
    ],
)
def test_a_letter_speaks_the_language_of_its_reader(
    school: School, box: Mailbox, language: str, subject: str, words: str
) -> None:
    wants(school, "anna")
    submission = graded(school)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).language = language
        session.query(tables.Assignment).update({"title": "100 % Übung"})
    release(school, submission)
    assert sender(school, box).send_due() == 1
    message = read(box.letters[0][2])
    assert message["Subject"] == subject
    body = message.get_content()  # type: ignore[attr-defined]
    assert '"100 % Übung"' in body.replace("„", '"').replace("“", '"')
    assert words in " ".join(body.split())
    assert f"https://grader.school.example/submissions/{submission}" in body.splitlines()


def test_an_answer_to_a_request_is_told_to_who_asked(either: School, box: Mailbox) -> None:
    wants(either, "anna")
    submission = graded(either)
    release(either, submission)
    sender(either, box).send_due()
    anna, teacher = Actor(either.users["anna"]), Actor(either.users["teacher"])
    with either.store.write() as session:
        asked = regrade_requests.create_request(session, anna, submission, "", "Cell 4 says it.")
        declined = regrade_requests.Answer(verdict="declined", words="It names no number.")
        regrade_requests.answer_request(session, teacher, asked, declined)
    assert sender(either, box).send_due() == 1
    message = read(box.letters[1][2])
    assert message["Subject"] == "Your regrade request was answered: Homework hw1"
    text = box.letters[1][2].decode()
    assert f"https://grader.school.example/submissions/{submission}" in text
    assert "declined" not in text
    assert "no number" not in text
    # the answer to a request that was opened again is told, too, unless it is undone before its mail is sent
    for undone in (True, False):
        with either.store.write() as session:
            row = session.get_one(tables.RegradeRequest, asked)
            if row.answered_at is not None:
                regrade_requests.undo_answer(session, teacher, asked, row.answered_at)
            regrade_requests.answer_request(session, teacher, asked, declined)
            moment = now(session)
        if undone:
            with either.store.write() as session:
                regrade_requests.undo_answer(session, teacher, asked, moment)
        sender(either, box).send_due()
        assert len(box.letters) == (2 if undone else 3)


def test_who_gets_a_letter(either: School) -> None:
    first, second, third = graded(either), graded(either, "ben"), graded(either)
    wants(either, "anna")
    with either.store.write() as session:
        mail_notifications.set_mail_preference(session, third, either.users["anna"], wanted=False)
        mail_notifications.set_mail_preference(session, second, either.users["ben"], wanted=True)
        session.add(tables.SubmissionMember(submission_id=second, user_id=either.users["anna"]))
        grade_release.release_all(session, either.assignment, Actor(either.users["teacher"]))
    with either.store.read() as session:
        told = [
            (row.payload["submission"], row.payload["user"])
            for row in session.scalars(select(tables.Outbox).where(tables.Outbox.kind == "mail"))
        ]
    anna, ben = either.users["anna"], either.users["ben"]
    assert sorted(told) == sorted([(first, anna), (second, ben), (second, anna)])


def test_withdrawn_disabled_and_changed_minds_get_nothing(either: School, box: Mailbox) -> None:
    wants(either, "anna")
    one, two = graded(either), graded(either)
    release(either, one)
    release(either, two)
    with either.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=one).one()
        grade_release.withdraw_grade(session, round_.id, Actor(either.users["teacher"]))
        mail_notifications.set_mail_preference(session, two, either.users["anna"], wanted=False)
    assert sender(either, box).send_due() == 0
    assert box.letters == []
    assert rows(either.store) == [(True, "", 1)] * 2


def test_releasing_again_sends_nothing_twice(school: School, box: Mailbox) -> None:
    wants(school, "anna")
    submission = graded(school)
    release(school, submission)
    sender(school, box).send_due()
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        grade_release.withdraw_grade(session, round_.id, Actor(school.users["teacher"]))
    release(school, submission)
    assert (sender(school, box).send_due(), len(box.letters)) == (0, 1)


def test_a_grade_that_releases_itself_leaves_a_letter(school: School) -> None:
    wants(school, "anna")
    submission = school.submit("anna", school.quick)
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        round_.state = "running"
        session.flush()
        current = lock_round(session, round_.id)
        assert current is not None
        finish_round.finish_round(
            session, current, report(), finish_round.load_round_end(session, current.id), release=True
        )
    assert rows(school.store) == [(False, "", 0)]


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("One\r\nBcc: all@school.example", "One Bcc: all@school.example"),
        ("Two\n\nBody", "Two Body"),
        ("Dré\u2028i \u202e x", "Dré i x"),
        ("a" * 200, "a" * 150),
        ("%s {title} {link.__class__}", "%s {title} {link.__class__}"),
    ],
)
def test_titles_cannot_become_headers(school: School, box: Mailbox, title: str, subject: str) -> None:
    wants(school, "anna")
    submission = graded(school)
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).title = title
    release(school, submission)
    assert sender(school, box).send_due() == 1
    message = read(box.letters[0][2])
    assert message["Subject"] == f"Your result is ready: {subject}"
    assert (message["Bcc"], box.letters[0][1]) == (None, [ADDRESS])


@pytest.mark.parametrize(
    "address",
    [
        *("anna@x.example\r\nBcc: b@x.example", "anna@x.example>\r\nRCPT TO:<b@x.example", "anna", "a@b@c"),
        *("a@x.example, b@x.example", "a b@x.example", "ä@x.de", "@x.example", "a@", "<a@x.example>"),
    ],
)
def test_what_is_no_address_gets_no_mail(school: School, box: Mailbox, address: str) -> None:
    assert not valid_address(address)
    wants(school, "anna")
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).email = address
    release(school, graded(school))
    assert sender(school, box).send_due() == 0
    assert box.commands in ([], ["QUIT"]) or not any(one.startswith("RCPT") for one in box.commands)
    ((done, error, _),) = rows(school.store)
    assert done
    assert "no address" in error


@pytest.mark.parametrize(
    ("command", "answer", "done", "told"),
    [
        ("RCPT", "550 no such user", True, "550 no such user"),
        ("RCPT", "451 later", False, "451 later"),
        ("the content", "554 spam", True, "554 spam"),
        ("the content", "452 disk full", False, "452 disk full"),
        ("the content", "drop", False, "SMTPServerDisconnected"),
        ("MAIL", "550 not from you", False, "550"),
        (("EHLO", "HELO"), "421 busy", False, "421"),
        ("RCPT", "drop", False, "SMTPServerDisconnected"),
    ],
)
def test_faults_of_the_server(
    school: School, box: Mailbox, command: str | tuple[str, ...], answer: str, done: bool, told: str
) -> None:
    """What is wrong with a letter ends it; what is wrong with the server is tried again."""
    wants(school, "anna")
    release(school, graded(school))
    box.says = lambda line: answer if line.startswith(command) else None
    assert sender(school, box).send_due() == 0
    ((ended, error, tries),) = rows(school.store)
    assert (ended, tries) == (done, 1)
    assert told in error
    box.says = lambda _line: None
    due_again(school.store)
    assert sender(school, box).send_due() == int(not done)


def test_one_refused_letter_does_not_hold_the_others(school: School, box: Mailbox) -> None:
    for name in ("anna", "ben"):
        wants(school, name)
        release(school, graded(school, name))
    box.says = lambda line: "550 no" if line.startswith("RCPT") and "anna" in line else None
    assert sender(school, box).send_due() == 1
    assert [to for _, to, _ in box.letters] == [["ben@school.example"]]


def test_a_server_that_stands_still_is_left(
    school: School, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.server.delivery.mail.TIMEOUT_S", 0.3)
    wants(school, "anna")
    release(school, graded(school))
    box.says = lambda line: "hang" if line.startswith("RCPT") else None
    assert sender(school, box).send_due() == 0
    assert [row[0] for row in rows(school.store)] == [False]


def test_a_server_that_is_away_is_asked_again(school: School) -> None:
    wants(school, "anna")
    release(school, graded(school))
    with mail_server() as gone:
        pass
    assert sender(school, gone).send_due() == 0
    ((done, error, _),) = rows(school.store)
    assert not done
    assert "refused" in error


def test_signing_in_and_encryption(
    school: School, box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates(tmp_path / "ca")
    box.starttls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    box.starttls.load_cert_chain(made.certificate, made.key)
    box.users = {"grader": "s3cret"}
    wants(school, "anna")
    release(school, graded(school))
    url = {"url": f"smtp://grader@localhost:{box.port}"}
    named = Mail(**url, sender=SENDER)

    def one(password: str) -> MailSender:
        config = configuration().model_copy(update={"mail": named})
        return MailSender(Server(config, school.store, None), FOLDER, password)  # type: ignore[arg-type]

    assert one("s3cret").send_due() == 0  # nobody vouches for this server
    assert not any(line.startswith("AUTH") for line in box.commands)
    trusted = ssl.create_default_context(cafile=str(made.ca))
    monkeypatch.setattr("workers.server.delivery.mail.ssl.create_default_context", lambda: trusted)
    due_again(school.store)
    assert one("wrong").send_due() == 0
    due_again(school.store)
    assert one("s3cret").send_due() == 1
    assert "s3cret" not in repr(one("s3cret"))


def test_no_password_and_no_letter_in_the_clear(
    school: School, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.server.delivery.mail.LOOPBACK", ())
    wants(school, "anna")
    release(school, graded(school))
    assert sender(school, box).send_due() == 0
    assert not any(line.startswith(("AUTH", "MAIL")) for line in box.commands)
    assert "STARTTLS" in rows(school.store)[0][1]


def test_the_doctor_looks_at_the_mail_server_and_sends_nothing(
    tmp_path: Path, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor.delivery.MAIL_S", 30.0)

    def said(url: str, **environ: str) -> tuple[str, str, str]:
        mail = Mail(url=url, sender=SENDER if url else "")
        config = configuration().model_copy(update={"mail": mail})
        (found,) = doctor_mail.diagnose_mail(Installation(config, tmp_path, environ))
        return found.level, found.message, found.remedy

    assert said("")[:2] == ("ok", "off: config.toml has no [mail] url")
    assert said(box.url)[:2] == ("ok", f"127.0.0.1:{box.port} accepts mail")
    signed = box.url.replace("//", "//us@")
    assert "GRADER_MAIL_PASSWORD" in said(signed)[1]
    box.users = {"us": "right"}
    assert said(signed, GRADER_MAIL_PASSWORD="right")[0] == "ok"
    assert "refuses the user" in said(signed, GRADER_MAIL_PASSWORD="wrong")[1]
    assert "does not use TLS" in said(box.url.replace("smtp:", "smtps:"))[1]
    monkeypatch.setattr("workers.server.delivery.mail.LOOPBACK", ())
    level, message, remedy = said(box.url)
    assert (level, "no encryption" in message, "smtps" in remedy) == ("failure", True, True)
    box.says = lambda _: "hang"
    monkeypatch.setattr("cli.doctor.delivery.MAIL_S", 0.3)
    assert "did not answer as a mail server within 0.3 s" in said(box.url)[1]
    assert not {"MAIL", "RCPT", "DATA"} & {line.split()[0] for line in box.commands if line.split()}
    assert box.letters == []


def test_without_a_server_nothing_waits(school: School) -> None:
    wants(school, "anna")
    release(school, graded(school))
    assert sender(school, None).send_due() == 0
    ((done, error, _),) = rows(school.store)
    assert done
    assert "no mail is sent" in error


def test_an_erased_student_gets_no_mail(school: School, box: Mailbox) -> None:
    wants(school, "anna")
    submission = graded(school)
    release(school, submission)
    with school.store.write() as session:
        mail_notifications.set_mail_preference(session, submission, school.users["anna"], wanted=True)
        erasure.erase_student(session, find_student(session, "anna"), "test")
    assert rows(school.store) == []
    assert school.count(tables.MailPreference) == 0
    assert sender(school, box).send_due() == 0


def test_tries_end(school: School, box: Mailbox) -> None:
    wants(school, "anna")
    release(school, graded(school))
    box.says = lambda line: "451 later" if line.startswith("RCPT") else None
    for _ in range(20):
        due_again(school.store)
        sender(school, box).send_due()
    ((done, error, tries),) = rows(school.store)
    assert (done, tries) == (True, 9)
    assert "451" in error


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "smtp://user:password@x.example", "sender": SENDER},
        {"url": "http://x.example", "sender": SENDER},
        {"url": "smtp://x.example"},
        {"url": "smtp://x.example", "sender": "nobody"},
        {"url": "smtp://x.example", "sender": "a@b.example\nBcc: c@d.example"},
        {"url": "smtp://:25", "sender": SENDER},
    ],
)
def test_configurations_that_cannot_work_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        from grading.config.settings import parse

        stages = {stage: {"engine": "rules", "model": "m"} for stage in ("analysis", "feedback")}
        parse({"mail": wrong, "machines": [{"name": "m", "stages": stages}]})
    assert "mail" in str(raised.value)


# --- the box on the waiting page ----------------------------------------------------------------------


def test_the_page_offers_mail_for_ones_own_submission(tmp_path: Path) -> None:
    school = School(tmp_path)
    submission = school.submit("anna")
    page = f"/submissions/{submission}"
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).email = ADDRESS
    assert ADDRESS not in school.client("anna").get(page).get_data(as_text=True)  # no mail is sent here
    on = school.services.config.model_copy(update={"mail": Mail(url="smtp://localhost", sender=SENDER)})
    object.__setattr__(school.services, "config", on)
    anna = school.client("anna")
    text = anna.get(page).get_data(as_text=True)
    assert ADDRESS in text
    assert 'name="wanted" value="yes">' in text
    assert ADDRESS not in school.client("teacher").get(page).get_data(as_text=True)
    wanted = {"csrf_token": form_token(anna), "wanted": "yes"}
    assert anna.post(f"{page}/mail", data=wanted).status_code == 303
    assert 'name="wanted" value="yes" checked>' in anna.get(page).get_data(as_text=True)
    teacher = school.client("teacher")
    refused = teacher.post(f"{page}/mail", data={**wanted, "csrf_token": form_token(teacher)})
    assert refused.status_code == 404
    assert school.count(tables.MailPreference) == 1
    school.close()


def test_outbox_knows_the_kind(school: School) -> None:
    """Its own key a round and person: what is put twice is there once."""
    wants(school, "anna")
    submission = graded(school)
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        assert (
            mail_notifications.add_result_letters(session, [round_.id]),
            mail_notifications.add_result_letters(session, [round_.id]),
        ) == (1, 0)
        assert outbox.is_open(session, "mail", f"ready:{round_.id}:{school.users['anna']}")
