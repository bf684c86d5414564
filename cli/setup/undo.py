"""Taking back what setup made, from its journal, last first."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cli.setup import accounts, postgresql
from cli.setup.host import Host, Made

DATA_KINDS = ("user", "role", "database")
KEPT_FOLDERS = (accounts.FOLDER, accounts.DEPLOY_HOME)
"""Configuration, secrets and keys: they are data, as nobody could make them again."""


def steps(host: Host, data: bool) -> list[tuple[str, Callable[[], object]]]:
    """What each step takes back, and the step."""
    made = [one for one in reversed(host.journal.made) if data or not _is_data(one)]
    found: list[tuple[str, Callable[[], object]]] = [
        (f"remove the {one.kind} {one.name}", partial(_take_back, host, one))
        for one in made
        if one.kind != "package"
    ]
    if any(one.kind == "unit" for one in made):
        found.append(("have systemd forget the units", partial(host.attempt, "systemctl", "daemon-reload")))
    if data:
        # the journal itself goes last
        folder = host.path(accounts.FOLDER)
        found.append((f"remove {accounts.FOLDER}", partial(shutil.rmtree, folder, ignore_errors=True)))
    return found


def left(host: Host, data: bool) -> list[str]:
    """What stays, in sentences."""
    packages = [one.name for one in host.journal.made if one.kind == "package"]
    lines = [f"Packages stay; remove them with: apt-get remove {' '.join(packages)}"] if packages else []
    if not data:
        lines.append(
            f"The database {postgresql.NAME}, {accounts.FOLDER}, the users and var of the checkout stay; "
            "`grader setup` takes them up again, `--undo --data` removes them."
        )
    return lines


def _is_data(one: Made) -> bool:
    below = any(one.name == folder or one.name.startswith(f"{folder}/") for folder in KEPT_FOLDERS)
    kept = below or one.name.endswith("/var")
    return one.kind in DATA_KINDS or (one.kind in ("file", "folder") and kept)


def _take_back(host: Host, one: Made) -> None:
    if one.kind == "unit":
        host.attempt("systemctl", "disable", "--now", one.name, timeout_s=300)
    elif one.kind == "file":
        host.path(one.name).unlink(missing_ok=True)
    elif one.kind == "folder":
        with suppress(FileNotFoundError):
            shutil.rmtree(host.path(one.name))
    elif one.kind == "user":
        host.attempt("userdel", one.name)
    elif one.kind == "database":
        postgresql.ask(host, f"DROP DATABASE IF EXISTS {one.name} WITH (FORCE);")
    elif one.kind == "role":
        postgresql.ask(host, f"DROP ROLE IF EXISTS {one.name};")
    host.journal.remove(one)
