"""Words of comments in three languages, for comments in another language that say the same."""

from __future__ import annotations

import re

ENGLISH, GERMAN, SPANISH = range(3)
ROWS = (
    ("read", "lesen", "leer"), ("load", "laden", "cargar"), ("the", "die", "los"),
    ("data", "Daten", "datos"), ("file", "Datei", "archivo"), ("and", "und", "y"),
    ("with", "mit", "con"), ("for", "für", "para"), ("each", "jede", "cada"), ("all", "alle", "todos"),
    ("rows", "Zeilen", "filas"), ("row", "Zeile", "fila"), ("columns", "Spalten", "columnas"),
    ("column", "Spalte", "columna"), ("table", "Tabelle", "tabla"), ("remove", "entfernen", "quitar"),
    ("filter", "filtern", "filtrar"), ("missing", "fehlende", "faltantes"),
    ("values", "Werte", "valores"), ("value", "Wert", "valor"),
    ("duplicates", "Duplikate", "duplicados"), ("count", "zählen", "contar"),
    ("number", "Anzahl", "número"), ("sum", "Summe", "suma"), ("mean", "Mittelwert", "media"),
    ("total", "Gesamtwert", "total"), ("sort", "sortieren", "ordenar"),
    ("group", "gruppieren", "agrupar"), ("join", "verbinden", "unir"), ("plot", "zeichnen", "dibujar"),
    ("chart", "Diagramm", "gráfico"), ("print", "ausgeben", "imprimir"), ("show", "zeigen", "mostrar"),
    ("calculate", "berechnen", "calcular"), ("compute", "berechnen", "calcular"),
    ("check", "prüfen", "comprobar"), ("test", "testen", "probar"), ("list", "Liste", "lista"),
    ("function", "Funktion", "función"), ("result", "Ergebnis", "resultado"),
    ("results", "Ergebnisse", "resultados"), ("by", "nach", "por"), ("of", "von", "de"),
    ("in", "in", "en"), ("to", "zu", "a"), ("from", "aus", "desde"), ("is", "ist", "es"),
    ("are", "sind", "son"), ("not", "nicht", "no"), ("only", "nur", "solo"),
    ("first", "erste", "primero"), ("last", "letzte", "último"), ("new", "neue", "nuevo"),
    ("name", "Name", "nombre"), ("names", "Namen", "nombres"), ("order", "Bestellung", "pedido"),
    ("orders", "Bestellungen", "pedidos"), ("price", "Preis", "precio"), ("region", "Region", "región"),
    ("product", "Produkt", "producto"), ("products", "Produkte", "productos"),
    ("make", "machen", "hacer"), ("create", "erstellen", "crear"), ("use", "benutzen", "usar"),
    ("then", "dann", "luego"), ("because", "weil", "porque"), ("here", "hier", "aquí"),
    ("this", "dies", "esto"), ("or", "oder", "o"), ("without", "ohne", "sin"), ("more", "mehr", "más"),
    ("than", "als", "que"), ("clean", "bereinigen", "limpiar"), ("convert", "umwandeln", "convertir"),
    ("text", "Text", "texto"), ("line", "Zeile", "línea"), ("lines", "Zeilen", "líneas"),
    ("pair", "Paar", "par"), ("pairs", "Paare", "pares"), ("both", "beide", "ambos"),
    ("same", "gleiche", "mismo"), ("two", "zwei", "dos"), ("one", "eins", "uno"),
)  # fmt: skip
WORD = re.compile(r"[^\W\d_]+")


def translated(comment: str) -> str:
    """A comment in another language, word by word; words that are not known stay."""
    words = [word.casefold() for word in WORD.findall(comment)]
    hits = [sum(word in known for word in words) for known in _KNOWN]
    here = hits.index(max(hits))
    there = GERMAN if here != GERMAN else ENGLISH
    return WORD.sub(lambda hit: _KNOWN[here].get(hit.group().casefold(), {}).get(there, hit.group()), comment)


_KNOWN = tuple(
    {row[language].casefold(): dict(enumerate(row)) for row in reversed(ROWS)} for language in range(3)
)
