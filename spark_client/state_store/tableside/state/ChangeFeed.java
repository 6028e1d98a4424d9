package tableside.state;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RecordType$;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Tuple4;
import tableside.state.log.Block;
import tableside.state.log.ChunkReader;
import tableside.state.log.Lineage;
import tableside.state.log.StateLog;

/** Iterates over the changes of successive commits: kind of change, key, value (null if removed) and batch. */
final class ChangeFeed extends NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> {
  private final StateLog log;
  private final int keyFields;
  private final int valueFields;
  private final Iterator<Lineage.Delta> deltas;
  private final ArrayDeque<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> block = new ArrayDeque<>();
  private Lineage.Delta delta;
  private ChunkReader reader;

  ChangeFeed(StateLog log, int keyFields, int valueFields, List<Lineage.Delta> deltas) {
    this.log = log;
    this.keyFields = keyFields;
    this.valueFields = valueFields;
    this.deltas = deltas.iterator();
  }

  @Override
  public Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> getNext() {
    try {
      while (block.isEmpty()) {
        byte[] next = reader == null ? null : reader.next();
        if (next != null) {
          Block.visit(next, this::keep);
        } else if (deltas.hasNext()) {
          delta = deltas.next();
          reader = log.delta(delta);
        } else {
          finished_$eq(true);
          return null;
        }
      }
      return block.poll();
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.reading(error);
    }
  }

  @Override
  public void close() {
    if (reader != null) {
      reader.cancel();
    }
  }

  private void keep(byte[] bytes, int keyAt, int keyLength, int valueAt, int valueLength) {
    boolean removed = valueLength == Block.REMOVED;
    RecordType$ types = RecordType$.MODULE$;
    block.add(
        new Tuple4<>(
            removed ? types.DELETE_RECORD() : types.PUT_RECORD(),
            row(keyFields, bytes, keyAt, keyLength),
            removed ? null : row(valueFields, bytes, valueAt, valueLength),
            delta.version() - 1));
  }

  private static UnsafeRow row(int fields, byte[] bytes, int at, int length) {
    UnsafeRow row = new UnsafeRow(fields);
    row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + (long) at, length);
    return row;
  }
}
