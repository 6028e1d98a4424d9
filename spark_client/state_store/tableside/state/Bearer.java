package tableside.state;

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
 * The token of a client that lives long: read at first, now and then, and when it is refused. Never shown.
 *
 * <p>It comes from a file, or from the environment where no file is named. While a file cannot be read, the token that
 * it held is sent on, until the service refuses it.
 */
final class Bearer {
  static final String VARIABLE = "TABLESIDE_TOKEN";

  private final String file;
  private final long lookAgainNs;
  private String token;
  private boolean read;
  private long readNs;

  Bearer(String file, Duration lookAgain) {
    this.file = file;
    this.lookAgainNs = lookAgain.toNanos();
  }

  /** The token to send now, or null where none is configured. */
  synchronized String current() throws Fault {
    if (!read) {
      renew();
    } else if (System.nanoTime() - readNs >= lookAgainNs) {
      try {
        renew();
      } catch (Fault unread) {
        readNs = System.nanoTime(); // As if it could be read: one look, then a while without.
      }
    }
    return token;
  }

  /** Reads anew: whether there is now another token than the one refused, which another thread may have read. */
  synchronized boolean differsFrom(String refused) throws Fault {
    renew();
    return !Objects.equals(token, refused);
  }

  private void renew() throws Fault {
    token = file == null ? checked(System.getenv(VARIABLE), VARIABLE) : checked(text(file), file);
    read = true;
    readNs = System.nanoTime();
  }

  private static String text(String file) throws Fault {
    try {
      return Files.readString(Path.of(file), StandardCharsets.UTF_8);
    } catch (CharacterCodingException error) {
      throw unusable("the token in " + file + " is no text");
    } catch (NoSuchFileException | InvalidPathException error) {
      throw unusable("the token in " + file + " cannot be read: no such file");
    } catch (IOException error) {
      throw unusable("the token in " + file + " cannot be read: " + error.getClass().getSimpleName());
    }
  }

  /** One that no header can carry is refused here: the HTTP library's own refusal would quote it. */
  private static String checked(String given, String where) throws Fault {
    String token = given == null ? "" : given.strip();
    if (!token.chars().allMatch(character -> character > 0x20 && character < 0x7f)) {
      throw unusable("the token in " + where + " has characters other than visible ASCII ones");
    }
    return token.isEmpty() ? null : token;
  }

  private static Fault unusable(String detail) {
    return Fault.lasting("token_unusable", 0, detail);
  }
}
