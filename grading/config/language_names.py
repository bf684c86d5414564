"""What people speak in a course: codes such as `de-CH` and names, as the English name that prompts use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

MOST = 40
"""Characters of a name."""
_CODE = re.compile(r"([A-Za-z]{2,3})((?:[-_][A-Za-z0-9]{2,8})*)")

LANGUAGES: Mapping[str, str] = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lb": "Luxembourgish",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "ms": "Malay",
    "mt": "Maltese",
    "nb": "Norwegian Bokmål",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "rm": "Romansh",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
REGIONAL: Mapping[str, str] = {
    "de-at": "Austrian Standard German",
    "de-ch": "Swiss Standard German",
    "en-au": "Australian English",
    "en-ca": "Canadian English",
    "en-gb": "British English",
    "es-mx": "Mexican Spanish",
    "fr-ca": "Canadian French",
    "nl-be": "Belgian Dutch",
    "pt-br": "Brazilian Portuguese",
    "pt-pt": "European Portuguese",
    "zh-cn": "Simplified Chinese",
    "zh-hans": "Simplified Chinese",
    "zh-hant": "Traditional Chinese",
    "zh-hk": "Traditional Chinese",
    "zh-tw": "Traditional Chinese",
}
"""Codes with a place or script that are written differently; others mean the language itself."""
_NAMES = {name.lower(): name for name in (*LANGUAGES.values(), *REGIONAL.values())}


def english_name(said: str) -> str:
    """The English name of a language that an instructor wrote as a name or a code.

    Raises ValueError with a sentence that says what to write. Names stand in prompts: they have only letters,
    blanks and hyphens.
    """
    text = " ".join(unicodedata.normalize("NFC", said).split())
    if text.lower() in _NAMES:
        return _NAMES[text.lower()]
    code = _CODE.fullmatch(text)
    if code is not None and (code[1].islower() or code[1].isupper()):
        return _of_code(text, code[1].lower())
    if not text or len(text) > MOST or not _plain(text):
        raise ValueError(
            "must be the English name of a language, such as 'German', in letters, blanks and hyphens and of "
            f"at most {MOST} characters, or a code such as 'de' or 'pt-BR'"
        )
    return text


def _of_code(text: str, language: str) -> str:
    tag = text.lower().replace("_", "-")
    for known in (tag, "-".join(tag.split("-")[:2])):
        if known in REGIONAL:
            return REGIONAL[known]
    if language not in LANGUAGES:
        raise ValueError(
            f"'{text}' is not a code known here; write the language's English name instead, such as 'German'"
        )
    return LANGUAGES[language]


def _plain(text: str) -> bool:
    return text[0].isalpha() and all(letter.isalpha() or letter in " -" for letter in text)
