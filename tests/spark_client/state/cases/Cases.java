package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.launcher.JavaModuleOptions;
import org.apache.spark.sql.SparkSession;

/**
 * Runs cases. Each line of input is a JSON request, {@code {"class", "method", "arguments"}}; each line of output is a
 * response, {@code {"ok": …}} or {@code {"error": …}}. A case is a public static method with the arguments as its
 * only parameter, or without parameters.
 */
public final class Cases {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Cases() {}

  /** Prints the JVM options that Spark needs if the argument is {@code options}; otherwise serves requests. */
  public static void main(String[] arguments) throws InterruptedException {
    if (Arrays.asList(arguments).contains("options")) {
      System.out.print(JavaModuleOptions.defaultModuleOptions());
      return;
    }
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // output of a case must not mix with the answers
    BlockingQueue<String> asked = new LinkedBlockingQueue<>();
    Thread reader = new Thread(() -> read(asked), "cases");
    reader.setDaemon(true);
    reader.start();
    while (true) {
      answers.println(answer(asked.take()));
    }
  }

  /** Returns the session of this process; creates it at the first call. */
  public static synchronized SparkSession spark() {
    return SparkSession.builder()
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate();
  }

  private static void read(BlockingQueue<String> asked) {
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        asked.add(line);
      }
    } catch (java.io.IOException error) {
      error.printStackTrace();
    }
    Runtime.getRuntime().halt(0); // the parent process has ended
  }

  private static String answer(String line) {
    ObjectNode answer = JSON.createObjectNode();
    try {
      JsonNode asked = JSON.readTree(line);
      answer.set("ok", JSON.valueToTree(run(asked)));
    } catch (Throwable error) {
      StringWriter trace = new StringWriter();
      Throwable cause = error instanceof InvocationTargetException && error.getCause() != null ? error.getCause() : error;
      cause.printStackTrace(new PrintWriter(trace));
      answer.put("error", trace.toString());
    }
    return answer.toString();
  }

  private static Object run(JsonNode asked) throws ReflectiveOperationException {
    Class<?> cases = Class.forName(asked.path("class").asText());
    String name = asked.path("method").asText();
    for (Method method : cases.getDeclaredMethods()) {
      if (method.getName().equals(name) && method.getParameterCount() <= 1) {
        method.setAccessible(true);
        return method.getParameterCount() == 0 ? method.invoke(null) : method.invoke(null, asked.path("arguments"));
      }
    }
    throw new NoSuchMethodException(cases.getName() + "." + name);
  }
}
