"""The computer that is set up: every program that setup runs and every file it writes goes through here."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from grading.domain.errors import GraderError

JOURNAL = "/etc/grader/setup.json"
PROGRAM_S = 120.0
TAIL = 600


class SetupError(GraderError):
    """A step that cannot be done, and what to do about it."""

    code = "setup_failed"
    status = 500


@dataclass(frozen=True)
class Made:
    """Something that setup made: what kind of thing, and its name."""

    kind: str
    name: str


@dataclass
class Journal:
    """What was answered and made, in a file that outlives a run that broke off.

    A thing is written down before it is made, so that nothing is made that cannot be taken back.
    """

    path: Path
    answers: dict[str, Any] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Journal:
        """The journal of earlier runs, empty where there was none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(path)
        except PermissionError:
            raise SetupError(f"{path} can be read by root only. Run setup as root (sudo).") from None
        return cls(path, content["answers"], [Made(*one) for one in content["made"]])

    def add(self, kind: str, name: str) -> None:
        """Something is about to be made."""
        if Made(kind, name) not in self.made:
            self.made.append(Made(kind, name))
            self.write()

    def remove(self, *gone: Made) -> None:
        """Something was taken back."""
        self.made = [one for one in self.made if one not in gone]
        self.write()

    def write(self) -> None:
        """Keep it."""
        if not self.path.parent.exists():
            self.made.insert(0, Made("folder", str(PurePosixPath(JOURNAL).parent)))
            self.path.parent.mkdir(parents=True, mode=0o755)
        rows = [[one.kind, one.name] for one in self.made]
        content = json.dumps({"answers": self.answers, "made": rows}, indent=1) + "\n"
        folder = os.open(self.path.parent, os.O_DIRECTORY)
        try:
            _replace(folder, self.path.name, content.encode(), 0o600)
        finally:
            os.close(folder)


@dataclass
class Host:
    """The computer below a folder, `/` but for tests; programs see that folder as theirs."""

    root: Path
    journal: Journal

    @classmethod
    def at(cls, root: Path) -> Host:
        """With the journal that is there."""
        return cls(root, Journal.read(root / JOURNAL.lstrip("/")))

    def path(self, path: str | Path) -> Path:
        """Where a path of the computer lies."""
        return self.root / str(path).lstrip("/")

    def has(self, program: str) -> bool:
        """Whether a program is installed."""
        folders = [
            self.path(f)
            for f in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
        ]
        return shutil.which(program, path=os.pathsep.join(map(str, folders))) is not None

    def run(self, *words: str, **how: Any) -> str:
        """Output of a program that ends well. Raises SetupError with the last it said."""
        done = self.attempt(*words, **how)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-TAIL:]
            raise SetupError(f"`{' '.join(words[:6])}` ended with status {done.returncode}: {said}")
        return done.stdout

    def attempt(
        self,
        *words: str,
        user: str | None = None,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
        folder: str = "/",
        timeout_s: float = PROGRAM_S,
    ) -> subprocess.CompletedProcess[str]:
        """How a program ended. Raises SetupError when it is missing or takes too long."""
        command = [*(["runuser", "-u", user, "--"] if user else []), *words]
        if self.root != Path("/"):
            command = ["chroot", str(self.root), *command]
        try:
            return subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C.UTF-8", **(environ or {})},
                cwd=folder,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError:
            raise SetupError(f"{command[0]} is not installed on this computer.") from None
        except subprocess.TimeoutExpired:
            raise SetupError(f"`{' '.join(words[:6])}` did not end within {timeout_s:.0f} s.") from None

    def interact(self, *words: str) -> bool:
        """Run a program that asks the operator itself; whether it ended well."""
        return subprocess.run(words, check=False).returncode == 0

    def read(self, path: str) -> str | None:
        """A file as text; None where there is none. Raises SetupError for another user's link."""
        try:
            with (
                self._folder_of(path) as (folder, name),
                _opened(folder, name, os.O_NONBLOCK) as file,
                os.fdopen(file, encoding="utf-8", closefd=False) as text,
            ):
                return text.read()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: str, mode: int, owner: str = "root", group: str = "root") -> bool:
        """Write a file whole or not at all; False when it was the same already."""
        numbers = (self._uid(owner), self._gid(group))
        if not self.path(path).exists():
            self.journal.add("file", path)
        with self._folder_of(path) as (folder, name):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                same = (found.st_mode & 0o777, found.st_uid, found.st_gid) == (mode, *numbers)
                if same and stat.S_ISREG(found.st_mode) and self.read(path) == content:
                    return False
            _replace(folder, name, content.encode(), mode, numbers)
        return True

    def folder(self, path: str, mode: int, owner: str = "root", group: str = "root") -> bool:
        """Make a folder; False when it was the same already. Raises SetupError for another user's link."""
        numbers = (self._uid(owner), self._gid(group))
        if not self.path(path).exists():
            self.journal.add("folder", path)
        with self._folder_of(path) as (above, name):
            with suppress(FileExistsError):
                os.mkdir(name, mode=0o700, dir_fd=above)
            with _opened(above, name, os.O_DIRECTORY) as folder:
                found = os.fstat(folder)
                if (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (mode, *numbers):
                    return False
                os.fchown(folder, *numbers)
                os.fchmod(folder, mode)
        return True

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all in it; a link, not what it leads to."""
        with suppress(FileNotFoundError), self._folder_of(path) as (above, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=above)
            else:
                os.unlink(name, dir_fd=above)

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder that a path lies in, and the name in it.

        Users of services own some folders; a link that they put on the way would lead root elsewhere.
        """
        *above, name = PurePosixPath(path).relative_to("/").parts
        with ExitStack() as stack:
            folder = os.open(self.root, os.O_DIRECTORY)
            stack.callback(os.close, folder)
            for one in above:
                folder = stack.enter_context(_opened(folder, one, os.O_DIRECTORY))
            yield folder, name

    def _uid(self, name: str) -> int:
        return os.geteuid() if name == "root" else pwd.getpwnam(name).pw_uid

    def _gid(self, name: str) -> int:
        return os.getegid() if name == "root" else grp.getgrnam(name).gr_gid


@contextmanager
def _opened(folder: int, name: str, flags: int) -> Iterator[int]:
    """What lies in an open folder; a link there is followed only where nobody but root can have made it."""
    found = os.fstat(folder)
    ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
    try:
        opened = os.open(name, flags | (0 if ours else os.O_NOFOLLOW), dir_fd=folder)
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(folder, name)
        if not is_link:
            raise
        raise SetupError(
            f"{name} is a link in a folder that users other than root can change. Remove it, or replace it "
            "by its target."
        ) from None
    try:
        yield opened
    finally:
        os.close(opened)


def _is_link(folder: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _replace(folder: int, name: str, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """A file appears with all of its content, owner and mode, or stays as it was."""
    new = f".{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
