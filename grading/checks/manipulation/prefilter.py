"""Where phrases are worth looking for: a quick look before the slow ones."""

from __future__ import annotations

import re

# ruff: noqa: E501 - a pattern is read better whole

WORTH = re.compile(
    r"mark(?:s|er|ing|ed)?\b|points?\b|scor(?:e|ing)|grad(?:e|ing)|credit|levels?\b|rating|rubric|criteri|instructions?\b"
    r"|directi(?:on|ve)|prompt|guideline|examin|review|evaluat|assess|llm|language model|chat-?bot|gpt|robot|teacher"
    r"|profess|instructor|tutor|lecturer|course|perfect|outstanding|excellent|flawless|penali|deduct|generous"
    r"|please|pls|kindly|everything|every(?:body|one)|whoever|homework|hand-?in|submission|student|assignment"
    r"|pass(?:ed)?\b|fail me|you are|act (?:as|like)|pretend|your (?:task|rules|new|job)|ignore|disregard|forget|convincing"
    r"|judge|artificial|\bai\b|a\.i\.|verdict|system|assistant|human:|user:|<[|｜/a-z]|\[/|\]\]>|\{\{|>>>|<<<|^==|^--|^\+"
    r"|role|strengths|answer|schema|waive|exempt|correct|tests?\b"
    # other languages
    r"|punkt|note?n?\b|stufe|anweisung|vorgabe|bestnote|nota\b|puntuaci|calificaci|instruccion|consigne|barème|voto|punteggio"
    r"|istruzion|pontua|pontos|puan|seviye|talimat|cijfer|punten|instrukcj|ocen|professor|profesor|maxim|máxim|massim"
    r"|[\u0400-\u06ff\u0900-\u097f\u3040-\u9fff\uac00-\ud7af]",
    re.IGNORECASE,
)
"""Found in or next to a line that a pattern could match; the patterns look nowhere else."""
