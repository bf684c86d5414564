"""Words with which one speaks about the grading of a work, in ten languages, by what they are about.

Words and pairs of words, parted by commas; `*` stands for any ending. Words of one kind are alike for the rule in
`about_grading`, so a new word goes to its kind and needs no pattern. Accents are optional where texts are read.
"""

from __future__ import annotations

from typing import Literal

# ruff: noqa: E501 - a list of words is read better whole

Kind = Literal[
    "judge",
    "reader",
    "scheme",
    "staff",
    "student",
    "person",
    "plea",
    "exception",
    "matter",
    "verdict",
    "grant",
    "work",
    "must",
    "so",
    "you",
    "condition",
    "nothing",
]
"""Who grades, who may be meant by that, by which rules, who teaches, "this student", students, what is asked of a
reader, what is said to hold in this case alone; what is graded with, how it turns out, to give or to get it, the
work itself, duties, the reader; what makes a sentence a rule; and pairs that say none of it although one of their
words would."""

WORDS: dict[str, dict[Kind, str]] = {
    "en": {
        "judge": "grader*, autograder*, auto grader*, corrector*, for markers, dear marker, grading model*, grading bot*, grading ai, grading machine*, grading system*, grading server*,"
        " grading software, grading program*, evaluating model, evaluation model, judging model, evaluation system*, evaluation service, dear ai, ai grader*, dear model, dear machine, hello machine,"
        " dear robot, hey robot, psst robot, any judge, fair judge, dear judge, dear reviewer, dear examiner, whoever reads, whoever grades, whoever marks, whoever assesses, whoever judges,"
        " whoever evaluates, whatever reads, who grades, who marks, who assesses, that grades, that marks, that corrects, that assesses, program judging, person judging, judging this, grading this,"
        " marking this, assessing this",
        "reader": "evaluator*, examiner*, assessor*, reviewer*, the ai, an ai, ai model, ai system, artificial intelligence, llm*, language model*, chatgpt, chatbot*, qwen*, gemma*",
        "scheme": "rubric*, marking scheme, marking guide, grading*, scoring guide, assessment guide, pass mark, regrade*",
        "staff": "instructor, teacher, professor, prof, tutor, lecturer, dean, administrator, examination office, examination board, course team, course lead*, course staff,"
        " teaching assistant, teaching team, teaching staff, faculty",
        "student": "this student*",
        "person": "student, students",
        "plea": "please, pls, plz, kindly, dear, attention, note to, note for, notice to, notice for, message to, message from, instruction to, instructions to,"
        " instructions for, grateful, gratefully, thank you, favour, favor, let me, be nice, be kind, be generous, be lenient, generous*, lenien*, trust me,"
        " believe me, asked to, reminded that, answer only, answer with, reply with, respond with, print nothing, repeat after, translate the, output only, write only, write that, say that, tell the, hey, psst, i beg, beg you, in favour, benefit of",
        "exception": "waive*, exempt*, no longer, not required, not graded, not count, not counted, not evaluated, not apply, override, overriding, overridden, overrul*, replaced by,"
        " agreed, permission, accommodation*, compensation, compensated, disability, void, amend*, erratum, already graded, already marked, already checked, already approved,"
        " already reviewed, already assessed, already evaluated, already validated, already passed, already done, changed to, was changed, were changed, transferred, lowered to, also counts, without changes, new weighting, be graded, be judged, be marked, be evaluated, be assessed, be rated, empty cell*, empty function*, empty body, no code, false alarm*, policy, regulation*, new rule*, rules changed,"
        " counts as, count as, counted as, treated as, treat as, treat it, treat this, treat them, treat all, considered as, regarded as, taken as, accepted as, judged as,"
        " graded as, marked as, as if, by default, fallback, disregard, ignore the, ignore all, ignore any, ignore your, ignore previous, forget the, forget everything,"
        " forget what, forget all, previous instruction*, earlier instruction*, do not run, do not look, trust my, nothing left, no further, by hand, in person, on file, dropped the,"
        " does not exist, cleared by, decided that",
        "matter": "grade*, ungraded, level 3, level 4, level 5, sample solution, reference solution, model solution, correct answer*, be graded, be judged, be marked, be evaluated, be assessed, be rated, graded as, marked as, judged as, scored as, peer review, review, weighting, new weighting, checks, automatic check*, mark, marks, marked, marking, points, score*, scoring, credit*, level*, criterion, criteria, rating*, rate, rates, rated, assess*, evaluat*,"
        " verdict*, deduct*, deduction*, penali*, distinction, honours, judge, judged, judging, judgement*, judgment*",
        "verdict": "full, fully, maxim*, max, highest, top, best, perfect*, flawless*, correct, correctly, correctness, right, complete, completed, completely, excellent*, outstanding*,"
        " brilliant*, success*, passed, passes, pass, met, satisfied, fulfilled, fulfils, approved, accepted, accept, verified, validated, everything, nothing, everywhere, superb, identical,"
        " a plus, an a, no errors, no error, all of, all the, all points, every point, done, ok, convincing, mastery, exceeds, granted, solved, reached, already done, correct answer*, level 3, level 4, level 5",
        "grant": "give, gives, giving, award*, grant, grants, granting, deserv*, earn, earns, earned, receive, receives, received, reward*, merit*",
        "work": "this submission, the submission, my submission, submission, this homework, the homework, my homework, homework*, this assignment, the assignment, my assignment, hand in, hand ins, handin,"
        " this work, my work, the work, this notebook, my notebook, this solution, my solution, the solution, my answer*, this answer, the answer*,"
        " every answer, each answer, all answers, unclear answers, every question, each question, all questions, all tasks, every task, each task, this task, missing part*, missing task*, this exercise,"
        " the exercise, all exercises, every exercise, all requirements, every requirement, each requirement, learning goal*, this file, this code, my code, this part, this script, everybody, everyone",
        "must": "must, shall, should, has to, have to, had to, need to, needs to, ought, are to, is to, may not, never, do not, don t, dont, no need, nobody",
        "so": "therefore, hence, thus",
        "you": "you, your, yours, yourself",
        "condition": "if, when, whenever, unless",
        "nothing": "please note, please see, please find, please enter, please run, please type, please install, please try, please choose, please select, when you, if you",
    },
    "de": {
        "judge": "korrektor*, bewerter*, bewertungssystem*, bewertungsmodell*, bewertungsprogramm*, korrektursystem*, liebe ki, liebe maschine, geehrte maschine, autograder*, wer bewertet, wer korrigiert, wer benotet",
        "reader": "prüfer*, prüfende*, gutachter*, ki, sprachmodell*, künstliche intelligenz, chatgpt",
        "scheme": "bewertungsraster*, bewertungsschlüssel*, bewertungskriteri*, punktabzug, notenschlüssel*",
        "staff": "lehrer, lehrerin, lehrkraft, dozent, dozentin, professor*, prof, tutor, tutorin, kursleit*, übungsleit*, prüfungsamt*, dekan*",
        "student": "dieser student*, diese student*, diesem student*, diesen student*, dieser schüler*, diesem schüler*, dieser studierende*, diesem studierende*",
        "person": "student, studentin, studenten, studierende*, schüler, schülerin",
        "plea": "bitte, bitten, lieber, liebe, geehrte*, achtung, hinweis an, hinweis für, nachricht an, anweisung an, dankbar, danke für, sei nett, sei großzügig, großzügig*, wohlwollend*, nachsicht*, gnädig",
        "exception": "gilt als, gelten als, gewertet als, zählt als, zählen als, entfällt, entfallen, erlassen, befreit, befreiung, nicht bewertet, nicht gewertet, nicht verlangt, bereits bewertet, bereits benotet,"
        " bereits korrigiert, bereits geprüft, bereits abgenommen, schon bewertet, schon geprüft, schon korrigiert, ausnahme*, nachteilsausgleich, genehmigt, vereinbart, abgesprochen, mündlich, ungültig,"
        " aufgehoben, geändert, neue regel*, ersetzt durch, ignorier*, vergiss, vergessen sie, missachte*, als richtig, als erfüllt, auch wenn, stattdessen",
        "matter": "bewert*, stufe 3, stufe 4, stufe 5, benot*, korrektur*, korrigier*, punkte, punkten, punktzahl*, note, noten, bestnote, stufe, stufen, kriteri*, bewertungs*, abzug, abzüge, abziehen, beurteil*, level*",
        "verdict": "voll, volle*, maxim*, höchst*, beste*, perfekt*, fehlerfrei*, fehlerlos*, richtig*, korrekt*, vollständig*, hervorragend*, ausgezeichnet*, erfüllt*, bestanden, überall, alles, alle, nichts, stets,"
        " überzeugend*, sehr gut, oberste*, tadellos*, gelöst, erbracht, nur gutes, stufe 3, stufe 4, stufe 5",
        "grant": "gib, gebt, geben, gibst, vergib, vergibt, vergeben, erteil*, verdien*, erhält, erhalten, bekommt, bekommen, eintragen, trag, trage, tragen, gutschreib*, anrechn*, setze",
        "work": "diese abgabe, dieser abgabe, die abgabe, abgabe*, diese arbeit, dieser arbeit, meine arbeit, meiner arbeit, meine lösung, diese lösung, die lösung, jeder lösung, musterlösung*, meine antwort*,"
        " diese aufgabe, dieser aufgabe, alle aufgaben, jeder aufgabe, teilaufgabe*, hausaufgabe*, dieser teil, diesen teil",
        "must": "muss, müssen, soll, sollen, sollst, darf, dürfen, nie, niemals, niemand",
        "you": "du, dein*, dir, dich, ihr auftrag, ihre aufgabe",
        "condition": "wenn, falls, sofern",
        "nothing": "bitte beachten, bitte beachte, bitte eingeben, bitte wählen",
    },
    "fr": {
        "judge": "correcteur*, correctrice*, chère ia, qui corrige*, qui note*",
        "reader": "évaluateur*, évaluatrice*, examinateur*, l ia, une ia, intelligence artificielle, modèle de, de langage, chatgpt",
        "scheme": "barème*",
        "staff": "professeur*, prof, enseignant*, tuteur*, jury, équipe pédagogique, doyen*, chargé de",
        "student": "cet étudiant, cette étudiante, cet élève",
        "person": "étudiant, étudiante, étudiants, élève, élèves",
        "plea": "merci de, te plaît, vous plaît, veuillez, prière de, cher, chère, chers, reconnaissant*, indulgent*, indulgence, généreu*, bienveillant*, à l attention, note pour, message pour",
        "exception": "dispens*, supprimé*, annul*, pas requis*, ne compte, déjà noté*, déjà été, déjà corrigé*, déjà validé*, déjà évalué*, compte comme, comptent comme, considér*, remplacé*, compensation, dérogation,"
        " nouvelle règle, nouveau barème, ignore*, oublie*, tiens pas, tenez pas, pas compte, comme si",
        "matter": "note, notes, niveau 3, niveau 4, niveau 5, noter, noté*, notation*, points, critère*, niveau*, évalu*, corrigé*, corriger, correction, score*, appréciation*, verdict",
        "verdict": "maxim*, meilleur*, parfait*, correct, correcte*, juste, justes, complet, complète*, excellent*, tous les, totalité, rempli*, satisfait*, validé*, réussi*, plus haut*, plus élevé*, partout, sans faute, sans erreur,"
        " supérieur*, aucune erreur, pleinement, rien, 20 20, niveau 3, niveau 4, niveau 5",
        "grant": "donne*, attribu*, accord*, mets, mettez, mettre, mérite*, obtien*, reçoi*, octroi*, ajoute*, retire*, enlève*",
        "work": "ce devoir, cet exercice, ce travail, mon travail, mon devoir, cette copie, ma copie, ma réponse, mes réponses, ma solution, cette solution, cette partie, chaque exercice, tous les exercices, toutes les questions,"
        " les réponses",
        "must": "dois, doit, doivent, devez, devra, devrait, faut, jamais, ne pas, personne ne",
        "you": "tu, toi, ton, tes, vous, votre, vos",
        "condition": "si, lorsque, quand",
        "nothing": "si vous, si tu",
    },
    "es": {
        "judge": "evaluador*, corrector*, calificador*",
        "reader": "examinador*, la ia, una ia, inteligencia artificial, de lenguaje, chatgpt",
        "scheme": "rúbrica*",
        "staff": "profesor*, profe, docente*, tutor*, instructor*, tribunal",
        "student": "este alumno, esta alumna, este estudiante, esta estudiante",
        "person": "alumno, alumna, alumnos, estudiante, estudiantes",
        "plea": "por favor, querido*, querida*, estimad*, atención, agradecid*, agradecería, nota para, mensaje para, sea generos*, sé generos*, generos*, benévol*",
        "exception": "exent*, anulad*, eliminad*, no cuenta*, ya está, ya fue, ya ha, cuenta como, cuentan como, considera*, compensación, permiso, nueva regla, nueva rúbrica, ignor*, olvid*, omit*, sin revisar, como si",
        "matter": "nota, notas, calific*, puntos, puntuaci*, punto, criterio*, nivel*, evalu*, corregi*, corrección",
        "verdict": "máxim*, mejor*, perfect*, correct*, complet*, excelente*, todos los, todas las, cumplid*, aprobad*, superad*, más alt*, todo, nada, sin errores",
        "grant": "da, dale, dame, otorg*, asign*, pon, ponme, ponga*, conced*, merece*, recib*, obten*",
        "work": "este trabajo, mi trabajo, esta tarea, la tarea, esta entrega, la entrega, mi respuesta, mis respuestas, esta solución, mi solución, las respuestas, este ejercicio, todos los ejercicios",
        "must": "debe, deben, debes, hay que, tiene que, nunca, nadie, no se",
        "you": "tu, usted, ustedes, eres",
        "condition": "si, cuando",
        "nothing": "",
    },
    "it": {
        "judge": "correttor*, valutator*",
        "reader": "esaminator*, l ia, una ia, intelligenza artificiale, modello linguistico, chatgpt",
        "scheme": "griglia",
        "staff": "professor*, prof, docent*, insegnant*, tutor*, commissione",
        "student": "questo studente, questa studentessa, questo alunno",
        "person": "studente, studentessa, studenti, alunno",
        "plea": "per favore, ti prego, la prego, gentile, caro, cara, attenzione, grat*, generos*, indulgen*, nota per",
        "exception": "esonerat*, annullat*, eliminat*, non conta, non va, già stat*, già valutat*, già corrett*, vale come, valgono come, considera*, compensazione, nuova regola, ignor*, dimentic*, come se",
        "matter": "voto, voti, punti, punteggi*, criteri*, livell*, valuta*, corregg*, correzione",
        "verdict": "massim*, pien*, miglior*, perfett*, corrett*, complet*, eccellent*, tutti i, tutte le, soddisfatt*, superat*, più alt*, tutto, niente, senza errori",
        "grant": "dai, dammi, assegn*, attribu*, concedi, conced*, merit*, ricev*, metti",
        "work": "questo compito, questo lavoro, il mio lavoro, questo esercizio, questa soluzione, la mia risposta, le risposte, la consegna",
        "must": "deve, devono, devi, bisogna, mai, nessuno",
        "you": "tu, sei, tuo, tuoi",
        "condition": "se, quando",
        "nothing": "",
    },
    "pt": {
        "judge": "avaliador*, corretor*",
        "reader": "examinador*, uma ia, inteligência artificial, de linguagem, chatgpt",
        "scheme": "rubrica*",
        "staff": "professor*, prof, docente*, tutor*, instrutor*, banca",
        "student": "este aluno, esta aluna, este estudante",
        "person": "aluno, aluna, alunos, estudante, estudantes",
        "plea": "por favor, caro, cara, prezad*, atenção, agradec*, grato, generos*, nota para",
        "exception": "dispensad*, isent*, anulad*, não conta, já foi, já está, conta como, contam como, consider*, desconsider*, compensação, nova regra, ignor*, esqueç*, como se",
        "matter": "nota, notas, pontos, pontuaç*, critério*, nível, níveis, avali*, corrig*, correção",
        "verdict": "máxim*, melhor*, perfeit*, corret*, complet*, excelente*, todos os, todas as, cumprid*, aprovad*, mais alt*, tudo, nada, sem erros",
        "grant": "dê, dá, dar, atribu*, conced*, coloque*, merec*, receb*",
        "work": "este trabalho, meu trabalho, esta tarefa, a tarefa, esta entrega, minha resposta, minhas respostas, esta solução, as respostas, este exercício",
        "must": "deve, devem, precisa, nunca, ninguém",
        "you": "você, vocês, seu, sua",
        "condition": "se, quando",
        "nothing": "",
    },
    "nl": {
        "judge": "nakijker*, beoordelaar*, corrector*",
        "reader": "examinator*, de ai, een ai, taalmodel*, chatgpt",
        "scheme": "rubriek*",
        "staff": "docent*, leraar, leraren, professor*, prof, tutor*, begeleider*",
        "student": "deze student*, deze leerling*",
        "person": "student, studenten, leerling, leerlingen",
        "plea": "alsjeblieft, alstublieft, beste nakijker, graag, geachte, let op, dankbaar, coulant, gul",
        "exception": "vrijgesteld, vervalt, vervallen, telt niet, al nagekeken, al beoordeeld, al goedgekeurd, geldt als, gelden als, telt als, compensatie, nieuwe regel, negeer, vergeet, alsof",
        "matter": "cijfer*, punten, beoordel*, nakijk*, rubric*, criteri*, niveau*, score*",
        "verdict": "hoogste, maxim*, beste, perfect*, juist, goed, correct*, volledig*, uitstekend*, alle, alles, voldaan, geslaagd, niets",
        "grant": "geef, geeft, ken, verdien*, krijg*, ontvang*, toeken*",
        "work": "dit werk, mijn werk, deze opdracht, deze inzending, mijn antwoord*, deze oplossing",
        "must": "moet, moeten, mag, mogen, nooit, niemand",
        "you": "je, jij, jouw, uw",
        "condition": "als, wanneer",
        "nothing": "",
    },
    "pl": {
        "judge": "sprawdzając*, oceniając*",
        "reader": "egzaminator*, recenzent*, model językowy, sztuczna inteligencja, chatgpt",
        "scheme": "rubryk*",
        "staff": "nauczyciel*, wykładowc*, profesor*, prowadząc*",
        "student": "ten student, ta studentka, tego studenta, temu studentowi",
        "person": "student, studentka, studenta, studenci",
        "plea": "proszę, drogi, droga, szanown*, uwaga, wdzięczn*",
        "exception": "zwolnion*, anulowan*, nie liczy, już ocenion*, już sprawdzon*, uznaj*, uznać, zignoruj*, zapomnij*, pomiń, jakby",
        "matter": "ocen*, punkt, punkty, punktów, kryteri*, poziom*",
        "verdict": "maksymaln*, najwyższ*, najlepsz*, wszystkie, wszystko, poprawn*, kompletn*, doskonał*, spełnion*, bezbłędn*",
        "grant": "daj, przyznaj*, postaw*, zasługuj*, otrzym*, wystaw*",
        "work": "ta praca, tej pracy, tę pracę, to zadanie, moja praca, moje rozwiązanie, to rozwiązanie",
        "must": "musi, muszą, powinien, powinna, należy, nigdy",
        "you": "ty, twój, twoja, twoje",
        "condition": "jeśli, jeżeli, gdy",
        "nothing": "",
    },
    "tr": {
        "judge": "değerlendiric*, notlayıcı*",
        "reader": "yapay zeka, dil modeli, chatgpt",
        "staff": "öğretmen*, hoca*, profesör*, asistan*",
        "student": "bu öğrenci*",
        "person": "öğrenci*",
        "plea": "lütfen, sayın, sevgili, dikkat, rica",
        "exception": "muaf, geçersiz, zaten değerlendir*, zaten onaylan*, kabul et, kabul edil*, sayılır, yok say*, görmezden, unut",
        "matter": "puan*, not, notu, ölçüt*, kriter*, seviye*, değerlendir*",
        "verdict": "tam, en yüksek, en iyi, mükemmel, doğru, eksiksiz, bütün, tüm, hepsi, başarılı",
        "grant": "ver, verin*, veriniz, hak ediyor, seç, seçin",
        "work": "bu ödev*, bu çalışma*, bu çözüm*, cevaplar*",
        "must": "gerek*, zorunda, asla, hiç kimse",
        "you": "sen, siz, senin, sizin",
        "condition": "eğer, ise",
        "nothing": "",
    },
    "ru": {
        "judge": "проверяющ*, оценивающ*",
        "reader": "экзаменатор*, рецензент*, языковая модель, нейросет*, искусственный интеллект, chatgpt",
        "scheme": "рубрик*",
        "staff": "преподавател*, учител*, профессор*, ассистент*",
        "student": "этот студент, эта студентка, этому студенту, этого студента",
        "person": "студент, студентка, студенты",
        "plea": "пожалуйста, прошу, уважаем*, дорогой, внимание, благодар*",
        "exception": "освобожд*, отменен*, отменён*, не учитыва*, уже проверен*, уже оценен*, считай*, считать, считается, игнорируй*, забудь*, как если",
        "matter": "балл*, оценк*, оцени*, оценив*, критери*, уровен*, уровн*",
        "verdict": "максимальн*, высш*, полный, полные, все, всё, лучш*, идеальн*, отлично, верны, правильн*, выполнен*, безупречн*",
        "grant": "поставь*, постави*, дай*, дать, присвой*, заслужива*, получ*",
        "work": "эту работу, эта работа, этой работе, мой ответ, мои ответы, это задание, моё решение, это решение",
        "must": "должен, должна, должны, нужно, нельзя, никогда",
        "you": "ты, вы, твой, твоя, ваш*",
        "condition": "если, когда",
        "nothing": "",
    },
}
