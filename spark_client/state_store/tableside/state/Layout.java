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

  private static final String WRITE =
      "; in the service's configuration, `tables: {%s: {store: …, key: {place: string, item: string}}}`";

  /** The layout of a table as the service describes it. A table that would forget, or read late, is refused. */
  static Layout of(JsonNode description, String table) throws Fault {
    JsonNode policies = description.path("policies");
    if (policies.path("ttl_s").asDouble(0) > 0) throw unfit("its records expire (ttl_s)", table);
    boolean late = policies.path("consistency").asText().equals("eventual");
    if (late) throw unfit("its reads may be late (consistency)", table);
    JsonNode fields = description.path("key");
    boolean strings = fields.isArray();
    for (JsonNode field : fields) strings &= field.path("type").asText().equals("string");
    if (strings && fields.size() == 2) return PAIR;
    if (strings && fields.size() == 1) return STRING;
    throw unfit("its keys are neither two strings nor one", table);
  }

  private static Fault unfit(String why, String table) {
    return Fault.lasting("unfit_table", 200, "no table for state: " + why + String.format(WRITE, table));
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
