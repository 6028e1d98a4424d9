package tableside.state;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import tableside.state.memory.Entries;

/** Iterates over the records of a version overlaid with changes. It is isolated from later changes. */
final class RecordIterator implements Iterator<UnsafeRowPair> {
  private final Entries entries;
  private final Entries changes;
  private final RowReader rows;
  private final RowReader.Scan scan;
  private int address;
  private boolean inChanges;

  /** @param changes override entries with the same keys; a value length of -1 marks a removed record */
  RecordIterator(Entries entries, Entries changes, RowReader rows) {
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
    LazyPair pair =
        inChanges
            ? new LazyPair(rows.key(changes, at), () -> rows.inline(changes, at))
            : new LazyPair(rows.key(entries, at), () -> scan.value(at));
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
