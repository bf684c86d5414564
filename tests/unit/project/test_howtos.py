"""The documents that operators follow: each block of commands is played by a test, or it is said why not."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import howtos


def test_each_block_of_commands_is_played_or_has_a_reason(root: Path) -> None:
    commands = {name for name, block in howtos.blocks(root).items() if block.language == "bash"}
    known = {*howtos.PLAYED, *howtos.NOT_PLAYED}
    assert not {*howtos.PLAYED} & {*howtos.NOT_PLAYED}
    assert sorted(commands - known) == [], "play it in test_howtos.py, or name it in tests/support/howtos.py"
    assert sorted(known - commands) == [], "no such block any more: take it out of tests/support/howtos.py"


def test_blocks_of_commands_are_bash(root: Path) -> None:
    wrong = {
        name: checked.stderr
        for name, block in howtos.blocks(root).items()
        if block.language == "bash" and (checked := syntax(block.text)).returncode
    }
    assert wrong == {}
    assert syntax("for one in 1; do").returncode


def syntax(text: str) -> subprocess.CompletedProcess[str]:
    """What bash says of it, without running it."""
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60, check=False)


def test_certificates_are_as_python_3_13_wants_them(root: Path, tmp_path: Path) -> None:
    (name,) = howtos.CERTIFICATE
    done = subprocess.run(
        ["bash", "-ec", howtos.blocks(root)[name].text],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "redis.pem"]
    assert (
        subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout
        == "redis.pem: OK\n"
    )
    shown = ["openssl", "x509", "-in", "redis.pem", "-noout", "-text"]
    text = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Authority Key Identifier" in text
    assert "DNS:redis.school.example, IP Address:10.0.0.5" in text
