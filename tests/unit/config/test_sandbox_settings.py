"""The table [sandbox]: how many documents are run at the same time."""

import os

import pytest

from grading.config.settings import SandboxSettings


@pytest.mark.parametrize("cores", [1, 3, 200])
def test_without_a_number_the_pool_uses_each_core_it_may(cores: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    assert SandboxSettings().at_once == min(cores, 64)
    assert SandboxSettings(slots=5).at_once == 5


def test_systems_that_bind_no_process_count_their_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert SandboxSettings().at_once == 7
