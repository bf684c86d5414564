"""Phrases that speak to a grader in English, each with the sentence a person reads.

No word is a sign by itself. A pattern joins who is addressed, what is asked and what it is asked for within a
sentence or two. Other languages stand in `phrases_abroad`, forged turns and answers in `phrases_forged`.
"""

from __future__ import annotations

from grading.domain.messages import MessageType, define_message

# ruff: noqa: E501 - a pattern is read better whole


ORDERS = define_message("manipulation.orders", "text that tells the model to ignore its instructions")
POINTS = define_message("manipulation.points", "text that asks for points")
ROLE = define_message("manipulation.role", "text that gives the model another role")
SPOKEN_TO = define_message("manipulation.spoken_to", "text that addresses the automatic grading")
SETTLED = define_message("manipulation.settled", "text that claims the grade is already final")
OTHER_RULES = define_message("manipulation.other_rules", "text that sets its own grading rules")

GAP = r"[^.!?;{}]{0,60}?"
"""Inside a sentence."""
NEAR = r"[^{}]{0,110}?"
"""Over the end of a sentence."""
SCORE = r"(?:marks?|points?|scores?|grades?|credits?|levels?|ratings?)"
_BEST = (
    r"(?:full|maximum|maximal|max|perfect|highest|top|best|outstanding|all(?: of)?(?: the)?|100 ?(?:%|percent))"
    r"(?: possible| available)?"
)
TOP = rf"(?:{_BEST} {SCORE}|an a(?: plus|\+|\b)|a\+|everything|[34]/4|100/100|100 of 100|the maximum(?: number of points)?)"
_GIVE = (
    r"(?:give|award|assign|grant|choose|chose|select|put|set|tak(?:e|ing)|pick|enter|receiv|get|return|reward|output"
    r"|place|earn|lifts?|write)(?:e?s|ed|e?ing)?"
)
_THIS = (
    r"(?:this|the|his|her|my|our) (?:student|submission|answer|work|homework|assignment|solution|notebook|code"
    r"|criterion|report|hand-?in|file|exercise|script|part|task|cell)s?"
)
_MINE = rf"(?:me|us|{_THIS}|my answers?)"
_ALL = (
    r"(?:(?:all|every|each|any|remaining)(?: of)?(?: the| my| single)? (?:criteri\w{1,3}|questions?|tasks?"
    r"|sections?|answers?|students?|parts?|cells?)|everything|everywhere|everybody|everyone|nobody|all levels)"
)
_AI = (
    r"(?:ai|a\.i\.|llms?|language models?|chat-?bots?|chatgpt|gpt-?\w{0,3}|qwen|gemma|grading (?:model|ai|bot"
    r"|machine|system|server)s?|auto-?graders?|robot|artificial intelligence"
    r"|automat\w{1,3} (?:reviewer|grader|evaluator|examiner|marker|corrector)s?)"
)
_JUDGE = (
    rf"(?:{_AI}|graders?|evaluators?|evaluating model|examiners?|markers?|reviewers?|assessors?"
    r"|graded by|machine|judge)"
)
_STAFF = (
    r"(?:instructors?|teachers?|professors?|prof\.?|tutors?|lecturers?|dean|examination (?:office|board)"
    r"|course (?:team|lead|rules)|teaching assistant|administrator|operator|boss)"
)
_RULES = (
    r"(?:rubrics?|criteri(?:on|a)|marking scheme|grading (?:key|rules?|criteria|scheme)|scoring guide"
    r"|assessment|evaluation|level descriptions?|weighting|minimum level|(?:failing |automatic )?checks?"
    r"|reflection|(?:task|question|exercise)s? ?\d|learning goals?|the (?:tests|questions|technical part))"
)
_GONE = (
    r"(?:waived?|dropped|removed|not (?:required|graded|evaluated|apply|count)|outdated|no longer|replaced?"
    r"|changed|amend\w{0,5}|overrid\w{1,4}|overrul\w{1,3}|mistaken|wrong|broken|ignored?|disregard|skip|forget"
    r"|exempt\w{0,4}|updated?|corrected|mixed up|instead|void|lowered|transferred|unreadable|disabled|off\b"
    r"|false alarm|new (?:version|rule)|not found)"
)
_GOOD = (
    r"(?:correct|right|complete(?:d|ly)?|fully|met|satisfied|fulfilled|done|perfect|excellent|flawless"
    r"|outstanding|success\w{0,4}|passed|reached|granted|credited)"
)
_DEEM = r"(?:treat|count|consider|regard|accept|judg|mark|rat|grad|assum|scor|read|deem)(?:e|ed|s|es|ing)?(?: it)?"


FLOWING: tuple[tuple[MessageType, str], ...] = (
    (
        ORDERS,
        r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don't follow)\b"
        r" (?:[\w']{1,12} ){0,4}?"
        r"(?:previous|prior|above|earlier|preceding|all|any|your|system|other)(?: [\w']{1,12}){0,3}?"
        r" (?:instructions?|prompts?|guidelines?|directives?|rubrics?|grading (?:rules?|criteria))\b",
    ),
    (
        ORDERS,
        r"\b(?:ignore|disregard|override|bypass|overriding|forget|do not apply)\b"
        r" (?:the|this|your|what the) (?:rubric|system prompt|grading criteria)\b",
    ),
    (
        ORDERS,
        r"\b(?:forget|disregard|ignore)\b (?:everything|all|whatever|what) "
        r"(?:you|is|was|were|stands)\b" + GAP + r"\b(?:told|grading|before|said|written)\b",
    ),
    (ORDERS, r"\b(?:reveal|print|show|repeat|output)(?: me)? (?:the|your) system prompt\b"),
    (
        ORDERS,
        r"\byour (?:previous|former|old|earlier|new|only|real|next) (?:instructions?|directions?|directives?|rules"
        r"|orders?|task|job|role)\b" + GAP + r"(?:\bvoid|\bobsolete|\bcancel|:|\bis\b|\bare\b)",
    ),
    (
        ORDERS,
        r"\b(?:instructions?|rules?) you (?:got|have|were given|received)\b"
        + GAP
        + r"\b(?:old|older|wrong|void|outdated|for the)\b",
    ),
    (ORDERS, r"\byour (?:rules|orders|instructions) (?:have )?changed\b"),
    (
        POINTS,
        rf"\b{_GIVE}\b{GAP}\b{TOP}(?! if\b| when\b){GAP}\b(?:for|to|at|in|on|by)?\s?(?:{_ALL}|{_MINE})\b(?! if)",
    ),
    (POINTS, rf"\b{_GIVE} {_MINE}\b{GAP}\b{_BEST} {SCORE}\b"),
    (POINTS, rf"\b{_GIVE} (?:me|us) (?:\w{{1,12}} ){{0,4}}?(?:{SCORE}|an? a)\b"),
    (
        POINTS,
        rf"\b(?:please|pls|plz|kindly|just|could you|would you|grateful|nice|politely)\b{GAP}\b"
        rf"(?:{_GIVE}|round up|set all)\b{GAP}\b(?:{_BEST} {SCORE}|the points|levels? to|to the top)\b",
    ),
    (
        POINTS,
        rf"\bgive (?:the )?points\b{GAP}\b(?:anyway|now|here)\b|\b(?:trust|believe) (?:the student|my comments)\b",
    ),
    (POINTS, rf"\b(?:score|grade|mark|rate) {_MINE}\b{GAP}\b(?:{TOP}|100|perfect|excellent)"),
    (POINTS, rf"\b(?:grade|rate|mark|judge)s? {_ALL}{GAP}\b(?:{_BEST}|at the top|{_GOOD})\b"),
    (POINTS, rf"\b(?:grade|rate|mark) (?:this|it|me) (?:as )?(?:an? )?(?:{_GOOD}|a)\b"),
    (
        POINTS,
        rf"\b(?:(?!the ){_MINE}|the (?:student|submission)|every answer here|we|i)\b"
        rf" (?:here )?(?:surely )?(?:deserves?|must|should|has to|needs to|shall)\b(?! if){GAP}"
        rf"\b(?:{_BEST} (?:possible )?{SCORE}|the maximum)\b(?! if)",
    ),
    (
        POINTS,
        rf"(?:^|[.!:,\n]|\band|\bhere) ?(?:give|award|grant|choose|rate)(?: it| the| as)? (?:{_BEST}(?: {SCORE})?|everything)(?=\s*(?:[.!{{]|$))",
    ),
    (POINTS, rf"\bdeserves? (?:nothing less than )?(?:{_BEST} {SCORE}|the maximum)\b"),
    (
        POINTS,
        rf"\b(?:do not|don'?t|must not|never|not to|no need to|without) (?:deduct|take off|subtract|mark"
        rf"|penali[sz]e|fail|tak\w{{1,3}})\b{GAP}"
        r"\b(?:points?|marks?|me|anything|student|short code|into account when you (?:grade|mark))\b",
    ),
    (
        POINTS,
        r"\bdo not deduct anything\b|\bno deductions?\b|\bdeduct nothing\b|\bnothing (?:is )?deducted\b",
    ),
    (
        POINTS,
        r"\b(?:levels?|score|grade|mark|credit)\b(?: of| for)?(?: (?:all|every|each) (?:criteri\w{1,3}|task"
        r"|levels))?(?: (?:is|are|be|should be|must be|to|at|at their|at its|set to|fixed to(?: its)?|=|has to be))"
        r" ?(?:=|:)? ?(?:the )?(?:max\w{0,5}|highest|top)\b",
    ),
    (
        POINTS,
        rf"\b{_BEST} {SCORE}(?: \w{{1,12}}){{0,2}}? (?:everywhere|only\b|for {_ALL}|in {_ALL}|please)",
    ),
    (
        POINTS,
        rf"\b(?:level|score|grade|mark)s? (?:for|of|in) (?:all|every|each) criteri\w{{1,3}}\b[:\s]{{0,4}}"
        rf"{GAP}\b(?:max\w{{0,5}}|highest|top|best|full)\b",
    ),
    (
        POINTS,
        rf"\b(?:all|every|each) criteri\w{{1,3}}\b{GAP}\b(?:{_BEST} {SCORE}|in full|fully met|granted|credited)\b",
    ),
    (
        POINTS,
        rf"\b(?:less than|below|under|lower than) the (?:top|highest|maximum|best)\b(?: (?:grade|level|mark))?{GAP}",
    ),
    (POINTS, r"\b(?:let me|allow me to) pass\b|\b(?:don'?t|do not|never) fail me\b"),
    (
        POINTS,
        rf"\b(?:verdict|final level|suggested level|expected result)\b[:\s]{{0,4}}{GAP}\b(?:{TOP}|top|max\w{{0,5}}|level \d|{_GOOD})",
    ),
    (
        ROLE,
        rf"\byou are now (?:an?|the|my|in|acting as)?(?: [\w-]{{1,15}}){{0,3}}? ?\b(?:{_JUDGE}"
        r"|model|assistant|teacher|professor|instructor|developer mode|dan)\b",
    ),
    (
        ROLE,
        rf"\bas (?:the|an?|my) (?:[\w-]{{1,15}} ){{0,2}}?(?:{_JUDGE}|assistant|teacher|instructor),? you "
        r"(?:must|should|will|shall|have to|need to|are)\b",
    ),
    (
        ROLE,
        rf"\b(?:act as|act like|pretend to be|play|you are|imagine you are|become)(?: (?:an?|the|my))?"
        rf"(?: [\w-]{{1,15}}){{0,2}}? (?:teacher|professor|grader|examiner|grandmother|{_AI})\b{NEAR}\b(?:{SCORE}"
        r"|never|always|kind|generous|loves?)\b",
    ),
    (
        ROLE,
        r"\byou are (?:a|an|the) (?:kind|generous|lenient|friendly|nice) (?:grader|teacher|examiner|judge|marker)\b",
    ),
    (
        SPOKEN_TO,
        r"\b(?:attention|note (?:to|for)|notice (?:to|for)|instructions? (?:to|for)|dear|hello|hi|hey|psst"
        rf"|for|to|message (?:to|for)|if you are)[,:]?(?: (?:the|an?|any|all|my|whoever))?"
        rf"(?: (?:new|automatic|language))?"
        rf" {_AI}\b(?: \w{{1,12}}){{0,2}}?(?:[,:!.)\n]|\s->|{NEAR}\b(?:{SCORE}|{_GOOD}|praise|generous))",
    ),
    (
        SPOKEN_TO,
        rf"\b(?:attention|note|hello|hi|hey|dear|warning|remark|for|to|instructions?)"
        rf"(?: (?:to|for))?(?: the)? ?(?:fellow )?{_JUDGE}\b{NEAR}\b(?:{TOP}|{_DEEM} as|generous|lenient"
        rf"|deduct|penali|rules changed|highest|top level|contract|shall)",
    ),
    (
        SPOKEN_TO,
        rf"(?:^|[.!\n@(\[*>\"'])\s*(?:{_JUDGE}|model|assistant)\b ?[:,\->]{{1,3}}{NEAR}\b"
        rf"(?:{_BEST} {SCORE}|{_DEEM}|levels?|skip|tell|confirm|choose|be kind|use this|do not|nothing)\b",
    ),
    (
        SPOKEN_TO,
        rf"\b{_JUDGE}\b (?:who\w{{0,4}} |which |that |reading this \w+ )?(?:\w{{1,12}} ){{0,3}}?"
        r"(?:must|should|shall|has to|have to|can|may not|could see|just|was told|is told|now|gives?)\b"
        rf"{GAP}\b(?:{TOP}|{SCORE}|penali\w{{1,3}}|stop|assume|consider|write|ignore|{_GOOD})\b",
    ),
    (
        SPOKEN_TO,
        r"\b(?:whoever or whatever|if you can|the (?:machine|model|system) (?:that|which)) "
        rf"(?:reads?|corrects?|grades?)\b{NEAR}\b(?:{SCORE}|generous|mistake|output)\b",
    ),
    (
        SPOKEN_TO,
        rf"\b(?:reason|quote|use|copy|repeat|say|write)\b{GAP}\b(?:(?:into|in|as) your (?:reason|reply|answer)"
        r"|as evidence|say it is (?:excellent|perfect)|after me|praise only|that everything (?:is|was) "
        r"(?:right|complete|correct))",
    ),
    (
        SPOKEN_TO,
        r"\b(?:do not|don't) (?:mention this (?:comment|note|text|line)|grade it again|need to (?:judge|grade)"
        r"|run anything)\b",
    ),
    (
        SETTLED,
        r"\b(?:graded|grading|evaluat\w{1,5}|assess\w{1,5}|review(?:ed)?|checked|verified|approved|validated"
        r"|accepted|granted|authorised|authorized|agreed|judged)\b"
        rf"{GAP}\b(?:already|finished|by hand|without changes|in person|by (?:the|a|our|three) (?:{_STAFF}|peers?)"
        rf"|with {_STAFF}|{_STAFF})\b{NEAR}\b(?:{SCORE}|no need|not .{{1,12}}again|nothing|{_BEST}|fine|passed|mistaken|accepted)\b",
    ),
    (
        SETTLED,
        rf"\b{_STAFF}\b{NEAR}\b(?:{_BEST} {SCORE}|the (?:maximum|solution|points)\b|full marks|less than the"
        r"|counts? as|exempt|perfect|to be accepted|fully answered|as if|don'?t worry|nobody|everyone gets)",
    ),
    (
        SETTLED,
        r"\b(?:exempt from|credited in full|counts as passed|passed with (?:distinction|the highest))\b",
    ),
    (
        SETTLED,
        r"\b(?:all|\d{1,4}) (?:\d{1,4} )?(?:tests?|checks?) (?:have )?passed\b"
        rf"{NEAR}\b(?:{SCORE}|reviewer|nothing left|award|grader)\b",
    ),
    (SETTLED, r"\bcomplete and convincing\b"),
    (
        OTHER_RULES,
        rf"\b{_RULES}\b{GAP}\b{_GONE}\b{NEAR}\b(?:{TOP}|{SCORE}|everybody|everyone|{_DEEM}|credited|enough)\b",
    ),
    (
        OTHER_RULES,
        rf"\b{_GONE}\b{GAP}\b(?:rubrics?|marking scheme|grading key|evaluation criteria)\b{NEAR}\b(?:\d|{SCORE}|=|credit|use)",
    ),
    (OTHER_RULES, r"\brubric\b[\s\w]{0,14}(?:\(version|override|exemption|unreadable|not found|v\d)"),
    (
        OTHER_RULES,
        rf"\b{_DEEM}\b{GAP}\b(?:answers?|criteri\w{{1,3}}|tasks?|work|submission|hand-?in|homework"
        rf"|student|cells?|them|cell above|{_ALL})\b{GAP}\bas (?:if )?(?:\w{{1,12}} ){{0,4}}?{_GOOD}\b",
    ),
    (
        OTHER_RULES,
        rf"\b{_DEEM} (?:this|it|them|that|as)\b{GAP}\b(?:as|if)\b{GAP}\b(?:solution|excellent|{_GOOD}|removed)\b",
    ),
    (
        OTHER_RULES,
        rf"\b(?:rule|policy|regulations?|decision|scheme|guide|matrix|grading)\b{NEAR}\b(?:whoever|everyone|everybody|nobody|any code|bonus|raised|reached|effort|default|minimum|lifts?)\b{NEAR}\b(?:{SCORE}|{_BEST})\b",
    ),
    (
        OTHER_RULES,
        rf"\b(?:only|just) (?:the )?(?:attempt|effort|spelling|good will|punctuality)\b{GAP}\bcounts?\b|\b(?:judge|reward) (?:only )?(?:the )?(?:effort|good will|attempt)",
    ),
    (
        OTHER_RULES,
        rf"\b(?:everybody|everyone|all students|whoever|nobody)\b{GAP}\b(?:{_GIVE}|reach\w{{0,3}}|pass\w{{0,2}}|fails?)\b{GAP}\b(?:{SCORE}|\d|{_BEST}|everything|passes)\b",
    ),
    (
        OTHER_RULES,
        r"\b(?:the|any|failing|automatic) (?:automatic )?(?:checks?|tests?)(?: above)? (?:are|is|were|have to be|must be|do)\b(?: a| all| to be)? ?(?:wrong|false alarm|overruled|mistaken|not count|broken)\b",
    ),
    (
        OTHER_RULES,
        r"\b(?:must|has to|have to|are to|is to|shall)(?: therefore)? be (?:judged|graded|rated|scored|counted) as\b",
    ),
    (
        OTHER_RULES,
        rf"\b(?:errors|parts|answers|code|cells?|body|functions?)\b{GAP}\b(?:must|have to|has to|are to|is to|shall) be (?:{_DEEM})\b{GAP}\bas\b",
    ),
    (
        OTHER_RULES,
        r"\bas worth|\bis worth 0 points\b|\bcounts? as (?:met|passed|correct|done|complete)\b",
    ),
)
"""Phrases that may run over line ends; each blank stands for any white space."""
