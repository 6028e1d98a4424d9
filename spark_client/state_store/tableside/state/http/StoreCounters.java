package tableside.state.http;

import java.util.concurrent.atomic.LongAdder;

/** Counts the work of a store: requests, retries, bytes of bodies, waiting times, chunks, cache hits and snapshots. */
public final class StoreCounters {
  public final LongAdder requests = new LongAdder();
  public final LongAdder retries = new LongAdder();
  public final LongAdder sentBytes = new LongAdder();
  public final LongAdder receivedBytes = new LongAdder();
  public final LongAdder waitNs = new LongAdder();
  public final LongAdder chunksWritten = new LongAdder();
  public final LongAdder chunksRead = new LongAdder();
  public final LongAdder cacheHits = new LongAdder();
  public final LongAdder diskHits = new LongAdder();
  public final LongAdder cacheMisses = new LongAdder();
  public final LongAdder snapshots = new LongAdder();
  public final LongAdder forcedSnapshots = new LongAdder();
  public final LongAdder loadNs = new LongAdder();
  public final LongAdder commitNs = new LongAdder();
}
