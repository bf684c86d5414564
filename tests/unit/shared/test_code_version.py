"""Software is told by its content, not by how it was installed."""

from __future__ import annotations

import pytest

from grading.shared import code_version


def test_a_checkout_that_was_never_installed_is_the_same_software(monkeypatch: pytest.MonkeyPatch) -> None:
    here = code_version.software()
    code_version.software.cache_clear()
    monkeypatch.setattr(code_version, "_number", lambda: "0")
    try:
        there = code_version.software()
    finally:
        code_version.software.cache_clear()
    assert there != here
    assert code_version.fingerprint(there) == code_version.fingerprint(here) == here.rpartition("+")[2]


def test_other_files_are_other_software() -> None:
    assert code_version.fingerprint("0.1.0+3fa9c2d1") != code_version.fingerprint("0.1.0+3fa9c2d2")
