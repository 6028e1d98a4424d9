package tableside.state;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/**
 * Every record of a version with changes over it, both as they were when this was made: what is changed afterwards
 * neither shows nor disturbs.
 */
final class Records implements Iterator<UnsafeRowPair> {
  private final Entries entries;
  private final Entries changes;
  private final Rows rows;
  private final Rows.Scan scan;
  private int address;
  private boolean inChanges;

  /** @param changes hides entries of the same keys; a removed record is one whose value's length is -1 */
  Records(Entries entries, Entries changes, Rows rows) {
    this.entries = entries;
    this.changes = changes;
    this.rows = rows;
    this.scan = rows.scan(entries);
    this.address = Entries.NONE;
    advance();
  }

  @Override
  public boolean hasNext() {
    return address != Entries.NONE;
  }

  @Override
  public UnsafeRowPair next() {
    if (address == Entries.NONE) {
      throw new NoSuchElementException();
    }
    int at = address;
    Pair pair =
        inChanges
            ? new Pair(rows.key(changes, at), () -> rows.inline(changes, at))
            : new Pair(rows.key(entries, at), () -> scan.value(at));
    advance();
    return pair;
  }

  private void advance() {
    if (!inChanges) {
      do {
        address = entries.next(address);
      } while (address != Entries.NONE && isChanged(address));
      inChanges = address == Entries.NONE;
    }
    if (inChanges) {
      do {
        address = changes.next(address);
      } while (address != Entries.NONE && changes.valueLength(address) < 0);
    }
  }

  private boolean isChanged(int at) {
    return changes.size() > 0
        && changes.find(entries.base(at), entries.keyOffset(at), entries.keyLength(at)) != Entries.NONE;
  }
}
