"""config.toml: what ships is valid, and every error names its key."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grading.config.machines import Machine, Placement
from grading.config.settings import Config, load, parse
from grading.domain.errors import ConfigError


@pytest.fixture
def raw(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "config.toml").read_text(encoding="utf-8"))


def test_the_shipped_file_has_the_four_machines(root: Path) -> None:
    config = load(root / "config.toml", {})
    assert [m.name for m in config.machines] == ["dgx-spark-1", "mac-studio-1", "dgx-spark-2", "mac-studio-2"]
    assert [m.role for m in config.machines] == ["primary", "primary", "spare", "spare"]
    assert list(config.machine("dgx-spark-1").stages) == ["analysis"]
    assert set(config.machine("mac-studio-2").stages) == {"analysis", "feedback"}


def test_addresses_come_from_the_environment(root: Path) -> None:
    config = load(
        root / "config.toml",
        {"GRADER_REDIS_URL": "redis://:p@r:1/0", "GRADER_DATABASE_URL": "sqlite:///a.db"},
    )
    assert (config.redis.url, config.database.url) == ("redis://:p@r:1/0", "sqlite:///a.db")


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    for key in parents:
        raw = raw[int(key)] if isinstance(raw, list) else raw[key]
    if value is None:
        del raw[last]
    else:
        raw[last] = value


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "machines/1/stages/feedback/engine",
            None,
            "machines[1].stages.feedback.engine: this key is missing",
        ),
        ("machines/0/stages/analysis/engine", "v llm", "machines[0].stages.analysis.engine: String should"),
        ("machines/0/slots", 0, "machines[0].slots: Input should be greater than or equal to 1 (it is 0)"),
        ("machines/0/name", "Spark 1", "machines[0].name: String should match"),
        ("machines/1/name", "dgx-spark-1", "the name 'dgx-spark-1' is used twice"),
        ("machines/0/engines/ollama/url", "localhost:11434", "machines[0].engines.ollama.url: String should"),
        ("machines/1/stages/poem", {"engine": "mlx", "model": "m"}, "machines[1].stages.poem: not a stage"),
        ("stages/analysis/budget_s", 1200, "stages.analysis.budget_s: must be below"),
        ("stages/feedback", None, "stages.feedback: this table is missing"),
        ("stages/analysis/temperature", float("nan"), "stages.analysis.temperature: Input should be"),
        ("redis/url", "127.0.0.1:6379", "redis.url: String should match"),
        ("database/url", "sqlite://", "database.url: write postgresql://"),
        ("database/url", "sqlite:///:memory:", "database.url: write postgresql://"),
        ("database/url", "mysql://grader:secret@db/x", "database.url: write postgresql://"),
        ("server/prt", 8080, "server.prt: there is no such key"),
        (
            "machines/0/ssh",
            {"host": "a", "slots": 8},
            "machines[0].ssh.slots: there is no such key here; put it above",
        ),
        ("machines", [], "machines: Tuple should have at least 1 item"),
    ],
)
def test_an_error_names_its_key_and_what_is_allowed(
    raw: dict[str, Any], path: str, value: Any, sentence: str
) -> None:
    put(raw, path, value)
    with pytest.raises(ConfigError) as caught:
        parse(raw)
    assert sentence in caught.value.message


def test_every_problem_is_named_at_once(raw: dict[str, Any]) -> None:
    put(raw, "machines/0/slots", 0)
    put(raw, "server/prt", 1)
    with pytest.raises(ConfigError) as caught:
        parse(raw)
    assert len(caught.value.message.splitlines()) == 2


def test_a_file_that_is_absent_or_no_toml_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "config.toml", {})
    (tmp_path / "config.toml").write_text("machines = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path / "config.toml", {})


def test_a_stage_that_no_machine_does_is_refused_at_start(tmp_path: Path, root: Path) -> None:
    shipped = (root / "config.toml").read_text(encoding="utf-8")
    (tmp_path / "config.toml").write_text(shipped + "\n[stages.poem]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"stages\.poem: no machine does this stage"):
        load(tmp_path / "config.toml", {})


def test_a_stage_that_only_reserved_machines_do_is_refused_at_start(tmp_path: Path, root: Path) -> None:
    shipped = (root / "config.toml").read_text(encoding="utf-8")
    for count, refused in ((1, False), (-1, True)):
        text = shipped.replace("\n[[machines]]\n", '\n[[machines]]\nreserved = "batch"\n', count)
        assert text != shipped
        (tmp_path / "config.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="are reserved") if refused else nullcontext():
            load(tmp_path / "config.toml", {})


def test_a_list_of_connections_is_answered_with_what_to_write(tmp_path: Path, root: Path) -> None:
    shipped = (root / "config.toml").read_text(encoding="utf-8")
    old = shipped.replace("[server]", '[server]\nlms_connections = ["canvas"]')
    (tmp_path / "config.toml").write_text(old, encoding="utf-8")
    with pytest.raises(ConfigError, match=r'server\.lms_connections: .*canvas = \["data-101"\]'):
        load(tmp_path / "config.toml", {})


def test_an_engine_can_stand_in_for_all(root: Path) -> None:
    config: Config = load(root / "config.toml", {}).with_engine("rules")
    assert {p.engine for m in config.machines for p in m.stages.values()} == {"rules"}


def test_a_machine_may_have_several_engines_of_a_kind_and_rules_need_no_model() -> None:
    ports = {"spark_a": {"kind": "openai", "slots": 6}, "spark_b": {"kind": "openai"}}
    stages = {"analysis": {"engine": "spark_a", "model": "q"}, "feedback": {"engine": "rules"}}
    one = Machine.model_validate({"name": "one", "slots": 8, "engines": ports, "stages": stages})
    assert one.kinds == {"openai", "rules"}
    assert [one.slots_of(name) for name in ("spark_a", "spark_b", "rules")] == [6, 8, 8]
    rules = one.stages["feedback"]
    assert (rules.model, rules.names_model) == ("rules", False)
    with pytest.raises(ValidationError):
        Placement.model_validate({"engine": "ollama", "model": ""})
