"""Learning platforms as those who show pages in frames."""

from __future__ import annotations

from typing import cast

from flask import Flask, session
from flask.blueprints import BlueprintSetupState
from sqlalchemy.orm import Session

from app.lti.launch import pages
from app.web import frames
from grading.store.integrations.lti import launch, platforms


class Platforms:
    """The platform that launched this session, and all that may."""

    entrances = ("/lti/login", "/lti/launch")

    def courses(self, store: Session) -> frozenset[int] | None:
        """Those that belong to the platform; nothing without a launch."""
        platform_id = session.get("lti_platform")
        return launch.courses_of(store, platform_id) if isinstance(platform_id, int) else None

    def origins(self, store: Session) -> tuple[str, ...]:
        """Of all platforms that are in use."""
        return platforms.origins(store)


@pages.record
def _install(state: BlueprintSetupState) -> None:
    frames.install(cast(Flask, state.app), Platforms())
