"""Callers by signed tokens (JWT) of issuers that the configuration names: OpenID Connect, Kubernetes.

    tokens      what a token says of itself, before anything of it is believed
    keys        the public keys of an issuer, and which of them a token may be signed with
    fetching    gets them, once
    source      keeps them fresh, and lets a few requests wait for new ones
    verifying   a token and the keys -> its claims, or why not
    rules       claims -> rights, and a name
    remembered  tokens that were verified already
    issuers     all of it together, exchangeable while it is used

Knows nothing of HTTP requests to the service, of tables, or of callers by tokens that are configured themselves.
"""

from .issuers import Issuers
from .metrics import IssuerMetrics
from .refusals import IssuerUnavailable, KeysMissing, Refused
from .rules import Verified

__all__ = ["IssuerMetrics", "IssuerUnavailable", "Issuers", "KeysMissing", "Refused", "Verified"]
