"""What item_counts must do."""

import basket


def test_a_product_counts_once_an_order():
    counts = basket.item_counts({"1": {"tea", "lemon"}, "2": {"tea"}})
    assert counts["tea"] == 2
    assert counts["lemon"] == 1


def test_no_orders():
    assert len(basket.item_counts({})) == 0
