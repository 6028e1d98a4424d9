package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;

/** Cases for the runner of cases. */
public final class CasesCases {
  private CasesCases() {}

  public static JsonNode echo(JsonNode arguments) {
    return arguments;
  }

  public static void nothing() {}

  public static void thrower() {
    throw new IllegalStateException("as asked");
  }

  public static void sleeper() throws InterruptedException {
    Thread.sleep(60_000);
  }

  public static void ender() {
    Runtime.getRuntime().halt(3);
  }

  public static void asserter() {
    assert System.nanoTime() == 0 : "as asked";
  }
}
