package tableside.state;

import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;

/** Converts failures to the error classes that Spark's own providers use. */
final class SparkErrors {
  private SparkErrors() {}

  /**
   * State cannot be read: `CANNOT_LOAD_STATE_STORE`. Interruptions pass unchanged, because Spark ends tasks with them.
   */
  static RuntimeException reading(Throwable error) {
    return sneakyThrow(
        error instanceof InterruptedException ? error : StateStoreErrors$.MODULE$.cannotLoadStore(error));
  }

  /** State cannot be written: `CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT`. */
  static RuntimeException committing(Throwable error) {
    String provider = TablesideStateStoreProvider.class.getName();
    return sneakyThrow(
        error instanceof InterruptedException
            ? error
            : QueryExecutionErrors$.MODULE$.failedToCommitStateFileError(provider, error));
  }

  static RuntimeException unexpectedVersion(long version) {
    return sneakyThrow(QueryExecutionErrors$.MODULE$.unexpectedStateStoreVersion(version));
  }

  static RuntimeException columnFamilies() {
    return StateStoreErrors$.MODULE$.multipleColumnFamiliesNotSupported(name());
  }

  static RuntimeException columnFamilyRemoval() {
    return StateStoreErrors$.MODULE$.removingColumnFamiliesNotSupported(name());
  }

  static RuntimeException unsupported(String operation) {
    return StateStoreErrors$.MODULE$.unsupportedOperationException(operation, name());
  }

  private static String name() {
    return TablesideStateStoreProvider.class.getSimpleName();
  }

  /** Throws checked exceptions undeclared, because Spark's Scala interfaces declare none. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneakyThrow(Throwable error) throws E {
    throw (E) error;
  }
}
