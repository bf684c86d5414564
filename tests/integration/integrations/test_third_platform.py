"""A third learning platform: a name and one module for each part of the system; nothing else knows it."""

from __future__ import annotations

import io
import json
import runpy
import sys
import threading
import zipfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from flask import Blueprint
from sqlalchemy import select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import cli.main
from app.web.platform_pages import PlatformLink, PlatformPages, platform_pages
from cli.doctor import delivery
from cli.doctor.finding import Installation, warning
from grading.config.settings import parse
from grading.domain import learning_platforms
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError, GraderError
from grading.integrations.events import Member, Roster
from grading.store import outbox
from grading.store.audit import write_audit
from grading.store.database import Store
from grading.store.grades.final_score import released_scores
from grading.store.integrations import lms_rosters
from grading.store.learning_platforms import LearningPlatform, known_platforms
from grading.store.privacy import erasure, export
from grading.store.privacy.erasure import find_student
from grading.store.tables import Outbox, Submission
from tests.integration.webapp import School, form_token, report
from workers.server.delivery.score_sync import ScoreSync

NAME = "registry"


class Settings(Value):
    """The keys of `[server]` that the platform adds."""

    registry_url: str = ""
    """Where the registry answers."""


class Base(DeclarativeBase):
    """Its tables are of this test only."""


class RegistryScore(Base):
    """What the platform was sent."""

    __tablename__ = "registry_scores"
    user_id: Mapped[int] = mapped_column(primary_key=True)
    points: Mapped[float | None]


def grade_changed(session: Session, ids: Sequence[str]) -> None:
    rows = session.execute(
        select(Submission.assignment_id, Submission.student_id).where(Submission.id.in_(ids))
    )
    for row in rows:
        payload = {"link": row.assignment_id, "user": row.student_id}
        outbox.add(session, NAME, f"{row.assignment_id}:{row.student_id}", payload)


class RegistrySync(ScoreSync[int, tuple[int, float | None]]):
    """Links are assignments, turns are students with their points."""

    kind = NAME
    lease_s = 60.0

    def __init__(self, store: Any, stop: threading.Event) -> None:
        self.store, self.stop = store, stop
        self.away = False

    def links(self, session: Session) -> Sequence[int]:
        return ()

    def link(self, session: Session, number: int) -> int:
        return number

    def receiver(self, link: int) -> Hashable:
        return NAME

    def reconcile_link(self, session: Session, link: int) -> int:
        return 0

    def take(self, session: Session, link: int, user_id: int) -> tuple[int, float | None]:
        return user_id, released_scores(session, link, [user_id])[user_id][0]

    def post(self, link: int, turn: tuple[int, float | None]) -> bool:
        if self.away:
            raise GraderError("The registry does not answer.")
        return True

    def sent(self, session: Session, turn: tuple[int, float | None], answer: bool) -> bool:
        session.merge(RegistryScore(user_id=turn[0], points=turn[1]))
        return answer

    def failed(self, session: Session, turn: Any, error: GraderError, *, dead: bool) -> None:
        assert not dead

    def unreachable(self, error: GraderError) -> bool:
        return True

    def compare(self) -> int:
        return 0

    def tidy(self, session: Session) -> None:
        pass


def pull(store: Store, people: Sequence[Member]) -> None:
    """What the registry says of a course becomes its roster."""
    with store.write() as session:
        lms_rosters.update_roster(session, NAME, Roster(course="ba", members=tuple(people)))


class Section:
    """Everybody's score, on the page of a course."""

    template = "registry.html"

    def read(self, store: Session, course_id: int) -> Any:
        return {"linked": True, "scores": store.scalars(select(RegistryScore)).all()}

    def links(self, store: Session, course_id: int) -> list[PlatformLink]:
        sent = len(store.scalars(select(RegistryScore)).all())
        return [PlatformLink(7, 1, "Everything", sent, 0, None, "")] if sent else []

    def send_again(self, store: Session, course_id: int, chosen: Iterable[tuple[int, int]]) -> int:
        return sum(
            outbox.add(store, NAME, f"again:{link}:{user}", {"link": link, "user": user})
            for link, user in chosen
        )


def modules(templates: Path) -> dict[str, ModuleType]:
    """What a package outside this tree would bring."""

    @click.group(NAME)
    def registry() -> None:
        """The registry of the school."""

    def start(server: Any, environ: Any, stop: threading.Event) -> list[threading.Thread]:
        if not server.config.server.of_platform(Settings).registry_url:
            return []
        sync = RegistrySync(server.store, stop)
        return [sync.loop(sync.send_due, NAME)]

    platform = LearningPlatform(NAME, grade_changed, personal=(RegistryScore,))
    pages = PlatformPages(
        blueprints=(Blueprint(NAME, __name__, template_folder=str(templates)),),
        course_section=Section(),
        deliveries={NAME: "Scores for the registry"},
        audit_sentences={f"{NAME}.link": "%(who)s linked %(what)s with the registry."},
    )
    found: dict[str, dict[str, Any]] = {
        f"grading.integrations.{NAME}": {"Settings": Settings},
        f"grading.store.integrations.{NAME}.platform": {"PLATFORM": platform},
        f"workers.server.delivery.{NAME}": {"start": start},
        f"app.platforms.{NAME}": {"PAGES": pages},
        f"cli.commands.{NAME}": {
            NAME: registry,
            "diagnose": lambda _installation: iter(
                [warning("no_address", NAME, "has no address", "name one")]
            ),
        },
    }
    made = {}
    for path, values in found.items():
        made[path] = ModuleType(path)
        vars(made[path]).update(values)
    return made


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    """A school whose Grader has the platform."""
    (tmp_path / "templates").mkdir()
    template = "<h2>Registry</h2>{% for one in seen.scores %}{{ one.points }}{% endfor %}"
    (tmp_path / "templates" / "registry.html").write_text(template)
    for path, module in modules(tmp_path / "templates").items():
        monkeypatch.setitem(sys.modules, path, module)
    names = (*learning_platforms.LEARNING_PLATFORMS, NAME)
    monkeypatch.setattr(learning_platforms, "LEARNING_PLATFORMS", names)
    for known in (known_platforms, platform_pages):
        known.cache_clear()
    made = School(tmp_path, registry_url="https://registry.school.example")
    Base.metadata.create_all(made.store.engine)
    yield made
    made.close()
    for known in (known_platforms, platform_pages):
        known.cache_clear()


def released(school: School) -> str:
    """A submission of Anna whose grade the teacher releases on its page."""
    submission = school.submit("anna")
    school.grade(submission, report())
    teacher = school.client("teacher")
    form = {"csrf_token": form_token(teacher)}
    assert teacher.post(f"/submissions/{submission}/release", data=form).status_code == 303
    return submission


def test_a_released_score_is_sent_once_it_answers(school: School) -> None:
    released(school)
    sync = RegistrySync(school.store, threading.Event())
    sync.away = True
    assert sync.send_due() == 0
    with school.store.write() as session:
        row = session.scalars(select(Outbox).where(Outbox.kind == NAME)).one()
        assert (row.error, row.tries) == ("The registry does not answer.", 1)
        session.execute(update(Outbox).values(not_before=row.created_at))
    sync.away = False
    assert sync.send_due() == 1
    with school.store.read() as session:
        assert [one.points for one in session.scalars(select(RegistryScore))] == [8.5]


def test_config_toml_has_its_keys(school: School) -> None:
    server = school.services.config.server
    assert server.of_platform(Settings).registry_url == "https://registry.school.example"
    machine = {"name": "one", "stages": {"analysis": {"engine": "rules", "model": "rules"}}}
    with pytest.raises(ConfigError, match=r"^server\.registry_url: .*string"):
        parse({"server": {"registry_url": 3}, "machines": [machine]})
    with pytest.raises(ConfigError, match=r"^server\.registry: there is no such key"):
        parse({"server": {"registry": "x"}, "machines": [machine]})
    script = runpy.run_path("scripts/docs")
    assert '| `registry_url` | text | `""` | Where the registry answers. |' in script["config"]()


def test_its_roster_becomes_that_of_the_course(school: School) -> None:
    pull(school.store, [Member(id="r-1", name="Rita Registered")])
    page = school.client("teacher").get(f"/courses/{school.course}/people").get_data(as_text=True)
    assert "Rita Registered" in page


def test_pages_and_operations_show_it(school: School) -> None:
    released(school)
    assert RegistrySync(school.store, threading.Event()).send_due() == 1
    teacher = school.client("teacher")
    page = f"/courses/{school.course}/platform"
    assert "<h2>Registry</h2>8.5" in teacher.get(page).get_data(as_text=True)
    links = f"/api/v1/courses/{school.course}/platform-links"
    (link,) = teacher.get(links, headers=school.token("teacher")).get_json()["items"]
    assert (link["platform"], link["id"], link["sent"]) == (NAME, 7, 1)
    form = {"csrf_token": form_token(teacher), NAME: f"{school.assignment}:{school.users['anna']}"}
    assert teacher.post(f"{page}/again", data=form).status_code == 303
    with school.store.write() as session:
        write_audit(session, "cli", f"{NAME}.link", f"assignment:{school.assignment}")
    admin = school.client("admin")
    assert "with the registry." in admin.get("/audit").get_data(as_text=True)
    assert "Scores for the registry" in admin.get("/operations").get_data(as_text=True)


def test_its_rows_are_exported_and_erased_with_their_student(school: School) -> None:
    released(school)
    assert RegistrySync(school.store, threading.Event()).send_due() == 1
    content = io.BytesIO()
    with school.store.read() as session:
        student = find_student(session, "anna")
    assert export.write_export(school.store, student, content, "cli")["registry_scores"] == 1
    with school.store.write() as session:
        known, _ = erasure.preview_erasure(session, "anna")
        assert erasure.erase_student(session, known, "cli").counts["registry_scores"] == 1
    with zipfile.ZipFile(content) as archive:
        data = json.loads(archive.read("data.json"))
    assert data["registry_scores"] == [{"user_id": school.users["anna"], "points": 8.5}]


def test_it_has_a_command_and_a_diagnosis(school: School, tmp_path: Path) -> None:
    listed = CliRunner().invoke(cli.main.grader, ["--help"])
    assert NAME in listed.output
    assert "registry of the school" in CliRunner().invoke(cli.main.grader, [NAME, "--help"]).output
    found = list(delivery.diagnose_webhooks(Installation(school.services.config, tmp_path, {})))
    assert [one.message for one in found if one.check == NAME] == ["has no address"]
