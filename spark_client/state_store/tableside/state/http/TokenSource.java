package tableside.state.http;

import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/**
 * The bearer token of a long-lived client: read initially, at intervals, and after the service rejects it. Never
 * logged.
 *
 * <p>The token comes from a file, or from the environment if no file is configured. While the file cannot be read, the
 * last token remains in use until the service rejects it.
 */
final class TokenSource {
  static final String VARIABLE = "TABLESIDE_TOKEN";

  private final String file;
  private final long reloadIntervalNs;
  private String token;
  private boolean loaded;
  private long loadedNs;

  TokenSource(String file, Duration reloadInterval) {
    this.file = file;
    this.reloadIntervalNs = reloadInterval.toNanos();
  }

  /** The current token, or null if none is configured. */
  synchronized String current() throws AttemptException {
    if (!loaded) {
      reload();
    } else if (System.nanoTime() - loadedNs >= reloadIntervalNs) {
      try {
        reload();
      } catch (AttemptException error) {
        loadedNs = System.nanoTime(); // Wait for the next interval, as after a successful read.
      }
    }
    return token;
  }

  /**
   * Reads the token again and returns whether it differs from the rejected one; another thread may have read it
   * already.
   */
  synchronized boolean hasChangedFrom(String refused) throws AttemptException {
    reload();
    return !Objects.equals(token, refused);
  }

  private void reload() throws AttemptException {
    token = file == null ? checked(System.getenv(VARIABLE), VARIABLE) : checked(text(file), file);
    loaded = true;
    loadedNs = System.nanoTime();
  }

  private static String text(String file) throws AttemptException {
    try {
      return Files.readString(Path.of(file), StandardCharsets.UTF_8);
    } catch (CharacterCodingException error) {
      throw unusable("the token in " + file + " is not text");
    } catch (NoSuchFileException | InvalidPathException error) {
      throw unusable("the token in " + file + " cannot be read: no such file");
    } catch (IOException error) {
      throw unusable("the token in " + file + " cannot be read: " + error.getClass().getSimpleName());
    }
  }

  /** Rejects a token that a header cannot carry. The HTTP library's own error would quote the token. */
  private static String checked(String text, String where) throws AttemptException {
    String token = text == null ? "" : text.strip();
    if (!token.chars().allMatch(character -> character > 0x20 && character < 0x7f)) {
      throw unusable("the token in " + where + " contains characters other than visible ASCII");
    }
    return token.isEmpty() ? null : token;
  }

  private static AttemptException unusable(String detail) {
    return AttemptException.permanent("token_unusable", 0, detail);
  }
}
