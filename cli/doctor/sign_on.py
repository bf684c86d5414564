"""Providers of single sign-on: their secrets, what they publish, and what of it Grader needs."""

from __future__ import annotations

from collections.abc import Iterator

from cli.doctor.finding import Finding, Installation, failure, ok, warning
from cli.settings import sign_on_secret
from grading.config.sign_on import Provider
from grading.domain.errors import ConfigError, GraderError
from grading.integrations.oidc.discovery import fetch_jwks, fetch_metadata
from grading.integrations.oidc.values import Metadata


def diagnose(installation: Installation) -> Iterator[Finding]:
    """Each provider: its secret is set, and it publishes configuration and keys that fit."""
    config = installation.config
    if config.sign_on.providers and not config.server.public_url.startswith("https://"):
        yield warning(
            "sign_on_without_https", "single sign-on",
            "server.public_url is not https: who reads the network to Grader can sign in as others",
            "docs/how-to/administrators/https.md",
        )  # fmt: skip
    for name, provider in config.sign_on.providers.items():
        yield _secret(name, installation) or _published(name, provider, installation)


def _secret(name: str, installation: Installation) -> Finding | None:
    try:
        sign_on_secret(name, installation.environ)
    except ConfigError as error:
        return failure(
            "sign_on_secret_missing", f"single sign-on {name}", error.message,
            "set it for the web app and for `grader doctor`",
        )  # fmt: skip
    return None


def _published(name: str, provider: Provider, installation: Installation) -> Finding:
    check = f"single sign-on {name}"
    allow = installation.config.server.allowed
    try:
        found = fetch_metadata(provider.issuer, allow)
        keys = len(fetch_jwks(found, allow)["keys"])
    except GraderError as error:
        return failure(
            "sign_on_provider", check, error.message,
            f"compare sign_on.providers.{name}.issuer with the provider's configuration; "
            "docs/how-to/administrators/single-sign-on.md",
        )  # fmt: skip
    return ok(check, f"{provider.issuer} publishes {keys} keys; {_abilities(found)}")


def _abilities(found: Metadata) -> str:
    """What it can beside signing in."""
    able = {
        "names itself in its answers": found.names_itself,
        "signs out by a link": bool(found.end_session_endpoint),
        "signs out here by back-channel logout": found.backchannel_logout,
    }
    return ", ".join(what if yes else f"not: {what}" for what, yes in able.items())
