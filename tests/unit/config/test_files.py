"""`[files]`: what an object store's address and names may be, and that its keys go nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cli.deploy.machine_config import config_for, secrets_for, used_by
from grading.config import settings
from grading.config.files import Files
from grading.domain.errors import ConfigError
from grading.store.object_store import open_objects

KEYS = {"GRADER_FILES_KEY_ID": "the-id", "GRADER_FILES_SECRET": "the-secret"}
TOML = """
[files]
bucket = "school"
endpoint = "https://s3.school.example"
[[machines]]
name = "m"
role = "primary"
[machines.engines.rules]
[machines.stages]
analysis = { engine = "rules", model = "rules" }
feedback = { engine = "rules", model = "rules" }
"""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"endpoint": "http://s3.school.example"}, "unencrypted"),
        ({"endpoint": "http://10.0.0.1:9000"}, "unencrypted"),
        ({"endpoint": "https://key:secret@s3.school.example"}, "without keys"),
        ({"endpoint": "https://s3.school.example/bucket"}, "leave the path out"),
        ({"endpoint": "https://s3.school.example?x=1"}, "without keys"),
        ({"endpoint": "https://169.254.169.254"}, "inner services"),
        ({"endpoint": "ftp://s3.school.example"}, "pattern"),
        ({"endpoint": "https://s3 school"}, "pattern"),
        ({"bucket": "../other"}, "pattern"),
        ({"bucket": "School"}, "pattern"),
        ({"prefix": "a/../b"}, "is . or .."),
        ({"prefix": "/a"}, "pattern"),
        ({"prefix": ""}, "pattern"),
        ({"larger_than_kb": 63}, "at least 64"),
        ({"larger_than_kb": -1}, "greater than or equal"),
        ({"ca_file": "/nowhere/ca.pem"}, "is not there"),
        ({"secret": "x"}, "Extra inputs"),
    ],
)
def test_a_wrong_value_is_refused_with_a_reason(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Files(**{"bucket": "school", **wrong})


def test_without_a_bucket_there_is_no_object_store() -> None:
    assert open_objects(Files()) is None
    assert Files(bucket="school", region="eu-central-1").address == "https://s3.eu-central-1.amazonaws.com"
    assert Files(bucket="s-1", endpoint="http://127.0.0.1:9000/").address == "http://127.0.0.1:9000"
    assert not Files(bucket="school", larger_than_kb=0).moves


def test_keys_come_from_the_environment_and_are_in_no_dump(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    config = settings.load(path, {})
    with pytest.raises(ConfigError, match="set GRADER_FILES_KEY_ID and GRADER_FILES_SECRET"):
        open_objects(config.files)
    config = settings.load(path, KEYS)
    assert config.with_engine("rules").files.keys == ("the-id", "the-secret")
    for text in (repr(config), config.model_dump_json(), str(config.files)):
        assert "the-" not in text


def test_machines_are_told_neither_the_keys_nor_the_bucket(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    config = settings.load(path, KEYS)
    environ = {**KEYS, "GRADER_REDIS_URL": "redis://:p@10.0.0.5:6379/0"}
    sent = config_for("m", path, None), secrets_for(config.machine("m"), path, "10.0.0.6", environ, ())
    assert "files" not in sent[0]
    assert set(sent[1]) == {"GRADER_REDIS_URL"}
    assert "school" not in "".join(map(str, (*sent, used_by("m", config))))
