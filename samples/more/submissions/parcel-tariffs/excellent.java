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

/** The tariff of letters, which knows two weights. */
class LetterTariff extends Tariff {
    private static final int LIGHT = 50;

    /** Makes the tariff with its name. */
    LetterTariff() {
        super("letter");
    }

    /** The price in cents: one of two. */
    @Override
    int price(int grams) {
        return grams <= LIGHT ? 85 : 160;
    }
}

/** The tariff of parcels, by the kilogram. */
class ParcelTariff extends Tariff {
    /** Makes the tariff with its name. */
    ParcelTariff() {
        super("parcel");
    }

    /** The price in cents, with 50 for each kilogram begun. */
    @Override
    int price(int grams) {
        // whole numbers round down, so 999 grams are added before
        int begun = (grams + 999) / 1000;
        return 399 + 50 * begun;
    }
}

// Task 2: your class PriceList here

/** All tariffs of the carrier. */
class PriceList {
    private final Tariff[] tariffs;

    /** Keeps the tariffs it is given. */
    PriceList(Tariff... tariffs) {
        this.tariffs = tariffs;
    }

    /** The tariff with the lowest price, or null without any. */
    Tariff cheapest(int grams) {
        Tariff lowest = null;
        for (Tariff next : tariffs) {
            // the first one is better than none
            if (lowest == null || next.price(grams) < lowest.price(grams)) {
                lowest = next;
            }
        }
        return lowest;
    }
}
