package tableside.state;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** A record whose value is read when it is first asked for: what looks at keys only does not read any. */
final class Pair extends UnsafeRowPair {
  /** How a value is come by. */
  interface Source {
    UnsafeRow read() throws IOException, InterruptedException;
  }

  private Source source;

  Pair(UnsafeRow key, Source source) {
    super(key, null);
    this.source = source;
  }

  @Override
  public UnsafeRow value() {
    if (source != null) {
      try {
        super.value_$eq(source.read());
      } catch (IOException | InterruptedException | IllegalStateException error) {
        throw Failures.reading(error);
      }
      source = null;
    }
    return super.value();
  }
}
