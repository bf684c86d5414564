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
class LetterTariff extends Tariff {
    LetterTariff() { super("letter"); }
    int price(int g) { if (g <= 50) { return 85; } return 160; }
}

class ParcelTariff extends Tariff {
    ParcelTariff() { super("parcel"); }
    int price(int g) {
        int Kilo_Grams = g / 1000 + 1;
        // return 399 + 50 * g;
        return 399 + 50 * Kilo_Grams;
    }
}

// Task 2: your class PriceList here
class PriceList {
    Tariff[] all_tariffs;
    Tariff cheapest(int g) {
        Tariff best = null;
        int low = 1000000;
        for (Tariff t : all_tariffs) {
            if (t.price(g) < low) {
                low = t.price(g);
            }
        }
        for (Tariff t : all_tariffs) {
            if (t.price(g) == low) {
                best = t;
            }
        }
        return best;
    }
}
