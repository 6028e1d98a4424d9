package tableside.state;

import java.util.concurrent.atomic.LongAdder;

/** Counts what a store has cost: HTTP requests, those of them that asked again, bytes of bodies, time waited, and more. */
final class Meter {
  final LongAdder calls = new LongAdder();
  final LongAdder retries = new LongAdder();
  final LongAdder sentBytes = new LongAdder();
  final LongAdder receivedBytes = new LongAdder();
  final LongAdder waitedNs = new LongAdder();
  final LongAdder chunksWritten = new LongAdder();
  final LongAdder chunksRead = new LongAdder();
  final LongAdder cacheHits = new LongAdder();
  final LongAdder diskHits = new LongAdder();
  final LongAdder cacheMisses = new LongAdder();
  final LongAdder snapshots = new LongAdder();
  final LongAdder loadedNs = new LongAdder();
  final LongAdder committedNs = new LongAdder();
}
