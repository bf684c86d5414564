"""What a machine is told of config.toml, and when its worker must start again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.deploy.machine_config import authority, config_for, used_by
from cli.deploy.ssh import MachineError
from grading.config.settings import Config, load

OWN = """
[[machines]]
name = "lab-1"
slots = 2
[machines.engines.remote]
url = "http://localhost:8000"
options = { api_key_env = "KEY", "odd key" = "a\\"b\\\\ \\t\\u007f ü", n = 3, yes = true, l = ["1", "2"] }
[machines.stages]
analysis = { engine = "remote", model = "m" }
[machines.ssh]
host = "lab-1.school"
"""
OTHER = """
[[machines]]
name = "lab-2"
slots = 4
[machines.stages]
feedback = { engine = "rules", model = "r" }
[machines.ssh]
host = "lab-2.school"
"""
SHARED = """
[server]
public_url = "https://grader.school"
[redis]
url = "redis://:SECRET@10.0.0.5:6379/0"
[stages.analysis]
budget_s = 300
[stages.feedback]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def config(folder: Path, text: str) -> Config:
    return load(written(folder, text), {})


def test_a_machine_is_told_its_own_part(tmp_path: Path) -> None:
    path = written(tmp_path, SHARED + OWN + OTHER)
    text = config_for("lab-1", path, "/opt/grader/state/ca.pem")
    for kept_here in ("SECRET", "lab-2.school", "lab-1.school", "grader.school"):
        assert kept_here not in text
    assert 'ca_file = "/opt/grader/state/ca.pem"' in text
    there, here = config(tmp_path, config_for("lab-1", path, None)), config(tmp_path, SHARED + OWN + OTHER)
    assert there.machine("lab-1") == here.machine("lab-1").model_copy(update={"ssh": None})
    assert there.stages == here.stages
    assert used_by("lab-1", there) == used_by("lab-1", here)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (SHARED + OTHER.replace("slots = 4", "slots = 8") + OWN, True),  # another machine's table, the order
        (SHARED.replace("grader.school", "other.school") + OWN + OTHER, True),  # a key of the server
        (SHARED + OWN.replace("slots = 2", 'role = "primary"\nslots = 2') + OTHER, True),  # a default
        (SHARED + OWN.replace("lab-1.school", "10.0.0.11") + OTHER, True),  # the way to it
        (SHARED + OWN.replace("slots = 2", "slots = 3") + OTHER, False),
        (SHARED + "[gateway]\nenabled = true\n" + OWN + OTHER, False),
        (SHARED + OWN + OTHER.replace('lab-2"', 'lab-3"'), False),  # whom it looks at to share the work
    ],
)
def test_the_values_decide_whether_a_worker_starts_again(tmp_path: Path, text: str, same: bool) -> None:
    before = used_by("lab-1", config(tmp_path, SHARED + OWN + OTHER))
    assert (used_by("lab-1", config(tmp_path, text)) == before) is same


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"redis\.ca_file: .*/ca\.pem cannot be read: No such file"):
        authority(str(tmp_path / "ca.pem"))
