package tableside.state;

import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.immutable.Map$;

/** The Spark context of this JVM, and the task contexts that a state store reads. */
final class LocalSpark {
  private static StateStoreCoordinatorRef coordinator;

  private LocalSpark() {}

  static synchronized SparkContext context() {
    SparkContext context = Cases.spark().sparkContext();
    if (coordinator == null) {
      coordinator = StateStoreCoordinatorRef.forDriver(SparkEnv.get(), new SQLConf());
    }
    return context;
  }

  /** Runs an action in the task attempt with this number. Numbers increase while a Spark context runs. */
  static <T> T inTask(long attempt, Callable<T> work) throws Exception {
    TaskContext before = TaskContext.get();
    TaskContext$.MODULE$.setTaskContext(task(attempt));
    try {
      return work.call();
    } finally {
      if (before == null) {
        TaskContext$.MODULE$.unset();
      } else {
        TaskContext$.MODULE$.setTaskContext(before);
      }
    }
  }

  private static TaskContext task(long attempt) {
    return new TaskContextImpl(
        0,
        0,
        0,
        attempt,
        (int) attempt,
        2,
        null,
        new Properties(),
        null,
        new TaskMetrics(),
        scala.math.BigDecimal$.MODULE$.int2bigDecimal(1),
        Map$.MODULE$.empty());
  }
}
