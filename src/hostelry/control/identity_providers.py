"""Fetches the keys of OpenID Connect providers, guarded as other requests to the outside."""

import asyncio

import httpx

from hostelry.api.iam.provider_keys import ProviderKeys
from hostelry.control.messages import list_own_ports
from hostelry.home.home import Home, UpConfig
from hostelry.messaging.web_delivery import AddressRefusedError, GuardedClient
from hostelry.scaling.loop.alarm_actions import AddressFile

TIMEOUT_S = 5.0
MAX_BYTES = 256 * 1024


def build_provider_keys(home: Home, config: UpConfig) -> ProviderKeys:
    """The keys of providers, which the running event loop fetches for calls in threads.

    If actions.toml lists the addresses of webhooks, providers have to be in the list, too.
    """
    loop, addresses = asyncio.get_running_loop(), AddressFile(home.actions)
    client = GuardedClient(
        lambda address: addresses.present().refusal(address),
        lambda: list_own_ports(home, config),
        timeout_s=TIMEOUT_S,
    )

    def fetch(url: str) -> bytes:
        try:
            return asyncio.run_coroutine_threadsafe(client.get(url, MAX_BYTES), loop).result()
        except TimeoutError:
            raise OSError(f"{url} does not answer within {TIMEOUT_S:g} s") from None
        except (AddressRefusedError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise OSError(f"{url}: {error or type(error).__name__}") from None

    return ProviderKeys(fetch)
