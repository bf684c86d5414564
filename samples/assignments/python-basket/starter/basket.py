"""Which products of a bakery are bought together?"""

MIN_COUNT = 3


def load_baskets(path):
    """A dictionary from order to the set of its products."""
    raise NotImplementedError("load_baskets")


def item_counts(baskets):
    """In how many orders each product occurs."""
    raise NotImplementedError("item_counts")


def pair_counts(baskets):
    """In how many orders each pair of products occurs."""
    raise NotImplementedError("pair_counts")


def pair_measures(baskets):
    """Support, confidence and lift of each pair that occurs at least MIN_COUNT times."""
    raise NotImplementedError("pair_measures")


def main():
    """Print the five pairs with the highest lift."""


RECOMMENDATION = """
TODO: your recommendation to the bakery
"""

if __name__ == "__main__":
    main()
