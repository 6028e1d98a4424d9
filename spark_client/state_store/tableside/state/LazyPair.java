package tableside.state;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** A record that reads its value on first access, so that scans of keys read no values. */
final class LazyPair extends UnsafeRowPair {
  /** Reads the value. */
  interface ValueSource {
    UnsafeRow read() throws IOException, InterruptedException;
  }

  private ValueSource source;

  LazyPair(UnsafeRow key, ValueSource source) {
    super(key, null);
    this.source = source;
  }

  @Override
  public UnsafeRow value() {
    if (source != null) {
      try {
        super.value_$eq(source.read());
      } catch (IOException | InterruptedException | IllegalStateException error) {
        throw SparkErrors.reading(error);
      }
      source = null;
    }
    return super.value();
  }
}
