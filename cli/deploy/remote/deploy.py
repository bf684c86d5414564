"""What runs on a machine for `grader deploy`: its facts, files that arrive, environments.

Standard library only: the server hands this text to the machine's Python over SSH. The first word is the
folder of Grader there, the second the verb; the last line printed is JSON. Paths of what arrives are relative
to a folder that the server names.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

CHUNK = 1 << 20
FULL = 10**7
CHANGE_S = 45.0
"""How long what an earlier deployment changes or puts back is waited for; the server waits a minute."""
LAST_S = 10.0
"""How long a copy whose connection broke may take to end."""


class Refused(Exception):
    """Something that cannot be done here, in a sentence."""


def inside(folder: Path, relative: str) -> Path:
    """A path below a folder, whatever is asked for."""
    parts = PurePosixPath(relative).parts
    if not parts or ".." in parts or relative.startswith("/"):
        raise Refused(f"{relative!r} leaves its folder")
    return folder.joinpath(*parts)


def place(folder: Path, where: str) -> Path:
    """A folder that the server names: absolute, below home, or below Grader's own."""
    return folder / Path(where).expanduser()


# --- facts ----------------------------------------------------------------------------------------


def facts(folder: Path) -> dict[str, Any]:
    """The system, its Python and the room on its disk."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    version = platform.python_version()
    libc, libc_version = platform.libc_ver()
    return {
        "python": sys.executable,
        "version": version,
        "venv": has_venv(),
        "folder": str(folder),
        "home": str(Path.home()),
        "uid": os.getuid(),
        "writable": os.access(there, os.W_OK | os.X_OK),
        "readonly": bool(os.statvfs(there).f_flag & os.ST_RDONLY),
        "free": shutil.disk_usage(there).free,
        "device": there.stat().st_dev,
        "clock": time.time(),
        "releases": names(folder / "releases"),
        "environments": names(folder / "environments"),
        "platform": sysconfig.get_platform(),
        "glibc": libc_version if libc == "glibc" else "",
        "macos": platform.mac_ver()[0],
        "markers": {
            "implementation_name": sys.implementation.name,
            "implementation_version": version,
            "os_name": os.name,
            "platform_machine": platform.machine(),
            "platform_python_implementation": platform.python_implementation(),
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": version,
            "python_version": ".".join(version.split(".")[:2]),
            "sys_platform": sys.platform,
        },
    }


def names(folder: Path) -> list[str]:
    """What a folder holds."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def has_venv() -> bool:
    """Whether this Python can make environments."""
    from importlib.util import find_spec

    return find_spec("venv") is not None and find_spec("ensurepip") is not None


# --- files ----------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def part_of(path: Path) -> Path:
    """Where a file grows until all of it is there."""
    return path.with_name(path.name + ".part")


def have(folder: Path, where: str, quick: str = "") -> dict[str, Any]:
    """Which files of a manifest are here whole (-1), or how many bytes of them have come so far."""
    target = place(folder, where)
    found = {}
    for row in json.load(sys.stdin):
        path = inside(target, row["path"])
        part = part_of(path)
        whole = path.is_file() and path.stat().st_size == row["size"]
        if whole and (quick or sha256(path) == row["sha256"]):
            found[row["path"]] = -1
        else:
            found[row["path"]] = min(part.stat().st_size, row["size"]) if part.is_file() else 0
    there = next(path for path in (target, *target.parents) if path.exists())
    return {"have": found, "free": shutil.disk_usage(there).free, "device": there.stat().st_dev}


def receive(folder: Path, where: str, public: str = "") -> dict[str, Any]:
    """Take files from standard input: a line of JSON, then so many bytes, again and again.

    What is `public` can be read by other users, such as the one that Ollama runs as.
    """
    if public:
        os.umask(0o022)
    target = place(folder, where)
    target.mkdir(parents=True, exist_ok=True)
    damaged = []
    with open(target / ".receiving", "a") as lock:
        if not locked(lock.fileno(), LAST_S):
            raise Refused(f"another copy into {target} is running; wait until it ends")
        while line := sys.stdin.buffer.readline():
            row = json.loads(line)
            if not take(sys.stdin.buffer, inside(target, row["path"]), row):
                damaged.append(row["path"])
    (target / ".receiving").unlink(missing_ok=True)
    return {"damaged": damaged}


def take(source: BinaryIO, path: Path, row: dict[str, Any]) -> bool:
    """Append what is missing of one file; it gets its name when size and hash are right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    with part.open("ab") as file:
        file.truncate(row["offset"])
        left = row["size"] - row["offset"]
        while left:
            data = source.read(min(CHUNK, left))
            if not data:
                raise Refused("the copy was interrupted; the next one continues here")
            file.write(data)
            left -= len(data)
    if part.stat().st_size != row["size"] or sha256(part) != row["sha256"]:
        part.unlink()
        return False
    os.replace(part, path)
    return True


def put(folder: Path, where: str, mode: str) -> bool:
    """Write standard input to a file, whole or not at all; False when it was the same already."""
    path, content = place(folder, where), sys.stdin.buffer.read()
    if path.is_file() and path.read_bytes() == content and path.stat().st_mode & 0o777 == int(mode, 8):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, int(mode, 8)), "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    os.replace(new, path)
    return True


def settle(folder: Path, version: str) -> bool:
    """Give a release its name, now that all of it is here."""
    new = folder / "releases" / f".new-{version}"
    (new / ".receiving").unlink(missing_ok=True)
    os.replace(new, folder / "releases" / version)
    return True


def listens(folder: Path, host: str, port: str, seconds: str) -> bool:
    """Whether something takes connections at an address of this machine, within so many seconds."""
    end = time.monotonic() + float(seconds)
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 2).close()
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        else:
            return True


def exists(folder: Path, where: str) -> bool:
    """Whether something is there."""
    return place(folder, where).exists()


def secrets(folder: Path) -> list[str]:
    """The names of the variables in the file of secrets, not their values."""
    path = folder / "grader.env"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return re.findall(r"^([A-Za-z_][A-Za-z0-9_]*)=", text, re.MULTILINE)


# --- the lock -------------------------------------------------------------------------------------


def locked(file: int, seconds: float = 0) -> bool:
    """Lock a file, within so many seconds; it ends with this process."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        else:
            return True


def settled(folder: Path) -> None:
    """Wait until no change is under way: one whose connection ended goes back by itself."""
    change = os.open(folder / ".change.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not locked(change, CHANGE_S):
        raise Refused(
            "an earlier deployment is still running there: it waits for its service to stop or puts back "
            "what it changed; wait a few minutes, then deploy again"
        )
    os.close(change)


def hold(folder: Path, who: str, version: str) -> bool:
    """Keep others from deploying here for as long as standard input lasts; remove what they left.

    What was copied of this version stays, to go on from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".deploy.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not locked(lock):
        holder, _, since = os.pread(lock, 1000, 0).decode("utf-8", "replace").partition("\n")
        age = int(time.time() - float(since or time.time()))
        raise Refused(
            f"{holder} has been deploying to it for {age} s; wait until that ends, or end it there: its "
            "lock ends with its connection"
        )
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{who}\n{time.time()}".encode(), 0)
    settled(folder)
    for kind in ("releases", "environments", "states"):
        for path in (folder / kind).glob(".new*"):
            if path.name != f".new-{version}":
                shutil.rmtree(path, ignore_errors=True)
    sys.stdout.write("true\n")
    sys.stdout.flush()
    sys.stdin.read()
    return True


# --- environments ---------------------------------------------------------------------------------


def environment(folder: Path, name: str, wheels: str = "") -> bool:
    """Make an environment from the lock on standard input, with wheels from a folder only if one is named.

    It grows under another name, and what is unpacked for it does so there: another folder may be full.
    """
    final = folder / "environments" / name
    path = final.with_name(f".new-{name}-{os.getpid()}")
    unpacked = path / "tmp"
    unpacked.mkdir(parents=True)
    os.environ["TMPDIR"] = str(unpacked)
    try:
        run(sys.executable, "-m", "venv", str(path), what="The environment could not be created")
        lock = path / "requirements.lock"
        lock.write_text(sys.stdin.read(), encoding="utf-8")
        pip = [str(path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
        source = ["--no-index", "--find-links", str(folder / wheels)] if wheels else []
        needed = ["install", "--no-deps", "--require-hashes", *source, "-r", str(lock)]
        run(*pip, *needed, what="The packages could not be installed")
        shutil.rmtree(unpacked)
        rename_within(path, final)
        os.replace(path, final)
    except Refused as error:
        if shutil.disk_usage(path).free > FULL:
            raise
        raise Refused(f"{str(error).partition(':')[0]}: No space left on device") from None  # pip may hide it
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return True


def rename_within(path: Path, final: Path) -> None:
    """Name a folder as it will be called in the programs and settings that it holds."""
    old, new = str(path).encode(), str(final).encode()
    for one in (path / "pyvenv.cfg", *(path / "bin").iterdir()):
        if one.is_file() and not one.is_symlink() and old in (content := one.read_bytes()):
            one.write_bytes(content.replace(old, new))


def run(*words: str, what: str) -> None:
    """Run a program; its last lines are the reason when it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = " ".join(done.stdout.split("\n")[-6:]).strip()[-400:]
        raise Refused(f"{what}: {last}")


VERBS: dict[str, Any] = {
    verb.__name__: verb
    for verb in (facts, have, receive, put, settle, exists, secrets, hold, environment, listens)
}


def main(folder: str, verb: str, *words: str) -> int:
    """Do a verb; a refusal is one sentence and status 1."""
    os.umask(0o077)
    try:
        answer = VERBS[verb](Path(folder), *words)
    except (Refused, OSError, ValueError) as error:
        sys.stderr.write(f"refused: {error}\n")
        return 1
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
