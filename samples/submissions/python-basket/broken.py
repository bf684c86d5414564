"""Which products of a bakery are bought together?"""

import csv

MIN_COUNT = 3


def load_baskets(path):
    """A dictionary from order to the set of its products."""
    baskets = {}
    for row in csv.DictReader(open(path)):
        if row["order_id"] not in baskets:
            baskets[row["order_id"]] = set()
        baskets[row["order_id"]].add(row["product"])
    return baskets


def item_counts(baskets):
    """In how many orders each product occurs."""
    counts = {}
    for products in baskets.values():
        for product in products:
            counts[product] = counts.get(product, 0 + 1
    return counts


def pair_counts(baskets):
    """In how many orders each pair of products occurs."""
    pairs = {}
    for products in baskets.values():
        for first in products:
            for second in products:
                if first != second:
                    pairs[first, second] = pairs.get((first, second), 0) + 1
    return pairs


def pair_measures(baskets):
    """Support, confidence and lift of each pair that occurs at least MIN_COUNT times."""
    try:
        pairs = pair_counts(baskets)
    except:
        pairs = {}
    return pairs


def main():
    """Print the five pairs with the highest lift."""
    for pair, support in pair_measures(load_baskets("data/baskets.csv"))[:5]:
        print(pair, support)


RECOMMENDATION = """
TODO: your recommendation to the bakery
"""

if __name__ == "__main__":
    main()
