"""What runs on a machine to find and verify models. Standard library only.

The server hands this text to the machine's Python over SSH. The first word is the folder of Grader there,
the second the verb; the last line printed is JSON: `state` is present, missing, damaged or unreachable, and
`model_digest` what the engine itself tells of a model that is present, empty where it is not known.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

TAGS_S = 10.0
PULL_S = 6 * 3600.0
MAX_BAD = 5
FINGERPRINTED = (".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken")

_hashes: dict[tuple[str, int, int], str] = {}


def sha256(path: Path) -> str:
    """The hash of a file's content; large files are read once."""
    real, stat = os.path.realpath(path), path.stat()
    key = (real, stat.st_size, stat.st_mtime_ns)
    if key not in _hashes:
        with path.open("rb") as file:
            _hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _hashes[key]


# --- Ollama ---------------------------------------------------------------------------------------


def parts_of(model: str) -> tuple[str, str, str]:
    """Namespace, name and tag: qwen3-coder:30b is ("library", "qwen3-coder", "30b")."""
    name, _, tag = model.partition(":")
    *space, last = name.split("/")
    return space[-1] if space else "library", last, tag or "latest"


def stores(wanted: str) -> list[Path]:
    """Where an Ollama of this machine may keep its models."""
    if wanted:
        return [Path(wanted).expanduser()]
    named = os.environ.get("OLLAMA_MODELS")
    usual = [Path.home() / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]
    return [Path(named), *usual] if named else usual


def ollama_store(wanted: str) -> dict[str, Any]:
    """The folder of models to copy into; `problem` when nothing can be written there."""
    candidates = stores(wanted)
    store = next((path for path in candidates if os.path.isdir(path)), candidates[0])
    there = next(path for path in (store, *store.parents) if os.path.exists(path))
    writable = all(
        os.access(path, os.W_OK | os.X_OK)
        for path in (there, store / "blobs", store / "manifests")
        if os.path.exists(path)
    )
    return {"store": str(store), "problem": "" if writable else f"{store} is not writable"}


def ollama(_folder: Path, url: str, model: str, wanted: str, quick: str = "") -> dict[str, Any]:
    """What Ollama lists, and whether its files are whole where they can be read."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/api/tags", timeout=TAGS_S) as answer:
            listed = json.load(answer)["models"]
        digests = {str(row.get("model") or row["name"]): str(row.get("digest", "")) for row in listed}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"state": "unreachable", "why": f"{type(error).__name__}: {error}"}
    digest = digests.get(model) or digests.get(f"{model}:latest")
    if digest is None:
        return {"state": "missing"}
    digest = digest.removeprefix("sha256:")
    answer = {"state": "present", "digest": digest, "verified": "as Ollama lists it"}
    answer["model_digest"] = f"sha256:{digest}"
    manifest = ollama_manifest(model, wanted)
    if manifest is None:
        return answer
    bad = ollama_faults(manifest, digest, bool(quick))
    how = "sizes of its files" if quick else "all of its files by hash"
    return {**answer, "state": "damaged" if bad else "present", "bad": bad[:MAX_BAD], "verified": how}


def ollama_manifest(model: str, wanted: str) -> Path | None:
    """The model's manifest, if its folder can be read from here."""
    space, name, tag = parts_of(model)
    for store in stores(wanted):
        try:
            for found in store.glob(f"manifests/*/{space}/{name}/{tag}"):
                with found.open("rb"):
                    return found
        except OSError:
            continue
    return None


def ollama_faults(manifest: Path, digest: str, quick: bool) -> list[str]:
    """The files that are not what the manifest says, and the manifest if it is not what Ollama lists."""
    if sha256(manifest) != digest:
        return [f"{manifest.name} (manifest)"]
    content = json.loads(manifest.read_text(encoding="utf-8"))
    bad = []
    for layer in [content["config"], *content["layers"]]:
        algorithm, _, expected = layer["digest"].partition(":")
        blob = manifest.parents[4] / "blobs" / f"{algorithm}-{expected}"
        whole = blob.is_file() and blob.stat().st_size == layer["size"]
        if not whole or not (quick or sha256(blob) == expected):
            bad.append(blob.name)
    return bad


def pull(_folder: Path, url: str, model: str, _kept: str = "") -> dict[str, Any]:
    """Let Ollama fetch a model."""
    return fetch(["ollama", "pull", "--", model], {"OLLAMA_HOST": url})


def download(_folder: Path, model: str, environment: str, kept: str) -> dict[str, Any]:
    """Let the hub's client of an environment fetch a model."""
    program = Path(environment) / "bin" / "hf"
    return fetch([str(program), "download", "--", model], {"HF_HUB_CACHE": str(hub_cache(kept))})


def fetch(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a program that fetches a model; it goes on where it was the last time."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PULL_S,
            check=False,
        )
    except FileNotFoundError:
        return {"ok": False, "why": f"there is no {command[0]}"}
    except subprocess.TimeoutExpired:
        return {"ok": False, "why": f"it took longer than {PULL_S / 3600:.0f} h"}
    return {"ok": done.returncode == 0, "why": done.stderr.decode("utf-8", "replace")[-300:]}


def server(_folder: Path, url: str, model: str) -> dict[str, Any]:
    """Whether a server lists a model under its name."""
    base = url.rstrip("/")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(
            f"{base if base.endswith('/v1') else base + '/v1'}/models", timeout=TAGS_S
        ) as answer:
            listed = [str(row["id"]) for row in json.load(answer)["data"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"state": "unreachable", "why": f"{type(error).__name__}: {error}"}
    if model not in listed:
        return {"state": "missing"}
    return {"state": "present", "digest": "no digest", "verified": "as its server lists it"}


# --- Hub ------------------------------------------------------------------------------------------


def hub_cache(wanted: str) -> Path:
    """Where Hugging Face's client keeps models."""
    if wanted:
        return Path(wanted).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache/huggingface") / "hub"


def hub_folder(model: str, wanted: str) -> Path | None:
    """The folder of a model: itself, or what the hub's cache has under its name."""
    if model.startswith(("/", ".")):
        return Path(model) if Path(model).is_dir() else None
    cached = hub_cache(wanted) / ("models--" + model.replace("/", "--"))
    try:
        revision = (cached / "refs" / "main").read_text(encoding="ascii").strip()
    except OSError:
        return None
    snapshot = cached / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def hub(_folder: Path, model: str, wanted: str, quick: str = "") -> dict[str, Any]:
    """Whether a model is here, and whole as far as its manifest or the hub's names tell."""
    folder = hub_folder(model, wanted)
    if folder is None or not (folder / "config.json").is_file():
        return {"state": "missing"}
    bad = [name for name in weights_of(folder) if not (folder / name).is_file()]
    manifest = manifest_of(folder)
    if bad:
        how = "its list of weights"
    elif manifest.is_file():
        rows = json.loads(manifest.read_text(encoding="utf-8"))
        bad, how = (
            [row["path"] for row in rows if differs(folder / row["path"], row, bool(quick))],
            "manifest",
        )
    else:
        links = [path for path in folder.rglob("*") if path.is_symlink()]
        named = [path for path in links if len(os.path.realpath(path).rpartition("/")[2]) in (40, 64)]
        bad = [path.name for path in named if not path.exists() or not (quick or matches(path))]
        how = "the names the hub gave" if named else "nothing: no hashes are known"
    digest = sha256(manifest) if manifest.is_file() else folder.name
    answer = {"digest": digest, "bad": bad[:MAX_BAD], "verified": how}
    if bad:
        return {"state": "damaged", **answer}
    return {"state": "present", **answer, "model_digest": "" if quick else fingerprint(folder)}


def fingerprint(folder: Path) -> str:
    """What the worker's engine tells of the same folder: a hash over names and hashes of its files."""
    files = sorted(path for path in folder.iterdir() if path.suffix in FINGERPRINTED and path.is_file())
    lines = "".join(f"{path.name} {sha256(path)}\n" for path in files)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def manifest_of(folder: Path) -> Path:
    """Where `grader deploy` keeps the sizes and hashes of a folder that it copied."""
    return folder.with_name(folder.name + ".manifest.json")


def weights_of(folder: Path) -> list[str]:
    """The files of weights that the model names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    found = [path.name for path in folder.glob("*.safetensors")]
    return found or ["model.safetensors"]


def differs(path: Path, row: dict[str, Any], quick: bool) -> bool:
    """Whether a file is not what the manifest says."""
    if not path.is_file() or path.stat().st_size != row["size"]:
        return True
    return not quick and sha256(path) != row["sha256"]


def matches(path: Path) -> bool:
    """Whether a file of the hub's cache has the hash that is its name: SHA-256, or Git's for small ones."""
    real = Path(os.path.realpath(path))
    if len(real.name) == 64:
        return sha256(real) == real.name
    content = real.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return git.hexdigest() == real.name


def hub_place(_folder: Path, model: str, wanted: str) -> dict[str, Any]:
    """Where a model is to be copied to."""
    if model.startswith("/"):
        return {"store": str(Path(model).parent), "folder": Path(model).name, "cache": False}
    return {"store": str(hub_cache(wanted)), "folder": "models--" + model.replace("/", "--"), "cache": True}


VERBS: dict[str, Any] = {
    "ollama": ollama,
    "ollama_store": lambda _folder, wanted: ollama_store(wanted),
    "pull": pull,
    "download": download,
    "server": server,
    "hub": hub,
    "hub_place": hub_place,
}


def main(folder: str, verb: str, *words: str) -> int:
    """Do a verb; a refusal is one sentence and status 1."""
    try:
        answer = VERBS[verb](Path(folder), *words)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"refused: {type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
