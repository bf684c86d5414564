"""What load_baskets must do."""

import unittest

import basket


class Loading(unittest.TestCase):
    def setUp(self):
        self.baskets = basket.load_baskets("data/baskets.csv")

    def test_all_orders_are_there(self):
        self.assertEqual(len(self.baskets), 40)

    def test_an_order_has_its_products(self):
        self.assertEqual(sorted(self.baskets["502"]), ["butter", "coffee", "rye bread"])
