"""Verified tokens are cached until they expire, and the cache has a maximum size."""

from tableside.auth import Caller
from tableside.auth.authenticator import TokenCache

ONE, TWO, THREE = Caller("one"), Caller("two"), Caller("three")


def test_a_verified_token_is_cached_until_it_expires() -> None:
    now = 100.0
    cache = TokenCache(lambda: now)
    cache.put(b"a", ONE, 105)
    now = 104.9
    assert (cache.get(b"a"), cache.get(b"b")) == (ONE, None)
    now = 105
    assert cache.get(b"a") is None


def test_the_least_recently_used_token_is_evicted_first() -> None:
    cache = TokenCache(lambda: 0.0, count_max=2)
    cache.put(b"a", ONE, 200)
    cache.put(b"b", TWO, 200)
    assert cache.get(b"a") is ONE
    cache.put(b"c", THREE, 200)
    assert [cache.get(digest) for digest in (b"a", b"b", b"c")] == [ONE, None, THREE]
