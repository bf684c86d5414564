"""Families of models, by their names: models of one family share training, and with it many mistakes."""

from __future__ import annotations

import re

FAMILIES = {
    "claude": ("claude",),
    "command": ("command-r", "command-a", "aya"),
    "deepseek": ("deepseek",),
    "falcon": ("falcon",),
    "gemma": ("gemma", "gemini"),
    "glm": ("glm", "chatglm"),
    "gpt": ("gpt",),
    "granite": ("granite",),
    "kimi": ("kimi", "moonlight"),
    "llama": ("llama", "vicuna"),
    "mistral": ("mistral", "mixtral", "ministral", "magistral", "devstral", "codestral", "pixtral"),
    "nemotron": ("nemotron",),
    "olmo": ("olmo",),
    "phi": ("phi",),
    "qwen": ("qwen", "qwq"),
    "yi": ("yi",),
}
"""Family -> how names of its models begin, or parts of names between marks."""
_WORD = re.compile(r"[a-z]+")


def family_of(model: str) -> str:
    """The family that a model's name tells first; of an unknown one the first word of the name.

    A distilled model counts as what its name begins with: where that is wrong, config.toml says so.
    """
    name = model.lower().rpartition("/")[2].partition(":")[0]
    parts = re.split(r"[^a-z]+", name)
    for part in parts:
        for family, beginnings in FAMILIES.items():
            if any(_begins(part, one.partition("-")[0]) for one in beginnings):
                return family
    found = _WORD.search(name)
    return found.group() if found else name


def _begins(part: str, beginning: str) -> bool:
    """Short beginnings must be the whole part: `phi` is not `philosopher`, `yi` not `yield`."""
    return part == beginning or (
        len(beginning) > 3 and (part.startswith(beginning) or part.endswith(beginning))
    )
