/** What a carrier takes for a shipment. */
abstract class Tariff {
    private final String name;

    Tariff(String name) {
        this.name = name;
    }

    String name() {
        return name;
    }

    /** The price in cents of a shipment of so many grams. */
    abstract int price(int grams);
}

// Task 1: your two subclasses here

/** The tariff of letters. */
class LetterTariff extends Tariff {
    LetterTariff() {
        super("letter");
    }

    int price(int grams) {
        return 85;
    }
}

// Task 2: your class PriceList here
