"""Verified tokens are cached until they expire, and the cache has a maximum size."""

from tableside.auth.authenticator import TokenCache


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_verified_token_is_cached_until_it_expires() -> None:
    clock = Clock()
    found: TokenCache[str] = TokenCache(clock)
    found.put(b"a", "one", 105)
    assert (found.get(b"a"), found.get(b"b")) == ("one", None)
    clock.at = 104.9
    assert found.get(b"a") == "one"
    clock.at = 105
    assert (found.get(b"a"), len(found)) == (None, 0)


def test_the_least_recently_used_token_is_evicted_first() -> None:
    found: TokenCache[str] = TokenCache(Clock(), count_max=2)
    found.put(b"a", "one", 200)
    found.put(b"b", "two", 200)
    assert found.get(b"a") == "one"
    found.put(b"c", "three", 200)
    assert [found.get(digest) for digest in (b"a", b"b", b"c")] == ["one", None, "three"]
    assert len(found) == 2


def test_all_entries_can_be_removed() -> None:
    found: TokenCache[str] = TokenCache(Clock())
    found.put(b"a", "one", 200)
    found.clear()
    assert (found.get(b"a"), len(found)) == (None, 0)
