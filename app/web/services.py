"""What the web app is given: nothing in `app` opens a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from flask import current_app
from redis import ConnectionPool

from app.gateway_requests.slots import GatewayServices
from grading.broker.canaries import PartHeartbeat
from grading.broker.heartbeats import Lease
from grading.broker.machine_status import MachineState
from grading.config.settings import Config
from grading.store import Store


class Dispatch(Protocol):
    """What the app needs of `grading.broker.dispatch.Dispatch`; nothing here raises when Redis is away."""

    def announce(self, round_id: str) -> bool:
        """Say after the commit that a round waits; best effort."""

    def announce_precheck(self, precheck_id: str) -> bool:
        """Say after the commit that a student's code is to be run; best effort."""

    def release(self) -> bool:
        """Ask for waiting rounds to be dispatched; best effort."""

    def tell_out(self, machines: Iterable[str]) -> bool:
        """Tell machines which of them are out of service; False while that cannot be told."""

    def leases(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """Who works on these runs."""

    def machines(self) -> list[MachineState]:
        """Every machine with its state."""

    def backlog(self) -> dict[str, int] | None:
        """Messages in each queue; nothing when Redis is away."""

    def clock(self) -> float | None:
        """Redis' time in seconds since 1970; nothing when it is away."""

    def parts(self) -> list[PartHeartbeat]:
        """The last heartbeat of every server process."""

    def view(self, submission_id: str, user_id: int) -> tuple[int, ...]:
        """Record that a user views a submission; the others who do, nobody when Redis is away."""

    def claim_criterion(
        self, assignment_id: int, criterion: str, user_id: int, submissions: Sequence[str]
    ) -> str | None:
        """Claim the first of these that nobody else grades now; when Redis is away, the first."""

    def password_refused(self) -> bool:
        """Whether Redis counts as away because it does not accept the password."""


@dataclass(frozen=True)
class Services:
    """Everything the app works with."""

    config: Config
    store: Store
    dispatch: Dispatch
    secret_key: str
    lms_secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Signing secrets of each LMS connection, several during a rotation."""
    sign_on_secrets: Mapping[str, str] = field(default_factory=dict)
    """The client secret of each provider of single sign-on."""
    metrics_token: str = ""
    """Who sends it may read /metrics from elsewhere; empty: only this machine itself."""
    gateway: GatewayServices | None = None
    """How a model is asked for a rubric's first draft, behind all grading; nothing: not at all."""

    certificate_ends: Callable[[], Mapping[str, float]] = dict
    """When certificates end, by server, in seconds since 1970; asks those servers."""
    rate_counts: ConnectionPool | None = None
    """Where all web processes count together how often something was asked; nothing: this one by itself."""

    draining: Callable[[], bool] = lambda: False
    """Whether this process ends soon, so that a load balancer must send it nothing more."""

    @property
    def https(self) -> bool:
        """Whether people reach the app by HTTPS, through a proxy that ends TLS."""
        return self.config.server.public_url.startswith("https://")


def services() -> Services:
    """The services of the current app."""
    return cast(Services, current_app.extensions["grader"])
