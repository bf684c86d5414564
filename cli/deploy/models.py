"""A machine's models: found and verified there, fetched by the machine, or copied from this computer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.deploy.file_transfer import (
    DEPLOY_SCRIPT,
    File,
    Progress,
    Room,
    copy,
    file,
    files_of,
    manifest,
    needed,
    size,
)
from cli.deploy.remote.deploy_models import ollama_manifest
from cli.deploy.ssh import MachineError, Remote
from grading.config.settings import Machine
from grading.domain.model_digests import Claim
from workers.machine.engines import ModelSource, source_of_models

MODELS_SCRIPT = Path(__file__).parent / "remote" / "deploy_models.py"
VERIFY_S = 3600.0
PULL_S = 6 * 3600.0
LOOK_S = 30.0


@dataclass(frozen=True)
class Wanted:
    """A model that a machine needs, where its engine has it from, and the url of the engine if it has one.

    `engine` is which one it is, whatever the machine calls it.
    """

    engine: str
    source: ModelSource
    model: str
    url: str = ""

    def __str__(self) -> str:
        return f"{self.model} ({self.engine})"


def wanted(machine: Machine) -> list[Wanted]:
    """The models of a machine's stages, embeddings and drafts, each once; some engines need none."""
    found: dict[tuple[str, str, str], Wanted] = {}

    def add(one: Wanted) -> None:
        found.setdefault((one.source, one.model, one.url), one)  # engines may share the files of a model

    for placement in (*machine.stages.values(), *machine.embedders.values()):
        engine = machine.kind(placement.engine)
        source = source_of_models(engine)
        if source:
            settings = machine.engines.get(placement.engine)
            add(Wanted(engine, source, placement.model, (settings.url if settings else None) or ""))
            drafts = settings.options.get("drafts") if settings else None
            if isinstance(drafts, dict) and placement.model in drafts:
                add(Wanted(engine, source, drafts[placement.model]))
    for model in machine.prefill.models if machine.prefill else ():
        add(Wanted("hybrid", "hub", model))
    return list(found.values())


def look(remote: Remote, one: Wanted, *, quick: bool) -> dict[str, Any]:
    """How a model is over there: state, digest, and how it was verified."""
    words = ("quick",) if quick else ()
    folder = remote.ssh.models or ""
    limit_s = LOOK_S if quick else VERIFY_S
    if one.source == "server":
        answer = remote.call(MODELS_SCRIPT, "server", one.url, one.model, timeout_s=LOOK_S)
    elif one.source == "ollama":
        answer = remote.call(MODELS_SCRIPT, "ollama", one.url, one.model, folder, *words, timeout_s=limit_s)
    else:
        answer = remote.call(MODELS_SCRIPT, "hub", one.model, folder, *words, timeout_s=limit_s)
    assert isinstance(answer, dict)
    return answer


@dataclass(frozen=True)
class Models:
    """Brings a machine's models there. `folders` are folders of this computer to copy from."""

    remote: Remote
    folders: tuple[str, ...]
    offline: bool
    quick: bool
    say: Callable[[str], None]
    progress: Progress
    claims: list[Claim] = field(default_factory=list)
    """What was brought, to be compared with other machines."""
    _offers: dict[Wanted, Offer | None] = field(default_factory=dict)

    def needed(self, one: Wanted) -> Room | None:
        """What has to be copied for a model, None for nothing. MachineError when its engine is away."""
        found = self._look(one, quick=True)
        offer = self._offer(one)
        if offer is None or (found["state"], found.get("digest")) == ("present", offer.digest):
            return None
        return needed(self.remote, offer.files, self._place(one, offer)[0])

    def bring(self, one: Wanted, environment: str = "") -> str:
        """Make sure that a model is there and whole; says how. MachineError otherwise.

        `environment` has the hub's client, which fetches what is missing.
        """
        if not self.quick:
            self.say(f"{one}: checking")
        found = self._look(one, quick=self.quick)
        how = ""
        offer = self._offer(one)
        if offer is not None:
            if (found["state"], found.get("digest")) != ("present", offer.digest):
                how = f"copied {size(self._copy(one, offer))}, "
                found = look(self.remote, one, quick=False)
                if found["state"] == "missing":
                    raise MachineError(_elsewhere(self.remote.machine, one))
        elif found["state"] != "present":
            how = self._fetched(one, found, environment)
            found = look(self.remote, one, quick=False)
        if found["state"] != "present":
            raise MachineError(_bad(self.remote.machine, one, found))
        self.claims.append(
            Claim(self.remote.machine, one.engine, one.model, str(found.get("model_digest", "")), one.source)
        )
        return f"{one}: {how}{str(found['digest'])[:12]}, checked: {found['verified']}"

    def _look(self, one: Wanted, *, quick: bool) -> dict[str, Any]:
        found = look(self.remote, one, quick=quick)
        if found["state"] == "unreachable":
            raise MachineError(
                f"{self.remote.machine}: {one.engine} does not answer at {one.url} ({found['why']}); "
                "install and start it there."
            )
        return found

    def _offer(self, one: Wanted) -> Offer | None:
        """What this computer has of a model, None for nothing; it is read once."""
        if one not in self._offers:
            source = self._source(one)
            if source is not None:
                self.say(f"{one}: reading and hashing {source}")
            self._offers[one] = None if source is None else _offer(one, source)
        return self._offers[one]

    def _fetched(self, one: Wanted, found: dict[str, Any], environment: str) -> str:
        if self.offline or one.source == "server":
            raise MachineError(_bad(self.remote.machine, one, found))
        self.say(f"{one} is {found['state']}; downloading it (can take hours)")
        words = (
            ("pull", one.url, one.model) if one.source == "ollama" else ("download", one.model, environment)
        )
        folder = self.remote.ssh.models or ""
        done = self.remote.call(MODELS_SCRIPT, *words, folder, timeout_s=PULL_S)
        if not done["ok"]:
            raise MachineError(f"{self.remote.machine}: {one} could not be downloaded: {done['why'].strip()}")
        return "downloaded, "

    def _source(self, one: Wanted) -> Path | None:
        """The folder of this computer that has a model."""
        for listed in self.folders:
            name, separator, path = listed.partition("=")
            if separator and name != one.model:
                continue
            folder = Path(path if separator else listed).expanduser()
            source = _in_folder(folder, one)
            if source is not None:
                return source
            if separator:
                raise MachineError(f"{folder} does not contain {one}.")
        return None

    def _place(self, one: Wanted, offer: Offer) -> tuple[str, str]:
        """The folder to copy to, and below which one the hub's client looks for its revision, if it does."""
        kept = self.remote.ssh.models or ""
        if one.source == "ollama":
            place = self.remote.call(MODELS_SCRIPT, "ollama_store", kept)
            if place["problem"]:
                raise MachineError(
                    f"{self.remote.machine}: {place['problem']} for {self.remote.address}. Give it "
                    "permission to write there, or set models in [machines.ssh] to Ollama's OLLAMA_MODELS."
                )
            return place["store"], ""
        place = self.remote.call(MODELS_SCRIPT, "hub_place", one.model, kept)
        folder = f"{place['store']}/{place['folder']}"
        # as the hub's client keeps it: a snapshot by the hash of its content
        return (f"{folder}/snapshots/{offer.digest[:40]}", folder) if place["cache"] else (folder, "")

    def _copy(self, one: Wanted, offer: Offer) -> int:
        into, cached = self._place(one, offer)
        sent = copy(self.remote, offer.files, into, self.progress, public=one.source == "ollama")
        if one.source != "ollama":
            listed = manifest(offer.files)
            self.remote.call(DEPLOY_SCRIPT, "put", f"{into}.manifest.json", "600", stdin=listed)
        if cached:
            revision = offer.digest[:40].encode()
            self.remote.call(DEPLOY_SCRIPT, "put", f"{cached}/refs/main", "600", stdin=revision)
        return sent


@dataclass(frozen=True)
class Offer:
    """A model of this computer: its files in the order to send them, and the digest it will have."""

    files: Sequence[File]
    digest: str


def _offer(one: Wanted, source: Path) -> Offer:
    if one.source == "ollama":
        files = ollama_files(source, one.model)
        return Offer(files, files[-1].sha256)
    files = files_of(source)
    return Offer(files, hashlib.sha256(manifest(files)).hexdigest())


def _elsewhere(machine: str, one: Wanted) -> str:
    return (
        f"{machine}: {one} was copied, but {one.url or 'the worker'} does not find it: its models are kept "
        "elsewhere. Set models in [machines.ssh] to that folder (OLLAMA_MODELS, HF_HUB_CACHE)."
    )


def _bad(machine: str, one: Wanted, found: dict[str, Any]) -> str:
    if found["state"] == "damaged":
        files = ", ".join(found["bad"])
        return (
            f"{machine}: {one} is damaged: {files}. Copy it again with --model-folder, or remove it and "
            "fetch it again."
        )
    fetch = {"ollama": "ollama pull", "hub": "hf download"}.get(one.source, "give its server the model")
    return (
        f"{machine}: {one} is not there. Run there: {fetch} {one.model}; or copy it with --model-folder "
        "from this computer."
    )


def _in_folder(folder: Path, one: Wanted) -> Path | None:
    """Where below a folder a model is: a model's own folder, a hub cache, or Ollama's models."""
    if one.source == "ollama":
        return ollama_manifest(one.model, str(folder))
    cached = folder / ("models--" + one.model.replace("/", "--"))
    if (cached / "refs" / "main").is_file():
        cached = cached / "snapshots" / (cached / "refs" / "main").read_text(encoding="ascii").strip()
    for path in (cached, folder / one.model.lstrip("/"), folder):
        if (path / "config.json").is_file():
            return path
    return None


def ollama_files(path: Path, model: str) -> Sequence[File]:
    """The blobs of a model of Ollama and, last, its manifest. MachineError when they are damaged."""
    store = path.parents[4]
    content = json.loads(path.read_text(encoding="utf-8"))
    files = {}
    for layer in [content["config"], *content["layers"]]:
        name = str(layer["digest"]).replace(":", "-")
        blob = store / "blobs" / name
        if not blob.is_file():
            raise MachineError(f"{blob} is missing; fetch {model} again on this computer.")
        files[name] = file(f"blobs/{name}", blob)
        if files[name].sha256 != name.removeprefix("sha256-"):
            raise MachineError(f"{blob} is damaged; fetch {model} again on this computer.")
    return [*files.values(), file(path.relative_to(store).as_posix(), path)]
