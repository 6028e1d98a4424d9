package tableside.state.log;

import java.util.ArrayList;
import java.util.List;

/**
 * The parts of a version: a snapshot, or none, and the deltas after it, in order.
 *
 * @param base null if the deltas start from an empty state
 */
public record Lineage(Base base, List<Delta> deltas) {
  public static final Lineage EMPTY = new Lineage(null, List.of());

  /**
   * A snapshot of a version. `uid` is the identity of the version's commit; `snapshot` names this copy of its state.
   */
  public record Base(long version, String uid, String snapshot, int chunks, String codec) {}

  /** The changes of one commit. */
  public record Delta(long version, String uid, int chunks, String codec) {}

  public Lineage append(Delta delta) {
    List<Delta> longer = new ArrayList<>(deltas);
    longer.add(delta);
    return new Lineage(base, List.copyOf(longer));
  }

  /** The same state, based on a newer snapshot if that is a snapshot of one of these versions. */
  public Lineage rebasedOn(Base newer) {
    if (newer == null || indexOf(newer.version(), newer.uid()) < 0) {
      return this;
    }
    return new Lineage(newer, after(newer.version(), newer.uid()));
  }

  /** Whether the version with this number and identity is one of those in this lineage. */
  public boolean contains(long version, String uid) {
    return indexOf(version, uid) >= 0 || base != null && base.version() == version && base.uid().equals(uid);
  }

  /** The deltas after a version that this lineage contains. */
  public List<Delta> after(long version, String uid) {
    return deltas.subList(indexOf(version, uid) + 1, deltas.size());
  }

  /** For example "the snapshot of version 10, deltas after it: 3". */
  @Override
  public String toString() {
    String start = base == null ? "the empty state" : "the snapshot of version " + base.version();
    return start + ", deltas after it: " + deltas.size();
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
