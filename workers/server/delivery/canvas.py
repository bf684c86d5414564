"""Canvas as a learning platform of the server: pulls people and attempts, posts scores, compares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.orm import Session

from grading.config.server import Canvas
from grading.domain.errors import GraderError
from grading.integrations.canvas.client import Talk, TokenRefused
from grading.integrations.canvas.values import CanvasFailed, CanvasSilent, tokens
from grading.store.database import Store
from grading.store.integrations.canvas import links, platform, scores
from grading.store.integrations.canvas.links import Link
from workers.server.context import Server
from workers.server.delivery.canvas_import import Pulled, Pulling
from workers.server.delivery.score_sync import ScoreSync

log = logging.getLogger(__name__)
PULL = "canvas-pull"


@dataclass
class Bridge(ScoreSync[Link, scores.Turn]):
    """People, attempts and scores. Before a post Canvas is asked what it has, as an answer may be lost."""

    kind = platform.KIND
    lease_s = 180.0
    """An attempt sends at the most six requests, each for a quarter of a minute, and waits in between."""

    server: Server
    tokens: Mapping[str, str]
    """By the name of a Canvas; one without a token is left alone, and that is said."""
    stop: threading.Event = field(default_factory=threading.Event)
    store: Store = field(init=False)
    _talks: dict[str, Talk] = field(default_factory=dict)
    """Of one pass."""

    def __post_init__(self) -> None:
        """Scores are in the server's store."""
        self.store = self.server.store

    def start(self) -> list[threading.Thread]:
        """Work until `stop`, if there is a Canvas; a long pull keeps no score waiting."""
        if not self.server.config.server.canvases:
            return []
        return [self.loop(self.fetch, "canvas-pull"), self.loop(self.push_due, "canvas-push")]

    def fetch(self) -> None:
        """Pull, and compare, where it is time."""
        with self.due(PULL, timedelta(minutes=self.server.config.server.canvas_every_min)) as mine:
            if mine:
                self.pull()
        self.compare_when_due()

    def push_due(self) -> None:
        """Post what is due."""
        self.reconcile_when_due()
        self.push()

    def push(self) -> int:
        """Post what is due; how many were posted."""
        self._talks.clear()
        return self.send_due()

    def links(self, session: Session) -> Sequence[int]:
        """That have not ended."""
        return [one.id for one in links.live(session)]

    def link(self, session: Session, number: int) -> Link | None:
        """That has not ended."""
        return next(iter(links.live(session, number)), None)

    def receiver(self, link: Link) -> Hashable:
        """The Canvas."""
        return link.connection

    def reconcile_link(self, session: Session, link: Link) -> int:
        """By comparing what was posted with what counts."""
        return scores.reconcile(session, link)

    def take(self, session: Session, link: Link, user_id: int) -> scores.Turn | str:
        """The turn of a student."""
        base = self.server.config.server.public_url.rstrip("/")
        canvases = self.server.config.server.canvases
        feedback = all(one.feedback for one in canvases if one.name == link.connection)
        return scores.take(session, link.id, user_id, self.lease_s, base, feedback=feedback)

    def post(self, link: Link, turn: scores.Turn) -> bool:
        """Whether Canvas did not have it yet."""
        mark = f"{self.server.config.server.public_url.rstrip('/')}/submissions/"
        place = (link.canvas_course, link.canvas_assignment, turn.canvas_user)
        talk = self._talks.get(link.connection) or self.talk(link.connection)
        self._talks[link.connection] = talk
        return talk.tell(*place, turn.wanted, talk.there(*place, mark))

    def sent(self, session: Session, turn: scores.Turn, answer: bool) -> bool:
        """With whether it was posted."""
        return scores.told(session, turn, posted=answer)

    def failed(self, session: Session, turn: scores.Turn, error: GraderError, *, dead: bool) -> None:
        """With its message."""
        scores.failed(session, turn, error.message, given_up=dead)

    def unreachable(self, error: GraderError) -> bool:
        """No whole answer in time, or the token is refused."""
        return isinstance(error, CanvasSilent | TokenRefused)

    def tidy(self, session: Session) -> None:
        """Delete old attempts."""
        scores.tidy(session)

    def talk(self, connection: str) -> Talk:
        """To one Canvas. Raises CanvasFailed where it is not in config.toml or has no token."""
        return Talk(
            self._canvas(connection).url, self.tokens[connection], self.server.config.server.allowed,
            self.stop.wait,
        )  # fmt: skip

    def _canvas(self, connection: str) -> Canvas:
        found = [one for one in self.server.config.server.canvases if one.name == connection]
        if not found:
            raise CanvasFailed(
                f"There is no Canvas '{connection}' in server.canvases of config.toml any more."
            )
        if not self.tokens.get(connection):
            raise TokenRefused(
                f"There is no token for '{connection}' in the environment; see docs/canvas.md."
            )
        return found[0]

    def pull(self, only: int | None = None) -> Pulled:
        """Bring people and new attempts of all links, or of one."""
        return Pulling(self.server, self.talk, self.stop).pull(only)

    def compare(self, only: int | None = None) -> int:
        """Compare what Canvas has with what was released; how many differ. Nothing is overwritten."""
        with self.server.store.read() as session:
            found = links.live(session, only)
        return sum(self._compare(link) for link in found if not self.stop.is_set())

    def _compare(self, link: Link) -> int:
        count, error = 0, ""
        try:
            theirs = self.talk(link.connection).all_there(link.canvas_course, link.canvas_assignment)
        except GraderError as failed:
            error = failed.message
            log.warning("link %d of Canvas cannot be compared: %s", link.id, error)
        with self.server.store.write() as session:
            if not error:
                count = scores.compare(session, link, theirs)
            links.compared(session, link.id, error)
        if count:
            log.warning("link %d: %d scores differ between Canvas and here", link.id, count)
        return count


def start(server: Server, environ: Mapping[str, str], stop: threading.Event) -> list[threading.Thread]:
    """Work until `stop`, where config.toml names a Canvas; tokens come from the environment."""
    return Bridge(server, tokens(server.config.server.canvases, environ), stop).start()
