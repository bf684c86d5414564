"""Taking back what setup made, from its journal, last first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cli.setup import accounts, postgresql, system
from cli.setup.host import JOURNAL, Host, Made, SetupError

DATA_KINDS = ("user", "role", "database")
FOLDER = Made("folder", accounts.FOLDER)
VERBS = {"process": "end"}
KEPT_FOLDERS = (accounts.FOLDER, accounts.DEPLOY_HOME)
"""Configuration, secrets and keys: they are data, as nobody could make them again."""


def steps(host: Host, data: bool) -> list[tuple[str, Callable[[], object]]]:
    """What each step takes back, and the step."""
    made = [one for one in reversed(host.journal.made) if data or not _is_data(one)]
    found: list[tuple[str, Callable[[], object]]] = [
        (f"{VERBS.get(one.kind, 'remove')} the {one.kind} {one.name}", partial(_take_back, host, one))
        for one in made
        if one.kind != "package" and one != FOLDER
    ]
    if any(one.kind == "unit" for one in made):
        found.append(("reload systemd", partial(host.attempt, "systemctl", "daemon-reload")))
    if data and host.journal.path.exists():
        found.append((f"remove {JOURNAL}, and {accounts.FOLDER} if setup created it", partial(_end, host)))
    return found


def _end(host: Host) -> None:
    """The journal itself goes last, when nothing is left in it that could be tried again."""
    made = [one for one in host.journal.made if one.kind != "package"]
    if made not in ([], [FOLDER]):
        raise SetupError(f"{JOURNAL} is kept, because something in it still exists.")
    host.remove(accounts.FOLDER if made else JOURNAL)


def left(host: Host, data: bool) -> list[str]:
    """What stays, in sentences."""
    if not (host.journal.made or host.journal.answers):
        return [f"Setup has created nothing here: {JOURNAL} does not exist."]
    packages = [one.name for one in host.journal.made if one.kind == "package"]
    lines = [f"Packages are kept. To remove them: apt-get remove {' '.join(packages)}"] if packages else []
    if not data:
        lines.append(
            f"The database {postgresql.NAME}, {accounts.FOLDER}, the users and var of the checkout are kept. "
            "`grader setup` uses them again; `--undo --data` removes them."
        )
    return lines


def _is_data(one: Made) -> bool:
    below = any(one.name == folder or one.name.startswith(f"{folder}/") for folder in KEPT_FOLDERS)
    kept = below or one.name.endswith("/var")
    return one.kind in DATA_KINDS or (one.kind in ("file", "folder") and kept)


def _take_back(host: Host, one: Made) -> None:
    """Raises SetupError or OSError if it is still there; it stays in the journal then."""
    if one.kind == "unit":
        system.drop(host, one.name)
    elif one.kind == "process":
        system.stop_redis(host)
    elif one.kind in ("file", "folder"):
        host.remove(one.name)
    elif one.kind == "user" and host.attempt("getent", "passwd", one.name).returncode == 0:
        host.run("userdel", one.name)
    elif one.kind == "database":
        postgresql.ask(host, f"DROP DATABASE IF EXISTS {one.name} WITH (FORCE);")
    elif one.kind == "role":
        postgresql.ask(host, f"DROP ROLE IF EXISTS {one.name};")
    host.journal.remove(one)
