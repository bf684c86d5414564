"""The second factor: setting it up, signing in with it, and everything that must not get around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyotp
import pytest
from argon2 import PasswordHasher
from flask.testing import FlaskClient
from pydantic import ValidationError
from sqlalchemy.orm import Session
from werkzeug.test import TestResponse

from cli.servers.http import require_break_glass
from grading.config.settings import SignOn
from grading.domain.errors import ConfigError, Conflict, NotFound
from grading.store import tables
from grading.store.accounts import credentials, second_factor, sign_in_attempts, users
from grading.store.accounts.second_factor import WrongCode
from grading.store.accounts.sign_in_attempts import Caller, TriedTooOften
from grading.store.courses import invitations
from tests.integration.webapp import School, form_token
from tests.support.aging import everything

PASSWORD = "correct horse battery"
KEY = "only for tests"
HERE, THERE = Caller("192.0.2.1"), Caller("198.51.100.7")


class Clock:
    """The database's clock, as this module's code reads it."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 27, 12, 0, 15, tzinfo=UTC)

    def __call__(self, _session: Session) -> datetime:
        return self.at

    def pass_time(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (second_factor, sign_in_attempts):
        monkeypatch.setattr(module, "now", made)
    return made


@pytest.fixture
def school(school_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    """On SQLite and on PostgreSQL; anna and admin have a password."""
    monkeypatch.setattr(users, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    made = School(school_url)
    with made.store.write() as session:
        for name in ("anna", "admin"):
            users.set_password(session, session.get_one(tables.User, made.users[name]), PASSWORD)
    yield made
    made.close()


def set_up(school: School, clock: Clock, name: str = "anna") -> tuple[pyotp.TOTP, tuple[str, ...]]:
    """Give somebody a second factor; its app and the recovery codes."""
    user_id = school.users[name]
    with school.store.write() as session:
        second_factor.begin_enrolment(session, user_id, KEY)
        begun = second_factor.load_enrolment(session, user_id, name, KEY)
        assert begun is not None
        app = pyotp.TOTP(begun.secret)
        codes = second_factor.confirm_enrolment(session, user_id, app.at(clock.at, counter_offset=-1), KEY)
    return app, codes


def tried(school: School, code: str, caller: Caller = HERE, name: str = "anna", key: str = KEY) -> object:
    """The kind of the accepted code, "wrong", or seconds to wait."""
    try:
        found = second_factor.verify_code(school.store, school.users[name], code, caller, key, known=False)
    except TriedTooOften as error:
        return error.retry_after_s
    return found or "wrong"


def sign_in(client: FlaskClient, name: str = "anna", password: str = PASSWORD, **more: str) -> TestResponse:
    token = form_token(client, "/sign-in")
    return client.post("/sign-in", data={"csrf_token": token, "name": name, "password": password, **more})


def enter_code(client: FlaskClient, code: str, **more: str) -> TestResponse:
    token = form_token(client, "/sign-in/code")
    return client.post("/sign-in/code", data={"csrf_token": token, "one_time_code": code, **more})


def test_a_code_counts_once_within_a_step_before_and_after(school: School, clock: Clock) -> None:
    app, _ = set_up(school, clock)
    assert tried(school, app.at(clock.at, counter_offset=-1)) == "wrong"  # it confirmed the setup
    assert tried(school, app.at(clock.at, counter_offset=-2)) == "wrong"
    assert tried(school, app.at(clock.at, counter_offset=2)) == "wrong"
    assert tried(school, f" {app.at(clock.at)[:3]} {app.at(clock.at)[3:]} ") == "app"
    assert tried(school, app.at(clock.at)) == "wrong"
    assert tried(school, app.at(clock.at, counter_offset=1)) == "app"
    assert tried(school, app.at(clock.at)) == "wrong"  # older than one that was accepted
    clock.pass_time(60)
    assert tried(school, app.at(clock.at)) == "app"


def test_one_of_many_processes_accepts_a_code(school: School, clock: Clock) -> None:
    """Also a recovery code, and that of a setup."""
    app, codes = set_up(school, clock)
    for kind in ("app", "recovery"):
        code = {"app": app.at(clock.at), "recovery": codes[0]}[kind]
        callers = [Caller(f"192.0.2.{number}") for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda caller, code=code: tried(school, code, caller), callers))
        assert found.count(kind) == 1
        assert not {"app", "recovery"} - {kind} & set(found)
        clock.pass_time(3600)
        later = app.at(clock.at, counter_offset=-1)  # so that nobody waits
        assert tried(school, later) == "app"


def test_wrong_codes_wait_and_a_right_password_does_not_help(school: School, clock: Clock) -> None:
    app, codes = set_up(school, clock)
    wrong = [f"{(int(app.at(clock.at)) + 7 + number) % 10**6:06}" for number in range(12)]
    assert [tried(school, code) for code in wrong[:6]] == ["wrong"] * 5 + [1]
    assert credentials.verify_password(school.store, "anna", PASSWORD, HERE) == school.users["anna"]
    with school.store.write() as session:
        users.set_password(session, session.get_one(tables.User, school.users["anna"]), PASSWORD)
    assert tried(school, codes[0]) == 1
    clock.pass_time(1)
    answers = []
    for number, code in enumerate(wrong):  # from as many addresses as they like
        answers.append(tried(school, code, Caller(f"203.0.113.{number}")))
    assert answers.count("wrong") <= 10
    assert answers[-1] == 1
    known = second_factor.verify_code(
        school.store, school.users["anna"], codes[0],
        Caller("192.0.2.1", sign_in_attempts.KnownBrowser(school.users["anna"], "s", "b")), KEY, known=True,
    )  # fmt: skip
    assert known == "recovery"
    with school.store.read() as session:
        audit = tables.Audit
        assert session.query(audit).filter(audit.action == "second_factor.wrong").count() >= 5


def test_a_stolen_session_has_no_more_guesses_than_one_source(school: School, clock: Clock) -> None:
    set_up(school, clock)
    thief = school.client("anna")

    def guess(client: FlaskClient, password: str) -> int:
        sent = {"csrf_token": form_token(client), "password": password, "one_time_code": "none"}
        return client.post("/account/second-factor/recovery-codes", data=sent).status_code

    for password in ("wrong wrong", PASSWORD):  # so that the code is wrong
        assert [guess(thief, password) for _ in range(6)] == [403] * 5 + [429]
        ended = thief.post("/account/sessions", data={"csrf_token": form_token(thief)})
        assert ended.status_code == 303
        assert [guess(client, password) for client in (thief, school.client("anna"))] == [429] * 2
        clock.pass_time(1)
    assert thief.get_cookie("grader-known") is None, "no page but those for a password make a browser known"


def test_nothing_at_rest_opens_an_account(school: School, clock: Clock) -> None:
    app, codes = set_up(school, clock)
    stored = str(everything(school.store))
    for secret in (app.secret, *codes, *(one.replace("-", "") for one in codes)):
        assert secret not in stored
    with school.store.read() as session:
        state = second_factor.load_state(session, school.users["anna"], "another key than before")
    assert (state.on, state.recovery_codes, state.key_changed) == (True, 10, True)
    assert tried(school, app.at(clock.at), key="another key than before") == "wrong"
    assert tried(school, codes[3].lower().replace("-", " "), key="another key than before") == "recovery"


def test_signing_in_asks_for_a_code_and_gives_nothing_before(school: School, clock: Clock) -> None:
    other = school.client("anna")
    assert other.get("/account").status_code == 200
    app, _ = set_up(school, clock)
    assert other.get("/account").status_code == 303  # sessions from before have ended
    client = school.client()
    answer = sign_in(client, next="/account")
    assert answer.status_code == 200
    assert 'autocomplete="one-time-code"' in answer.text
    assert 'inputmode="numeric"' in answer.text
    assert client.get("/account").status_code == 303
    assert client.get("/api/v1/me").status_code == 401
    assert client.post("/account", data={}).status_code in (303, 400)
    with school.store.read() as session:
        assert session.query(tables.OpenSession).count() == 0
    assert enter_code(client, "000000").status_code == 401
    assert client.get("/account").status_code == 303
    answer = enter_code(client, app.at(clock.at), next="/account")
    assert (answer.status_code, answer.location) == (303, "/account")
    assert client.get("/account").status_code == 200
    assert school.client("ben").get("/sign-in/code").location == "/sign-in"


def test_the_first_step_ends_with_a_new_password_and_with_time(
    school: School, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = set_up(school, clock)
    client, late = school.client(), school.client()
    sign_in(client)
    sign_in(late)
    with late.session_transaction() as cookie:
        cookie["awaits_code"][2] -= 700
        cookie.modified = True
    token = form_token(late, "/sign-in")
    answer = late.post("/sign-in/code", data={"csrf_token": token, "one_time_code": app.at(clock.at)})
    assert answer.location == "/sign-in"
    with school.store.write() as session:
        made = invitations.create_links(session, [school.users["anna"]], "cli", school.users["admin"])
    invitations.use_link(school.store, made[school.users["anna"]], "another long password")
    answer = client.post("/sign-in/code", data={"csrf_token": token, "one_time_code": app.at(clock.at)})
    assert client.get("/account").status_code == 303
    # a link sets a password and leaves the second factor as it is
    assert 'name="one_time_code"' in sign_in(client, password="another long password").text
    assert enter_code(client, app.at(clock.at)).location == "/"


def test_people_set_it_up_renew_its_codes_and_turn_it_off(school: School, clock: Clock) -> None:
    client = school.client("anna")
    page, send = (
        "/account/second-factor",
        lambda path="", **data: client.post(
            f"/account/second-factor{path}", data={"csrf_token": form_token(client), **data}
        ),
    )
    assert send(password="wrong wrong").status_code == 403
    assert "<svg" not in client.get(page).text
    assert send(password=PASSWORD).location == page
    shown = client.get(page).text
    assert "data:image/svg+xml" in shown
    assert "viewBox" in shown  # or browsers would crop it to the size of the image
    found = re.search(r'<code class="secret">([A-Z2-7 ]+)</code>', shown)
    assert found is not None
    app = pyotp.TOTP(found[1].replace(" ", ""))
    assert send("/confirm", one_time_code="123").status_code == 403
    answer = send("/confirm", one_time_code=app.at(clock.at))
    codes = re.findall(r'<code class="secret">([A-Z2-7-]{19})</code>', answer.text)
    assert len(codes) == 10
    assert codes[0] not in client.get(page).text  # shown once
    assert send(password=PASSWORD).status_code == 409  # no second setup over the first
    clock.pass_time(30)
    assert send("/recovery-codes", password=PASSWORD, one_time_code=codes[0]).text.count('"secret"') == 10
    assert send("/remove", password=PASSWORD, one_time_code=codes[1]).status_code == 403
    assert send("/remove", password="wrong wrong", one_time_code=app.at(clock.at)).status_code == 403
    assert send("/remove", password=PASSWORD, one_time_code=app.at(clock.at)).status_code == 303
    assert sign_in(school.client()).status_code == 303


def test_a_setup_waits_for_15_minutes(school: School, clock: Clock) -> None:
    user_id = school.users["anna"]
    with school.store.write() as session:
        second_factor.begin_enrolment(session, user_id, KEY)
        begun = second_factor.load_enrolment(session, user_id, "anna", KEY)
        assert begun is not None
        assert not second_factor.has_second_factor(session, user_id)
    clock.pass_time(901)
    with school.store.write() as session:
        assert second_factor.load_enrolment(session, user_id, "anna", KEY) is None
        with pytest.raises(NotFound):
            second_factor.confirm_enrolment(session, user_id, pyotp.TOTP(begun.secret).at(clock.at), KEY)


def test_operators_reset_it(school: School, clock: Clock) -> None:
    set_up(school, clock)
    user_id = school.users["anna"]
    with school.store.write() as session:
        second_factor.set_break_glass(session, session.get_one(tables.User, user_id), True, "cli")
        with pytest.raises(Conflict):
            second_factor.remove(session, user_id, "anna")
        assert second_factor.reset(session, user_id, "cli")
        assert not session.get_one(tables.User, user_id).break_glass
        actions = [row.action for row in session.query(tables.Audit).filter_by(actor="cli")]
    assert actions == ["user.break_glass", "user.not_break_glass", "second_factor.reset"]
    assert sign_in(school.client()).status_code == 303


def test_wrong_codes_raise_a_sentence() -> None:
    assert "next code" in WrongCode().message


# --- local accounts off -------------------------------------------------------------------------------

PROVIDER = {"title": "University", "issuer": "https://id.example", "client_id": "grader"}
OFF = SignOn(local_accounts=False, providers={"university": PROVIDER})


def turn_off(school: School) -> None:
    """Let only break-glass accounts use their passwords."""
    config = school.services.config.model_copy(update={"sign_on": OFF})
    school.services = replace(school.services, config=config)


def break_glass(school: School, clock: Clock, name: str = "admin") -> pyotp.TOTP:
    app, _ = set_up(school, clock, name)
    with school.store.write() as session:
        user = session.get_one(tables.User, school.users[name])
        second_factor.set_break_glass(session, user, True, "cli")
    return app


def test_only_break_glass_accounts_use_passwords(school: School, clock: Clock) -> None:
    app = break_glass(school, clock)
    turn_off(school)
    client = school.client()
    assert "break-glass" in client.get("/sign-in").text
    refused = sign_in(client)
    assert (refused.status_code, "Sign in through your school" in refused.text) == (401, True)
    assert sign_in(client, "admin").status_code == 200
    assert enter_code(client, app.at(clock.at)).status_code == 303
    overview = client.get("/operations").text
    assert "signed in with a break-glass account" in overview
    audit = client.get("/audit?kind=access").text
    assert "signed in with a break-glass account" in audit
    with school.store.read() as session:
        assert [one.name for one in second_factor.recent_break_glass(session)] == ["Admin"]


def test_links_for_passwords_are_refused_with_a_sentence(school: School, clock: Clock) -> None:
    break_glass(school, clock)
    with school.store.write() as session:
        made = invitations.create_links(session, [school.users["ben"]], "cli", school.users["admin"])
    turn_off(school)
    admin, ben = school.client("admin"), school.users["ben"]
    token = {"csrf_token": form_token(admin)}
    for path in (f"/users/{ben}/link", f"/courses/{school.course}/people/{ben}/link"):
        answer = admin.post(path, data=token)
        assert (answer.status_code, "turned off on this server" in answer.text) == (403, True)
    answer = admin.post(f"/api/v1/users/{ben}/password-link", headers=school.token("admin", "admin"))
    assert (answer.status_code, "local_accounts_off" in answer.text) == (403, True)
    assert admin.post("/users", data={**token, "sign_in_name": "new.one"}).status_code == 303
    follows = school.client().get(f"/reset/{made[ben]}")
    assert (follows.status_code, "turned off on this server" in follows.text) == (403, True)
    own = admin.post(f"/users/{school.users['admin']}/link", data=token)
    assert own.status_code == 200  # a break-glass account keeps its password
    anna = school.client("anna")
    change = {"csrf_token": form_token(anna), "old": PASSWORD, "password": "x" * 12, "again": "x" * 12}
    assert anna.post("/account/password", data=change).status_code == 403


def test_a_server_that_would_keep_everybody_out_does_not_start(school: School, clock: Clock) -> None:
    with pytest.raises(ValidationError, match="without a provider"):
        SignOn(local_accounts=False)
    turn_off(school)
    with pytest.raises(ConfigError, match="break-glass NAME"):
        require_break_glass(school.services.config, school.store)
    with school.store.write() as session, pytest.raises(Conflict):
        user = session.get_one(tables.User, school.users["admin"])
        second_factor.set_break_glass(session, user, True, "cli")
    break_glass(school, clock)
    require_break_glass(school.services.config, school.store)
    with school.store.write() as session:  # however it came about
        second_factor.delete_all(session, school.users["admin"])
    assert sign_in(school.client(), "admin").status_code == 401
    with pytest.raises(ConfigError):
        require_break_glass(school.services.config, school.store)
