package tableside.state;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;

/** How a key is written in the table: as an array of two strings, or as one string. */
enum Layout {
  /** Place and item. */
  PAIR,
  /** Place, a slash, and item. */
  STRING,
  /** As STRING, which a table has that is made at its first write; this one is not there yet. */
  ASSUMED;

  private static final String WANTED =
      "the keys of a table for state are two strings, or one; in the service's configuration, under tables:"
          + " `%s: {store: …, key: {place: string, item: string}}`";

  /** The layout of a table as the service describes it. */
  static Layout of(JsonNode description, String table) throws Fault {
    JsonNode fields = description.path("key");
    boolean strings = fields.isArray();
    for (JsonNode field : fields) strings &= field.path("type").asText().equals("string");
    if (strings && fields.size() == 2) return PAIR;
    if (strings && fields.size() == 1) return STRING;
    throw Fault.lasting("wrong_key", 200, String.format(WANTED, table));
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
