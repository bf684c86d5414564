"""Users of the server's parts, and the files of variables that each of them may read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from cli.deploy.units import SANDBOX_ACCOUNT, SERVER_ACCOUNT, Account, env_line
from cli.setup.host import Host, SetupError

FOLDER = "/etc/grader"
CONFIG = f"{FOLDER}/config.toml"
DEPLOY_ACCOUNT = Account("grader-deploy", f"{FOLDER}/deploy.env")
"""Reaches machines by SSH; the parts that strangers talk to have no key for that."""
DEPLOY_HOME = "/var/lib/grader-deploy"
COMMAND = "/usr/local/bin/grader"
MADE_BY = b"# Made by `grader setup`"
WRAPPER = """#!/bin/sh
# Made by `grader setup`: Grader's commands as the user that they need, with what that user is told.
set -eu
export GRADER_CONFIG="${GRADER_CONFIG:-@CONFIG@}"
# the Tab key must not ask for a password
if [ -n "${_GRADER_COMPLETE-}" ]; then exec @PYTHON@ -P -m cli; fi
case ${1-} in
    setup | service) user=root file=/dev/null ;;
    deploy | cluster) user=@DEPLOY@ file=@DEPLOY_FILE@ ;;
    sandbox) user=@SANDBOX@ file=@SANDBOX_FILE@ ;;
    *) user=@SERVER@ file=@SERVER_FILE@ ;;
esac
if [ "$(id -un)" != "$user" ]; then
    if [ "$(id -u)" = 0 ]; then exec runuser -u "$user" -- "$0" "$@"; fi
    exec sudo -u "$user" -- "$0" "$@"
fi
HOME=$(getent passwd "$user" | cut -d: -f6)
if [ "$user" = @DEPLOY@ ]; then cd "$HOME"; fi
set -a
. "$file"
set +a
export HOME
exec @PYTHON@ -P -m cli "$@"
"""


def homes(checkout: Path) -> dict[Account, str]:
    """The accounts and their home folders."""
    return {SERVER_ACCOUNT: str(checkout), SANDBOX_ACCOUNT: "/nonexistent", DEPLOY_ACCOUNT: DEPLOY_HOME}


def make(host: Host, account: Account, home: str) -> bool:
    """A user of the system without a password; False when there is one."""
    if host.attempt("getent", "passwd", account.name).returncode == 0:
        return False
    host.journal.add("user", account.name)
    options = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
    host.run("useradd", *options, "--home-dir", home, account.name)
    return True


def wrapper(python: str) -> str:
    """The text of the command that operators call."""
    words = {
        "DEPLOY": DEPLOY_ACCOUNT.name,
        "DEPLOY_FILE": DEPLOY_ACCOUNT.env_file,
        "SANDBOX": SANDBOX_ACCOUNT.name,
        "SANDBOX_FILE": SANDBOX_ACCOUNT.env_file,
        "SERVER": SERVER_ACCOUNT.name,
        "SERVER_FILE": SERVER_ACCOUNT.env_file,
        "CONFIG": CONFIG,
        "PYTHON": shlex.quote(python),
    }
    text = WRAPPER
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def no_other_command(host: Host) -> None:
    """Raises SetupError where another program has the name of the command."""
    path = host.path(COMMAND)
    if path.exists() and MADE_BY not in path.read_bytes():
        raise SetupError(f"{COMMAND} is a program that setup did not create. Move or remove it.")


def variables(host: Host, account: Account) -> dict[str, str]:
    """What an account is told, as a shell and systemd read its file."""
    found = {}
    for line in (host.read(account.env_file) or "").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, _, value = line.strip().partition("=")
            found[name] = "".join(shlex.split(value))
        except ValueError:
            raise SetupError(f"{account.env_file}: cannot read this line: {name}=…") from None
    return found


def keep_variables(host: Host, account: Account, values: Mapping[str, str]) -> bool:
    """Set variables in an account's file; other lines stay as they are. True when that changed it."""
    lines = (host.read(account.env_file) or "").splitlines()
    missing = dict(values)
    for number, line in enumerate(lines):
        name = line.partition("=")[0].strip()
        if name in missing:
            lines[number] = env_line(name, missing.pop(name)).rstrip("\n")
    lines += [env_line(name, value).rstrip("\n") for name, value in missing.items()]
    return host.write(account.env_file, "".join(f"{line}\n" for line in lines), 0o640, group=account.name)
