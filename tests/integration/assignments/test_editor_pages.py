"""Writing an assignment through the pages: drafts, conflicts, files, zips, settings, a first draft."""

from __future__ import annotations

import html
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis
from sqlalchemy import func, select

from app.gateway import GatewayServices
from grading.assignments.editor.folder import compose
from grading.assignments.loader import read_files
from grading.broker.connections import connect
from grading.broker.gateway_requests import DRAFTING, Event, Talks, chat_queue
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import Leases
from grading.config.settings import parse
from grading.documents import Limits
from grading.store import tables
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions as rubric_versions
from grading.store.tables import Grade, Outbox, Round, RubricVersion
from tests.integration.webapp import School, form_token, make_app, report


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(school: School) -> FlaskClient:
    return school.client("teacher")


def fields(page: str) -> dict[str, str]:
    """What a browser would send of the editor's form."""
    found: dict[str, str] = {}
    form = page.partition("data-form")[2].partition("</form>")[0]
    for tag in re.findall(r"<input[^>]*>|<textarea.*?</textarea>|<select.*?</select>", form, re.S):
        name = re.search(r' name="([^"]+)"', tag)
        if name is None or ('type="checkbox"' in tag and " checked" not in tag):
            continue
        said = (
            re.search(r' value="([^"]*)"', tag) if tag[:6] == "<input" else re.search(r">\n?([^<]*)</t", tag)
        )
        if tag[:7] == "<select":
            said = re.search(r'value="([^"]*)" selected|<option selected>([^<]*)', tag)
        found[html.unescape(name[1])] = html.unescape(said[1] or "") if said else ""
    return found


def editor(school: School, client: FlaskClient) -> dict[str, str]:
    return fields(client.get(f"/assignments/{school.assignment}/rubric").get_data(as_text=True))


def versions(school: School) -> list[tuple[int, bool, str]]:
    with school.store.read() as session:
        rows = session.scalars(
            select(RubricVersion)
            .where(RubricVersion.assignment_id == school.assignment)
            .order_by(RubricVersion.number)
        )
        return [(row.number, row.published_at is not None, row.note) for row in rows]


def post(client: FlaskClient, url: str, page: str = "/tokens", **form: Any) -> Any:
    return client.post(url, data={"csrf_token": form_token(client, page), **form})


def test_a_changed_rubric_is_a_draft_that_counts_when_it_is_published(
    school: School, client: FlaskClient
) -> None:
    address, sent = f"/assignments/{school.assignment}/rubric", editor(school, client)
    assert client.post(address, data={**sent, "do": "save"}).status_code == 303
    assert versions(school) == [(1, True, "")]  # nothing was changed
    sent["criteria.0.points"] = "7,5"
    assert client.post(address, data={**sent, "do": "save", "note": "harder"}).status_code == 303
    assert versions(school) == [(1, True, ""), (2, False, "harder")]
    with school.store.read() as session:
        found = session.get_one(tables.Assignment, school.assignment)
        assert rubric_versions.published_version(session, found).number == 1
    again = client.post(address, data={**sent, "criteria.0.points": "9", "do": "save"})
    text = again.get_data(as_text=True)
    assert again.status_code == 409
    assert "Teacher saved version 2 while you were editing." in text
    assert "Points was changed" in text
    assert fields(text)["criteria.0.points"] == "9"
    assert fields(text)["base"] == "2"
    assert client.post(address, data={**fields(text), "do": "save"}).status_code == 303
    address = f"/assignments/{school.assignment}/versions/3"
    for since in (False, True):
        assert post(client, f"{address}/publish").status_code == 303
        page = client.get(f"/assignments/{school.assignment}/versions").get_data(as_text=True)
        undo = re.search(r'action="([^"]+/undo)".*?name="at" value="([^"]+)"', page, re.DOTALL)
        assert undo is not None
        if since:
            school.submit("anna")
        assert post(client, undo[1], at=undo[2]).status_code == 303
        assert versions(school)[2][1] is since
    with school.store.read() as session:
        found = session.get_one(tables.Assignment, school.assignment)
        assert rubric_versions.published_version(session, found).number == 3
    assert post(client, f"/assignments/{school.assignment}/versions/1/restore").status_code == 303
    assert [number for number, _, _ in versions(school)] == [1, 2, 3, 4]
    page = client.get(f"/assignments/{school.assignment}/versions/4?against=3").get_data(as_text=True)
    assert "The total changed from 15 to 10 points." in page


def test_a_count_with_its_minimum_is_made_in_the_form(school: School, client: FlaskClient) -> None:
    address, sent = f"/assignments/{school.assignment}/rubric", editor(school, client)
    added = client.post(
        address, data={**sent, "do": "add criteria.0.checks", "new:criteria.0.checks": "count"}
    )
    page = added.get_data(as_text=True)
    at = max(name for name in fields(page) if re.fullmatch(r"criteria\.0\.checks\.\d+\.kind", name))[:-5]
    assert "Only in this question of a cell" in page
    assert "With fewer lines, the check earns no points." in page
    assert "<details open><summary>More: where" not in page  # nothing of it was changed
    empty = client.post(address, data={**fields(page), "do": "save"})
    assert "checks nothing; set names or of" in empty.get_data(as_text=True)
    typed = {
        f"{at}.names": "%>%\n|>",
        f"{at}.at_least": "10",
        f"{at}.part": "Question 2",
        f"{at}.own_lines": "3",
        f"{at}.given": "yes",
    }
    assert client.post(address, data={**fields(page), **typed, "do": "save"}).status_code == 303
    with school.store.read() as session:
        row = rubric_versions.version_by_number(session, school.assignment, 2)
        check = rubric_versions.comparable(row).rubric.criteria[0].checks[-1]
    asked = {"names": ("%>%", "|>"), "at_least": 10, "part": "Question 2", "own_lines": 3, "given": True}
    assert {key: getattr(check, key) for key in asked} == asked
    assert fields(client.get(address).get_data(as_text=True))[f"{at}.own_lines"] == "3"


def test_deductions_and_bonus_are_made_and_kept_in_the_form(school: School, client: FlaskClient) -> None:
    address, sent = f"/assignments/{school.assignment}/rubric", editor(school, client)
    sent |= {"criteria.1.bonus": "yes", "bonus_at_most": "1,5"}
    sent = fields(client.post(address, data={**sent, "do": "add adjustments"}).get_data(as_text=True))
    added = {**sent, "do": "add adjustments.0.unless", "new:adjustments.0.unless": "uses"}
    page = client.post(address, data=added).get_data(as_text=True)
    for said in ("Cap (0 to 1)", "0.2 deducts 20 %", "Unless these checks are met"):
        assert said in page
    empty = client.post(address, data={**fields(page), "do": "save"}).get_data(as_text=True)
    assert "Deduction 1, check 1 (Uses functions): Checks nothing" in empty or "set either" in empty
    typed = {
        "adjustments.0.title": "No pipe",
        "adjustments.0.criteria": "Loads the data",
        "adjustments.0.deduct": "0,2",
        "adjustments.0.partly": "yes",
        "adjustments.0.unless.0.any_of": "%>%\n|>",
    }
    previewed = client.post(address, data={**fields(page), **typed, "do": "preview"}).get_data(as_text=True)
    assert "deducts 20 % of the points of “Loads the data”, in proportion to the missing items" in previewed
    assert client.post(address, data={**fields(page), **typed, "do": "save"}).status_code == 303
    with school.store.read() as session:
        rubric = rubric_versions.comparable(
            rubric_versions.version_by_number(session, school.assignment, 2)
        ).rubric
    (made,) = rubric.adjustments
    assert (made.id, made.criteria, made.deduct, made.partly) == ("no-pipe", ("load",), 0.2, True)
    assert (rubric.bonus_at_most, rubric.max_points) == (1.5, 4.0)
    again = editor(school, client)
    assert again["adjustments.0.unless.0.any_of"] == "%>%\n|>"
    assert client.post(address, data={**again, "do": "save"}).status_code == 303
    assert [number for number, _, _ in versions(school)] == [1, 2]  # nothing was lost, nothing changed
    german = client.get(address, headers={"Accept-Language": "de"}).get_data(as_text=True)
    assert "Abzüge, Obergrenzen und Bonus" in german


def test_what_a_new_assignment_lacks_is_said(school: School, client: FlaskClient) -> None:
    """Before it is published without a task, and where there is nothing to try it with."""
    made = post(client, f"/courses/{school.course}/assignments/new", title="First steps", slug="first-steps")
    made = made.headers["Location"].rpartition("/")[0]
    page = client.get(f"{made}/versions").get_data(as_text=True)
    assert "This version has no task text" in page
    assert missing(page) == [
        ("due date", f"{made}/settings#due"),
        ("task text", f"{made}/task#task"),
        ("criteria of your own (the rubric is still the template)", f"{made}/rubric#criteria"),
        ("solution", f"{made}/material#u-solution"),
        ("test run", f"{made}/dry-runs#test"),
        ("publication", f"{made}/versions#publish"),
    ]
    trying = client.get(f"{made}/dry-runs").get_data(as_text=True)
    assert "Upload a solution or a starter file" in trying
    assert ">Try it</button>" not in trying
    written = post(client, f"{made}/task", task="# Count", spoken_language="English", base="1", do="save")
    assert (written.status_code, written.location) == (303, f"{made}/task")
    for page in (
        "settings",
        "task",
        "rubric",
        "rubric/text",
        "rubric/draft",
        "material",
        "dry-runs",
        "versions",
    ):
        shown = client.get(f"{made}/{page}").get_data(as_text=True)
        assert [words.partition(" (")[0] for words, _ in missing(shown)] == [
            *("due date", "criteria of your own", "solution", "test run", "publication")
        ], page
        steps = shown.partition('class="steps"')[2].partition("</nav>")[0]
        assert steps.count("aria-current") == 1
        assert 'Task<span class="visually-hidden">: complete' in steps


def missing(page: str) -> list[tuple[str, str]]:
    """What a page of the editor says is missing, and where its links lead."""
    listed = page.partition('class="still-missing"')[2].partition("</p>")[0]
    return [(words, url) for url, words in re.findall(r'<a href="([^"]+)">([^<]+)</a>', listed)]


def test_each_save_leads_on_where_that_is_asked(school: School, client: FlaskClient) -> None:
    at = f"/assignments/{school.assignment}"
    form = {"title": "T", "slug": "hw1", "release": "after_review", "zone": "UTC"}
    assert post(client, f"{at}/settings", **form, do="next").location == f"{at}/task"
    assert post(client, f"{at}/settings", **form, do="save").location == f"{at}/settings"
    task = {"task": "# Count", "spoken_language": "English"}
    assert post(client, f"{at}/task", **task, base="1", do="next").location == f"{at}/rubric"
    assert post(client, f"{at}/task", **task, base="2", do="next").location == f"{at}/rubric"
    assert "Nothing was changed" not in client.get(f"{at}/rubric").text  # who only goes on need not know
    sent = editor(school, client)
    assert client.post(f"{at}/rubric", data={**sent, "do": "next"}).location == f"{at}/material"
    assert f'href="{at}/dry-runs">Continue: Try</a>' in client.get(f"{at}/material").text
    assert f'href="{at}/versions">Continue: Publish</a>' in client.get(f"{at}/dry-runs").text


def test_a_check_that_is_typed_says_what_it_finds(school: School, client: FlaskClient) -> None:
    at = f"/assignments/{school.assignment}"
    check = {"criteria.0.checks.0.kind": "uses", "criteria.0.checks.0.all_of": "mean"}
    before = post(client, f"{at}/rubric/preview", **check)
    assert "Upload a solution to see what this check finds in it" in before.text
    file = (io.BytesIO(b"<b>x</b>\nmean(rivers)\n"), "work.py")
    post(client, f"{at}/material", folder="solution", base="1", files=file)
    said = post(client, f"{at}/rubric/preview", **check).text
    assert "<strong>Solution:</strong> met. uses mean" in said
    assert "Starter" not in said
    empty = post(client, f"{at}/rubric/preview", **{"criteria.0.checks.0.kind": "uses"}).text
    assert "Not complete yet: checks nothing; set all_of or any_of" in empty
    runs = post(client, f"{at}/rubric/preview", **{"criteria.0.checks.0.kind": "runs_clean"}).text
    assert "This check runs the work." in runs
    assert f'href="{at}/dry-runs#test"' in runs
    assert versions(school)[-1][0] == 2  # nothing was saved


def test_what_is_wrong_is_said_and_nothing_is_lost(school: School, client: FlaskClient) -> None:
    address, sent = f"/assignments/{school.assignment}/rubric", editor(school, client)
    sent |= {
        "criteria.0.points": "<b>x</b>",
        "criteria.1.levels.0": "",
        "criteria.1.title": "<script>x</script>",
    }
    answer = client.post(address, data={**sent, "do": "save"})
    text = answer.get_data(as_text=True)
    assert answer.status_code == 422
    assert "“&lt;b&gt;x&lt;/b&gt;” is not a number" in text
    assert "<script>x" not in text
    assert fields(text)["criteria.0.points"] == "<b>x</b>"
    assert versions(school) == [(1, True, "")]
    for typed in ("{", "a = ", "[" * 100_000, "criteria = 1", '{"criteria": [{"id": "a"}]}', "\x00"):
        wrong = post(client, f"{address}/text", text=typed, base="1")
        assert wrong.status_code == 422
        assert "Not saved." in wrong.get_data(as_text=True)
    shown = client.get(f"{address}/text").get_data(as_text=True)
    toml = html.unescape(shown.partition("<textarea")[2].partition(">\n")[2].partition("</textarea>")[0])
    assert (
        post(client, f"{address}/text", text=toml.replace("points = 4.0", "points = 5"), base="1").status_code
        == 303
    )
    assert len(versions(school)) == 2


def test_files_come_and_go_and_hostile_names_are_refused(school: School, client: FlaskClient) -> None:
    address = f"/assignments/{school.assignment}/material"

    def upload(name: str, data: bytes, folder: str = "data", base: int = 1) -> Any:
        file = (io.BytesIO(data), name)
        return post(client, address, folder=folder, base=str(base), files=file)

    for name in ("../../x.csv", "a\x00b", ".hidden", "x" * 400):
        assert upload(name, b"1").status_code == 422, name
    assert upload("a.csv", b"1", folder="../data").status_code == 404
    assert upload("a.csv", b"a,b\n").status_code == 303
    assert upload("a.csv", b"a,c\n").status_code == 409
    assert upload("a.csv", b"a,c\n", base=2).status_code == 303
    got = client.get(f"{address}/data/a.csv")
    assert (got.data, got.headers["Content-Disposition"]) == (b"a,c\n", "attachment; filename=a.csv")
    assert client.get(f"{address}/data/none.csv").status_code == 404
    assert post(client, address, remove="data/a.csv", base="3").status_code == 303
    assert client.get(f"{address}/data/a.csv").status_code == 404
    assert len(versions(school)) == 4


def test_a_zip_goes_out_and_comes_in_as_the_same(school: School, client: FlaskClient) -> None:
    address = f"/assignments/{school.assignment}"
    file = (io.BytesIO(b"x = 1\n"), "work.py")
    post(client, f"{address}/material", folder="solution", base="1", files=file)
    form = {
        "title": "Tïtle",
        "slug": "new-name",
        "language": "python",
        "zone": "Europe/Berlin",
        "release": "at",
    }
    dates = {"due": "2026-12-01T23:59", "release_at": "2026-12-05T08:00", "per_day": "10", "days": "7"}
    assert (
        post(client, f"{address}/settings", **form, **dates, max_submissions="3", visible="yes").status_code
        == 303
    )
    out = client.get(f"{address}/versions/2/folder.zip").data
    with zipfile.ZipFile(io.BytesIO(out)) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    read = read_files(files, Limits())
    with school.store.read() as session:
        row = rubric_versions.version_by_number(session, school.assignment, 2)
        settings = assignment_settings.settings_of(session.get_one(tables.Assignment, school.assignment))
        assert files == compose(settings, rubric_versions.load_content(session, row))
    assert (read.title, read.slug, str(read.due)) == ("Tïtle", "new-name", "2026-12-01 22:59:00+00:00")
    assert [document.path for document in read.solution] == ["work.py"]
    brought = f"/courses/{school.course}/assignments/import"
    assert post(client, brought, zip=(io.BytesIO(out), "a.zip")).status_code == 422  # the name is taken
    assert post(client, f"{address}/import", base="2", zip=(io.BytesIO(out), "a.zip")).status_code == 303
    assert len(versions(school)) == 2  # it says the same
    renamed = {**files, "assignment.toml": files["assignment.toml"].replace(b"new-name", b"copy")}
    other = zipped(renamed)
    assert post(client, brought, zip=(io.BytesIO(other), "a.zip")).status_code == 303
    with school.store.read() as session:
        copy = session.scalars(select(tables.Assignment).where(tables.Assignment.slug == "copy")).one()
        mine, first = (
            assignment_settings.settings_of(copy),
            assignment_settings.settings_of(session.get_one(tables.Assignment, school.assignment)),
        )
        # nobody sees it before somebody says so
        assert mine.model_copy(update={"slug": first.slug, "visible": True}) == first
        assert not mine.visible
        assert (
            rubric_versions.comparable(rubric_versions.version_by_number(session, copy.id, 1)).rubric
            == rubric_versions.comparable(row).rubric
        )
    for bad in (
        b"no zip",
        zipped({"a.txt": b"x"}),
        zipped({"assignment.toml": b"title = 1"}),
        zipped({"../x": b""}),
    ):
        assert post(client, brought, zip=(io.BytesIO(bad), "a.zip")).status_code == 422


OLDER = {
    "rubric_elements": {
        "code": {"max_points": 4, "required_sections": {"part1_a": {"points": 4, "verification": ["f("]}}}
    },
    "unheard_of": {"<b>": 1},
}


def test_a_rubric_of_the_older_autograder_is_read_with_a_report(school: School, client: FlaskClient) -> None:
    address = f"/assignments/{school.assignment}"
    typed = json.dumps(OLDER)
    assert post(client, f"{address}/rubric/text", base="1", text=typed).status_code == 303
    with school.store.read() as session:
        row = rubric_versions.version_by_number(session, school.assignment, 2)
        assert row.rubric["criteria"][0]["id"] == "part1_a"
        assert "\nNot taken: unheard_of (<b>). Nothing here has this meaning" in row.note
    for page in (f"{address}/versions", f"{address}/versions/2"):
        shown = client.get(page).text
        assert "<summary>2 import warnings</summary>" in shown
        assert "<li>Not taken: unheard_of (&lt;b&gt;). Nothing here" in shown
    files = {"assignment.toml": b'title = "T"\nslug = "older"\nrubric = "r.json"\n', "r.json": typed.encode()}
    form = {"zip": (io.BytesIO(zipped(files)), "a.zip")}
    made = post(client, f"/courses/{school.course}/assignments/import", **form)
    assert made.status_code == 303
    assert "The import gave 2 warnings." in client.get(made.location).text


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_a_late_rule_moves_the_grades_that_are_there(school: School, client: FlaskClient) -> None:
    school.grade(school.submit("anna"), report(), released=True)
    form = {"title": "T", "slug": "hw1", "release": "after_review", "zone": "UTC", "due": "2020-01-01T00:00"}
    address = f"/assignments/{school.assignment}/settings"
    assert post(client, address, **form, per_day="100", at_least="50").status_code == 303
    with school.store.read() as session:
        assert session.scalar(select(Grade.final_points)) == 4.25
    for wrong in ({"per_day": "x"}, {"days": "-1"}, {"slug": "A b"}, {"due": "yesterday"}, {"release": "at"}):
        answer = post(client, address, **{**form, **wrong})
        assert answer.status_code == 422, wrong


def test_a_dry_run_is_begun_by_the_page_and_never_announced_in_masses(
    school: School, client: FlaskClient
) -> None:
    handed = [school.submit(name) for name in ("anna", "ben")] + [school.submit("anna")]
    address = f"/assignments/{school.assignment}/dry-runs"
    post(client, address, purpose="rubric", which="all")
    with school.store.read() as session:
        assert session.scalar(select(func.count()).select_from(tables.DryRun)) == 0  # there is no draft
    sent = editor(school, client)
    client.post(
        f"/assignments/{school.assignment}/rubric", data={**sent, "criteria.0.points": "9", "do": "save"}
    )
    for purpose, which, count in (("rubric", "latest", 2), ("rerun", "all", 3), ("try", "some", 1)):
        answer = post(client, address, purpose=purpose, which=which, submission=handed[0])
        page = client.get(answer.location).get_data(as_text=True)
        assert f"/ {count} graded" in page
        told = client.get(f"{answer.location}/progress.json").get_json()
        assert told == {"total": count, "ended": 0, "over": False}
    with school.store.read() as session:
        mine = select(Round).where(Round.reason.in_(("try", "dry run", "re-run")))
        rounds = session.scalars(mine).all()
        assert {(row.current, row.priority) for row in rounds} == {(False, "batch")}
        waits = select(func.count()).select_from(Outbox).where(Outbox.kind == "prepare")
        assert session.scalar(waits) == len(rounds) + 3
    assert "test run" in [words for words, _ in missing(client.get(address).text)]  # none has ended
    with school.store.write() as session:
        session.scalars(select(Round).where(Round.reason == "try")).one().state = "graded"
    assert "test run" not in [words for words, _ in missing(client.get(address).text)]
    empty = post(client, address, purpose="try")
    assert empty.location.endswith("/dry-runs")


# --- a model's first draft ------------------------------------------------------------------------------


class Machine:
    """A machine that answers gateway requests of DRAFTING with a text, by the real talk."""

    def __init__(self, url: str, text: str) -> None:
        self.redis: Redis = connect(url)
        self.text = text
        self.asked: list[Any] = []
        self.done = threading.Event()

    def serve(self) -> None:
        found: Any = self.redis.brpop(["sent"], timeout=30)
        gateway_request = found[1]
        talks = Talks(self.redis)
        taken = talks.take(gateway_request, "one")
        assert taken is not None
        self.asked.append(taken[0])
        talks.say(gateway_request, Event(kind="begun", machine="one", model="qwen"))
        talks.leave(gateway_request, Event(kind="text", at=0, text=self.text), Event(kind="end"))
        self.done.set()


CRITERION = {
    "title": "Finds <b>rivers</b>", "description": "d", "stage": "analysis", "points": 5,
    "levels": ["no", "yes"], "uses": ["find"], "defines": [], "words": 0,
}  # fmt: skip


@pytest.mark.parametrize("good", [True, False])
def test_a_model_drafts_a_rubric_that_a_person_takes(tmp_path: Path, redis_url: str, good: bool) -> None:
    school = School(tmp_path)
    leases = Leases(connect(redis_url))
    stages = {"analysis": {"engine": "ollama", "model": "qwen"}}
    leases.heartbeat(Heartbeat("p", "one", 4, 0, stages))
    config = parse({**school.services.config.model_dump(mode="json"), "redis": {"url": redis_url}})

    def send(gateway_request: str, model: str) -> None:
        assert chat_queue(model) == chat_queue(DRAFTING)
        leases.redis.lpush("sent", gateway_request)

    gateway = GatewayServices(config, school.store, leases, Talks(leases.redis), send)
    school.services = replace(school.services, gateway=gateway)
    school.app = make_app(school.services)
    client, address = school.client("teacher"), f"/assignments/{school.assignment}/rubric"
    machine = Machine(redis_url, json.dumps({"criteria": [CRITERION]}) if good else "I would rather not.")
    thread = threading.Thread(target=machine.serve)
    thread.start()
    assert "Generate rubric" in client.get(f"{address}/draft").get_data(as_text=True)
    answer = post(client, f"{address}/draft")
    assert answer.status_code == 303
    thread.join(30)
    assert machine.asked[0].model == DRAFTING
    assert machine.asked[0].bound_to["required"] == ["criteria"]
    job = school.app.extensions["grader-drafts"].known[answer.location.rsplit("/", 1)[-1]]
    for _ in range(3000):
        if job.over:
            break
        threading.Event().wait(0.01)
    page = client.get(answer.location).get_data(as_text=True)
    assert versions(school) == [(1, True, "")]  # nothing without a click
    if good:
        assert "Finds &lt;b&gt;rivers&lt;/b&gt;" in page
        assert post(client, f"{address}/take", draft=job.id).status_code == 303
        assert versions(school)[1] == (2, False, "Generated by qwen")
    else:
        assert "is not a rubric. Try again" in page
        assert post(client, f"{address}/take", draft=job.id).status_code == 404
    assert school.client("grader").get(answer.location).status_code == 403
    assert school.client("admin").get(answer.location).status_code == 404  # somebody else's
    school.close()
    machine.redis.close()
    leases.redis.close()


def test_without_a_model_there_is_a_template(school: School, client: FlaskClient) -> None:
    address = f"/assignments/{school.assignment}/rubric"
    page = client.get(f"{address}/draft").get_data(as_text=True)
    assert "No machine with a model is available" in page
    assert post(client, f"{address}/draft").status_code == 303
    assert post(client, f"{address}/take").status_code == 303
    assert versions(school)[1] == (2, False, "Generated from the solution")
