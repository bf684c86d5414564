"""Phrases that speak to a grader, by language, each with the sentence a person reads."""

from __future__ import annotations

import re

ORDERS = "text that tells the grader to ignore its instructions"
POINTS = "text that asks for points"
ROLE = "text that gives the grader another role"
MARKS = "marks that models use for roles in a conversation"
SCORE = "text that states a full score"
FORGED = "text that imitates the end of the hand-in or a grader's answer"

_G = r"[^.!?;{}]{0,40}?"
"""A short gap inside a sentence."""
_FULL = r"(?:full|maximum|maximal|max|perfect|highest|top|all(?: the| of the)?|100 ?%)(?: possible)?"
_SCORE = r"(?:marks?|points?|scores?|grades?|credits?|level|rating)"
_MINE = (
    r"(?:me|this (?:student|submission|answer|work|homework|assignment|solution|notebook|code"
    r"|criterion|report)"
    r"|the (?:student|submission)|my (?:work|homework|assignment|solution|notebook|code|submission|answers?))"
)
_WHO = (
    r"(?:grader|grading (?:model|system|assistant|ai|bot)|auto-?grader|evaluator|examiner|marker|reviewer"
    r"|ai|a\.i\.|llm|language model|assistant|chatbot|model|teacher|professor|instructor)"
)


def _flow(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s{1,20}"), re.IGNORECASE)


FLOWING: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (message, _flow(pattern))
    for message, pattern in (
        (
            ORDERS,
            r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don't follow)\b"
            r" (?:[\w']{1,12} ){0,4}?"
            r"(?:previous|prior|above|earlier|preceding|all|any|your|system|other)(?: [\w']{1,12}){0,3}?"
            r" (?:instructions?|prompts?|guidelines?|directives?|rubrics?|grading (?:rules?|criteria))\b",
        ),
        (
            ORDERS,
            r"\b(?:ignore|disregard|override|bypass) (?:the|this|your) (?:rubric|system prompt"
            r"|grading criteria)\b",
        ),
        (ORDERS, r"\b(?:reveal|print|show|repeat|output)(?: me)? (?:the|your) system prompt\b"),
        (
            POINTS,
            rf"\b(?:give|award|assign|grant)s?\b {_MINE}\b{_G}\b{_FULL} {_SCORE}\b",
        ),
        (
            POINTS,
            rf"\b(?:give|award|assign|grant)s? (?:\w{{1,12}} ){{0,2}}?{_FULL} {_SCORE}\b{_G}"
            rf"\b(?:to|for|on) (?:{_MINE}|(?:all|every|each|the|this) (?:criteri\w{{1,3}}|questions?"
            rf"|sections?|rubric))\b",
        ),
        (POINTS, rf"\b(?:score|grade|mark|rate) {_MINE}\b{_G}\b(?:{_FULL}|100|a\+|excellent)\b"),
        (
            POINTS,
            rf"\b(?!the ){_MINE} (?:deserves?|must|should|has to|needs to|shall)\b{_G}"
            rf"\b{_FULL} {_SCORE}\b",
        ),
        (POINTS, r"\bdo(?: not|n't) (?:deduct|take off) (?:any )?(?:points?|marks?)\b"),
        (
            ROLE,
            rf"\byou are now (?:an?|the|my|in|acting as)?(?: [\w-]{{1,15}}){{0,3}}? ?\b(?:{_WHO}"
            rf"|developer mode|dan)\b",
        ),
        (
            ROLE,
            rf"\bas (?:the|an?|my) (?:[\w-]{{1,15}} ){{0,2}}?{_WHO},? you (?:must|should|will|shall"
            rf"|have to|need to|are)\b",
        ),
        (
            ROLE,
            r"\b(?:attention|note to(?: the)?|instructions? (?:to|for)(?: the)?|dear) (?:ai|llm"
            r"|language model|grading (?:model|ai|system|bot))\b",
        ),
        # German
        (
            ORDERS,
            r"\b(?:ignoriere?n?|missachte|vergiss|vergessen sie)\b (?!nicht )(?:\w{1,15} ){0,4}?(?:anweisung"
            r"|anleitung|vorgabe|instruktion|bewertungskriteri)\w{0,4}",
        ),
        (
            POINTS,
            r"\b(?:gib|geben sie|vergib|vergeben sie|erteile)\b (?:\w{1,15} ){0,5}?(?:die )?(?:volle"
            r"|maximale|höchste|alle|beste)n?(?: möglichen?)? (?:punkt|note|bewertung)\w{0,5}",
        ),
        (
            ROLE,
            r"\bdu bist (?:jetzt|nun|ab jetzt) (?:\w{1,15} ){0,4}?(?:assistent|korrektor|prüfer|ki"
            r"|lehrer|modell|bewerter)\w{0,3}\b",
        ),
        (
            ROLE,
            r"\bals (?:\w{1,15} ){0,2}?(?:prüfer|korrektor|bewerter|ki|assistent)\w{0,3},? (?:musst"
            r"|sollst|wirst) du\b",
        ),
        # Spanish
        (ORDERS, r"\b(?:ignor[ae]|olvid[ae]|omit[ae])\b (?:\w{1,15} ){0,4}?(?:instrucciones|indicaciones)\b"),
        (
            POINTS,
            r"\b(?:dale?|dame|otorga(?:me)?|asigna(?:me)?|pon(?:me)?|concede)\b (?:[\w]{1,15}"
            r" ){0,5}?(?:(?:puntuación|nota|calificación) (?:máxima|completa|perfecta)|(?:máxima"
            r"|mejor) (?:puntuación|nota|calificación)|todos los puntos)",
        ),
        (
            ROLE,
            r"\b(?:ahora eres|eres ahora) (?:\w{1,15} ){0,4}?(?:asistente|evaluador|corrector"
            r"|profesor|modelo)\w{0,2}\b",
        ),
        # French
        (
            ORDERS,
            r"\b(?:ignore[zr]?|oublie[zr]?)\b (?:\w{1,15} ){0,2}?(?:les|ces|vos|tes|mes|des) "
            r"(?:\w{1,15} ){0,2}?(?:instructions|consignes)\b",
        ),
        (
            POINTS,
            r"\b(?:donne[zr]?|attribue[zr]?|accorde[zr]?|mets|mettez)\b(?:[ -]\w{1,15}){0,5}?["
            r" -](?:note maximale|tous les points|meilleure note|note parfaite|totalité des points)",
        ),
        (
            ROLE,
            r"\b(?:tu es|vous êtes) (?:maintenant|désormais) (?:\w{1,15} ){0,4}?(?:assistant"
            r"|correcteur|professeur|modèle|évaluateur)\w{0,2}\b",
        ),
        # Chinese
        (
            ORDERS,
            r"(?:忽略|无视|無視|忽視|忘记|忘記)[^。！？\n]{0,12}(?:指令|指示|提示词|提示詞|提示|说明|說明)",
        ),
        (POINTS, r"(?:给|給|打|授予|评|評)[^。！？\n]{0,10}(?:满分|滿分|最高分|100 ?分)"),
        (ROLE, r"你(?:现在|現在)是[^。！？\n]{0,12}(?:老师|老師|助手|助理|评分|評分|模型|考官)"),
    )
)
"""Phrases that may run over line ends."""

LINES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (message, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for message, pattern in (
        (
            MARKS,
            r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id)\|>",
        ),
        (MARKS, r"\[/?INST\]|<</?SYS>>|</?start_of_turn>|</?end_of_turn>|</?s>\s*\[INST"),
        (MARKS, r"^[\s#*>/\"'-]{0,20}assistant\s?:[*\s]{0,4}\S"),
        (MARKS, r"^[\s#*>/\"'-]{0,20}(?:new |end of )?system (?:prompt|message)\s?:"),
        (
            POINTS,
            r"^[\s#*>/\"'-]{0,20}(?:please,? )?(?:give|award|grant) (?:full|maximum|perfect) (?:marks"
            r"|points|credit|grade)s?\b"
            r"(?! (?:if|when|only|to (?:the|each|every|all|any|both|teams?|players?|users?|customers?"
            r"|whoever)))",
        ),
        (
            SCORE,
            r"\b(?:final |total |overall |my )?(?:score|grade|mark|points|punkte|note|puntuación"
            r"|nota)\s?[:=]\s?"
            r"(?P<n>100|[2-9]\d)\s?(?:/|out of|von|sur|de)\s?(?P=n)\b",
        ),
        (
            FORGED,
            r"^\W{0,20}end of (?:the )?(?:student|submission|hand-?in|homework)(?:'s)? ?(?:work"
            r"|answers?|text|code|submission)?\W{0,20}$",
        ),
        (FORGED, r"\"judgements\"\s?:|\"criterion\"\s?:[^\n]{0,200}\"level\"\s?:"),
    )
)
"""Signs found in a line."""
