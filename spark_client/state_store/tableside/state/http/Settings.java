package tableside.state.http;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/** The settings of the state store, validated together: one error lists all invalid settings. */
public record Settings(
    String url, String table, String tokenFile, String caFile, String certificateFile, String keyFile,
    double timeoutS, double deadlineS, boolean bounded, int memoryRecordsMax, long memoryBytesMax, long diskBytesMax,
    int chunkBytesMax, int requestBytesMax, int inFlightMax, int deltasMax) {
  static final String PREFIX = "tableside.state.";

  /** With base64, a chunk of this size stays below 1 MiB, the service's default limit of a value. */
  public static final int CHUNK_BYTES_MAX = 760 << 10;

  /** A manifest describes each delta in at most 200 bytes, so it stays below 1 MiB too. */
  public static final int DELTAS_MAX = 5_000;

  private static final String SPARK_PREFIX = "spark." + PREFIX;
  private static final Pattern TABLE = Pattern.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,127}");

  /**
   * Reads the settings from Hadoop's configuration, into which Spark copies every setting of a session.
   *
   * @throws IllegalArgumentException if any setting is invalid; the message lists all of them
   */
  public static Settings of(Configuration configuration) {
    Map<String, String> given = new TreeMap<>(configuration.getPropsWithPrefix(SPARK_PREFIX));
    given.putAll(configuration.getPropsWithPrefix(PREFIX));
    return new Parser(given).settings();
  }

  /** Collects errors while it parses. Messages show names but no values, since a value may be a misplaced secret. */
  private static final class Parser {
    private final Map<String, String> given;
    private final Set<String> known = new HashSet<>();
    private final List<String> faults = new ArrayList<>();

    Parser(Map<String, String> given) {
      this.given = given;
    }

    Settings settings() {
      String url = url();
      String certificateFile = text("certificate_file");
      String keyFile = text("key_file");
      String caFile = text("ca_file");
      checkTlsFiles(url, caFile, certificateFile, keyFile);
      Settings settings =
          new Settings(
              url,
              table(),
              text("token_file"),
              caFile,
              certificateFile,
              keyFile,
              seconds("timeout_s", 30),
              seconds("deadline_s", 120),
              bounded(),
              (int) whole("memory_records_max", 100_000, 1, Integer.MAX_VALUE),
              whole("memory_bytes_max", 64L << 20, 1, Long.MAX_VALUE),
              whole("disk_bytes_max", 1L << 30, 0, Long.MAX_VALUE),
              (int) whole("chunk_bytes_max", 256 << 10, 1 << 10, CHUNK_BYTES_MAX),
              (int) whole("request_bytes_max", 4 << 20, 1 << 10, 64 << 20),
              (int) whole("in_flight_max", 4, 1, 64),
              (int) whole("deltas_max", 100, 1, DELTAS_MAX));
      checkNames();
      if (!faults.isEmpty()) throw new IllegalArgumentException("the state store: " + String.join("; ", faults));
      return settings;
    }

    /** Reports the names that no setting has read. */
    private void checkNames() {
      for (String name : given.keySet()) {
        if (name.equals("token")) {
          fault(name, "is no setting: a token is read from token_file, or from " + TokenSource.VARIABLE);
        } else if (!known.contains(name)) {
          fault(name, "is not known");
        }
      }
    }

    private String url() {
      String url = required("url");
      if (url == null) return null;
      try {
        URI uri = new URI(url);
        boolean known = "http".equalsIgnoreCase(uri.getScheme()) || "https".equalsIgnoreCase(uri.getScheme());
        boolean plain = uri.getRawUserInfo() == null && uri.getRawQuery() == null && uri.getRawFragment() == null;
        if (known && plain && uri.getHost() != null) {
          String path = uri.getRawPath() == null ? "" : uri.getRawPath().replaceAll("/+$", "");
          return uri.getScheme().toLowerCase(java.util.Locale.ROOT) + "://" + uri.getRawAuthority() + path;
        }
      } catch (URISyntaxException error) {
        // The exception's message would quote the URL, which may contain a password.
      }
      fault("url", "is not http:// or https:// with a host, and without a user, a query and a fragment");
      return null;
    }

    private String table() {
      String table = required("table");
      if (table != null && !TABLE.matcher(table).matches()) {
        fault("table", "is not a letter or digit, then at most 127 of letters, digits, _ . -");
      }
      return table;
    }

    private void checkTlsFiles(String url, String caFile, String certificateFile, String keyFile) {
      if (keyFile != null && certificateFile == null) {
        fault("key_file", "requires certificate_file");
      }
      boolean files = caFile != null || certificateFile != null || keyFile != null;
      if (files && url != null && !url.startsWith("https://")) {
        faults.add("ca_file, certificate_file and key_file require an https:// address");
      }
    }

    private boolean bounded() {
      String memory = text("memory");
      if (memory == null || memory.equals("all")) return false;
      if (!memory.equals("bounded")) fault("memory", "is neither all nor bounded");
      return true;
    }

    private double seconds(String name, double fallback) {
      String text = text(name);
      if (text == null) return fallback;
      try {
        double seconds = Double.parseDouble(text);
        if (seconds >= 0.001 && seconds <= 86_400) return seconds;
      } catch (NumberFormatException error) {
        // Reported below, like a number out of range.
      }
      fault(name, "is not a number of seconds from 0.001 to 86400");
      return fallback;
    }

    private long whole(String name, long fallback, long least, long most) {
      String text = text(name);
      if (text == null) return fallback;
      try {
        long number = Long.parseLong(text);
        if (number >= least && number <= most) return number;
      } catch (NumberFormatException error) {
        // Reported below, like a number out of range.
      }
      fault(name, "is not a whole number from " + least + " to " + most);
      return fallback;
    }

    private String required(String name) {
      String text = text(name);
      if (text == null) fault(name, "is not given");
      return text;
    }

    private String text(String name) {
      known.add(name);
      String text = given.get(name);
      return text == null || text.isBlank() ? null : text.strip();
    }

    private void fault(String name, String fault) {
      faults.add(PREFIX + name + " " + fault);
    }
  }
}
