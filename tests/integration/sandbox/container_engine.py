"""Stands in for the command line of a container engine, where none can run: sandboxes of bubblewrap.

It knows `run`, `kill` and `rm` with the options that the sandbox uses, refuses all others as an engine would,
and like an engine keeps running what its client started until that ends or is killed by its name.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

IMAGE = "grader-sandbox"
NAMES = Path(os.environ.get("STAND_IN_NAMES", "/nowhere"))


def main() -> int:
    verb, *rest = sys.argv[1:]
    if verb == "run":
        return run(rest)
    if verb == "kill" and len(rest) == 1:
        return kill(rest[0])
    if verb == "rm" and rest[:1] == ["--force"]:
        kill(rest[1])
        return 0
    return 125


def kill(name: str) -> int:
    try:
        pid = int((NAMES / name).read_text())
    except OSError:
        return 1  # no such container
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return 0


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=True, allow_abbrev=False)
    for name in ("--rm", "--interactive", "--read-only"):
        parser.add_argument(name, action="store_true")
    for name in (
        "--pull",
        "--log-driver",
        "--hostname",
        "--workdir",
        "--network",
        "--ipc",
        "--user",
        "--cap-drop",
    ):
        parser.add_argument(name, required=True)
    for name in ("--memory", "--memory-swap", "--pids-limit", "--cpus", "--shm-size"):
        parser.add_argument(name, required=True)
    for name in ("--security-opt", "--tmpfs", "--ulimit", "--env", "--mount"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--name", default="")
    parser.add_argument("--cidfile", default="")
    parser.add_argument("image")
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    return parser


def run(arguments: list[str]) -> int:
    given = options().parse_args(arguments)
    if given.image != IMAGE:
        sys.stderr.write(f"Error: {given.image}: image not known\n")
        return 125
    assert given.read_only
    assert (given.network, given.cap_drop, given.user) == ("none", "ALL", "65534:65534")
    spaces = [f"--unshare-{name}" for name in ("pid", "net", "ipc", "uts") if os.geteuid() == 0] or [
        "--unshare-all"
    ]
    command = ["bwrap", *spaces, "--die-with-parent", "--clearenv", "--hostname", given.hostname]
    for name in ("usr", "bin", "lib", "lib64", "etc/alternatives", "etc/ld.so.cache"):
        command += ["--ro-bind-try", f"/{name}", f"/{name}"]
    command += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]
    for text in given.tmpfs:
        target, _, details = text.partition(":")
        size = dict(detail.partition("=")[::2] for detail in details.split(","))["size"]
        command += ["--perms", "1777", "--size", str(int(size.removesuffix("m")) << 20), "--tmpfs", target]
    for text in sorted(given.mount):
        fields = next(csv.reader([text]))
        known = dict(field.partition("=")[::2] for field in fields)
        assert known.keys() == {"type", "source", "target", "readonly"}
        for folder in reversed(Path(known["target"]).parents[:-1]):
            command += ["--perms", "0755", "--dir", str(folder)]
        command += ["--ro-bind", known["source"], known["target"]]
    for text in given.env:
        command += ["--setenv", *text.partition("=")[::2]]
    command += ["--chdir", given.workdir, "--remount-ro", "/", "--remount-ro", "/dev"]
    memory = int(given.memory.removesuffix("m")) << 20
    limits = [f"--{text}" for text in given.ulimit]
    limits += [f"--as={memory + (64 << 20)}", f"--nproc={int(given.pids_limit) + 8}"]
    user, group = given.user.split(":")
    rights = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--bounding-set=-all"]
    if os.geteuid() != 0:
        rights = ["setpriv"]
    inside = ["prlimit", *limits, "--", *rights, "--no-new-privs", "--", *given.argv]
    process = subprocess.Popen([*command, "--", *inside], start_new_session=True, env={"PATH": os.defpath})
    if given.name:
        (NAMES / given.name).write_text(str(process.pid))
    if given.cidfile:
        Path(given.cidfile).write_text("0" * 64)
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
