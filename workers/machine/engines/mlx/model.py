"""A loaded mlx model: prompts as tokens, the prefix a class shares, context length, fingerprint."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading.domain.errors import EngineError, JobInvalid, ModelMissing
from workers.machine.engines.base import TokenCounter
from workers.machine.engines.mlx.constraint import Grammars
from workers.machine.engines.mlx.tool_calls import Tools, as_objects, tool_format

FINGERPRINTED = (".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken")
FOREIGN = {".gguf", ".bin", ".pt", ".pth"}
"""How files of weights end that other programs read."""
KEEP_PREFIXES = 32
_importing = threading.Lock()
Chat = list[dict[str, Any]]


@dataclass(frozen=True)
class Prompt:
    """Token ids of a whole prompt; the first `shared` of them are the same for the whole class (0: none)."""

    ids: list[int]
    shared: int


def load_model(name: str, max_context: int | None) -> LoadedModel:
    """Load from a folder or the hub's cache, on the thread that will generate. Raises ModelMissing."""
    with missing(name):
        from mlx_lm.utils import load

        model, tokenizer, config = load(str(model_folder(name)), return_config=True)
        return LoadedModel(model, tokenizer, config, max_context)


def model_digest(name: str) -> str:
    """The fingerprint of a model's files; takes as long as reading them. Raises ModelMissing."""
    if Path(name).exists():  # for which mlx-lm need not be imported
        with _unreadable(name):
            return fingerprint(Path(name))
    with missing(name):
        return fingerprint(model_folder(name))


def model_folder(name: str) -> Path:
    """A model's folder; nothing is ever fetched."""
    if Path(name).exists():
        return Path(name)
    from mlx_lm.utils import hf_repo_to_path

    return Path(hf_repo_to_path(name))


def require_room(fits: Callable[[int], bool], *names: str) -> None:
    """Raise an EngineError where these models do not fit beside what is loaded, or are not there."""
    size = 0
    for name in names:
        with missing(name):
            size += sum(file.stat().st_size for file in model_folder(name).glob("*.safetensors"))
    if not fits(size):
        models = " and ".join(names)
        raise EngineError(f"{models} would be loaded a second time, and {size / 1e9:,.0f} GB have no room.")


@contextmanager
def missing(name: str) -> Iterator[None]:
    """Say what cannot be loaded and what mends it."""
    try:
        with _importing:  # two threads at once meet half-made modules
            import mlx_lm.utils  # noqa: F401 - not installed is something else than a broken model
    except ImportError as exc:
        raise EngineError("mlx-lm is not installed on this machine: install Grader's mlx extra.") from exc
    with _unreadable(name):
        yield


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """Say which files cannot be read and what mends it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as exc:
        # what mlx-lm, safetensors and the hub's client raise for files that are absent or not theirs
        said = " ".join(str(exc).split())[:200]
        raise ModelMissing(
            f"The model {name} cannot be loaded here: {type(exc).__name__}: {said}. {_remedy(Path(name))}"
        ) from exc


def _remedy(path: Path) -> str:
    """What to do about a model that cannot be loaded."""
    kinds = {one.suffix for one in (path.iterdir() if path.is_dir() else [path])}
    if ".safetensors" not in kinds and kinds & FOREIGN:
        return (
            "MLX does not support weights of llama.cpp (.gguf) and PyTorch (.bin, "
            ".pt): use the model's folder "
            "of safetensors, or one in MLX's format."
        )
    return f"Download it with: hf download {path} (or name the folder that has it)."


class LoadedModel:
    """Model and tokenizer. `prompt` and `decode` are thread-safe; the model itself belongs to its thread."""

    def __init__(self, model: Any, tokenizer: Any, config: dict[str, Any], max_context: int | None) -> None:
        self.model = model
        self.eos_ids: list[int] = sorted(tokenizer.eos_token_ids)
        self.context = _context(config, max_context)
        self.tokenizer = tokenizer
        self.vocabulary = _vocabulary(model, config, tokenizer)
        self._lock = threading.Lock()  # fast tokenizers refuse to be used by two threads at once
        self._shared: OrderedDict[str, list[int]] = OrderedDict()
        self._specials = _specials(tokenizer)
        self._folds = not self._knows_system()
        self.grammars = self._grammars()
        self.tools = tool_format(tokenizer)

    def prompt(self, chat: Chat, max_output_tokens: int, *, shares: bool = True, tools: Tools = ()) -> Prompt:
        """The chat as tokens; one that does not fit the context raises JobInvalid.

        Its system message is one that a class shares, unless `shares` says otherwise.
        """
        chat = [as_objects(_without_controls(m, self._specials)) for m in chat]
        tools = _without_controls(list(tools), self._specials)
        with self._lock:
            ids = self._encode(chat, tools)
            shared = self._shared_ids(chat[0]["content"]) if shares else []
        if bad := [i for i in ids if not 0 <= i < self.vocabulary]:
            raise EngineError(
                f"The tokenizer returned token {bad[0]}, but the model has {self.vocabulary} tokens."
            )
        if self.context is not None and len(ids) + max_output_tokens > self.context:
            raise JobInvalid(
                f"The prompt of {len(ids)} tokens and an answer of up to {max_output_tokens} do not fit the "
                f"model's context of {self.context} tokens. Shorten the submission or take another model."
            )
        fits = 0 < len(shared) < len(ids) and ids[: len(shared)] == shared
        return Prompt(ids, len(shared) if fits else 0)

    def decode(self, ids: list[int]) -> str:
        """Tokens as text, exactly."""
        with self._lock:
            return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def token_counter(self) -> TokenCounter:
        """Its context, and its tokenizer without the model; that counts special tokens as plain text."""
        tokenizer, lock, specials = self.tokenizer, self._lock, self._specials

        def count(text: str) -> int:
            with lock:
                return len(tokenizer.encode(_defused(text, specials), add_special_tokens=False))

        return TokenCounter(self.context, count)

    def _grammars(self) -> Grammars | None:
        from transformers import PreTrainedTokenizerFast

        inner = self.tokenizer._tokenizer
        return Grammars(inner, self.eos_ids) if isinstance(inner, PreTrainedTokenizerFast) else None

    def _encode(self, chat: Chat, tools: Tools = ()) -> list[int]:
        if self._folds and chat[0]["role"] == "system":
            chat = _folded(chat)
        if not self.tokenizer.has_chat_template:
            plain = "\n\n".join(m["content"] for m in chat) + "\n\n"
            return list(self.tokenizer.encode(plain))
        from jinja2 import TemplateError

        # JSON has to come first, so a thinking model must not think
        settings: dict[str, Any] = {"add_generation_prompt": True, "enable_thinking": False}
        if tools:
            settings["tools"] = list(tools)
        try:
            return list(self.tokenizer.apply_chat_template(chat, **settings))
        except TemplateError as exc:
            raise JobInvalid("The model's chat template refuses these messages.") from exc

    def _shared_ids(self, system: str) -> list[int]:
        """The tokens that a system message always begins a prompt with, whatever the user's message."""
        known = self._shared.get(system)
        if known is None:
            probes = [self._encode(_chat(system, user)) for user in ("0", "x", "<x>")]
            shortest = min(len(p) for p in probes)
            same = [len({p[i] for p in probes}) == 1 for i in range(shortest)]
            length = same.index(False) if False in same else shortest
            known = self._shared[system] = probes[0][:length]
            while len(self._shared) > KEEP_PREFIXES:
                self._shared.popitem(last=False)
        self._shared.move_to_end(system)
        return known

    def _knows_system(self) -> bool:
        """Whether the chat template takes a system message; Gemma's refuse it or drop it."""
        from jinja2 import TemplateError

        if not self.tokenizer.has_chat_template:
            return False
        probe = "zebra crossing"
        try:
            text = self.tokenizer.apply_chat_template(
                _chat(probe, "hello"), tokenize=False, add_generation_prompt=True
            )
        except TemplateError:
            return False
        return probe in text


def _folded(chat: Chat) -> Chat:
    """The system message as the beginning of the user's first one, or as one before the assistant's."""
    system, following, *rest = chat
    if following["role"] != "user":
        return [{**system, "role": "user"}, following, *rest]
    return [{**following, "content": f"{system['content']}\n\n{following['content']}"}, *rest]


def _without_controls(value: Any, specials: re.Pattern[str] | None) -> Any:
    """The same with every text in it defused."""
    if isinstance(value, str):
        return _defused(value, specials)
    if isinstance(value, Mapping):
        return {key: _without_controls(part, specials) for key, part in value.items()}
    return [_without_controls(part, specials) for part in value] if isinstance(value, list) else value


def _defused(text: str, specials: re.Pattern[str] | None) -> str:
    """Control tokens written out in a text become plain text: a submission must not open a new turn."""
    return text if specials is None else specials.sub(lambda m: f"{m.group()[0]} {m.group()[1:]}", text)


def _chat(system: str, user: str) -> Chat:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _specials(tokenizer: Any) -> re.Pattern[str] | None:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    texts = sorted(
        {t.content for t in added.values() if t.special and len(t.content) > 1}, key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, texts))) if texts else None


def _context(config: dict[str, Any], limit: int | None) -> int | None:
    inner = config.get("text_config") or {}
    own = config.get("max_position_embeddings") or inner.get("max_position_embeddings")
    known = [n for n in (own, limit) if n]
    return min(known) if known else None


def _vocabulary(model: Any, config: dict[str, Any], tokenizer: Any) -> int:
    """How many token ids the model's embedding has; an id beyond it would crash the process."""
    from mlx.utils import tree_flatten

    for name, value in tree_flatten(model.parameters()):
        if name.endswith("embed_tokens.weight"):
            return int(value.shape[0])
    return int(config.get("vocab_size") or len(tokenizer))


def fingerprint(folder: Path) -> str:
    """One sha256 over the sorted names and sha256 of a model's weights, configuration and tokenizer files."""
    manifest = hashlib.sha256()
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.suffix in FINGERPRINTED and path.is_file():
            stat = path.stat()
            file_digest = _file_digest(path.resolve(), stat.st_size, stat.st_mtime_ns)
            manifest.update(f"{path.name} {file_digest}\n".encode())
    return f"sha256:{manifest.hexdigest()}"


_known_files: dict[tuple[Path, int, int], str] = {}


def _file_digest(path: Path, size: int, mtime_ns: int) -> str:
    key = (path, size, mtime_ns)
    if key not in _known_files:
        with path.open("rb") as file:
            _known_files[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _known_files[key]
