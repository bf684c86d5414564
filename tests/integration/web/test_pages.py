from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from sqlalchemy.exc import OperationalError

from app.accounts import sign_in as sign_in_pages
from app.home import views as home_pages
from app.reports.annotated_submission import documents
from app.web.markdown import markdown
from app.web.security import safe_next
from grading.documents import UploadedFile, read
from grading.domain.round_states import RoundState
from grading.store import tables
from grading.store.accounts import credentials, users
from grading.store.accounts.sign_in_attempts import ONE_SOURCE, Caller
from grading.store.reporting import operations
from tests.integration.webapp import CODE, School, form_token, limit, report, stop_the_clock

PASSWORD = "correct horse battery"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


# --- signing in ---------------------------------------------------------------------------------------


def with_password(school: School, name: str = "anna") -> None:
    with school.store.write() as session:
        users.set_password(session, session.get_one(tables.User, school.users[name]), PASSWORD)


def sign_in(school: School, password: str, target: str = "") -> tuple[int, str, object]:
    client = school.client()
    token = form_token(client, "/sign-in")
    form = {"csrf_token": token, "name": "anna", "password": password, "next": target}
    answer = client.post("/sign-in", data=form)
    return answer.status_code, answer.headers.get("Location", ""), client


def test_sign_in_leads_on_but_never_outside(school: School) -> None:
    with_password(school)
    assert sign_in(school, PASSWORD)[:2] == (303, "/")
    assert sign_in(school, PASSWORD, "/tokens")[:2] == (303, "/tokens")
    for outside in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert sign_in(school, PASSWORD, outside)[:2] == (303, "/")
        assert safe_next(outside) is None


def test_what_was_typed_outlives_the_session(school: School) -> None:
    """It is sent by its author, who signs in again, and by nobody else."""
    with_password(school)
    with_password(school, "ben")
    submission, reason = school.submit("anna"), "My plot has <b>axes</b>.\nSee line 3."
    school.grade(submission, report(), released=True)
    browser = sign_in(school, PASSWORD)[2]
    assert isinstance(browser, FlaskClient)
    form = {"csrf_token": form_token(browser), "criterion": "", "reason": reason}
    url = f"/submissions/{submission}/regrades?x=1"
    with school.store.write() as session:
        credentials.end_sessions(session, school.users["anna"])
    for lost in (browser, school.client()):  # the session ended, or its cookie is gone
        answer = lost.post(url, data=form)
        page = answer.get_data(as_text=True)
        assert answer.status_code in (400, 401)
        assert "My plot has &lt;b&gt;axes&lt;/b&gt;." in page
    kept = re.search(r'name="kept" value="([^"]+)"', page)
    assert kept is not None

    def enter(client: FlaskClient, name: str, password: str = PASSWORD, sent: str = kept[1]) -> str:
        given = {
            "csrf_token": form_token(client, "/sign-in"),
            "name": name,
            "password": password,
            "kept": sent,
        }
        return client.post("/sign-in", data=given).get_data(as_text=True)

    content = kept[1].rsplit(".", 2)[0]  # without the time of its signature
    assert content in enter(browser, "anna", "wrong")
    assert "<textarea" not in enter(school.client(), "anna", sent=kept[1][:-2] + "xx")
    other = enter(school.client(), "ben")
    assert "Nothing was sent, because another person filled in this form." in other
    assert "Send now" not in other
    back = enter(browser, "anna")
    found = re.search(r'<form method="post" action="([^"]+)" class="mb-3">(.*?)<button', back, re.DOTALL)
    assert found is not None
    assert unescape(found[1]) == url
    token = re.search(r'name="csrf_token" value="([^"]+)"', found[2])
    typed = dict(re.findall(r'<textarea name="(\w+)" hidden>\n(.*?)</textarea>', found[2], re.DOTALL))
    assert token is not None
    assert unescape(typed["reason"]) == reason
    assert school.count(tables.RegradeRequest) == 0
    browser.post(url, data={"csrf_token": token[1], **typed, "reason": unescape(typed["reason"])})
    assert school.count(tables.RegradeRequest) == 1
    passwords = {"csrf_token": form["csrf_token"], "old": "secret one", "password": "x", "again": "x"}
    assert "secret one" not in school.client().post("/account/password", data=passwords).get_data(
        as_text=True
    )


def test_after_wrong_passwords_the_next_try_waits(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_the_clock(monkeypatch)
    with_password(school)
    for _ in range(ONE_SOURCE.free + 1):
        assert sign_in(school, "wrong")[0] == 401
    assert sign_in(school, PASSWORD)[0] == 429
    school.store.clock_offset_s = 1
    assert sign_in(school, PASSWORD)[0] == 303


def test_sign_in_is_bounded_per_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, sign_in_pages.enter, "5 per minute")
    school = School(tmp_path)
    client = school.client()
    token = form_token(client, "/sign-in")
    form = {"csrf_token": token, "name": "nobody", "password": "x"}
    codes = [client.post("/sign-in", data=form).status_code for _ in range(6)]
    assert codes == [401] * 5 + [429]
    school.close()


def test_passwords_are_argon2id_of_19_mib(school: School) -> None:
    hashed = users.hash_password(PASSWORD)
    assert hashed.startswith("$argon2id$")
    assert "m=19456,t=2" in hashed


def test_a_new_password_and_disabling_end_sessions(school: School) -> None:
    client = school.client("anna")
    assert client.get("/").status_code == 200
    with_password(school)
    assert client.get("/").status_code == 303
    other = school.client("ben")
    with school.store.write() as session:
        session.get_one(tables.User, school.users["ben"]).disabled = True
    assert other.get("/").status_code == 303


def test_first_administrator_is_made_once(tmp_path: Path) -> None:
    school = School(tmp_path)
    with school.store.write() as session:
        assert users.ensure_administrator(session) is None
        session.get_one(tables.User, school.users["admin"]).administrator = False
        session.query(tables.Identity).filter_by(subject="admin").delete()
    with school.store.write() as session:
        password = users.ensure_administrator(session)
        assert password is not None
        assert users.ensure_administrator(session) is None
    assert credentials.verify_password(school.store, "admin", password, Caller("127.0.0.1")) is not None
    school.close()


def test_cookies_are_strict(tmp_path: Path) -> None:
    school = School(tmp_path, public_url="https://grader.school.example")
    answer = school.client().get("/sign-in", base_url="https://grader.school.example")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-grader=")
    for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert part in cookie
    school.close()


def test_headers(school: School) -> None:
    answer = school.client().get("/sign-in")
    policy = answer.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    assert nonce is not None
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    page = answer.get_data(as_text=True)
    assert page.count("<script") == page.count(f'<script nonce="{nonce[1]}"')
    assert " on" + "click=" not in page
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_browsers_keep_static_files_until_their_content_changes(school: School) -> None:
    client = school.client("teacher")
    page = client.get("/machines").get_data(as_text=True)
    found = re.findall(r'(?:src|href)="(/(?:bootstrap/)?static/[^"]+)"', page)
    assert len(found) > 8
    for address in found:
        path, _, version = address.partition("?v=")
        for asked, kept in ((address, True), (f"{path}?v=0{version[1:]}x", False), (path, False)):
            with client.get(asked) as answer:
                assert answer.status_code == 200, asked
                said = answer.headers["Cache-Control"]
            assert said == ("public, max-age=31536000, immutable" if kept else "no-cache"), asked
    with client.get("/static/web/none.css?v=") as answer:
        assert answer.status_code == 404


# --- every role × every route -------------------------------------------------------------------------
# stands in test_pages_matrix.py; a new route needs one line in pages_expected.py


# --- submitting and seeing ----------------------------------------------------------------------------


def test_submit_by_form_and_see_it(school: School) -> None:
    client = school.client("anna")
    url = f"/assignments/{school.assignment}/submit"
    data = {
        "csrf_token": form_token(client),
        "files": [(io.BytesIO(CODE), "work.py"), (io.BytesIO(b"# Notes\n\nWords.\n"), "notes.md")],
    }
    answer = client.post(url, data=data)
    assert answer.status_code == 303
    page = client.get(answer.headers["Location"]).get_data(as_text=True)
    assert "Received" in page
    assert "work.py" in page
    assert "notes.md" in page
    bad = {"csrf_token": form_token(client), "files": (io.BytesIO(b""), "work.py")}
    refused = client.post(url, data=bad)
    assert refused.status_code == 422
    assert 'role="alert"' in refused.get_data(as_text=True)
    assert school.count(tables.Submission) == 1


def test_students_see_points_only_after_release(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report(points=7.25, points_so_far=7.25))
    student, teacher = school.client("anna"), school.client("teacher")
    urls = (
        f"/submissions/{submission}",
        f"/submissions/{submission}/result",
        "/",
        f"/submissions/{submission}/status.json",
    )
    for url in urls:
        assert "7.25" not in student.get(url).get_data(as_text=True)
    assert "Awaiting review" in student.get(urls[0]).get_data(as_text=True)
    assert "7.25" in teacher.get(urls[0]).get_data(as_text=True)
    key = student.get(urls[3]).get_json()["result"]
    teacher.post(f"/submissions/{submission}/release", data={"csrf_token": form_token(teacher)})
    live = student.get(urls[3]).get_json()
    assert live["result"] != key
    assert live["settled"]
    assert "7.25" in student.get(urls[1]).get_data(as_text=True)
    with school.store.read() as session:
        assert session.query(tables.Audit).filter_by(action="grade.release").count() == 1


def test_release_all_leaves_held_and_partial_ones(school: School) -> None:
    plain, held, partial = (school.submit(name) for name in ("anna", "ben", "ben"))
    school.grade(plain, report())
    school.grade(held, report(held=True))
    school.grade(partial, report(status=RoundState.PARTIAL, points=None))
    teacher = school.client("teacher")
    url = f"/assignments/{school.assignment}/review/release"
    page = " ".join(re.sub("<[^>]+>", " ", teacher.get(url).get_data(as_text=True)).split())
    # as in the list: Ben's first submission is superseded
    assert "ready to release 1 held for review 0 partly graded 1" in page
    teacher.post(url, data={"csrf_token": form_token(teacher), "do": "now"})
    with school.store.read() as session:
        released = session.query(tables.Grade).filter(tables.Grade.released_at.is_not(None)).all()
        assert [grade.submission_id for grade in released] == [plain]


def test_partial_and_failed_in_plain_words(school: School) -> None:
    one, two = school.submit("anna"), school.submit("anna")
    failure = {"feedback": "The machine did not answer in time."}
    partial = report(status=RoundState.PARTIAL, points=None, points_so_far=4, feedback=None, failures=failure)
    school.grade(one, partial, released=True)
    with school.store.write() as session:
        session.query(tables.Round).filter_by(submission_id=two).one().state = "failed"
    client = school.client("anna")
    page = client.get(f"/submissions/{one}").get_data(as_text=True)
    assert "points so far, total pending" in page
    assert "Personal feedback failed." in page
    assert "This does not mean zero points" in client.get(f"/submissions/{two}").get_data(as_text=True)


def test_dashboard_filters_and_pages(database_url: str) -> None:
    school = School(database_url)
    for _ in range(26):
        school.submit("anna", school.quick)
    school.submit("ben")
    teacher = school.client("teacher")
    page = teacher.get("/submissions").get_data(as_text=True)
    assert "Page 1 of 2, 27 in total" in page
    assert (
        teacher.get(f"/submissions?assignment={school.assignment}")
        .get_data(as_text=True)
        .count("submission 1<")
        == 1
    )
    assert "No submissions match" in teacher.get("/submissions?state=failed").get_data(as_text=True)
    assert teacher.get("/submissions?page=99999999999&assignment=x&state=%00").status_code == 200
    stranger = school.client("stranger").get("/submissions").get_data(as_text=True)
    assert "There are no submissions" in stranger
    assert school.client("ben").get("/").get_data(as_text=True).count(", submission ") == 1
    for url in ("/submissions/%00", "/classes/a%00", "/tokens/99999999999999999999/revoke"):
        assert teacher.get(url).status_code in (404, 405)
    school.close()


def test_staff_see_few_of_the_assignments_without_open_work(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = school.client("teacher")
    assert teacher.get("/").get_data(as_text=True).count('class="waits-name"') == 2
    monkeypatch.setattr(home_pages, "MOST_QUIET", 1)
    page = teacher.get("/").get_data(as_text=True)
    assert page.count('class="waits-name"') == 1
    assert "1 more assignment with nothing to do" in page
    school.submit("anna", school.assignment)
    school.submit("anna", school.quick)  # both have open work now
    page = teacher.get("/").get_data(as_text=True)
    assert page.count('class="waits-name"') == 2
    assert "with nothing to do" not in page


def test_staff_who_study_elsewhere_see_both(school: School) -> None:
    with school.store.write() as session:
        users.enrol(session, school.users["stranger"], school.course, "student")
    theirs, not_theirs = school.submit("stranger"), school.submit("anna")
    page = school.client("stranger").get("/submissions").get_data(as_text=True)
    assert theirs in page
    assert not_theirs not in page


def test_a_database_that_is_away_is_503_in_plain_words(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("select", {}, Exception("server closed the connection"))

    client = school.client("anna")
    monkeypatch.setattr("app.web.auth.users.load_reader_of_session", away)
    answer = client.get("/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    assert "is not available" in answer.get_data(as_text=True)


def test_days_of_a_token_that_are_no_number_of_days_are_refused(school: School) -> None:
    client = school.client("anna")
    for days in ("", "0", "731", "x", "²", "000001" + "0" * 20, "000001" + "9" * 5000):
        form = {"csrf_token": form_token(client), "name": "t", "days": days, "scope": "read"}
        assert client.post("/tokens", data=form).status_code == 400, days[:10]


def test_tokens_are_shown_once_and_revoked(school: School) -> None:
    client = school.client("anna")
    form = {"csrf_token": form_token(client), "name": "laptop", "days": "30", "scope": ["read", "admin"]}
    page = client.post("/tokens", data=form).get_data(as_text=True)
    secret = re.search(r"grd_[\w-]{43}", page)
    assert secret is not None
    assert secret[0] not in client.get("/tokens").get_data(as_text=True)
    with school.store.read() as session:
        row = session.query(tables.Token).one()
        assert (row.scopes, secret[0] in row.hash) == (["read"], False)
    client.post(f"/tokens/{row.id}/revoke", data={"csrf_token": form_token(client)})
    with school.store.read() as session:
        assert users.verify_token(session, secret[0]) is None


# --- what others wrote is never code ------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/a.png)",
    "[x](javascript:alert(1))",
    "<svg/onload=alert(1)>",
    "</code></pre><iframe src=//evil.example>",
    "{{ 7*7 }}",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped_everywhere(school: School, text: str) -> None:
    code = f"# {text}\nx = '''{text}'''\nprint(x)\ny = 1\n".encode()
    submission = school.submit("anna", data=code)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = text
    school.grade(submission, report(text), released=True)
    for name, url in (("anna", f"/submissions/{submission}"), ("teacher", "/"), ("anna", "/")):
        page = school.client(name).get(url).get_data(as_text=True)
        body = re.sub(r'<script nonce="[^"]+" src="/static/[a-z/]+\.js\?v=\w+"( defer)?></script>', "", page)
        for bad in ("<script", "<img", "<svg", "<iframe", 'href="javascript', ">49<"):
            assert bad not in body.lower()
        assert "evil.example" not in "".join(re.findall(r'(?:src|href|action)="[^"]*"', body))


def test_markdown_keeps_words_and_nothing_else() -> None:
    html = markdown("**Bold** `code`\n\n- one\n\n<b onclick=x>raw</b> ![i](http://x/y.png)")
    assert "<strong>Bold</strong>" in html
    assert "<li>one</li>" in html
    assert "<b" not in html.replace("<br", "")
    assert "<img" not in html


def test_comments_stand_at_their_lines() -> None:
    content = read([UploadedFile("work.py", CODE)])
    (shown,) = documents(content.documents, report())
    lines = {line.number: [c.title for c in line.comments] for line in shown.cells[0].lines}
    assert lines[3] == ["Good use of pandas"]
    assert lines[4] == ["Look at the types"]
    assert "pd.read_csv" in re.sub("<[^>]+>", "", shown.cells[0].lines[2].html)


def test_lines_of_the_starter_are_dimmed(school: School) -> None:
    starter = read([UploadedFile("work.py", b"import pandas as pd\n\nsales = None\n")])
    with school.store.write() as session:
        version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        version.starter = [document.model_dump(mode="json") for document in starter.documents]
    page = school.client("anna").get(f"/submissions/{school.submit('anna')}").get_data(as_text=True)
    given = re.findall(r'class="line given"><span[^>]*>(\d)', page)
    own = re.findall(r'class="line"><span[^>]*>(\d)', page)
    assert "1" in given
    assert {"3", "4"} <= set(own)


def test_the_page_of_machines_says_why_one_is_out(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    with school.store.write() as session:
        operations.drain(session, "dgx-spark-1", "cli", "a new <fan>")
    states = [replace(state, drained=state.alive) for state in school.dispatch.machines()]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    page = school.client("teacher").get("/machines").get_data(as_text=True)
    assert page.count("Drained by an operator: a new &lt;fan&gt;") == 1


def test_administrators_take_machines_out_and_in_again(school: School) -> None:
    url, admin = "/machines/dgx-spark-1/service", school.client("admin")
    assert url not in school.client("teacher").get("/machines").get_data(as_text=True)
    token = form_token(admin, "/machines")
    assert admin.post(url, data={"out": "1"}).status_code == 400
    form = {"csrf_token": token, "out": "1", "why": "a new\r\n <fan>"}
    assert admin.post("/machines/unknown/service", data=form).status_code == 404
    assert admin.post(url, data=form).headers["Location"] == "/machines#machine-dgx-spark-1"
    assert school.dispatch.out == ("dgx-spark-1",)
    page = admin.get("/machines").get_data(as_text=True)
    assert "Draining dgx-spark-1" in page
    assert "Resume" in page
    school.dispatch.away = True
    assert admin.post(url, data={"csrf_token": token, "out": "0"}).status_code == 303
    assert (school.dispatch.out, school.dispatch.released) == ((), 0)
    assert "when Redis is back" in admin.get("/machines").get_data(as_text=True)
    school.dispatch.away = False
    assert admin.post(url, data={"csrf_token": token, "out": "0"}).status_code == 303
    assert school.dispatch.released == 1
    with school.store.read() as session:
        noted = session.query(tables.Audit).filter(tables.Audit.action.like("machine.%")).order_by("id").all()
    said = [(one.actor, one.action, one.detail.get("why")) for one in noted]
    by = f"user:{school.users['admin']}"
    assert said == [(by, "machine.drain", "a new <fan>"), (by, "machine.undrain", None)]


# --- class zips ---------------------------------------------------------------------------------------


def upload_class(school: School, files: dict[str, bytes]) -> str:
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    client = school.client("teacher")
    answer = client.post(
        f"/assignments/{school.assignment}/class",
        data={"csrf_token": form_token(client), "zip": (io.BytesIO(packed.getvalue()), "class.zip")},
    )
    assert answer.status_code == 303, answer.get_data(as_text=True)
    return str(answer.headers["Location"].rsplit("/", 1)[-1])


def test_class_zip_preview_and_confirm(school: School) -> None:
    batch = upload_class(
        school,
        {"anna_LATE_111_222_work.py": CODE, "ben_work.py": CODE, "new-1_work.py": CODE, "odd_work.py": CODE},
    )
    client = school.client("teacher")
    page = client.get(f"/classes/{batch}").get_data(as_text=True)
    assert "4 students in the ZIP file: 2 enrolled in this course, 2 not" in page
    assert "✓ by name" in page
    assert "✓ by sign-in name" in page
    assert school.count(tables.Submission) == 0
    keys = re.findall(r'<th scope="row">([^<]+)', page)
    choice = {"anna · 111": school.users["anna"], "ben": school.users["ben"], "new-1": "create"}
    form = {f"student-{n}": str(choice.get(key.strip(), "leave")) for n, key in enumerate(keys)}
    form["csrf_token"] = form_token(client)
    assert client.post(f"/classes/{batch}", data=form).status_code == 303
    with school.store.read() as session:
        rounds = session.query(tables.Round).all()
        assert {r.priority for r in rounds} == {"batch"}
        assert len(rounds) == len(school.dispatch.announced) == 3
        names = {session.get_one(tables.User, r.student_id).name for r in rounds}
        assert names == {"Anna", "Ben", "new-1"}
    again = client.post(f"/classes/{batch}", data=form)
    assert again.status_code == 409
    assert school.count(tables.Submission) == 3


def test_class_zip_cannot_reach_people_of_other_courses(school: School) -> None:
    batch = upload_class(school, {"anna_work.py": CODE})
    client = school.client("teacher")
    form = {"csrf_token": form_token(client), "student-0": str(school.users["stranger"])}
    assert client.post(f"/classes/{batch}", data=form).status_code == 400
    assert school.count(tables.Submission) == 0


def test_students_see_when_an_assignment_is_due(school: School) -> None:
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).due_at = datetime(
            2026, 12, 1, 22, 59, tzinfo=UTC
        )
    client = school.client("anna")
    for url in ("/", f"/assignments/{school.assignment}/submit"):
        assert "01 Dec 2026, 22:59" in client.get(url).get_data(as_text=True)
