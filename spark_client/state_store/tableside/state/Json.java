package tableside.state;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;

/** JSON as it comes and goes: members' names are not kept, since some are data; a string may be all of an answer. */
final class Json {
  static final ObjectMapper MAPPER =
      new ObjectMapper(
          JsonFactory.builder()
              .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
              .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
              .streamReadConstraints(
                  StreamReadConstraints.builder().maxStringLength(Service.ANSWER_BYTES_MAX).build())
              .build());

  private Json() {}

  static JsonNode read(InputStream body) throws IOException {
    return MAPPER.readTree(body);
  }

  /** The elements of `results`, one after another, of an answer that must be whole. */
  static List<JsonNode> results(InputStream body) throws IOException {
    List<JsonNode> results = null;
    try (JsonParser parser = MAPPER.createParser(body)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new IOException("no object");
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        boolean wanted = parser.currentName().equals("results");
        if (parser.nextToken() == JsonToken.START_ARRAY && wanted) {
          results = elements(parser);
        } else {
          parser.skipChildren();
        }
      }
      if (parser.currentToken() != JsonToken.END_OBJECT || results == null) throw new IOException("no results");
    }
    return results;
  }

  private static List<JsonNode> elements(JsonParser parser) throws IOException {
    List<JsonNode> elements = new ArrayList<>();
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      if (parser.currentToken() != JsonToken.START_OBJECT) throw new IOException("a result that is no object");
      elements.add(MAPPER.readTree(parser));
    }
    return elements;
  }
}
