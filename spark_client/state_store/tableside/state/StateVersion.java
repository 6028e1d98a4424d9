package tableside.state;

import tableside.state.log.Lineage;
import tableside.state.memory.Entries;

/**
 * One version of a store's state in memory. Immutable.
 *
 * @param number 0 is the empty state before the first commit
 * @param uid the identity of the commit that created it; null if there was none
 * @param prefixes the prefix index; null if the operator does not scan by prefix
 */
record StateVersion(long number, String uid, Lineage lineage, Entries entries, Entries prefixes) {
  boolean is(long otherNumber, String otherUid) {
    return number == otherNumber && (uid == null ? otherUid == null : uid.equals(otherUid));
  }

  long memoryBytes() {
    return entries.memoryBytes() + (prefixes == null ? 0 : prefixes.memoryBytes());
  }
}
