"""A school and a learning platform that know each other, each on a host name and port of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from flask.testing import FlaskClient
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from cli.dev.embedded_redis import free_port
from cli.dev.platforms.moodle import Moodle
from cli.dev.platforms.pages import Platform
from cli.dev.platforms.server import Running, registration_of
from grading.integrations.lti.keys import ToolKey, new_key, signed
from grading.store.integrations.lti import launch as lti_launch
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.tables import LtiContext
from grading.store.tables import Identity
from tests.integration.webapp import School, report
from tests.support.servers.closing import ends_what_it_sends
from workers.server.delivery.lti import Passback


@dataclass
class Campus:
    """The two, and the process that tells scores."""

    school: School
    world: Platform
    platform_id: int

    def passback(self) -> Passback:
        """A sender, as a process just started has it."""
        return Passback(self.school.services.config.server, self.school.store)

    def login(self, client: FlaskClient, person: str, link: str) -> dict[str, str]:
        """The first step; what the platform is asked."""
        answer = client.post("/lti/login", data=self.world.begin(person, link))
        if answer.status_code == 303:
            answer = client.get(answer.location)  # with the cookie that it was given
        assert answer.status_code == 302, answer.get_data(as_text=True)
        return {k: v[0] for k, v in parse_qs(urlsplit(answer.location).query).items()}

    def answer(self, client: FlaskClient, person: str, link: str = "link-1") -> TestResponse:
        """Both steps as a browser does them; how they end."""
        asked = self.login(client, person, link)
        return client.post("/lti/launch", data=self.world.authorize(asked, person))

    def launch(self, client: FlaskClient, person: str, link: str = "link-1") -> str:
        """Where a launch leads."""
        answer = self.answer(client, person, link)
        assert answer.status_code == 303, re.sub(r"<[^>]*>", "", answer.get_data(as_text=True))
        return answer.location

    def id_token(self, person: str, link: str, nonce: str) -> str:
        """What the platform says of a launch, whoever asked for it."""
        claims = self.world.claims(self.world.people[person], self.world.links[link], nonce)
        return signed(self.world.key, claims)

    def browser(self) -> FlaskClient:
        """A browser that keeps cookies for frames."""
        return self.school.app.test_client()

    def link(self, assignment_id: int | None = None) -> None:
        """The platform's course belongs to the school's, and `link-1` leads to its assignment."""
        self.world.links["link-1"].custom["grader_assignment"] = str(assignment_id or self.school.assignment)
        self.launch(self.browser(), "teacher-1")
        with self.school.store.write() as session:
            context = session.query(LtiContext).one()
            lti_launch.link_course(session, context.id, self.school.course, "test")

    def user(self, person: str) -> int:
        """Their number here."""
        subject = self.world.people[person].id
        with self.school.store.read() as session:
            return session.query(Identity).filter_by(subject=subject).one().user_id

    def graded(self, person: str, *, released: bool, **changes: object) -> str:
        """Something they submitted, graded."""
        self.school.users[person] = self.user(person)
        submission = self.school.submit(person)
        self.school.grade(submission, report(**changes), released=released)  # type: ignore[arg-type]
        return submission


@cache
def _key(number: int) -> ToolKey:
    """Made once: to make and to check one takes longer than most tests."""
    return new_key()


@contextmanager
def campus(place: Path | str, kind: type[Platform] = Moodle) -> Iterator[Campus]:
    """Both are served."""
    port = free_port()
    tool = f"http://127.0.0.1:{port}"
    allowed = ["localhost", "127.0.0.1/32", "::1/128"]
    keys = map(_key, count())  # each campus has the same ones, in this order
    school = School(place, public_url=tool, outside_allowed=allowed)
    server = make_server("127.0.0.1", port, ends_what_it_sends(school.app), threaded=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    world = kind("", tool, key=next(keys))
    world.furnish()
    with Running(world, "localhost", 0) as running:
        world.base = f"http://localhost:{running.port}"
        with school.store.write() as session:
            platform_id = registrations.register_platform(session, registration_of(world), "test")
        try:
            with patch.object(registrations, "new_key", lambda: next(keys)):
                yield Campus(school, world, platform_id)
        finally:
            server.shutdown()
            server.server_close()
            school.close()
