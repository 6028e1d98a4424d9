package tableside.state;

import java.util.ArrayList;
import java.util.List;

/** The versions of a store that are in memory, the newest last. Not thread-safe. */
final class Versions {
  private final int kept;
  private final List<Version> versions = new ArrayList<>();

  /** @param kept how many at most; 0 keeps none */
  Versions(int kept) {
    this.kept = kept;
  }

  Version newest() {
    return versions.isEmpty() ? null : versions.get(versions.size() - 1);
  }

  Version find(long number, String uid) {
    return versions.stream().filter(version -> version.is(number, uid)).findFirst().orElse(null);
  }

  /** The newest that a lineage passes, or null. */
  Version nearest(Lineage lineage) {
    for (int index = versions.size() - 1; index >= 0; index--) {
      if (lineage.passes(versions.get(index).number(), versions.get(index).uid())) {
        return versions.get(index);
      }
    }
    return null;
  }

  /** Keep a version; what is of the same number or a higher one is of an attempt that has been left behind. */
  void keep(Version version) {
    versions.removeIf(other -> other.number() >= version.number());
    versions.add(version);
    while (versions.size() > kept) {
      versions.remove(0);
    }
  }

  List<Version> all() {
    return List.copyOf(versions);
  }

  void clear() {
    versions.clear();
  }
}
