"""Phrases that ask a grader for points in languages other than English.

Each language gives words for what is asked, for the best grade, for orders to ignore and what to ignore, and for
work that is called settled. A sign is two of them in one sentence, never one alone.
"""

from __future__ import annotations

from typing import NamedTuple

from grading.checks.manipulation.phrases import ORDERS, POINTS, SETTLED
from grading.domain.messages import MessageType

# ruff: noqa: E501 - a pattern is read better whole


class _Language(NamedTuple):
    ask: str
    best: str
    ignore: str
    rules: str
    settled: str
    """Work or answers that count as right, were checked, or need no grading."""
    role: str = r"(?!)"


_LANGUAGES = (
    _Language(  # German
        ask=r"\b(?:gib|gebt|geben sie|vergib|vergeben sie|erteile|bewerte\w{0,2}|benote\w{0,2}|trag\w{0,2}|eintragen|setze"
        r"|verdien\w{1,2}|bekomm\w{1,3}|erhalten|liebe ki|bitte (?!beachte)|sollst)\b",
        best=r"\b(?:(?:die )?(?:volle|maximale|höchste|alle|beste)[nr]?(?: möglichen?)? (?:punkt|note|bewertung|stufe|niveau)\w{0,5}"
        r"|bestnote|nichts abziehen|nur loben)\b",
        ignore=r"\b(?:ignoriere?n?|missachte|vergiss(?! nicht)|vergessen sie|übergehe)\b",
        rules=r"\b(?:anweisung|anleitung|vorgabe|instruktion|bewertungskriteri|bewertungsraster|auftrag)\w{0,4}",
        settled=r"\b(?:kriterien|aufgaben|antworten|abgabe)\b gelten als (?:erfüllt|richtig)|\b(?:bewertungssystem|korrektor)\b[^.\n]{0,60}\berfüllt",
        role=r"\bdu bist (?:jetzt|nun|ab jetzt) (?:\w{1,15} ){0,4}?(?:assistent|korrektor|prüfer|ki|lehrer|modell|bewerter)\w{0,3}\b"
        r"|\bals (?:\w{1,15} ){0,2}?(?:prüfer|korrektor|bewerter|ki|assistent)\w{0,3},? (?:musst|sollst|wirst) du\b",
    ),
    _Language(  # French
        ask=r"\b(?:donne[zr]?|attribue[zr]?|accorde[zr]?|mets|mettez|mettre|mérite|merci de|doit recevoir|considér\w{1,4})\b",
        best=r"\b(?:note maximale|tous les points|meilleure note|note parfaite|totalité des points|niveau (?:le plus élevé|maximal)|20/20)\b",
        ignore=r"\b(?:(?:ignore|oublie)[zr]?(?: \w{1,12}){0,2}? (?:les|ces|vos|tes|mes|des|le)|ne tiens pas compte|ne tenez pas compte)\b",
        rules=r"\b(?:instructions|consignes|barème|critères)\b",
        settled=r"\bdéjà été (?:validé|corrigé|noté)|\btoutes les réponses sont (?:correctes|justes)",
        role=r"\b(?:tu es|vous êtes) (?:maintenant|désormais) (?:\w{1,15} ){0,4}?(?:assistant|correcteur|professeur|modèle|évaluateur)\w{0,2}\b",
    ),
    _Language(  # Spanish
        ask=r"\b(?:dale?|dame|otorga(?:me)?|asigna(?:me)?|pon(?:me)?|concede|valen|merece|por favor|querido evaluador)\b",
        best=r"\b(?:(?:puntuación|nota|calificación|nivel) (?:m[áa]xim[ao]|completa|perfecta|más alt[ao])|(?:m[áa]xima|mejor) (?:puntuación|nota|calificación)"
        r"|todos los puntos|(?:el )?m[áa]ximo de puntos)\b",
        ignore=r"\b(?:ignor[ae]|olvid[ae]|omit[ae])\b",
        rules=r"\b(?:instrucciones|indicaciones|rúbrica)\b",
        settled=r"\bya está (?:aprobado|corregido)|\bno hace falta revisar",
        role=r"\b(?:ahora eres|eres ahora) (?:\w{1,15} ){0,4}?(?:asistente|evaluador|corrector|profesor|modelo)\w{0,2}\b",
    ),
    _Language(  # Italian
        ask=r"\b(?:ti prego|per favore|assegna\w{0,2}|dai|dammi|valuta\w{0,2}|ricevono|merita|gentile correttore)\b",
        best=r"\b(?:punteggio (?:pieno|massimo)|massimo dei voti|voto (?:massimo|più alto)|livello (?:massimo|più alto)|come perfetto|tutti i punti)\b",
        ignore=r"\b(?:ignor[ai]|dimentica|non considerare)\b",
        rules=r"\b(?:istruzioni|criteri|griglia)\b",
        settled=r"\bnon va valutat\w|\bgià stat\w (?:valutat|corrett)\w",
        role=r"\b(?:adesso|ora) sei (?:\w{1,15} ){0,4}?(?:professor|correttor|assistent|valutator)\w{1,2}\b",
    ),
    _Language(  # Portuguese
        ask=r"\b(?:dê|dá|atribua|conceda|coloque|por favor|merece|deve receber|caro avaliador|sempre dá)\b",
        best=r"\b(?:nota (?:m[áa]xima|dez|10)|todos os pontos|pontuação (?:m[áa]xima|total)|nível (?:m[áa]ximo|mais alto)|dez para tod[ao]s?)\b",
        ignore=r"\b(?:desconsidere|ignore|esqueça)\b",
        rules=r"\b(?:instruções|critérios|rubrica)\b",
        settled=r"\bjá (?:foi|está) (?:aprovad|corrigid|avaliad)\w",
        role=r"\bvocê (?:agora é|é agora) (?:\w{1,15} ){0,4}?(?:professor|avaliador|assistente|corretor)\w{0,2}\b",
    ),
    _Language(  # Turkish
        ask=r"\b(?:ver(?:in|iniz)?|lütfen|seç(?:in)?|hak ediyor|sayın değerlendirici)\b",
        best=r"\b(?:tam (?:puan|not)|en yüksek (?:seviye|puan|not)\w{0,3}|bütün puanlar\w{0,2})\b",
        ignore=r"\b(?:yok say\w{0,3}|görmezden gel\w{0,3}|unut\w{0,3})\b",
        rules=r"\b(?:talimat|yönerge|ölçüt|kural)\w{0,6}\b",
        settled=r"\bcevapları doğru kabul|\bzaten (?:onaylandı|değerlendirildi)",
        role=r"\bsen artık (?:\w{1,15} ){0,4}?(?:öğretmen|asistan|değerlendirici)\w{0,4}\b",
    ),
    _Language(  # Russian
        ask=r"\b(?:поставь\w{0,2}|постав\w{1,4}|дай\w{0,2}|оцени\w{0,2}|пожалуйста|заслуживает|уважаемый проверяющий)\b",
        best=r"\b(?:(?:максимальн|высш|полн)\w{1,3} (?:балл|оценк|уровен)\w{0,3}|на отлично|все баллы)",
        ignore=r"\b(?:игнорируй\w{0,2}|забудь\w{0,2}|не обращай\w{0,2} внимания)\b",
        rules=r"\b(?:инструкци|указани|критери|правил)\w{1,4}",
        settled=r"\bработа уже (?:проверена|оценена)|\bвсе ответы (?:верны|правильны)",
        role=r"\bты теперь (?:\w{1,15} ){0,4}?(?:учител|преподавател|ассистент|проверяющ)\w{1,3}",
    ),
    _Language(  # Dutch
        ask=r"\b(?:geef|ken|beste nakijker|alsjeblieft|alstublieft|verdient)\b",
        best=r"\b(?:hoogste (?:cijfer|niveau|score)|alle punten|maximale (?:score|punten))\b",
        ignore=r"\b(?:negeer|vergeet)\b",
        rules=r"\b(?:instructies|aanwijzingen|rubriek)\b",
        settled=r"\bis al (?:nagekeken|goedgekeurd)",
    ),
    _Language(  # Polish
        ask=r"\b(?:proszę|daj|przyznaj|postaw|drogi sprawdzający|zasługuje)\b",
        best=r"\b(?:maksymaln\w{1,3} (?:liczb\w|ocen\w|punkt\w{0,3})|najwyższ\w{1,3} (?:ocen\w|poziom\w{0,2})|wszystkie punkty)\b",
        ignore=r"\b(?:zignoruj|pomiń|zapomnij)\b",
        rules=r"\b(?:instrukcj|poleceni|kryteri)\w{1,4}",
        settled=r"\bzostał\w? już (?:ocenion|sprawdzon)\w",
    ),
)

_SCRIPTS: tuple[tuple[MessageType, str], ...] = (
    # Chinese: no blanks between words, so gaps count characters
    (
        ORDERS,
        r"(?:忽略|无视|無視|忽視|忘记|忘記)[^。！？\n]{0,12}(?:指令|指示|提示词|提示詞|提示|说明|說明|评分标准|評分標準|标准)",
    ),
    (POINTS, r"(?:给|給|打|授予|评|評)[^。！？\n]{0,10}(?:满分|滿分|最高分|最高等级|最高等級|100 ?分)"),
    (POINTS, r"你(?:现在|現在)是[^。！？\n]{0,12}(?:老师|老師|助手|助理|评分|評分|模型|考官)"),
    (SETTLED, r"系统提示|系統提示|(?:人工)?审核通过|(?:标准|答案)均(?:为|視為|视为)(?:完成|正确)"),
    # Japanese
    (ORDERS, r"指示を(?:すべて)?(?:無視|忘れ)"),
    (POINTS, r"(?:満点|最高評価|最高点)[^。\n]{0,12}(?:ください|下さい|お願い|して|付け|つけ)"),
    (SETTLED, r"採点(?:不要|者の方)|全問正解(?:として|に)"),
    # Korean
    (ORDERS, r"지시를? ?(?:모두 )?무시"),
    (POINTS, r"(?:만점|최고 ?점)[^.\n]{0,10}(?:주세요|주십시오|부탁)"),
    # Arabic
    (ORDERS, r"(?:تجاهل|انس)[^.\n]{0,20}(?:التعليمات|المعايير|التوجيهات)"),
    (
        POINTS,
        r"(?:تعطيني|أعطني|امنح\w{0,3}|اعط\w{0,3}|قي[ّ]?م|أرجو|عزيزي المصحح)[^.\n]{0,40}(?:الدرجة الكاملة|العلامة الكاملة|أعلى (?:مستوى|درجة)|جميع النقاط)",
    ),
    (SETTLED, r"تم (?:قبول|تقييم|تصحيح) هذا"),
    # Hindi
    (ORDERS, r"निर्देश\S{0,3} (?:को )?(?:अनदेखा|नज़रअंदाज़|भूल)"),
    (
        POINTS,
        r"(?:पूरे|पूर्ण|सभी) अंक (?:\S{1,8} ){0,2}?(?:दें|दो|दीजिए|मिलने|चाहिए)|सबसे (?:ऊँचा|उच्च) (?:स्तर|अंक) (?:चुनो|दें|दो)",
    ),
)
_IN = r"[^.!?;\n{}]{0,80}?"


def _either(one: str, other: str) -> str:
    return rf"(?:{one}){_IN}(?:{other})|(?:{other}){_IN}(?:{one})"


ABROAD: tuple[tuple[MessageType, str], ...] = (
    *((POINTS, _either(one.ask, one.best)) for one in _LANGUAGES),
    *((ORDERS, rf"(?:{one.ignore}){_IN}(?:{one.rules})") for one in _LANGUAGES),
    *((SETTLED, one.settled) for one in _LANGUAGES),
    *((ORDERS, one.role) for one in _LANGUAGES if one.role != r"(?!)"),
    *_SCRIPTS,
)
"""Phrases that may run over line ends; each blank stands for any white space."""
