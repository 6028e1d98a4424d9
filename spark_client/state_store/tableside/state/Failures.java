package tableside.state;

import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;

/** How trouble with the table is shown to Spark: with the classes of error that its own providers use. */
final class Failures {
  private Failures() {}

  /** State that cannot be read: `CANNOT_LOAD_STATE_STORE`. An interruption stays one: it is how Spark ends a task. */
  static RuntimeException reading(Throwable error) {
    return thrown(error instanceof InterruptedException ? error : StateStoreErrors$.MODULE$.cannotLoadStore(error));
  }

  /** State that cannot be written: `CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT`. */
  static RuntimeException committing(Throwable error) {
    String provider = TablesideStateStoreProvider.class.getName();
    return thrown(
        error instanceof InterruptedException
            ? error
            : QueryExecutionErrors$.MODULE$.failedToCommitStateFileError(provider, error));
  }

  static RuntimeException unexpectedVersion(long version) {
    return thrown(QueryExecutionErrors$.MODULE$.unexpectedStateStoreVersion(version));
  }

  static RuntimeException columnFamilies() {
    return StateStoreErrors$.MODULE$.multipleColumnFamiliesNotSupported(name());
  }

  static RuntimeException noRemovalOfColumnFamilies() {
    return StateStoreErrors$.MODULE$.removingColumnFamiliesNotSupported(name());
  }

  static RuntimeException unsupported(String operation) {
    return StateStoreErrors$.MODULE$.unsupportedOperationException(operation, name());
  }

  private static String name() {
    return TablesideStateStoreProvider.class.getSimpleName();
  }

  /** Throw anything: Spark's interfaces, being Scala's, declare no checked exceptions. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException thrown(Throwable error) throws E {
    throw (E) error;
  }
}
