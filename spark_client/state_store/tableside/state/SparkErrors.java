package tableside.state;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkException;
import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import scala.Predef$;
import scala.jdk.javaapi.CollectionConverters;
import tableside.state.log.StateMissing;

/** Converts failures to the error classes that Spark's own providers use. */
final class SparkErrors {
  private SparkErrors() {}

  /**
   * State cannot be read: `CANNOT_LOAD_STATE_STORE`. Interruptions pass unchanged, because Spark ends tasks with them.
   */
  static RuntimeException reading(Throwable error) {
    if (error instanceof InterruptedException) {
      return sneakyThrow(error);
    }
    Throwable specific = error instanceof StateMissing missing ? missing(missing) : error;
    return sneakyThrow(StateStoreErrors$.MODULE$.cannotLoadStore(specific));
  }

  /** The condition that Spark's own providers use if the corresponding file does not exist. */
  private static SparkException missing(StateMissing error) {
    String condition =
        switch (error.part()) {
          case VERSION -> "CANNOT_READ_STREAMING_STATE_FILE";
          case DELTA -> "CANNOT_READ_DELTA_FILE_NOT_EXISTS";
          case SNAPSHOT -> "CANNOT_READ_MISSING_SNAPSHOT_FILE";
        };
    Map<String, String> parameters = new HashMap<>(Map.of("fileToRead", error.missing()));
    if (error.part() != StateMissing.Part.VERSION) {
      parameters.put("clazz", name());
    }
    return new SparkException(
        "CANNOT_LOAD_STATE_STORE." + condition,
        scala.collection.immutable.Map.from(CollectionConverters.asScala(parameters)),
        error);
  }

  /** Refuses a null value, with the message of Spark's own providers. */
  static void requireValue(Object value) {
    Predef$.MODULE$.require(value != null, () -> "Cannot put a null value");
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
