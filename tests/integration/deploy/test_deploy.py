"""What `grader deploy` copies: models, wheels and the program, over a real sshd, on tiny files."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.commands import TransferOutput
from cli.deploy.deployment import Deployment, Options
from cli.deploy.file_transfer import DEPLOY_SCRIPT, copy, file, files_of
from cli.deploy.models import Models, Wanted
from cli.deploy.packages import fetch_wheels, platforms, wheels_for
from cli.deploy.ssh import MachineError, Remote
from cli.settings import Settings
from grading.config.settings import Machine, Ssh
from grading.domain.errors import ConfigError
from tests.support.ssh_server import SshServer, ssh_server

MODEL = "qwen3-coder:30b"
NEWER = "qwen3-coder:31b"
HUB_MODEL = "school/tiny-it"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A machine whose `ollama` writes down how it was called and copies what `pulled` holds."""
    folder = tmp_path_factory.mktemp("ssh")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ollama").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$OLLAMA_HOST" "$@" > {folder}/called\n'
        f'[ -d {folder}/pulled ] || {{ echo "pull model manifest: file does not exist" >&2; exit 1; }}\n'
        f"cp -r {folder}/pulled/. {folder}/models/\n"
    )
    (programs / "ollama").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    with ssh_server(folder, {"PATH": path, "HF_HOME": str(folder / "huggingface")}) as running:
        yield running


@pytest.fixture
def remote(server: SshServer, tmp_path: Path) -> Remote:
    ssh = Ssh(
        host="127.0.0.1",
        user=server.user,
        port=server.port,
        folder=str(tmp_path / "there"),
        python=sys.executable,
        models=str(server.folder / "models"),
    )
    return Remote("lab-1", ssh, str(server.config))


def silent(*_: object) -> None:
    """Takes no notice of progress."""


def models(remote: Remote, *folders: Path, offline: bool = True, said: list[str] | None = None) -> Models:
    say = (said if said is not None else []).append
    return Models(remote, tuple(map(str, folders)), offline, False, say, silent)


# --- files ------------------------------------------------------------------------------------------


def test_a_copy_goes_on_where_it_broke_off_and_repairs_what_is_damaged(
    remote: Remote, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "x"
    content = {
        "a/whole.bin": os.urandom(3000),
        "half.bin": os.urandom(5000),
        "odd name ; $(x).bin": b"z" * 700,
    }
    for name, data in content.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(data)
    (here / ".hidden").write_text("stays here")
    files = files_of(here)
    (there / "a").mkdir(parents=True)
    (there / "a" / "whole.bin").write_bytes(content["a/whole.bin"])
    (there / "half.bin.part").write_bytes(content["half.bin"][:4000])

    assert copy(remote, files, str(there), silent) == 1000 + 700
    assert {
        p.relative_to(there).as_posix(): p.read_bytes() for p in there.rglob("*") if p.is_file()
    } == content

    # a beginning that is not ours, and a file with one byte changed
    (there / "half.bin").unlink()
    (there / "half.bin.part").write_bytes(b"?" * 4000)
    damaged = bytearray(content["a/whole.bin"])
    damaged[0] ^= 1
    (there / "a" / "whole.bin").write_bytes(damaged)
    told: list[tuple[int, int]] = []
    sent = copy(remote, files, str(there), lambda done, total: told.append((done, total)))
    assert sent == 1000 + 3000 + 5000
    assert told[-1] == (5000, 5000)
    assert (there / "half.bin").read_bytes() == content["half.bin"]
    assert (there / "a" / "whole.bin").read_bytes() == content["a/whole.bin"]


def test_copies_stay_in_their_folder_and_on_their_disk(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    one = file("../../escaped", tmp_path / "f")
    with pytest.raises(MachineError, match="leaves its folder"):
        copy(remote, [one], "x", silent)
    huge = replace(one, path="huge", size=10**18)
    with pytest.raises(MachineError, match=r"needs 1000000\.0 TB, and its disk has"):
        copy(remote, [huge], "x", silent)
    assert not (tmp_path / "escaped").exists()


def test_a_machine_gets_its_own_address_of_redis(server: SshServer, remote: Remote, tmp_path: Path) -> None:
    # a machine that is not this computer, as far as Grader can know
    config = server.write_config("alias_config")
    config.write_text(config.read_text() + "  HostName 127.0.0.1\n")
    elsewhere = remote.ssh.model_copy(update={"host": "lab-1.school"})
    one = deployment(replace(remote, ssh=elsewhere, config=str(config)), tmp_path)
    env = tmp_path / "there" / "grader.env"

    def given(**environ: str) -> dict[str, str]:
        one.environ = environ
        return one.secrets()

    local, own = "redis://127.0.0.1:6379/0", "rediss://lab-1:secret@10.0.0.5:6379/0"
    with pytest.raises(
        MachineError, match=r"would connect to Redis on itself\. Set GRADER_REDIS_URL_LAB_1 to"
    ):
        given(GRADER_REDIS_URL=local)
    assert given(GRADER_REDIS_URL=local, GRADER_REDIS_URL_LAB_1=own) == {"GRADER_REDIS_URL": own}
    with pytest.raises(MachineError, match="GRADER_REDIS_URL for lab-1: "):
        given(GRADER_REDIS_URL_LAB_1="http://10.0.0.5")
    env.parent.mkdir()
    env.write_text(f"GRADER_REDIS_URL='{own}'\n")
    assert given(GRADER_REDIS_URL=local) == {}  # what is there stays
    with pytest.raises(ConfigError, match="quote"):
        one.environ = {"GRADER_REDIS_URL_LAB_1": own.replace("secret", "se'cret")}
        one._secrets_file()


# --- Ollama -----------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Tags(BaseHTTPRequestHandler):
    """Lists what is in a folder of models, as Ollama does."""

    store: Path

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        listed = [
            {
                "model": f"{path.parent.name}:{path.name}",
                "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in self.store.glob("manifests/*/library/*/*")
        ]
        data = json.dumps({"models": listed}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def ollama(server: SshServer) -> Iterator[Wanted]:
    """An Ollama of the machine without models; what is wanted of it."""
    store = server.folder / "models"
    store.mkdir()
    handler = type("Handler", (Tags,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield Wanted("ollama", "ollama", MODEL, f"http://127.0.0.1:{listening.server_address[1]}")
        listening.shutdown()
        thread.join()
    store.rename(server.folder / f"used-{os.urandom(4).hex()}")


def ollama_store(folder: Path) -> Path:
    """A folder of models as Ollama keeps it, with one tiny model."""
    blobs = [os.urandom(size) for size in (300, 9000, 40)]
    layers = []
    (folder / "blobs").mkdir(parents=True)
    for blob in blobs:
        digest = hashlib.sha256(blob).hexdigest()
        (folder / "blobs" / f"sha256-{digest}").write_bytes(blob)
        layers.append({"digest": f"sha256:{digest}", "size": len(blob)})
    manifest = folder / "manifests" / "models.example" / "library" / "qwen3-coder" / "30b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"config": layers[0], "layers": layers[1:]}))
    return folder


def test_a_model_of_ollama_is_copied_verified_and_repaired(
    server: SshServer, remote: Remote, ollama: Wanted, tmp_path: Path
) -> None:
    source = ollama_store(tmp_path / "here")
    manifest = next(source.glob("manifests/*/library/qwen3-coder/30b"))
    manifest.with_name("31b").write_bytes(manifest.read_bytes())
    with pytest.raises(
        MachineError, match=r"lab-1: qwen3-coder:30b \(ollama\) is not there\. Run there: ollama pull"
    ):
        models(remote).bring(ollama)
    said = models(remote, source).bring(ollama)
    assert said.startswith(f"{MODEL} (ollama): copied 10 kB, ")
    assert said.endswith("checked: all of its files by hash")
    largest = max((server.folder / "models" / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    assert largest.stat().st_mode & 0o777 == 0o644  # Ollama runs as another user
    assert "copied" not in models(remote, source).bring(ollama)

    content = largest.read_bytes()
    largest.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(MachineError, match=f"is damaged: {largest.name}. Copy it again with --model-folder"):
        models(remote).bring(ollama)
    assert "copied 9 kB, " in models(remote, source).bring(ollama)

    kept_elsewhere = remote.ssh.model_copy(update={"models": str(tmp_path / "elsewhere")})
    with pytest.raises(MachineError, match=r"was copied, but .* does not find it"):
        models(replace(remote, ssh=kept_elsewhere), source).bring(replace(ollama, model=NEWER))

    (source / "blobs" / largest.name).write_bytes(b"damaged here")
    with pytest.raises(MachineError, match="is damaged; fetch qwen3-coder:30b again on this computer"):
        models(remote, source).bring(ollama)


def test_a_missing_model_is_pulled_where_there_is_a_network(
    server: SshServer, remote: Remote, ollama: Wanted, tmp_path: Path
) -> None:
    said: list[str] = []
    with pytest.raises(
        MachineError, match="could not be downloaded: pull model manifest: file does not exist"
    ):
        models(remote, offline=False, said=said).bring(ollama)
    assert said[-1] == f"{MODEL} (ollama) is missing; downloading it (can take hours)"
    assert (server.folder / "called").read_text().splitlines() == [ollama.url, "pull", "--", MODEL]
    ollama_store(server.folder / "pulled")
    assert ": downloaded, " in models(remote, offline=False).bring(ollama)
    hostile = replace(ollama, model=f"--x; touch {tmp_path}/hit $(touch {tmp_path}/hit)")
    with pytest.raises(MachineError, match="is not there"):
        models(remote, offline=False).bring(hostile)
    assert (server.folder / "called").read_text().splitlines()[1:] == ["pull", "--", hostile.model]
    assert not (tmp_path / "hit").exists()


def test_an_engine_that_does_not_answer_is_said(remote: Remote) -> None:
    away = Wanted("ollama", "ollama", MODEL, "http://127.0.0.1:1")
    with pytest.raises(
        MachineError, match=r"ollama does not answer at http://127\.0\.0\.1:1 .* start it there"
    ):
        models(remote).bring(away)


# --- MLX --------------------------------------------------------------------------------------------


def test_a_model_of_mlx_is_copied_into_the_hubs_cache_and_verified(
    server: SshServer, remote: Remote, tmp_path: Path
) -> None:
    from huggingface_hub import snapshot_download

    remote = replace(remote, ssh=remote.ssh.model_copy(update={"models": None}))
    wanted = Wanted("mlx", "hub", HUB_MODEL)
    source = tmp_path / "tiny"
    source.mkdir()
    (source / "config.json").write_text("{}")
    weights = {"model-1.safetensors": os.urandom(5000), "model-2.safetensors": os.urandom(4000)}
    for name, data in weights.items():
        (source / name).write_bytes(data)
    index = {"weight_map": dict(zip("ab", weights, strict=True))}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MachineError, match=r"is not there\. Run there: hf download school/tiny-it"):
        models(remote).bring(wanted)

    assert "copied 9 kB, " in models(remote, tmp_path / "nothing", source).bring(wanted)
    hub = server.folder / "huggingface" / "hub"
    found = Path(snapshot_download(HUB_MODEL, cache_dir=hub, local_files_only=True))
    assert (found / "model-1.safetensors").read_bytes() == weights["model-1.safetensors"]

    (found / "model-2.safetensors").write_bytes(os.urandom(4000))
    with pytest.raises(MachineError, match=r"is damaged: model-2\.safetensors"):
        models(remote).bring(wanted)
    again = models(remote, Path(f"{HUB_MODEL}={source}")).bring(wanted)
    assert "copied 4 kB, " in again
    (found / "model-1.safetensors").unlink()
    with pytest.raises(MachineError, match=r"is damaged: model-1\.safetensors"):
        models(remote).bring(wanted)


# --- packages ---------------------------------------------------------------------------------------

FACTS = {
    "version": "3.12.3",
    "glibc": "2.39",
    "platform": "linux-aarch64",
    "markers": {"sys_platform": "linux", "platform_machine": "aarch64"},
}


def tiny_wheel(folder: Path, tag: str = "py3-none-any") -> str:
    """A wheel in a folder; its lock."""
    folder.mkdir(parents=True)
    name = "tiny_thing-1.0"
    with zipfile.ZipFile(folder / f"{name}-{tag}.whl", "w") as wheel:
        wheel.writestr("tiny_thing.py", "SAYS = 'hello'\n")
        wheel.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n"
        )
        wheel.writestr(f"{name}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    digest = hashlib.sha256((folder / f"{name}-{tag}.whl").read_bytes()).hexdigest()
    return f"tiny-thing==1.0 \\\n    --hash=sha256:{digest}\n"


def deployment(remote: Remote, tmp_path: Path) -> Deployment:
    machine = Machine.model_validate(
        {"name": "lab-1", "stages": {"analysis": {"engine": "rules", "model": "r"}}, "ssh": remote.ssh}
    )
    (tmp_path / "config.toml").write_text(
        "[[machines]]\nname = 'lab-1'\n[machines.stages]\nanalysis = { engine = 'rules', model = 'r' }\n"
        "feedback = { engine = 'rules', model = 'r' }\n"
    )
    options = Options(offline=True, wheels=tmp_path / "wheels")
    settings = Settings(tmp_path / "config.toml")
    made = Deployment(settings, machine, remote, options, {}, silent, silent)
    made.facts = remote.call(DEPLOY_SCRIPT, "facts")
    return made


@pytest.mark.soak
def test_a_machine_without_internet_gets_its_wheels_from_here(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    one = deployment(remote, tmp_path)
    version = ".".join(one.facts["version"].split(".")[:2])
    lock = tiny_wheel(tmp_path / "wheels" / f"{platforms(one.facts)[0]}-{version}")
    assert one.make_environment(lock) == "1 packages installed from wheels"
    assert list(Path(one.environment).glob("lib/python*/site-packages/tiny_thing.py"))
    assert one.make_environment(lock) == "1 packages are installed"


def test_wheels_that_cannot_be_had_are_named(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    lock = "grader-has-no-such-thing==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    with pytest.raises(
        MachineError,
        match=r"lab-1: wheels are missing for linux-aarch64 with Python 3\.12: .*grader-has-no-such",
    ):
        fetch_wheels("lab-1", lock, FACTS, tmp_path)


def test_a_file_that_is_named_unlike_a_wheel_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    kept = tmp_path / "manylinux_2_39_aarch64-3.12"
    lock = tiny_wheel(kept)
    wheel = kept / "tiny_thing-1.0-py3-none-any.whl"
    odd = kept / "tiny_thing (1).whl"
    odd.write_bytes(wheel.read_bytes())
    said: list[str] = []
    assert [one.path for one in wheels_for("lab-1", lock, FACTS, tmp_path, said.append)] == [wheel.name]
    assert f"{odd} is skipped: this is not the name of a wheel" in said


def test_a_terminal_shows_each_percentage_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = TransferOutput(terminal=True)
    for done in range(1001):
        shown.progress(done, 1000)
    assert capsys.readouterr().err.count("of 1 kB") == 101
    shown.progress(1000, 1000)  # the next copy
    assert capsys.readouterr() == ("", "    100% of 1 kB\n")
