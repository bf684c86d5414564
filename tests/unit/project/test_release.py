"""What `make release` makes: a bill of all locked packages, and files that nobody changes unnoticed."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = {"name": "grader", "version": "0.1.0", "description": "Grades homework", "license": "MIT"}
STAMP = "2026-11-27T12:00:00+00:00"


@cache
def release() -> dict[str, Any]:
    """The script's names."""
    return runpy.run_path(str(ROOT / "scripts" / "release"))


def key_in(folder: Path) -> Path:
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    return key


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of signed files, and the list of signers."""
    key, folder, signers = key_in(tmp_path), tmp_path / "release", tmp_path / "signers"
    folder.mkdir()
    (folder / "grader.whl").write_bytes(b"wheel")
    (folder / "grader.tar.gz").write_bytes(b"source")
    (folder / "SHA256SUMS").write_text(release()["sums"](folder), "ascii")
    release()["sign"](folder, key)
    signers.write_text(release()["signer"](key), "ascii")
    return folder, signers


def test_what_was_signed_is_accepted_also_by_the_commands_that_the_documents_name(
    signed: tuple[Path, Path],
) -> None:
    folder, signers = signed
    release()["verify"](folder, signers)
    page = (ROOT / "docs" / "contributing" / "releases.md").read_text("utf-8")
    (block,) = (one for one in page.split("```bash\n")[1:] if "-Y verify" in one)
    commands = block.split("```")[0].replace("release-signers", str(signers))
    done = subprocess.run(["sh", "-euc", commands], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 'Good "grader-release" signature' in done.stdout


@pytest.mark.parametrize("name", ["grader.whl", "SHA256SUMS", "SHA256SUMS.sig", "added.whl"])
def test_a_changed_byte_and_a_file_too_many_are_refused(signed: tuple[Path, Path], name: str) -> None:
    folder, signers = signed
    path = folder / name
    content = bytearray(path.read_bytes() if path.exists() else b"x")
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(release()["ReleaseError"]):
        release()["verify"](folder, signers)


def test_a_key_that_is_not_in_the_list_is_refused(signed: tuple[Path, Path], tmp_path: Path) -> None:
    folder, signers = signed
    (tmp_path / "other").mkdir()
    (folder / "SHA256SUMS.sig").unlink()
    release()["sign"](folder, key_in(tmp_path / "other"))
    with pytest.raises(release()["ReleaseError"], match="not signed by a key"):
        release()["verify"](folder, signers)


def test_the_bill_names_every_locked_package_with_its_hashes_and_no_address() -> None:
    texts = {place: (ROOT / name).read_text("utf-8") for place, name in release()["LOCKS"].items()}
    made = release()["bill"](PROJECT, texts, STAMP)
    assert b"://" not in made
    bill = json.loads(made)
    refs = {one["bom-ref"]: one for one in bill["components"]}
    for place, text in texts.items():
        lines = [line for line in text.splitlines() if line[:1].isalnum()]
        own = [
            one
            for one in refs.values()
            if {"name": "grader:environment", "value": place} in one["properties"]
        ]
        assert len({line.split(" ")[0] for line in lines}) == len(own)
    assert {digest["content"] for one in refs.values() for digest in one["hashes"]} == {
        word.removeprefix("--hash=sha256:")
        for text in texts.values()
        for word in text.split()
        if "sha256:" in word
    }
    assert bill["dependencies"][0]["dependsOn"] == sorted(refs)
    licensed = [one for one in refs.values() if "licenses" in one]
    assert len(licensed) > len(refs) / 2


@pytest.mark.soak
def test_two_checkouts_of_a_commit_make_the_same_bytes(tmp_path: Path) -> None:
    key, made = key_in(tmp_path), []
    for name in ("first", "second-with-another-path"):
        clone = tmp_path / name
        git = ["git", "-c", "safe.directory=*"]
        subprocess.run([*git, "clone", "-q", str(ROOT), str(clone)], check=True, timeout=300)
        done = subprocess.run(
            [sys.executable, "scripts/release"],
            cwd=clone,
            env={**os.environ, "RELEASE_KEY": str(key)},
            umask=0o077 if made else 0o022,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        made.append({path.name: path.read_bytes() for path in (clone / "build" / "release").iterdir()})
    assert [name for name in made[0] if made[0][name] != made[1].get(name)] == []
    assert len(made[0]) == 7
    bills = [content for name, content in made[0].items() if name.endswith(".cdx.json")]
    check = (
        "import sys; from cyclonedx.schema import SchemaVersion; "
        "from cyclonedx.validation.json import JsonStrictValidator; "
        "print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))"
    )
    program = [str(ROOT / ".venv-soak" / "bin" / "python"), "-c", check]
    checked = subprocess.run(program, input=bills[0], capture_output=True, timeout=300)
    assert checked.stdout == b"None\n", checked
    dirty = tmp_path / "first" / "README.md"
    dirty.write_text("changed")
    refused = subprocess.run(
        [sys.executable, "scripts/release"],
        cwd=dirty.parent,
        env={**os.environ, "RELEASE_KEY": str(key)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert refused.returncode == 1
    assert "Commit these" in refused.stderr
