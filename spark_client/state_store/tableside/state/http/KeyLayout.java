package tableside.state.http;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;

/** The representation of a key in the table: an array of two strings, or one string. */
enum KeyLayout {
  /** An array of place and item. */
  PAIR,
  /** One string: place, a slash, and item. */
  STRING,
  /** The table does not exist yet. As STRING, the layout of a table that the service creates at its first write. */
  ASSUMED;

  private static final String WRITE =
      "; configure the service with `tables: {%s: {store: …, key: {place: string, item: string}}}`";

  /**
   * Returns the layout of a table from the service's description. @throws AttemptException if records expire, reads may
   * be stale, or keys are not strings
   */
  static KeyLayout of(JsonNode description, String table) throws AttemptException {
    JsonNode policies = description.path("policies");
    if (policies.path("ttl_s").asDouble(0) > 0) throw unsuitable("its records expire (ttl_s)", table);
    boolean stale = policies.path("consistency").asText().equals("eventual");
    if (stale) throw unsuitable("its reads may be stale (consistency)", table);
    JsonNode fields = description.path("key");
    boolean strings = fields.isArray();
    for (JsonNode field : fields) strings &= field.path("type").asText().equals("string");
    if (strings && fields.size() == 2) return PAIR;
    if (strings && fields.size() == 1) return STRING;
    throw unsuitable("its keys are neither two strings nor one", table);
  }

  private static AttemptException unsuitable(String why, String table) {
    return AttemptException.permanent("unfit_table", 200, "no table for state: " + why + String.format(WRITE, table));
  }

  void write(Key key, JsonGenerator generator) throws IOException {
    if (this == PAIR) {
      generator.writeStartArray();
      generator.writeString(key.place());
      generator.writeString(key.item());
      generator.writeEndArray();
    } else {
      generator.writeString(key.place() + "/" + key.item());
    }
  }
}
