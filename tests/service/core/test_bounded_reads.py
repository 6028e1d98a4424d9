"""How many records a call reads after large ones."""

from collections.abc import Sequence

from tableside.core import NOT_READ, READ_BYTES_MAX, BoundedReads, Outcome, ReadBudget, Record


class Records:
    """Records of known sizes, read in one call until the budget is exceeded."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.calls: list[int] = []

    async def read(self, items: Sequence[int], budget: ReadBudget) -> list[Outcome]:
        self.calls.append(len(items))
        budget.spend(sum(self.sizes.get(item, 1) for item in items))
        return [NOT_READ if budget.exceeded else Record(b"{}", "") for _ in items]


async def test_all_are_read_at_once_if_they_are_small() -> None:
    records, items = Records({}), [*range(5000)]
    assert NOT_READ not in await BoundedReads().read(items, records.read)
    assert records.calls == [5000]


async def test_the_first_is_always_read_and_then_as_many_as_fit() -> None:
    size = READ_BYTES_MAX // 4
    records, items, reads = Records(dict.fromkeys(range(100), size)), [*range(100)], BoundedReads()
    outcomes = await reads.read(items, records.read)
    assert isinstance(outcomes[0], Record)
    assert outcomes[1:] == [NOT_READ] * 99
    for _ in range(4):
        await reads.read(items, records.read)
    assert records.calls == [100, 1, 2, 4, 4, 4]


async def test_the_number_doubles_over_small_records() -> None:
    records, reads = Records({50: 20 * READ_BYTES_MAX}), BoundedReads()
    waiting = [*range(100)]
    while waiting:
        outcomes = await reads.read(waiting, records.read)
        waiting = [item for item, outcome in zip(waiting, outcomes, strict=True) if outcome is NOT_READ]
    assert len(records.calls) < 25
