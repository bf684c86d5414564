FEW = {
    "1": {"bread", "butter"},
    "2": {"butter", "bread", "jam"},
    "3": {"bread", "butter"},
    "4": {"tea"},
}
SAME = {str(n): {"tea", "lemon"} for n in range(4)}


def plain(pairs):
    """Pairs as sorted tuples, however they were kept."""
    return {tuple(sorted(pair)): count for pair, count in pairs.items()}


def numbers(measures):
    """Support, confidence and lift by pair, whether they were kept as rows or in a dictionary."""
    rows = [(*pair, *m) for pair, m in measures.items()] if isinstance(measures, dict) else measures
    return {tuple(sorted(row[:2])): list(row[2:]) for row in rows}
