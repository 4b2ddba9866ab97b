"""What an hour of a card cost, by the cheapest row of the list in `published/cloud_prices.json`, with the row's own date."""

from dataclasses import dataclass
from datetime import date

from course.measurements.reader import published
from practice_gpus.cards import find_card


@dataclass(frozen=True)
class Price:
    """Dollars an hour for one card, the cloud that asked for them, and the day on which the list got the row."""

    usd_per_h: float
    cloud: str
    listed: date

    def __str__(self) -> str:
        return f"{self.cloud}, {self.listed:%b %Y}"


def lowest() -> dict[str, Price]:
    """The lowest `Price` by the card's name in `practice_gpus.cards.CARDS`; a card without a row isn't in it."""
    found: dict[str, Price] = {}
    source = published("cloud_prices")
    for row in source.rows("prices"):
        name = find_card(source.devices[row["device"]]["card"])
        usd = row["price_usd_per_h"] / row["gpus"]
        price = Price(usd, row["cloud"], date.fromisoformat(row["listed"]))
        if name not in found or usd < found[name].usd_per_h:
            found[name] = price
    return found
