"""Prices of a mix's machines from the operator's price file. PURE."""

from msgspec.structs import replace

from hostelry.advisor.values import FitMix
from hostelry.cost.prices import PriceList, get_price_per_hour


def fill_prices(mix: FitMix, prices: PriceList) -> FitMix:
    """The mix with the prices that it leaves out. A price in neither stays unknown."""
    machines = tuple(
        replace(machine, price_per_hour=get_price_per_hour(prices, machine.type))
        if machine.price_per_hour is None
        else machine
        for machine in mix.machines
    )
    price = prices.serverless_per_gb_s if mix.serverless_price is None else mix.serverless_price
    return replace(mix, machines=machines, serverless_price=price)
