package tableside.state;

/**
 * One version of a store's state, in memory. Immutable.
 *
 * @param number 0 is the empty state before the first commit
 * @param uid the identity of the commit that made it; null where none did
 * @param prefixes the keys by their prefix; null where the operator does not scan by prefix
 */
record Version(long number, String uid, Lineage lineage, Entries entries, Entries prefixes) {
  boolean is(long otherNumber, String otherUid) {
    return number == otherNumber && (uid == null ? otherUid == null : uid.equals(otherUid));
  }

  long memoryBytes() {
    return entries.memoryBytes() + (prefixes == null ? 0 : prefixes.memoryBytes());
  }
}
