"""A school and a learning platform that know each other, each on a host name and port of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from flask.testing import FlaskClient
from werkzeug.serving import make_server

from cli.dev.embedded_redis import free_port
from cli.dev.lti_platform.server import Running
from cli.dev.lti_platform.world import World
from grading.store.integrations.lti import launch as lti_launch
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.registrations import NewPlatform
from grading.store.integrations.lti.tables import LtiContext
from grading.store.tables import Identity
from tests.integration.webapp import School, report
from tests.support.servers.closing import ends_what_it_sends
from workers.server.delivery.lti import Passback


@dataclass
class Campus:
    """The two, and the process that tells scores."""

    school: School
    world: World
    platform_id: int

    def passback(self) -> Passback:
        """A sender, as a process just started has it."""
        return Passback(self.school.services.config.server, self.school.store)

    def login(self, client: FlaskClient, person: str, link: str) -> dict[str, str]:
        """The first step; what the platform is asked."""
        answer = client.get(
            "/lti/login",
            query_string={
                "iss": self.world.base,
                "login_hint": person,
                "lti_message_hint": link,
                "target_link_uri": f"{self.world.tool}/lti/launch",
                "client_id": self.world.client_id,
            },
        )
        assert answer.status_code == 302, answer.get_data(as_text=True)
        return {k: v[0] for k, v in parse_qs(urlsplit(answer.location).query).items()}

    def launch(self, client: FlaskClient, person: str, link: str = "link-1") -> str:
        """Both steps as a browser does them; where it is led."""
        asked = self.login(client, person, link)
        token = self.world.id_token(self.world.people[person], self.world.links.get(link), asked["nonce"])
        answer = client.post("/lti/launch", data={"id_token": token, "state": asked["state"]})
        assert answer.status_code == 303, re.sub(r"<[^>]*>", "", answer.get_data(as_text=True))
        return answer.location

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
        with self.school.store.read() as session:
            return session.query(Identity).filter_by(subject=person).one().user_id

    def graded(self, person: str, *, released: bool, **changes: object) -> str:
        """Something they handed in, graded."""
        self.school.users[person] = self.user(person)
        submission = self.school.submit(person)
        self.school.grade(submission, report(**changes), released=released)  # type: ignore[arg-type]
        return submission


@contextmanager
def campus(place: Path | str) -> Iterator[Campus]:
    """Both are served."""
    port = free_port()
    tool = f"http://127.0.0.1:{port}"
    allowed = ["localhost", "127.0.0.1/32", "::1/128"]
    school = School(place, public_url=tool, outside_allowed=allowed)
    server = make_server("127.0.0.1", port, ends_what_it_sends(school.app), threaded=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    world = World.furnished("", tool)
    with Running(world, "localhost", 0) as running:
        world.base = f"http://localhost:{running.port}"
        with school.store.write() as session:
            platform_id = registrations.register_platform(session, new(world), "test")
        try:
            yield Campus(school, world, platform_id)
        finally:
            server.shutdown()
            server.server_close()
            school.close()


def new(world: World) -> NewPlatform:
    """How the platform is registered by hand."""
    return NewPlatform(
        name="Test platform", issuer=world.base, client_id=world.client_id,
        authorize_url=f"{world.base}/authorize", token_url=f"{world.base}/token",
        jwks_url=f"{world.base}/jwks", deployments=(world.deployment,),
    )  # fmt: skip
