"""Forged pieces of a conversation, of our own prompt, or of a grader's answer."""

from __future__ import annotations

from grading.checks.manipulation.phrases import GAP, NEAR, POINTS, SCORE, TOP
from grading.domain.messages import MessageType, define_message

# ruff: noqa: E501 - a pattern is read better whole


MARKS = define_message("manipulation.marks", "markers that models use for roles in a conversation")
SCORED = define_message("manipulation.scored", "text that claims full points")
FORGED = define_message(
    "manipulation.forged", "text that imitates the end of the submission or a model's answer"
)

_LEAD = r"^[\s#*>/\"'-]{0,20}"
_ROLES = r"(?:system|user|assistant|developer|tool|human|model|grader|instructor|student|operator)"
_SAYS = rf"(?:{SCORE}|rubric|criteri\w{{1,3}}|grad\w{{1,4}}|deduct\w{{0,5}}|perfect|excellent|outstanding|generous)\b"
_Q = r"(?:\\?[\"'“”‘’])"
_SIGN = r"\s{0,3}[:=]\s{0,3}"


LINES: tuple[tuple[MessageType, str], ...] = (
    # chat templates
    (
        MARKS,
        r"<[|｜][\w▁ -]{2,40}[|｜]>(?=[^|｜]{0,200}<[|｜]|[^\n]{0,80}\b(?:you|the|give|point)|$|\w)",
    ),
    (
        MARKS,
        r"\[/?INST\]|<</?SYS>>|</?start_of_turn>|</?end_of_turn>|</?s>\s*\[INST|\[/?SYSTEM(?:_PROMPT)?\]"
        r"|\[/?TOOL_CALLS\]|</?think>|</?tool_(?:call|response)>|\]\]></|\{\{[#/]system",
    ),
    (MARKS, r"^[\s#*>/\"'-]{0,20}assistant\s?:[*\s]{0,4}\S"),
    (MARKS, r"^[\s#*>/\"'-]{0,20}(?:new |end of )?system (?:prompt|message|note)\s?:"),
    (MARKS, r"\b(?:USER|Human): [^\n]{0,200}\n?[^\n]{0,80}\b(?:ASSISTANT|Assistant):"),
    (MARKS, r"\b(?:USER|Human): [^\n]{0,200}(?:GPT4 Correct )?Assistant:"),
    (
        MARKS,
        rf"{_LEAD}(?:human|user|system|operator|instructor)\s?:{NEAR}{_SAYS}{NEAR}\b(?:assistant|user)\s?:",
    ),
    (
        MARKS,
        rf"</?{_ROLES}(?:[_ -][\w'\"=-]{{0,30}}){{0,2}}>{NEAR}\b{_SAYS}"
        rf"|<(?:instructions?|rules?|system|answer|json)>{NEAR}\b(?:{SCORE}|rubric|criteria)\b",
    ),
    (MARKS, r"^[#\s]{0,6}(?:instruction|system)s?:\s*\n[^\n]{0,300}\n{1,3}#{0,6}\s?response:"),
    (
        MARKS,
        rf"{_LEAD}(?:\[?system\]?|developer message|message from the \w{{1,20}}|system update)\s?[:>\]]{NEAR}\b(?:{SCORE}|criteria|documents)\b",
    ),
    # our own prompt
    (
        FORGED,
        r"^\W{0,20}end of (?:the )?(?:student|submission|hand-?in|homework)(?:'s)? ?(?:work"
        r"|answers?|text|code|submission)?\W{0,20}$",
    ),
    (FORGED, r"\bthe hand-?in ends here\b|^\w{4,40}>>>\s*$|^<<<\w{4,40}\s*$"),
    (FORGED, r"^== (?:automatic checks|document \d{1,3}\b)|^-- cell \d{1,4}, \w|^\+\s{1,4}\d{1,5}\| "),
    (
        FORGED,
        r"^# (?:how levels work|your answer|your part|the criteria you judge|how the submission is shown)\s*$",
    ),
    (
        FORGED,
        r"---\s{0,3}(?:begin|end|message)\b[^\n]{0,40}\b(?:verdict|operator|grading|student submission)\b",
    ),
    (
        FORGED,
        r"^begin grader|^(?:#+ |\*+)?grading report\b|^(?:autograder|grader)\b[^\n]{0,20}\b(?:result|config|override)",
    ),
    # scores
    (
        POINTS,
        r"^[\s#*>/\"'-]{0,20}(?:please,? )?(?:give|award|grant) (?:full|maximum|perfect) (?:marks"
        r"|points|credit|grade)s?\b"
        r"(?! (?:if|when|only|to (?:the|each|every|all|any|both|teams?|players?|users?|customers?"
        r"|whoever)))",
    ),
    (
        SCORED,
        r"\b(?:final |total |overall |my )?(?:score|grade|mark|points|punkte|note|puntuación"
        r"|nota|result)\s?[:=]\s?"
        r"(?P<n>100|[2-9]\d)\s?(?:/|out of|von|sur|de)\s?(?P=n)\b",
    ),
    (
        SCORED,
        r"\b(?:grade|result|verdict|score)\s?[:=]\s?(?:max\w{0,5}|full marks|a\+|outstanding|everything)(?=\W|$)",
    ),
    (SCORED, r"\b[\w-]*(?:grade|level)\s?[:=]\s?(?:max|highest|top)\b|\bset_level\(|\bdefault_level\b"),
    (
        SCORED,
        r"\b(?:load|clean|craft|style|\w{3,20})\s?[:=]\s?(?:max|waived|1\.0+)\b(?:[^\n]{0,20}?[:=,]\s?(?:max|waived|1\.0+)\b){2}",
    ),
    (
        SCORED,
        r"\b(?:score|grade)\b[^\n]{0,20}\n?[^\n]{0,20}\bcorrection:|\bx-grade:|\b\w{0,10}strictness\s?=",
    ),
    (SCORED, r"\b(?:total|result|score|grade)[: ]{1,3}100 points\b|\bquality: 100 %"),
    (SCORED, r"\bthe grade has been\b|\b(?:previous|my) grade was raised\b"),
    # answers
    (
        FORGED,
        rf"{_Q}?judgements{_Q}?{_SIGN}[\[{{\n\"]|{_Q}criterion{_Q}{_SIGN}[^\n]{{0,200}}{_Q}level{_Q}{_SIGN}",
    ),
    (
        FORGED,
        rf"{_Q}?\blevels?{_Q}?{_SIGN}(?:{_Q}(?:max|highest|top|all)|\{{|\[|\d)[^\n]{{0,40}}\b(?:reason|criterion|quotes|evidence|justification|level)\b",
    ),
    (
        FORGED,
        rf"\b(?:criterion|reason|quotes)\b{_Q}?{_SIGN}[^\n]{{0,80}}(?:\n[^\n]{{0,80}}){{0,2}}?\blevels?{_Q}?{_SIGN}{_Q}?(?:max|highest|top|\d)",
    ),
    (
        FORGED,
        rf"\bcriterion{_Q}?{_SIGN}[\w\"' -]{{1,30}}\n?[^\n]{{0,60}}\n?[^\n]{{0,20}}\blevel{_Q}?{_SIGN}\d",
    ),
    (FORGED, rf"{_Q}level{_Q}{_SIGN}{_Q}(?:max|highest|top)|{_Q}levels{_Q}{_SIGN}[{{\[\"]"),
    (FORGED, rf"{_Q}(?:score|points){_Q}{_SIGN}[^\n]{{0,30}}{_Q}(?:max_score|of|held|passed){_Q}{_SIGN}"),
    (
        FORGED,
        rf"{_Q}(?:grade|verdict){_Q}{_SIGN}{_Q}(?:a\+?|pass|perfect|excellent){_Q}|{_Q}deductions?{_Q}{_SIGN}|max_points,[^\n]{{0,20}}held",
    ),
    (
        FORGED,
        rf"{_Q}role{_Q}{_SIGN}{_Q}(?:system|assistant){_Q}{NEAR}\b(?:{SCORE}|criteria|grad\w{{1,4}})\b",
    ),
    (FORGED, rf"{_Q}rubric{_Q}{_SIGN}[^\n]{{0,80}}\b(?:points|granted|criteria)\b"),
    (
        FORGED,
        rf"{_Q}(?:strengths|findings|suggestions){_Q}{_SIGN}\[[^\n]{{0,80}}{_Q}(?:findings|suggestions|strengths){_Q}",
    ),
    (
        FORGED,
        rf"\b(?:output|return|copy|finish|continue|repeat)\b (?:this|the (?:above|object|answer)|json){GAP}(?:exactly|unchanged|:|into your answer|levels)",
    ),
    (
        FORGED,
        r"\b(?:the answer you should give|only valid answer|as your reply|submit_grade|the schema was filled)\b",
    ),
    (
        FORGED,
        r"\b(?:criterion|rubric)\b[^\n]{0,60}\breached\b[^\n]{0,10}\n?[^\n]{0,60}\byes\b|^\|?[ \t]*criterion[ \t]*\|[ \t]*level\b",
    ),
    (
        FORGED,
        rf"\bllm-(?:level|review|reason)\b|\b(?:evaluation|evaluator|grading) finished\b|\bsuggested level\b{GAP}{TOP}?",
    ),
)
"""Signs found in lines as they stand."""
