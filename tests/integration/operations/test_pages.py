"""The pages of operating, the frame around all pages, errors in plain words, and the choice of language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask import abort, flash
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from app.operations import dashboard
from app.web import i18n, toasts
from grading.broker.canaries import PartHeartbeat
from grading.broker.heartbeats import Lease
from grading.config.settings import Gateway
from grading.domain.errors import GraderError
from grading.domain.messages import verbatim
from grading.domain.shared_messages import NO_SUCH_COURSE
from grading.domain.token_use import Use, UseKey
from grading.execution.throughput import Rate
from grading.scheduling.routing import NOTHING_WAITS, TAKES
from grading.store import tables
from grading.store.accounts import gateway_use, users
from grading.store.accounts.users import PASSWORD_TOO_SHORT
from grading.store.database import now
from grading.store.reporting import operations
from grading.store.reporting.replication import Replica, Replication, Slot
from grading.store.rounds import preparing
from tests.integration.webapp import School, form_token, report, without_tokens


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def send_out(school: School, who: str) -> str:
    """A run of a new submission that machines were sent; its id."""
    submission = school.submit(who)
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        round_.state = "running"
        run = tables.Run(
            round_id=round_.id, stage="analysis", attempt=1, state="dispatched", dispatched_at=now(session)
        )
        session.add(run)
        session.flush()
        return str(run.id)


def give_up(school: School, kind: str, count: int = 1) -> None:
    """Dead messages."""
    with school.store.write() as session:
        moment = now(session)
        session.add_all(
            tables.Outbox(
                kind=kind, key=f"k{number}", payload={"secret": "x"}, created_at=moment, not_before=moment,
                tries=9, done_at=moment, error="it <b>answered</b> 503",
            )
            for number in range(count)
        )  # fmt: skip


# --- operating ----------------------------------------------------------------------------------------


def test_what_runs_is_shown_and_whose_only_to_those_of_the_course(school: School) -> None:
    run = send_out(school, "anna")
    school.dispatch.held[run] = Lease(run, "dgx-spark-1", "p", "analysis", "generating", 1234, 7.0)
    shown = school.client("teacher").get("/operations").get_data(as_text=True)
    assert "1,234" in shown
    assert "generating" in shown
    assert "/submissions/" in shown
    assert "Anna" not in without_tokens(shown)
    elsewhere = school.client("stranger").get("/operations").get_data(as_text=True)
    assert "1,234" in elsewhere
    assert "of another course" in elsewhere
    assert "/submissions/" not in elsewhere


def test_the_overview_says_that_a_class_waits_for_the_sandbox(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = PartHeartbeat("sandbox", "host:3", "", 1.0, Rate(2, 40.0))
    monkeypatch.setattr(school.dispatch, "parts", lambda: [sandbox])

    def shown() -> str:
        page = school.client("teacher").get("/operations").get_data(as_text=True)
        return page.replace("\N{NO-BREAK SPACE}", " ")

    for _ in range(3):
        assert "for the sandbox" not in shown()
        submission = school.submit("anna")
        with school.store.write() as session:
            round_id = session.query(tables.Round).filter_by(submission_id=submission).one().id
            preparing.hand_on(session, round_id)
    assert "3 submissions are queued for the sandbox, the last for about" in shown()
    assert "The sandbox runs 2 submissions at a time, 40 s each." in shown()


def test_the_overview_names_what_is_wrong_gravest_first(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report(points=None, status="partial"))
    give_up(school, "to:lms")
    admin = school.client("admin").get("/operations").get_data(as_text=True)
    assert "Grading failed for one submission." in admin
    assert "A message could not be sent." in admin
    assert "No “Store” process is running" in admin
    assert admin.index("No “Store” process") < admin.index("Grading failed for one submission.")
    teacher = school.client("teacher").get("/operations").get_data(as_text=True)
    assert "A message could not be sent." not in teacher  # only who may send it again is told
    school.dispatch.away = True
    away = school.client("admin").get("/operations").get_data(as_text=True)
    assert "Redis is not reachable." in away
    assert "process is running" not in away  # that is not known then


def test_the_overview_says_what_is_wrong_with_replicas_and_archive(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Replication] = {
        "Nothing can be stored: PostgreSQL waits": Replication((), (), "db2", archives=False, failing=""),
        "No replica of PostgreSQL is connected.": Replication((), (), "", False, "", expected=1),
        "is not connected: db2.": Replication((), (Slot("db2", False, 9, "extended"),), "", False, ""),
        "needs a part of the log that is removed: db2.": Replication(
            (), (Slot("db2", False, 0, "lost"),), "", False, "", expected=1
        ),
        "is behind: db2.": Replication((Replica("db2", "streaming", True, 10**8),), (), "db2", False, ""),
        "is behind: walreceiver.": Replication(
            tuple(Replica("walreceiver", "streaming", False, behind) for behind in (10**8, 0)),
            (),
            "",
            False,
            "",
        ),
        "PostgreSQL cannot archive its log": Replication((), (), "", True, "0001"),
        "All systems operational": Replication((), (Slot("new", False, 0, ""),), "", True, ""),
    }
    for text, found in said.items():
        monkeypatch.setattr(dashboard, "load_replication", lambda _, found=found: found)
        monkeypatch.setattr(dashboard, "_troubles", lambda *_: [])
        page = school.client("admin").get("/operations").get_data(as_text=True)
        assert [one for one in said if one in page] == [text]


def test_messages_are_sent_again_one_kind_or_those_chosen(database_url: str) -> None:
    school = School(database_url)
    give_up(school, "to:lms", 3)
    give_up(school, "to:other", 2)
    client = school.client("admin")
    page = client.get("/operations/messages").get_data(as_text=True)
    assert "it &lt;b&gt;answered&lt;/b&gt; 503" in page
    assert "secret" not in page
    chosen = re.findall(r'name="message" value="(\d+)"', page)[:1]
    form = {"csrf_token": form_token(client)}
    client.post("/operations/messages", data={**form, "message": [*chosen, "x", "9" * 40, "77"]})
    with school.store.read() as session:
        assert sum(operations.count_dead_messages(session).values()) == 4
        (audit,) = session.query(tables.Audit).filter_by(action="outbox.replay")
        assert audit.detail == {"count": 1, "kinds": ["to:other"]} or audit.detail["kinds"] == ["to:lms"]
    client.post("/operations/messages", data={**form, "kind": "to:lms"})
    with school.store.read() as session:
        assert set(operations.count_dead_messages(session)) <= {"to:other"}
    client.post("/operations/messages", data={**form, "kind": "prepare"})  # open ones are left alone
    assert "Choose at least one message first." in client.get("/operations/messages").get_data(as_text=True)
    school.close()


def test_an_administrator_ends_anybodys_token(school: School) -> None:
    header = school.token("anna")
    client = school.client("admin")
    page = client.get("/operations/tokens").get_data(as_text=True)
    assert '<td data-label="Scopes">read status and results; submit</td>' in page
    (number,) = re.findall(r"/operations/tokens/(\d+)/end", page)
    url = f"/operations/tokens/{number}/end"
    form = {"csrf_token": form_token(client)}
    for _ in range(2):  # a second click does no harm
        assert client.post(url, data=form).status_code == 303
    assert school.client().get("/api/v1/submissions/x", headers=header).status_code == 401
    assert "No tokens" in client.get("/operations/tokens").get_data(as_text=True)
    with school.store.read() as session:
        assert session.query(tables.Audit).filter_by(action="token.revoke").count() == 1
    assert client.post("/operations/tokens/2147483647/end", data=form).status_code == 404


def test_tokens_have_pages(school: School) -> None:
    with school.store.write() as session:
        for _ in range(operations.PER_PAGE + 1):
            users.create_token(session, school.users["anna"], "t", ("read",), timedelta(days=1))
    client = school.client("admin")
    assert client.get("/operations/tokens").get_data(as_text=True).count("/end") == operations.PER_PAGE
    for page in ("2", "999999", "999999999999", "x", "-1"):
        assert client.get(f"/operations/tokens?page={page}").status_code == 200


def test_the_use_of_models_is_shown_to_its_owner_and_to_administrators(school: School) -> None:
    with school.store.write() as session:
        for who, tokens, limit in (("teacher", 1500, None), ("admin", 20, 5000)):
            user = users.find_user(session, "local", who)
            assert user is not None
            made = users.create_token(session, user.id, f"of {who}", ("chat",), timedelta(days=1), limit)
            for days in (0, 2, 40):
                key = UseKey(made.id, "tiny", now(session).date() - timedelta(days=days))
                gateway_use.add_use(session, {key: Use(2, tokens, 7)})
    everything = school.client("admin").get("/operations/token-use").get_data(as_text=True)
    own = school.client("teacher").get("/tokens/use").get_data(as_text=True)
    for page, there in ((everything, {"of teacher", "of admin"}), (own, {"of teacher"})):
        assert set(re.findall(r'<th scope="row">(of \w+)</th>', page)) == there
        assert '<td data-label="Requests to models">4</td>' in page
        assert '<td data-label="Prompt tokens">3,000</td>' in page
    assert '<td data-label="Limit per day">5,000</td>' in everything
    assert "1,534 tokens in 4 requests" in everything
    assert "1,507 tokens in 2 requests" in own
    assert "No model was used" in school.client("anna").get("/tokens/use").get_data(as_text=True)
    served = school.client().get("/metrics").get_data(as_text=True)
    assert 'grader_gateway_tokens_today{kind="output",model="tiny"} 14.0' in served


def test_who_may_give_a_token_which_limit(school: School) -> None:
    limited = Gateway(daily_tokens=1000)
    school.app.extensions["grader"] = replace(
        school.services, config=school.services.config.model_copy(update={"gateway": limited})
    )
    limits = {"teacher": {"500": 200, "1001": 400, "": 200, "0": 400}, "admin": {"5000": 200, "x": 400}}
    for who, wanted in limits.items():
        client = school.client(who)
        form = {"csrf_token": form_token(client), "scope": "chat", "days": "9", "name": "tool"}
        answers = {one: client.post("/tokens", data={**form, "daily_tokens": one}) for one in wanted}
        assert {one: answer.status_code for one, answer in answers.items()} == wanted
    with school.store.read() as session:
        kept = session.scalars(select(tables.Token.daily_tokens).order_by(tables.Token.id)).all()
    assert kept == [500, None, 5000]


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503])
def test_every_error_says_what_to_do_and_nothing_of_the_code(school: School, status: int) -> None:
    school.app.add_url_rule(f"/fault-{status}", f"fault{status}", lambda: abort(status))
    for name in (None, "anna"):
        answer = school.client(name).get(f"/fault-{status}")
        page = answer.get_data(as_text=True)
        assert answer.status_code == status
        assert f"Error code {status}" in page
        assert "Go to home page" in page
        assert "Traceback" not in page
        assert page.count("<h1>") == 1


def test_what_nobody_thought_of_is_our_mistake_and_has_a_number(school: School) -> None:
    def broken() -> str:
        raise ZeroDivisionError("secret words")

    school.app.add_url_rule("/broken", "broken", broken)
    answer = school.client("anna").get("/broken")
    page = answer.get_data(as_text=True)
    assert answer.status_code == 500
    assert re.search(r"logged as [0-9a-f]{12}", page)
    assert "secret words" not in page
    assert "Try again" in page


def test_a_page_of_an_error_needs_no_database(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("select", {}, Exception("server closed the connection"))

    client = school.client("anna")
    monkeypatch.setattr("app.web.auth.users.load_reader_of_session", away)
    for url, status in (("/", 503), ("/nothing-here", 404), ("/tokens/x", 404)):
        answer = client.get(url)
        assert answer.status_code == status, url
        assert "<h1>" in answer.get_data(as_text=True)


# --- frame and language -------------------------------------------------------------------------------


def test_the_way_to_where_one_is_is_marked(school: School) -> None:
    page = school.client("admin").get("/machines").get_data(as_text=True)
    marked = re.findall(r'<a href="([^"]+)" aria-current="(\w+)"', page)
    assert ("/operations", "true") in marked
    assert ("/", "page") not in marked
    student = school.client("anna").get("/").get_data(as_text=True)
    assert "/operations" not in student
    assert "/users" not in student
    assert 'aria-label="Main"' not in school.client().get("/sign-in").get_data(as_text=True)


def test_flashes_have_kinds(school: School) -> None:
    def view() -> str:
        flash("Done & <dusted>")
        flash("Careful", "warning")
        flash("Odd", "no-such-kind")
        for text in ("short", "x" * toasts.MOST_BYTES):
            toasts.flash_undo("Gone", "sign_in.leave", {"text": text, "zero": 0, "off": False, "no": None})
        return ""

    school.app.add_url_rule("/flashing", "flashing", view)
    client = school.client("anna")
    client.get("/flashing")
    page = client.get("/tokens").get_data(as_text=True)
    found = re.findall(
        r'toast-(\w+) flash" role="(\w+)" aria-atomic.*?<p id="[^"]+">([^<]*)</p>(.*?)<button',
        page,
        re.DOTALL,
    )
    assert [one[:3] for one in found] == [
        ("info", "status", "Done &amp; &lt;dusted&gt;"),
        ("warning", "alert", "Careful"),
        ("info", "status", "Odd"),
        ("success", "status", "Gone"),
        ("success", "status", "Gone"),  # what does not fit into a cookie cannot be undone from here
    ]
    assert re.findall(r'name="(?!csrf)(\w+)" value="(\w+)"', found[3][3]) == [
        ("text", "short"),
        ("zero", "0"),
    ]
    assert "<form" not in found[4][3]
    assert 'class="toast ' not in client.get("/tokens").get_data(as_text=True)


def test_the_language_is_the_browsers_until_somebody_chooses(school: School) -> None:
    client, german = school.client(), {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}
    assert '<html lang="de">' in client.get("/sign-in", headers=german).get_data(as_text=True)
    assert '<html lang="en">' in client.get("/sign-in").get_data(as_text=True)
    token = form_token(client, "/sign-in")
    answer = client.post(
        "/language", data={"csrf_token": token, "language": "de", "next": "https://evil.example"}
    )
    assert answer.headers["Location"] == "/"
    assert '<html lang="de">' in client.get("/sign-in").get_data(as_text=True)
    client.post("/language", data={"csrf_token": token, "language": "../xx"})
    assert '<html lang="de">' in client.get("/sign-in").get_data(as_text=True)
    anna = school.client("anna")
    form = {"csrf_token": form_token(anna), "language": "de", "next": "/tokens"}
    assert anna.post("/language", data=form).headers["Location"] == "/tokens"
    assert '<html lang="de">' in school.client("anna").get("/tokens").get_data(as_text=True)  # elsewhere, too


def test_numbers_moments_and_errors_in_the_readers_language(school: School) -> None:
    with school.store.read() as session:
        moment = now(session).replace(2026, 3, 5, 14, 7)
    with school.app.test_request_context(headers={"Accept-Language": "de"}):
        assert (i18n.number(1234.5), i18n.number(None)) == ("1234,5", "–")
        assert i18n.whole(1234567) == "1.234.567"
        assert i18n.when(moment).startswith("05.03.2026")
        words = i18n.render_message(PASSWORD_TOO_SHORT(least=10))
        assert words == "Ein Passwort braucht mindestens 10 Zeichen."
        assert i18n.render_message(verbatim("nobody knows this sentence")) == "nobody knows this sentence"
        assert i18n.render_message(NO_SUCH_COURSE()) == "Diesen Kurs gibt es nicht."
        assert i18n.gettext("") == ""
        assert i18n.render_message(TAKES(stage="analysis")) == "Läufe für analysis werden übernommen"
        assert i18n.render_message(NOTHING_WAITS()) == "die Warteschlangen sind leer"
    with school.app.test_request_context():
        assert (i18n.number(1234.5), i18n.whole(1234567)) == ("1234.5", "1,234,567")
        assert i18n.when(moment) == "05 Mar 2026, 14:07"


def test_an_error_of_the_domain_is_told_in_german_on_pages_and_in_english_to_programs(school: School) -> None:
    def view() -> str:
        raise GraderError(PASSWORD_TOO_SHORT(least=10))

    for path in ("/refusing", "/refusing.json"):
        school.app.add_url_rule(path, path[1:].replace(".", "-"), view)
    german = {"Accept-Language": "de"}
    assert "mindestens 10 Zeichen" in school.client().get("/refusing", headers=german).get_data(as_text=True)
    told = school.client().get("/refusing.json", headers=german).get_json()
    assert told["detail"] == "A password needs at least 10 characters."
    assert (told["message_code"], told["params"]) == ("accounts.password_too_short", {"least": 10})


def test_deliveries_are_seen_sent_again_and_a_paused_receiver_goes_on(school: School) -> None:
    with school.store.write() as session:
        moment = now(session)
        told = {
            "created_at": moment,
            "not_before": moment,
            "done_at": moment,
            "tries": 10,
            "error": "answered 500",
        }
        session.add(
            tables.Outbox(kind="to:lms", key="graded:1", payload={"type": "submission.completed"}, **told)
        )
        said = {
            "headers": {"webhook-id": "msg_1"},
            "body": '{"type": "x"}',
            "answer": "<script>alert(1)</script>",
        }
        sent = tables.SentMessage(
            receiver="lms", message_id="msg_1", event="graded:1", type="submission.completed", attempt=10,
            at=moment, seconds=0.25, url="https://lms.example/", status=500, error="answered 500", **said,
        )  # fmt: skip
        paused = tables.EventReceiver(
            name="lms", mark="m", failures=9, failing_since=moment, paused_at=moment
        )
        session.add_all([sent, paused])
        session.flush()
        number = sent.id
    admin = school.client("admin")
    assert "Paused event receivers: lms." in admin.get("/operations").get_data(as_text=True)
    page = admin.get("/operations/deliveries?receiver=lms&state=failed").get_data(as_text=True)
    assert "lms is paused." in page
    assert '<span class="state state-bad">500</span>' in page
    assert ">500</span>" not in admin.get("/operations/deliveries?state=taken").get_data(as_text=True)
    one = admin.get(f"/operations/deliveries/{number}").get_data(as_text=True)
    assert "webhook-id: msg_1" in one
    assert "<script>alert(1)" not in one
    assert "&lt;script&gt;alert(1)" in one
    assert admin.get("/operations/deliveries/999").status_code == 404
    told = admin.get("/operations/webhooks").get_data(as_text=True)
    for words in (
        "not in config.toml",
        "Resume deliveries",
        f"/operations/deliveries/{number}",
        "grade.withdrawn",
    ):
        assert words in told
    token = {"csrf_token": form_token(admin, "/operations/deliveries")}
    for path in (f"{number}/replay", "receivers/lms/resume"):
        assert admin.post(f"/operations/deliveries/{path}", data=token).status_code == 303
    with school.store.read() as session:
        row = session.query(tables.Outbox).filter_by(kind="to:lms").one()
        assert (row.done_at, row.tries, row.error) == (None, 0, "")
        assert session.get_one(tables.EventReceiver, "lms").paused_at is None
        actions = {audit.action for audit in session.query(tables.Audit)}
        assert {"delivery.replay", "receiver.resume"} <= actions


def test_a_test_message_is_asked_for_and_its_answer_shown(tmp_path: Path) -> None:
    where = {"name": "lms", "url": "https://lms.example/events?key=s3same"}
    school = School(tmp_path, event_receivers=[where])
    admin = school.client("admin")
    page = admin.get("/operations/webhooks").get_data(as_text=True)
    assert "https://lms.example/events</code>" in page
    assert "s3same" not in page
    token = {"csrf_token": form_token(admin, "/operations/webhooks")}
    ask = "/operations/webhooks/lms/test"
    assert admin.post(ask, data={**token, "type": "grade.invented"}).status_code == 404
    sent = admin.post(ask, data={**token, "type": "grade.released"})
    url = sent.headers["Location"]
    assert 'data-fresh="2"' in admin.get(url).get_data(as_text=True)
    school.store.clock_offset_s = 60
    assert "Check that the sweeper is running" in admin.get(url).get_data(as_text=True)
    with school.store.write() as session:
        row = session.query(tables.Outbox).filter_by(kind="test:lms").one()
        row.done_at = now(session)
        session.add(
            tables.SentMessage(
                receiver="lms", message_id=row.payload["id"], event=row.key, type="grade.released", attempt=1,
                at=now(session), seconds=0.25, url="https://lms.example/events", status=404,
                error="answered 404", headers={"webhook-signature": "v1,c2ln"}, body="{}", answer="<b>who?",
            )
        )  # fmt: skip
    page = admin.get(url).get_data(as_text=True)
    for words in ("answered 404", "0.25 s", "webhook-signature: v1,c2ln", "&lt;b&gt;who?"):
        assert words in page
    assert "data-fresh" not in page
    school.close()


def test_security_txt_names_who_is_told_and_never_ends(school: School) -> None:
    client = school.client()
    assert client.get("/.well-known/security.txt").status_code == 404
    services = school.app.extensions["grader"]
    server = services.config.server.model_copy(update={"security_contact": "mailto:security@school.example"})
    config = services.config.model_copy(update={"server": server})
    school.app.extensions["grader"] = replace(services, config=config)
    said = client.get("/.well-known/security.txt")
    assert said.headers["Content-Type"] == "text/plain; charset=utf-8"
    fields = dict(line.split(": ", 1) for line in said.get_data(as_text=True).splitlines())
    assert fields["Contact"] == "mailto:security@school.example"
    assert fields["Canonical"] == "http://localhost:8080/.well-known/security.txt"
    assert fields["Preferred-Languages"] == "en, de"
    left = datetime.fromisoformat(fields["Expires"]) - datetime.now(UTC)
    assert timedelta(days=60) < left < timedelta(days=366)  # RFC 9116 advises less than a year
