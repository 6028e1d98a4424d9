package tableside.state;

import java.util.concurrent.atomic.LongAdder;

/** Counts the work of a store: requests, retries, bytes of bodies, waiting times, chunks, cache hits and snapshots. */
final class StoreCounters {
  final LongAdder requests = new LongAdder();
  final LongAdder retries = new LongAdder();
  final LongAdder sentBytes = new LongAdder();
  final LongAdder receivedBytes = new LongAdder();
  final LongAdder waitNs = new LongAdder();
  final LongAdder chunksWritten = new LongAdder();
  final LongAdder chunksRead = new LongAdder();
  final LongAdder cacheHits = new LongAdder();
  final LongAdder diskHits = new LongAdder();
  final LongAdder cacheMisses = new LongAdder();
  final LongAdder snapshots = new LongAdder();
  final LongAdder forcedSnapshots = new LongAdder();
  final LongAdder loadNs = new LongAdder();
  final LongAdder commitNs = new LongAdder();
}
