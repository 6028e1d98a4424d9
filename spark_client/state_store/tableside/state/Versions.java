package tableside.state;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** The versions of a store that are in memory, the newest last, and the newest snapshot that is known. Thread-safe. */
final class Versions {
  /** How a version is made: from another, with what the table has or is given. */
  interface Making {
    Version make() throws IOException, InterruptedException;
  }

  private final int kept;
  private final ReadWriteLock moving = new ReentrantReadWriteLock();
  private final List<Version> versions = new ArrayList<>();
  private Lineage.Base base;

  /** @param kept how many at most; one is kept in any case, for maintenance */
  Versions(int kept) {
    this.kept = Math.max(1, kept);
  }

  /** The newest version, or null. */
  synchronized Version newest() {
    return versions.isEmpty() ? null : versions.get(versions.size() - 1);
  }

  /** A version by its number and its commit's identity, or null. */
  synchronized Version find(long number, String uid) {
    return versions.stream().filter(version -> version.is(number, uid)).findFirst().orElse(null);
  }

  /** The newest that a lineage passes, or null. */
  synchronized Version nearest(Lineage lineage) {
    for (int index = versions.size() - 1; index >= 0; index--) {
      if (lineage.passes(versions.get(index).number(), versions.get(index).uid())) {
        return versions.get(index);
      }
    }
    return null;
  }

  /**
   * Make a version, and keep it. No snapshot moves values in between: a version that does not share memory with the
   * others, and is not kept yet, would go on looking for them where they were.
   */
  Version make(Making making) throws IOException, InterruptedException {
    moving.readLock().lockInterruptibly();
    try {
      Version version = making.make();
      keep(version);
      return version;
    } finally {
      moving.readLock().unlock();
    }
  }

  /** Keep a version; what is of the same number or a higher one is of an attempt that has been left behind. */
  private synchronized void keep(Version version) {
    versions.removeIf(other -> other.number() >= version.number());
    versions.add(version);
    while (versions.size() > kept) {
      versions.remove(0);
    }
  }

  /** What a version's state is made of, with the newest snapshot where that is one of its past. */
  synchronized Lineage lineageOf(Version version) {
    return version.lineage().onto(base);
  }

  /** The same version, made of the newest snapshot where that is one of its past. */
  synchronized Manifest onto(Manifest manifest) {
    return manifest.onto(base);
  }

  /** Build on this snapshot from now on; values that are not in memory are found there. */
  void build(Version version, Snapshots.Written written, Values values) throws InterruptedException {
    moving.writeLock().lockInterruptibly();
    try {
      build(written.base());
      if (values != null) {
        drop(values.blocks().forgottenUpTo(version.number()));
        values.relocate(version, written, all());
      }
    } finally {
      moving.writeLock().unlock();
    }
  }

  synchronized void clear() {
    versions.clear();
  }

  /** Build on a snapshot that somebody else has written. */
  synchronized void build(Lineage.Base newer) {
    base = newer;
  }

  /** Drop the versions before this one: the blocks that hold their values are about to be forgotten. */
  private synchronized void drop(long before) {
    versions.removeIf(version -> version.number() < before);
  }

  private synchronized List<Version> all() {
    return List.copyOf(versions);
  }
}
