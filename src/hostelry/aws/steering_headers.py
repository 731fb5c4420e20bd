"""Headers that change the effect of a request, so that its signature has to cover them. Pure."""

from collections.abc import Collection, Iterable

# Added between the signer and the gateway, by load balancers, tracers and CloudFront. Nothing reads
# them. Every other header of these families has an effect.
ADDED_ON_THE_WAY = frozenset({"x-amzn-trace-id", "x-amz-cf-id"})
STEERING = ("x-amz", "x-hostelry")
# Headers of an invocation, which AWS believes unsigned: over TLS none can be added on the way.
RUNTIME = "x-amzn-sagemaker-"


def unsigned_headers(
    names: Iterable[str], signed: Collection[str], *, is_private: bool
) -> list[str]:
    """The headers of `names` that must be signed and are not.

    `is_private`: requests come by TLS or from this machine, so that an invocation's headers are
    trusted.
    """
    return [
        name
        for name in names
        if name[:2] == "x-"  # runs for each request, and is quicker than the other checks
        and name.startswith(STEERING)
        and name not in signed
        and name not in ADDED_ON_THE_WAY
        and not (is_private and name.startswith(RUNTIME))
    ]
