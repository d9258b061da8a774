"""What the simulator counts, for `GET /_sim/stats`. A flat object of counters; reset sets them to zero."""

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class Stats:
    runs_opened: int = 0
    runs_resumed: int = 0
    chats_opened: int = 0
    appends: int = 0
    appends_duplicate: int = 0
    appends_out_of_order: int = 0
    blobs_set: int = 0
    blobs_got: int = 0
    blobs_missing: int = 0
    token_exchanges: int = 0
    token_refreshes: int = 0
    tokens_in_uncached: int = 0
    tokens_in_cached: int = 0
    tokens_out: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def reset(self) -> None:
        for counter in fields(self):
            setattr(self, counter.name, 0)
