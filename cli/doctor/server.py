"""The server's processes: secrets, disks, web app, store worker, sweeper, the sandbox."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import requests
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.doctor.finding import Bounds, Finding, Installation, certificate, disk, failure, ok, warning
from cli.settings import KEPT_KEY, MIN_SECRET, event_secrets, key_fingerprint
from grading.broker.canaries import OVERDUE_S, Canaries, PartHeartbeat, Waiting
from grading.broker.celery_app import SANDBOX, STORE
from grading.broker.connections import connect
from grading.broker.dispatch import AWAY
from grading.config.settings import SandboxSettings
from grading.domain.errors import ConfigError
from grading.execution.values import CodeLanguage
from grading.shared.certificates import certificate_end
from grading.shared.code_version import code_folder
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.runtimes.base import Runtime

PARTS = {"store": "grader store", "sweeper": "grader sweep", "sandbox": "grader sandbox"}
CANARIES = {"store": STORE, "sandbox": SANDBOX}
WEB_S = 5.0
FRESH_S = 15.0
"""An older heartbeat may be that of a process which was replaced."""
AS_WHOM = "run `grader doctor` as the user of the web app"


def own_key(installation: Installation) -> str | None:
    """The secret key that a web app started here would have; nothing where it would have none."""
    key = installation.environ.get("GRADER_SECRET_KEY")
    if key is None:
        with suppress(OSError):
            key = (installation.folder / KEPT_KEY).read_text(encoding="utf-8", errors="replace").strip()
    return key or None


def secrets(installation: Installation) -> Iterator[Finding]:
    """What must stand in the environment or in the folder for generated secrets."""
    key = installation.environ.get("GRADER_SECRET_KEY")
    yield _kept_key(installation.folder / KEPT_KEY) if key is None else _key("GRADER_SECRET_KEY", key)
    try:
        event_secrets(installation.config, installation.environ)
    except ConfigError as error:
        yield failure(
            "receiver_secret_missing", "secrets", error.message, "set it to the receiver's signing secret"
        )


def _kept_key(path: Path) -> Finding:
    try:
        open_to_others = path.stat().st_mode & 0o077
        key = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        message = f"GRADER_SECRET_KEY is not set and there is no {path} of `grader up`: web apps cannot start"
        return failure(
            "secret_missing",
            "secrets",
            message,
            "set it to the output of `openssl rand -hex 24`, for every web app",
        )
    except OSError as error:
        return warning("secret_unreadable", "secrets", f"{path} cannot be read ({error.strerror})", AS_WHOM)
    if open_to_others:
        return failure(
            "secret_readable_by_others",
            "secrets",
            f"other users of this computer can read {path}",
            f"run `chmod 600 {path}`",
        )
    return _key(str(path), key)


def _key(name: str, key: str) -> Finding:
    if len(key) < MIN_SECRET:
        return failure(
            "secret_short",
            "secrets",
            f"{name} is shorter than {MIN_SECRET} characters",
            "use a long random key",
        )
    return ok("secrets", f"{name} is set")


def disks(installation: Installation) -> Iterator[Finding]:
    """Room for what processes write: logs and keys, and uploads while they are read."""
    folder = installation.folder if installation.folder.exists() else Path()
    for name, path in (
        (f"disk of {installation.folder}", folder),
        ("disk of /tmp", Path(tempfile.gettempdir())),
    ):
        remedy = f"free space on the disk of {path.resolve()}"
        yield disk(name, shutil.disk_usage(path).free, installation.bounds, remedy)


def web(installation: Installation) -> Iterator[Finding]:
    """Whether submissions are accepted, here and where people look for it."""
    server = installation.config.server
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host  # noqa: S104 - compared, not bound
    yield _ready("web app", f"http://{host}:{server.port}", "start it with `grader web` and see its log")
    if server.public_url.startswith("https://"):
        remedy = "check the proxy, its certificate and server.public_url"
        yield _ready("public web app", server.public_url.rstrip("/"), remedy)
        yield from _certificate(server.public_url, installation.bounds)


def _certificate(url: str, bounds: Bounds) -> Iterator[Finding]:
    parts = urlsplit(url)
    with suppress(OSError):  # that it does not answer, or is not trusted, is said already
        yield certificate("web certificate", certificate_end(parts.hostname or "", parts.port or 443), bounds)


def _ready(name: str, address: str, remedy: str) -> Finding:
    try:
        answer = requests.get(f"{address}/readyz", timeout=WEB_S, allow_redirects=False)
        answer_json = answer.json() if answer.ok or answer.status_code == 503 else {}
    except (requests.RequestException, ValueError) as error:
        return failure("web_away", name, f"does not answer at {address} ({type(error).__name__})", remedy)
    status = answer_json.get("status") if isinstance(answer_json, dict) else None
    if status == "ok":
        return ok(name, f"accepts submissions at {address}")
    if status == "degraded":
        message = "accepts submissions, but they are not graded now"
        return warning("web_degraded", name, message, "see the findings on Redis and machines")
    if status == "unavailable":
        if answer_json.get("clock", "ok") != "ok":
            return failure(
                "web_clock", name, f"its clock {answer_json['clock']}", "see the findings on clocks"
            )
        message = f"accepts no submissions: the database is {answer_json.get('database', 'away')}"
        return failure("web_without_database", name, message, "see the findings on the database")
    return failure(
        "web_is_another", name, f"another program answers at {address} (status {answer.status_code})", remedy
    )


def parts(installation: Installation) -> Iterator[Finding]:
    """Whether the server processes send heartbeats, and the store worker takes work."""
    client = connect(installation.config.redis.url)
    canaries = Canaries(client)
    try:
        heartbeats, waiting = canaries.parts(), canaries.waiting(list(CANARIES.values()))
    except AWAY:
        return  # that is said elsewhere
    finally:
        client.close()
    yield from _same_key(heartbeats, own_key(installation))
    yield from _one_folder(heartbeats)
    for name, command in PARTS.items():
        if name == "sandbox" and installation.config.sandbox.backend == "none":
            continue
        canary = waiting.get(CANARIES.get(name, ""), Waiting(0.0, 0.0))
        yield _part(name, command, [one for one in heartbeats if one.part == name], canary)


def _same_key(heartbeats: list[PartHeartbeat], own: str | None) -> Iterator[Finding]:
    """All web apps, and commands here, must sign with one key; only fingerprints are compared."""
    webs = [one for one in heartbeats if one.part == "web" and one.age_s <= FRESH_S and one.secret]
    where = ", ".join(sorted(one.process for one in webs))
    if len({one.secret for one in webs}) > 1:
        message = f"the web apps {where} have different secret keys: sessions of one are not valid at another"
        remedy = "set the same GRADER_SECRET_KEY for each and restart it"
        yield failure("secret_differs", "secret key", message, remedy)
    elif webs and own is not None and webs[0].secret != key_fingerprint(own):
        message = f"the secret key here differs from that of the web app {where}"
        remedy = "run `grader doctor` and `grader webhook secret` with the environment of the web app"
        yield warning("secret_is_another", "secret key", message, remedy)
    elif webs:
        yield ok("secret key", f"the same for {where}")


def _one_folder(heartbeats: list[PartHeartbeat]) -> Iterator[Finding]:
    """On one computer all parts, and commands by hand, should run the code of one folder."""
    here = socket.gethostname()
    found: dict[str, dict[str, list[str]]] = {here: {code_folder(): ["this command"]}}
    for one in heartbeats:
        if one.age_s <= FRESH_S and one.folder:
            found.setdefault(one.host, {}).setdefault(one.folder, []).append(one.part)
    for host, folders in found.items():
        if len(folders) > 1:
            told = "; ".join(
                f"{', '.join(sorted(set(of)))} in {path}" for path, of in sorted(folders.items())
            )
            message = f"on {host} services run from several folders with one Redis: {told}"
            remedy = "stop those of the wrong folder, and run commands in the folder of the services"
            yield warning("folders_differ", "folder", message, remedy)


def _part(name: str, command: str, heartbeats: list[PartHeartbeat], waiting: Waiting) -> Finding:
    alive = [one for one in heartbeats if one.alive]
    if not alive:
        remedy = f"start it with `{command}` and see its log"
        if not heartbeats:
            return failure("part_missing", name, "not running", remedy)
        last = min(heartbeat.age_s for heartbeat in heartbeats)
        return failure("part_silent", name, f"the last heartbeat is {last:.0f} s old", remedy)
    if name == "sandbox" and waiting.waits_s > OVERDUE_S:
        message = f"took no work for {waiting.waits_s:.0f} s"
        return warning("sandbox_hung", name, message, "it is busy with long runs or hangs: see its log")
    if waiting.waits_s > OVERDUE_S:
        message = f"took no work for {waiting.waits_s:.0f} s"
        return failure("store_hung", name, message, "see its log and restart it")
    return ok(name, f"running ({', '.join(heartbeat.process for heartbeat in alive)})")


LANGUAGES: tuple[tuple[CodeLanguage, str], ...] = (("python", "Python"), ("r", "R"))
STUDENTS_PYTHON = ("IPython", "matplotlib", "numpy", "pandas", "pytest")
"""What a Python that the operator chose can import, in whatever version."""
LOCK = "requirements-sandbox.lock"
SHOWN = 5
REMEDY = "fix it, or set [sandbox] backend to none if no code is to be run; see docs/explanation/sandbox.md"


def sandbox(installation: Installation) -> Iterator[Finding]:
    """The sandbox and the interpreters in it."""
    settings = installation.config.sandbox
    if settings.backend == "none":
        yield ok("sandbox", "off ([sandbox] backend): code is not run")
        return
    backend = open_backend(settings.backend, engine=settings.engine, image=settings.image)
    if problem := backend.problem():
        yield warning("sandbox_missing", "sandbox", problem, REMEDY)
        return
    yield ok("sandbox", f"code runs in {backend.name}")
    for note in backend.notes if isinstance(backend, Bubblewrap) else ():
        message, _, remedy = note.partition(". ")
        yield warning("sandbox_weaker", "sandbox", message, remedy)
    for language, name in LANGUAGES:
        runtime = find_runtime(language, settings)
        message = f"runs {name}"
        missing = _missing(runtime, settings) if language == "python" else []
        if runtime.problem:
            remedy = f"fix it if a course uses {name}; until then such work is graded without a run"
            yield warning("language_missing", "sandbox", runtime.problem, remedy)
        elif missing and runtime.packages:  # those of an image are not known
            remedy = "run `make sandbox`, then restart the sandbox worker"
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            message += f" without {', '.join(missing[:SHOWN])}{more}"
            yield warning("packages_missing", "sandbox packages", message, remedy)
        else:
            yield ok("sandbox", message)


def _missing(runtime: Runtime, settings: SandboxSettings) -> list[str]:
    """What students' Python lacks: the environment that we make has the locked versions."""
    lock = Path(code_folder(), LOCK)
    if settings.python or not lock.exists():
        return sorted(set(STUDENTS_PYTHON) - runtime.packages)
    there = {(canonicalize_name(name), version) for name, version in map(str.split, runtime.installed)}
    return [f"{name} {version}" for name, version in locked(lock) if (name, version) not in there]


def locked(lock: Path) -> list[tuple[str, str]]:
    """Names and versions of a lock file's packages for this computer and this Python."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if line[:1].isalnum()]
    wanted = [Requirement(line.removesuffix("\\").strip()) for line in lines]
    return [
        (canonicalize_name(one.name), str(one.specifier).removeprefix("=="))
        for one in wanted
        if one.marker is None or one.marker.evaluate()
    ]
