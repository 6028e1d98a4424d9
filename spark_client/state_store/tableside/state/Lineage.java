package tableside.state;

import java.util.ArrayList;
import java.util.List;

/**
 * What a version is made of: a snapshot, or nothing, and the deltas after it, in order.
 *
 * @param base null where the deltas begin with an empty state
 */
record Lineage(Base base, List<Delta> deltas) {
  static final Lineage EMPTY = new Lineage(null, List.of());

  /** The whole state of a version. `uid` is the commit's whose state it is; `snapshot` names this copy of it. */
  record Base(long version, String uid, String snapshot, int chunks, String codec) {}

  /** What one commit changed. */
  record Delta(long version, String uid, int chunks, String codec) {}

  Lineage then(Delta delta) {
    List<Delta> longer = new ArrayList<>(deltas);
    longer.add(delta);
    return new Lineage(base, List.copyOf(longer));
  }

  /** The same state, from a newer snapshot where that is of one of these versions. */
  Lineage onto(Base newer) {
    if (newer == null || indexOf(newer.version(), newer.uid()) < 0) {
      return this;
    }
    return new Lineage(newer, after(newer.version(), newer.uid()));
  }

  /** Whether the version of this number and identity is one that this goes through. */
  boolean passes(long version, String uid) {
    return indexOf(version, uid) >= 0 || base != null && base.version() == version && base.uid().equals(uid);
  }

  /** The deltas after that version, which this passes. */
  List<Delta> after(long version, String uid) {
    return deltas.subList(indexOf(version, uid) + 1, deltas.size());
  }

  private int indexOf(long version, String uid) {
    for (int index = 0; index < deltas.size(); index++) {
      if (deltas.get(index).version() == version && deltas.get(index).uid().equals(uid)) {
        return index;
      }
    }
    return -1;
  }
}
