"""Webhooks beyond a submission: files from elsewhere, rosters, assignments, secrets, schemas."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, FormatChecker
from standardwebhooks import Webhook
from werkzeug.serving import make_server

from app import Services
from app.webhooks import views
from cli.commands.webhook import Listener, webhook
from cli.settings import Settings
from grading.domain.errors import Conflict
from grading.integrations import events
from grading.store import tables
from grading.store.accounts import users
from grading.store.integrations import webhooks
from tests.integration.integrations.test_webhooks import URL, message, signed
from tests.integration.webapp import CODE, SECRET, School, configuration, form_token, make_app

HERE = ["127.0.0.1/32"]


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path, outside_allowed=HERE)
    yield made
    made.close()


@pytest.fixture
def files() -> Iterator[str]:
    """Somebody who has files; the path says how they answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = int(self.path.split("/")[1])
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/200/work.py")
            body = b"x" * (5 << 20) if "large" in self.path else CODE
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def post(school: School, body: bytes, message_id: str = "m1") -> tuple[int, dict[str, Any]]:
    answer = school.client().post(URL, data=body, headers=signed(body, message_id))
    return answer.status_code, answer.get_json()


def by_url(url: str) -> bytes:
    return message(files=[{"name": "work.py", "url": url}])


def test_files_are_got_from_an_address(school: School, files: str) -> None:
    status, said = post(school, by_url(f"{files}/200/work.py"))
    assert (status, said["status"]) == (200, "accepted")
    with school.store.read() as session:
        (file,) = session.query(tables.SubmissionFile).all()
        assert (file.path, file.size) == ("work.py", len(CODE))


@pytest.mark.parametrize(
    ("path", "status", "again"),
    [
        ("302/work.py", 422, False),
        ("404/work.py", 422, False),
        ("500/work.py", 503, True),
        ("429/work.py", 503, True),
        ("200/large.py", 413, False),
    ],
)
def test_a_file_that_cannot_be_got_says_whether_to_send_again(
    school: School, files: str, path: str, status: int, again: bool
) -> None:
    got, said = post(school, by_url(f"{files}/{path}"))
    assert (got, said["retry"]) == (status, again)
    assert "work.py" in said["detail"] or "large.py" in said["detail"]
    assert school.count(tables.Submission) == school.count(tables.InboundWebhook) == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/x",
        "https://[::1]/x",
        "file:///etc/passwd",
        "http://2130706433/x",
        "https://a@b.example/",
    ],
)
def test_a_file_is_got_from_nowhere_that_is_forbidden(school: School, url: str) -> None:
    status, said = post(school, by_url(url))
    assert (status, said["code"], said["retry"]) == (422, "file_refused", False)


def test_what_takes_too_long_stores_nothing(
    school: School, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(views, "FETCH_S", 0.0)
        status, said = post(school, by_url(f"{files}/200/work.py"))
        assert (status, said["code"], said["retry"]) == (503, "file_away", True)
    with monkeypatch.context() as patch:
        patch.setattr(views, "WITHIN_S", -1.0)
        for body in (message(), roster([])):
            status, said = post(school, body)
            assert (status, said["code"], said["retry"]) == (503, "too_late", True)
    assert school.count(tables.Submission) == school.count(tables.InboundWebhook) == 0
    assert post(school, message())[0] == 200


def roster(members: list[dict[str, str]], removed: tuple[str, ...] = (), course: str = "ba") -> bytes:
    return told("roster.updated", course=course, members=members, removed=list(removed))


def told(kind: str, **data: Any) -> bytes:
    import json

    return json.dumps({"type": kind, "data": data}).encode()


def roles(school: School) -> dict[str, tuple[str, str]]:
    with school.store.read() as session:
        rows = session.query(tables.Membership, tables.Identity, tables.User)
        rows = rows.join(tables.User, tables.User.id == tables.Membership.user_id).join(tables.Identity)
        found = rows.filter(tables.Identity.provider == "lms:canvas").all()
        return {identity.subject: (member.role, user.name) for member, identity, user in found}


def test_a_roster_brings_people_in_changes_them_and_takes_them_out(school: School) -> None:
    people = [{"id": "c1", "name": "Carla"}, {"id": "t1", "name": "Tom", "role": "grader"}]
    status, said = post(school, roster(people))
    assert (status, said["made"], said["status"]) == (200, 2, "done")
    assert roles(school) == {"c1": ("student", "Carla"), "t1": ("grader", "Tom")}
    assert post(school, roster(people)) == (status, said)  # the same message: the same answer
    again = [{"id": "c1", "name": "Carla Conti"}, {"id": "t1"}, {"id": "c2"}]
    status, said = post(school, roster(again), "m2")
    assert (said["made"], said["changed"], said["unchanged"], said["kept"]) == (1, 1, 1, ["t1"])
    assert roles(school)["c1"] == ("student", "Carla Conti")
    assert roles(school)["t1"] == ("grader", "Tom")  # no learning system makes staff a student
    status, said = post(school, roster([], ("c1", "t1", "nobody")), "m3")
    assert (said["removed"], said["kept"]) == (1, ["t1"])
    assert set(roles(school)) == {"t1", "c2"}
    assert post(school, roster([], course="gone"), "m4")[0] == 404  # bound, and not there
    with school.store.read() as session:
        actors = {row.actor for row in session.query(tables.Audit).filter_by(action="roster.import")}
    assert actors == {"lms:canvas"}


def test_a_roster_leaves_administrators_and_disabled_accounts_alone(school: School) -> None:
    with school.store.write() as session:
        for name in ("boss", "gone"):
            user = users.create_user(session, name)
            user.identities.append(tables.Identity(provider="lms:canvas", subject=name))
            user.administrator, user.disabled = name == "boss", name == "gone"
    status, said = post(school, roster([{"id": "boss", "name": "X", "role": "student"}, {"id": "gone"}]))
    assert (status, said["kept"], roles(school)) == (200, ["boss", "gone"], {})


def test_an_assignment_is_made_hidden_and_later_has_another_date(school: School) -> None:
    new = {"course": "ba", "slug": "hw9", "title": "Nine", "due_at": "2031-05-01T10:00:00+02:00"}
    assert post(school, told("assignment.upserted", **new))[1] == {
        "status": "done",
        "made": True,
        "changed": True,
    }
    assert post(school, told("assignment.upserted", **new), "m2")[1]["changed"] is False
    moved = {"course": "ba", "slug": "hw9", "title": "Nine again"}
    assert post(school, told("assignment.upserted", **moved), "m3")[1]["changed"] is True
    with school.store.read() as session:
        row = session.query(tables.Assignment).filter_by(slug="hw9").one()
        assert (row.title, row.visible) == ("Nine again", False)
        assert row.due_at == datetime(2031, 5, 1, 8, tzinfo=UTC)
    assert post(school, message(assignment="ba/hw9"), "m4")[0] == 404  # nobody has published a rubric
    none = {**moved, "due_at": None}
    assert post(school, told("assignment.upserted", **none), "m5")[1]["changed"] is True
    with school.store.read() as session:
        assert session.query(tables.Assignment).filter_by(slug="hw9").one().due_at is None
    for wrong in (
        {"slug": "../x"},
        {"title": ""},
        {"due_at": "tomorrow"},
        {"due_at": "2031-05-01"},
        {"course": None},
    ):
        assert post(school, told("assignment.upserted", **{**new, **wrong}), "m6")[0] == 422


def test_fifty_rosters_at_once_are_one(school_url: str) -> None:
    school = School(school_url)
    body = roster([{"id": f"c{number}"} for number in range(5)])
    headers, begin, answers = signed(body), threading.Barrier(50), list[tuple[int, str]]()

    def one() -> None:
        begin.wait()
        answer = school.app.test_client().post(URL, data=body, headers=headers)
        answers.append((answer.status_code, answer.get_data(as_text=True)))

    threads = [threading.Thread(target=one) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 50
    assert len(set(answers)) == 1
    assert answers[0][0] == 200
    assert school.count(tables.InboundWebhook) == 1
    assert len(roles(school)) == 5
    school.close()


def test_two_secrets_live_while_one_takes_the_place_of_the_other(school: School) -> None:
    given = Services(
        config=school.services.config, store=school.store, dispatch=school.dispatch, secret_key="k" * 20
    )
    client, key = make_app(given).test_client(), "k" * 20

    def status(secret: str, name: str) -> int:
        body = told("course.other")
        return client.post(URL, data=body, headers=signed(body, name, secret)).status_code

    with school.store.write() as session:
        old = webhooks.create_secret(session, "canvas", key, "test")
        elsewhere = webhooks.create_secret(session, "moodle", key, "test")
    assert (status(old.secret, "a"), status(elsewhere.secret, "b")) == (200, 401)
    with school.store.write() as session:
        new = webhooks.create_secret(session, "canvas", key, "test")
        with pytest.raises(Conflict, match="already has two valid secrets"):
            webhooks.create_secret(session, "canvas", key, "test")
    assert (status(old.secret, "c"), status(new.secret, "d")) == (200, 200)
    with school.store.write() as session:
        webhooks.revoke_secret(session, old.id, "test")
    assert (status(old.secret, "e"), status(new.secret, "f")) == (401, 200)
    with school.store.read() as session:
        kept = repr([vars(row) for row in session.query(tables.WebhookSecret)])
    assert new.secret not in kept
    assert new.secret.removeprefix("whsec_") not in kept


def test_secrets_are_made_changed_and_ended_on_a_page(school: School) -> None:
    boss, page = school.client("admin"), "/operations/webhook-secrets"
    token = form_token(boss, page)

    def status(secret: str, name: str) -> int:
        body = told("course.other")
        return school.client().post(URL, data=body, headers=signed(body, name, secret)).status_code

    def made() -> str:
        said = boss.post(page, data={"csrf_token": token, "connection": "canvas"}).get_data(as_text=True)
        found = re.search(r"whsec_[A-Za-z0-9+/=]+", html.unescape(said))
        assert found is not None, said
        assert found[0] not in html.unescape(boss.get(page).get_data(as_text=True))
        return found[0]

    old, new = made(), made()
    assert [status(old, "a"), status(new, "b")] == [200, 200]
    assert boss.post(page, data={"csrf_token": token, "connection": "canvas"}).status_code == 409
    assert boss.post(page, data={"csrf_token": token, "connection": "none"}).status_code == 404
    assert boss.post(f"{page}/1/end", data={"csrf_token": token}).status_code == 303
    assert [status(old, "c"), status(new, "d")] == [401, 200]
    with school.store.read() as session:
        done = [(row.action, row.actor) for row in session.query(tables.Audit).order_by(tables.Audit.id)]
    by_page = [(action, actor) for action, actor in done if action.startswith("webhook_secret")]
    assert [action for action, _ in by_page] == [*["webhook_secret.create"] * 2, "webhook_secret.end"]
    assert len({actor for _, actor in by_page}) == 1


def test_every_message_has_a_schema_that_its_examples_follow(school: School) -> None:
    client = school.client()
    for kind in events.kinds():
        found = client.get(f"/webhooks/schemas/{kind}.json").get_json()
        Draft202012Validator.check_schema(found)
        check = Draft202012Validator(found, format_checker=FormatChecker())
        for example in found["examples"]:
            check.validate(example)
            assert example["type"] == kind
        assert not check.is_valid({**found["examples"][0], "type": "another"})
    assert client.get("/webhooks/schemas/none.json").status_code == 404


def test_the_documented_examples_are_taken(school: School) -> None:
    for kind in ("roster.updated", "assignment.upserted"):
        for number, example in enumerate(events.examples(kind)):
            data = {**example["data"], "course": "ba"}
            assert post(school, told(kind, **data), f"{kind}{number}")[0] == 200


def test_messages_are_sent_by_the_command_line(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_LMS_CANVAS_SECRET", SECRET)
    settings, data = Settings(tmp_path / "none.toml"), tmp_path / "data.json"
    settings.__dict__["config"] = school.services.config
    server = make_server("127.0.0.1", 0, school.app)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def send(*more: str) -> tuple[int, str]:
        to = ("send", "canvas", "--url", f"http://127.0.0.1:{server.server_port}", *more)
        done = CliRunner().invoke(webhook, to, obj=settings)
        return done.exit_code, done.output + str(done.exception or "")

    try:
        code, said = send()
        assert (code, ": 403" in said) == (1, True)  # the example: well signed, of a course that is not bound
        data.write_text('{"course": "ba", "members": [{"id": "c9"}]}')
        roster_ = ("--type", "roster.updated", "--data", str(data), "--id", "m9")
        assert [": 200" in send(*roster_)[1] for _ in range(2)] == [True, True]
        assert set(roles(school)) == {"c9"}
        assert ": 401" in send("--secret", "whsec_" + "eA" * 20)[1]
        data.write_text("[]")
        assert "write a JSON object" in send("--data", str(data))[1]
        monkeypatch.delenv("GRADER_LMS_CANVAS_SECRET")
        assert "There is no signing secret for" in send()[1]
    finally:
        server.shutdown()
        server.server_close()


def test_the_listener_verifies_what_comes() -> None:
    heard: list[str] = []
    secret = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    with Listener(0, secret, 500, heard.append) as listener:
        from grading.integrations.http_client import Allowed, ask

        moment, body = datetime.now(UTC), b'{"type": "x"}'
        headers = {"webhook-id": "m", "webhook-timestamp": str(int(moment.timestamp()))}
        good = {**headers, "webhook-signature": Webhook(secret).sign("m", moment, body.decode())}
        for sent in (good, headers, {**headers, "webhook-signature": "v1,%"}):
            answer = ask("POST", listener.url, headers=sent, body=body, allow=Allowed.of(HERE))
            assert answer.status == 500
        listener.wait(3)
    assert [": verified" in text for text in heard] == [True, False, False]
    assert "\x1b" not in "".join(heard)


def test_secrets_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grading.store import schema

    url = f"sqlite:///{tmp_path}/g.db"
    schema.upgrade(url)
    monkeypatch.setenv("GRADER_SECRET_KEY", "k" * 20)
    settings = Settings(tmp_path / "none.toml")
    settings.__dict__["config"] = configuration().model_copy(
        update={"database": configuration().database.model_copy(update={"url": url})}
    )

    def run(*arguments: str) -> tuple[int, str, Any]:
        done = CliRunner().invoke(webhook, arguments, obj=settings)
        return done.exit_code, done.output, done.exception

    code, made, _ = run("secret", "add", "canvas", "--var", str(tmp_path))
    assert (code, made.startswith("whsec_")) == (0, True)
    code, listed, _ = run("secret", "list")
    assert "1  canvas  valid" in listed
    assert made.split("\n")[0] not in listed
    assert run("secret", "end", "1")[0] == 0
    assert "revoked" in run("secret", "list")[1]
    assert "There is no connection 'moodle'" in str(run("secret", "add", "moodle")[2])
    assert "Secret 9 does not exist" in str(run("secret", "end", "9")[2])
