package tableside.state;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import tableside.state.log.Lineage;
import tableside.state.log.Manifest;

/** The versions of a store in memory, newest last, and the newest known snapshot. Thread-safe. */
final class VersionCache {
  /** Creates a version from an earlier one and the changes in the table or of a commit. */
  interface VersionSource {
    StateVersion create() throws IOException, InterruptedException;
  }

  private final int versionsMax;
  private final ReadWriteLock relocationLock = new ReentrantReadWriteLock();
  private final List<StateVersion> versions = new ArrayList<>();
  private Lineage.Base base;
  private boolean recovered;

  /** @param versionsMax the maximum number of versions; one version always remains, for maintenance */
  VersionCache(int versionsMax) {
    this.versionsMax = Math.max(1, versionsMax);
  }

  /** The newest version, or null. */
  synchronized StateVersion newest() {
    return versions.isEmpty() ? null : versions.get(versions.size() - 1);
  }

  /** The version with this number and commit identity, or null. */
  synchronized StateVersion find(long number, String uid) {
    return versions.stream().filter(version -> version.is(number, uid)).findFirst().orElse(null);
  }

  /** The newest version that the lineage contains, or null. */
  synchronized StateVersion nearest(Lineage lineage) {
    for (int index = versions.size() - 1; index >= 0; index--) {
      if (lineage.contains(versions.get(index).number(), versions.get(index).uid())) {
        return versions.get(index);
      }
    }
    return null;
  }

  /**
   * Creates a version and adds it to the cache. No snapshot relocates values in between: otherwise, a version that does
   * not share memory with the others would keep the old locations.
   */
  StateVersion create(VersionSource source) throws IOException, InterruptedException {
    relocationLock.readLock().lockInterruptibly();
    try {
      StateVersion version = source.create();
      add(version);
      return version;
    } finally {
      relocationLock.readLock().unlock();
    }
  }

  /** Adds a version. Versions with the same number or a higher one belong to an abandoned attempt and are dropped. */
  private synchronized void add(StateVersion version) {
    versions.removeIf(other -> other.number() >= version.number());
    versions.add(version);
    while (versions.size() > versionsMax) {
      versions.remove(0);
    }
  }

  /** The lineage of a version, based on the newest snapshot if the lineage contains that snapshot's version. */
  synchronized Lineage lineageOf(StateVersion version) {
    return version.lineage().rebasedOn(base);
  }

  /** The same manifest, based on the newest snapshot if its lineage contains that snapshot's version. */
  synchronized Manifest rebasedOn(Manifest manifest) {
    return manifest.rebasedOn(base);
  }

  /** Bases later versions on this snapshot, and relocates values that are not in memory to it. */
  void rebase(StateVersion version, SnapshotWriter.Written written, ValueCache values) throws InterruptedException {
    relocationLock.writeLock().lockInterruptibly();
    try {
      rebase(written.base());
      if (values != null) {
        drop(values.blocks().firstVersionRetained(version.number()));
        values.relocate(version, written, all());
      }
    } finally {
      relocationLock.writeLock().unlock();
    }
  }

  synchronized void clear() {
    versions.clear();
  }

  /** Bases later versions on a snapshot that another executor has written. */
  synchronized void rebase(Lineage.Base newer) {
    base = newer;
    recovered = false;
  }

  /** Bases later versions on an older snapshot, or none, because the newest cannot be read. */
  synchronized void recover(Lineage.Base older) {
    base = older;
    recovered = true;
  }

  /** Whether a part of the newest version cannot be read, so that a snapshot should replace it. */
  synchronized boolean isRecovered() {
    return recovered;
  }

  /** Drops the versions before this one, because the blocks with their values are about to be dropped. */
  private synchronized void drop(long before) {
    versions.removeIf(version -> version.number() < before);
  }

  private synchronized List<StateVersion> all() {
    return List.copyOf(versions);
  }
}
